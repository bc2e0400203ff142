"""Files are whole or not there, and a shared file never changes the kept one."""

import errno
import json
import os
import resource

import numpy as np
import pytest

from labeldeconv.stages import files
from labeldeconv.stages.files import (
    checksum,
    is_sealed,
    make_read_only,
    map_array,
    sealed,
    share,
    write_array,
    write_json,
    write_text,
)


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


def test_the_superuser_gets_links_only_where_they_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_reflink", lambda source, target: False)
    monkeypatch.setattr(files.os, "access", lambda path, mode: True)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "own").write_text("1")
    (tmp_path / "kept" / "read_only").write_text("1")
    (tmp_path / "kept" / "read_only").chmod(0o444)
    for superuser_links in (False, True):
        target = tmp_path / f"run{superuser_links}"
        share(tmp_path / "kept", target, superuser_links)
        assert (tmp_path / "kept" / "read_only").samefile(target / "read_only") == superuser_links
        assert not (tmp_path / "kept" / "own").samefile(target / "own")


@pytest.mark.parametrize("shape", [(5, 3), (0, 3), (4, 2, 2)])
def test_a_mapped_array_has_all_its_blocks(tmp_path, shape):
    values = map_array(tmp_path / "a.npy", shape, np.float16)
    assert values.shape == shape
    values[...] = 2
    values.flush()
    read = np.load(tmp_path / "a.npy")
    assert read.dtype == np.float16
    assert (read == 2).all()
    assert (tmp_path / "a.npy").stat().st_blocks * 512 >= values.nbytes


def test_a_full_disk_is_an_error_and_no_sigbus(tmp_path):
    """A limit of the file's size stands for the full disk; without its blocks a memory map kills the process."""
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        try:
            map_array(tmp_path / "a.npy", (1 << 20,), np.float32)[:] = 1
            os._exit(2)
        except OSError as error:
            os._exit(0 if error.filename == str(tmp_path / "a.npy") and error.errno == errno.EFBIG else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_file_system_that_takes_no_blocks_ahead(tmp_path, monkeypatch):
    def cannot(*_):
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", cannot)
    assert (map_array(tmp_path / "a.npy", (5, 3), np.float32) == 0).all()
    monkeypatch.setattr(os, "posix_fallocate", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(OSError, match="full") as caught:
        map_array(tmp_path / "b.npy", (5, 3), np.float32)
    assert caught.value.filename == str(tmp_path / "b.npy")


def test_a_seal_finds_every_change():
    value = sealed({"a": 1, "b": {"2": [0.1, None]}, 3: "x"})
    read = json.loads(json.dumps(value))
    assert is_sealed(read)
    for change in ({"a": 2}, {"c": 0}, {"checksum": "0"}, {"3": "y"}):
        assert not is_sealed({**read, **change})
    assert not is_sealed({"a": 1})


def test_arrays_are_whole_or_not_there(tmp_path, monkeypatch):
    write_array(tmp_path / "a.npy", np.arange(3))

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        write_array(tmp_path / "a.npy", np.arange(4))
    assert np.load(tmp_path / "a.npy").tolist() == [0, 1, 2]
