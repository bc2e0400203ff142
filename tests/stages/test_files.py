"""Files are whole or not there, and a shared file never changes the kept one."""

import json
import os

import numpy as np
import pytest

from labeldeconv.stages import files
from labeldeconv.stages.files import checksum, make_read_only, share, write_json, write_text


def test_json_and_text(tmp_path):
    write_json(tmp_path / "a.json", {"ü": 1})
    assert json.loads((tmp_path / "a.json").read_text()) == {"ü": 1}
    write_text(tmp_path / "a.json", "x")
    assert (tmp_path / "a.json").read_text() == "x"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json"]


def test_checksum_follows_content(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 100)
    (tmp_path / "b").write_bytes(b"x" * 100)
    (tmp_path / "c").write_bytes(b"x" * 99 + b"y")
    a, b, c = (checksum(tmp_path / name) for name in "abc")
    assert a == b != c


def test_writing_to_a_shared_file_never_reaches_the_kept_one(tmp_path):
    kept = tmp_path / "kept"
    (kept / "sub").mkdir(parents=True)
    np.save(kept / "sub" / "x.npy", np.zeros(4))
    make_read_only(kept)
    share(kept, tmp_path / "run")
    try:
        held = np.load(tmp_path / "run" / "sub" / "x.npy", mmap_mode="r+")
        held[:] = 7
        held.flush()
    except PermissionError:  # a read-only link: nobody but the superuser could write
        assert not os.access(tmp_path / "run" / "sub" / "x.npy", os.W_OK)
    np.testing.assert_array_equal(np.load(kept / "sub" / "x.npy"), np.zeros(4))


def test_a_writable_file_is_never_linked(tmp_path):
    (tmp_path / "a").write_text("1")
    share(tmp_path / "a", tmp_path / "b")
    (tmp_path / "b").write_text("2")
    assert (tmp_path / "a").read_text() == "1"


@pytest.mark.parametrize("writable", [True, False])
def test_without_reflinks_only_a_file_that_nobody_can_write_is_linked(tmp_path, monkeypatch, writable):
    """The superuser may write everywhere, so that the answer of `os.access` is given here."""
    monkeypatch.setattr(files, "_reflink", lambda source, target: False)
    monkeypatch.setattr(files.os, "access", lambda path, mode: writable)
    (tmp_path / "a").write_text("1")
    share(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_text() == "1"
    assert (tmp_path / "a").samefile(tmp_path / "b") == (not writable)
