"""The cache trusts no file: stages are whole, checked, read-only, and made again when they are broken."""

import errno
import json
import logging
import os
import shutil
import time
from pathlib import Path

import pytest

from labeldeconv.errors import StorageError
from labeldeconv.stages import cache as module
from labeldeconv.stages.cache import MANIFEST, Broken, Cache, check_files, read_manifest
from labeldeconv.stages.files import checksum


def make(cache, key="k", text="content"):
    def build(folder):
        (folder / "sub").mkdir(exist_ok=True)
        (folder / "a.txt").write_text(text)
        (folder / "sub" / "b.txt").write_text("inner")
        return {"key": key, "values": {"x": 1}}

    return cache.obtain("demo", key, build)


def test_files_are_listed_and_read_only(tmp_path):
    path, manifest, cached = make(Cache(tmp_path))
    assert not cached
    assert set(manifest["files"]) == {"a.txt", "sub/b.txt"}
    assert manifest["files"]["a.txt"][0] == 7
    assert all(p.stat().st_mode & 0o222 == 0 for p in path.rglob("*") if p.is_file())
    assert make(Cache(tmp_path))[2]


def test_a_failed_attempt_leaves_its_work_but_no_stage(tmp_path):
    cache = Cache(tmp_path)

    def fail(folder):
        (folder / "half").write_text("x")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        cache.obtain("demo", "k", fail)
    assert cache.stages() == []

    def resume(folder):
        assert (folder / "half").read_text() == "x"
        return {}

    cache.obtain("demo", "k", resume)
    assert [kept.key for kept in cache.stages()] == ["k"]
    assert not list(tmp_path.glob("*/*.partial"))


def test_killed_between_manifest_and_rename(tmp_path):
    path, _, _ = make(Cache(tmp_path))
    path.rename(path.with_name("k.partial"))

    def build(folder):
        raise AssertionError("finished work is not done again")

    assert Cache(tmp_path).obtain("demo", "k", build)[0] == path


@pytest.mark.parametrize(
    "damage",
    [
        "no manifest",
        "empty manifest",
        "other format",
        "missing",
        "truncated",
        "empty folder",
        "flipped",
        "flipped manifest",
        "another stage's",
    ],
)
def test_a_broken_stage_is_made_again_with_a_word(tmp_path, caplog, damage):
    cache = Cache(tmp_path)
    path, _, _ = make(cache)
    manifest = path / MANIFEST
    for file in path.rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)
    if damage == "no manifest":
        manifest.unlink()
    elif damage == "empty manifest":
        manifest.write_text("")
    elif damage == "other format":
        manifest.write_text(json.dumps({"format": 1, "files": {}}))
    elif damage == "missing":
        (path / "sub" / "b.txt").unlink()
    elif damage == "truncated":
        os.truncate(path / "a.txt", 3)
    elif damage == "flipped":
        (path / "a.txt").write_text("contenT")
    elif damage == "flipped manifest":
        manifest.write_text(manifest.read_text().replace('"x": 1', '"x": 2'))
    elif damage == "another stage's":
        shutil.rmtree(path)
        make(cache, "other")[0].rename(path)
    else:
        for file in (manifest, path / "a.txt", path / "sub" / "b.txt"):
            file.unlink()
    with caplog.at_level(logging.WARNING, "labeldeconv"):
        again, _, cached = make(cache)
    assert not cached
    assert (again / "a.txt").read_text() == "content"
    assert "is broken" in caplog.text
    assert "computed again" in caplog.text


def test_a_flipped_byte_is_found_by_verify(tmp_path):
    cache = Cache(tmp_path)
    path, manifest, _ = make(cache)
    assert cache.verify() == []
    (path / "a.txt").chmod(0o644)
    (path / "a.txt").write_text("contenT")
    [(kept, why)] = cache.verify()
    assert (kept.key, why) == ("k", "a.txt has another content than when it was written")
    check_files(path, manifest)  # sizes are right
    with pytest.raises(Broken):
        check_files(path, read_manifest(path), content=True)


def test_used_by_and_pruning(tmp_path):
    cache = Cache(tmp_path / "cache")
    for key in ("old", "shared", "own"):
        make(cache, key)
    past = time.time() - 10 * 86_400
    os.utime(cache.root / "demo" / "old" / MANIFEST, (past, past))
    for name, keys in (("run1", ["shared", "own"]), ("run2", ["shared"])):
        (tmp_path / name).mkdir()
        cache.remember(tmp_path / name, keys)
    kept = {k.key: k for k in cache.stages()}
    assert set(kept["shared"].used_by) == {str(tmp_path / "run1"), str(tmp_path / "run2")}
    assert kept["old"].days == pytest.approx(10, abs=0.1)
    assert kept["own"].bytes > 12
    assert [k.key for k in cache.prune(older_than_days=5)] == ["old"]
    assert [k.key for k in cache.prune(run=tmp_path / "run1")] == ["own"]
    assert [k.key for k in cache.prune(keep_bytes=0)] == ["shared"]
    assert cache.stages() == []
    assert not list(Path(cache.root).glob("demo/*"))


