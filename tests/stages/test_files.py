"""Files are whole or not there, and a shared file never changes the kept one."""

import json
import os

import numpy as np
import pytest

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


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere, so that files are copied")
def test_a_read_only_file_is_linked_or_cloned(tmp_path):
    (tmp_path / "a").write_text("1")
    (tmp_path / "a").chmod(0o444)
    share(tmp_path / "a", tmp_path / "b")
    same = (tmp_path / "a").stat().st_ino == (tmp_path / "b").stat().st_ino
    assert same or (tmp_path / "b").read_text() == "1"