def test_a_run_that_is_gone_uses_nothing(tmp_path):
    cache = Cache(tmp_path / "cache")
    make(cache)
    cache.remember(tmp_path / "gone", ["k"])
    assert cache.stages()[0].used_by == []


def test_content_is_compared_once_per_process(tmp_path, monkeypatch):
    cache, read = Cache(tmp_path), []
    path, _, _ = make(cache)
    monkeypatch.setattr(module, "checksum", lambda p: (read.append(p.name), checksum(p))[1])
    assert make(cache)[2]
    assert read == []  # this process has written it
    monkeypatch.setattr(module, "_SEEN", {})
    assert make(cache)[2]
    assert make(cache)[2]
    assert sorted(read) == ["a.txt", "b.txt"]
    (path / "a.txt").chmod(0o644)
    (path / "a.txt").write_text("contenT")
    assert not make(cache)[2]


def test_only_what_the_artefact_names_is_kept(tmp_path):
    def build(folder):
        for name in ("log.txt", "checkpoint", "half.tmp"):
            (folder / name).write_text(name)
        return {"arrays": [], "paths": {"log": "log.txt"}}

    path, manifest, _ = Cache(tmp_path).obtain("demo", "k", build)
    assert sorted(p.name for p in path.iterdir()) == ["log.txt", MANIFEST]
    assert list(manifest["files"]) == ["log.txt"]


def test_a_killed_clean_up_is_finished_by_the_next_run(tmp_path, monkeypatch):
    """Everything that an attempt needs to go on is there until the manifest is."""
    cache = Cache(tmp_path)

    def build(folder):
        (folder / "log.txt").write_text("log")
        (folder / "checkpoint").write_text("c")
        return {"arrays": [], "paths": {"log": "log.txt"}}

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "make_read_only", killed)
    with pytest.raises(KeyboardInterrupt):
        cache.obtain("demo", "k", build)
    monkeypatch.undo()
    path, _, _ = cache.obtain("demo", "k", lambda folder: pytest.fail("it was complete"))
    assert sorted(p.name for p in path.iterdir()) == ["log.txt", MANIFEST]


@pytest.mark.parametrize(
    ("number", "told"),
    [(errno.ENOSPC, "the disk is full; make room"), (errno.EROFS, "read-only"), (errno.EIO, "the disk fails")],
)
def test_an_error_of_the_disk_is_told_with_its_place(tmp_path, number, told):
    def build(folder):
        raise OSError(number, os.strerror(number))  # as write() does: without a name

    with pytest.raises(StorageError, match=rf"demo/k: .*{told}.*LABELDECONV_CACHE"):
        Cache(tmp_path).obtain("demo", "k", build)


def test_a_file_where_the_cache_is_meant(tmp_path):
    (tmp_path / "cache").write_text("")
    with pytest.raises(StorageError, match="a file stands where a folder is meant"):
        make(Cache(tmp_path / "cache"))


def test_somebody_else_s_cache_is_named(tmp_path):
    """Files of mode 0600 that another user owns."""
    path, _, _ = make(Cache(tmp_path / "cache"))
    for folder in (tmp_path, *tmp_path.parents):
        if "pytest" in str(folder):  # pytest's own folders, one more of them under xdist
            folder.chmod(0o755)
    for file, told in (("a.txt", "a.txt"), (MANIFEST, MANIFEST)):
        (path / file).chmod(0)
        child = os.fork()
        if not child:
            try:
                if os.getuid() == 0:
                    os.setuid(65534)
                module._SEEN.clear()
                make(Cache(tmp_path / "cache"))
                os._exit(2)
            except StorageError as error:
                said = str(error)
                right = f"{told}: this user may not read it" in said and "LABELDECONV_CACHE=FOLDER" in said
                os._exit(0 if right else 1)
            except BaseException:
                os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, file
        (path / file).chmod(0o444)


def test_a_run_that_the_cache_cannot_note_is_complete(tmp_path, caplog):
    (tmp_path / "runs").write_text("in the way")
    Cache(tmp_path).remember(tmp_path / "run", ["k"])
    assert "the run is complete, but the cache does not know of it" in caplog.text


def test_manifests_come_last_used_first_and_broken_ones_not_at_all(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SEEN", {})
    cache = Cache(tmp_path)
    for age, key in enumerate(["old", "older", "broken"]):
        path, _, _ = make(cache, key)
        os.utime(path / MANIFEST, (1e9 - age, 1e9 - age))
    assert [key for key, _ in cache.manifests("demo")] == ["old", "older", "broken"]
    (path / MANIFEST).unlink()
    (path / MANIFEST).write_text("{}")
    (tmp_path / "demo" / "half.partial").mkdir()
    assert [key for key, _ in cache.manifests("demo")] == ["old", "older"]
    assert cache.manifests("nothing") == []
    assert cache.usable("demo", "old")[1]["values"] == {"x": 1}
    assert cache.usable("demo", "broken") is None
    assert cache.usable("demo", "none") is None
    damaged = tmp_path / "demo" / "older" / "a.txt"
    damaged.unlink()
    damaged.write_text("contend")
    assert cache.usable("demo", "older") is None
