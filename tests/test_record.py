import json

import pytest

from labeldeconv.record import Cache, content_key, link


def test_stage_is_built_once_and_keyed_by_content(tmp_path):
    cache, calls = Cache(tmp_path), []

    def build(folder):
        calls.append(folder)
        (folder / "x.txt").write_text("1")
        return {"score": 0.5}

    first = cache.stage("demo", {"a": 1}, build)
    second = cache.stage("demo", {"a": 1}, build)
    other = cache.stage("demo", {"a": 2}, build)
    assert len(calls) == 2
    assert (first.cached, second.cached, other.cached) == (False, True, False)
    assert second.info == {"score": 0.5}
    assert first.path == second.path != other.path
    assert json.loads((first.path / "stage.json").read_text())["parts"] == {"a": 1}
    assert first.seconds >= 0
    assert first.peak_mib is None or first.peak_mib > 1


def test_failed_build_leaves_its_work_but_no_stage(tmp_path):
    cache = Cache(tmp_path)

    def fail(folder):
        (folder / "half").write_text("x")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        cache.stage("demo", {}, fail)

    def resume(folder):
        assert (folder / "half").read_text() == "x"
        return {"seconds": 12.5}

    stage = cache.stage("demo", {}, resume)
    assert stage.seconds == 12.5
    assert [p.name for p in (tmp_path / "demo").iterdir() if p.is_dir()] == [stage.key]


def test_content_key_ignores_order():
    assert content_key({"a": 1, "b": 2}) == content_key({"b": 2, "a": 1}) != content_key({"a": 1, "b": 3})


def test_link_replaces(tmp_path):
    (tmp_path / "source" / "sub").mkdir(parents=True)
    (tmp_path / "source" / "sub" / "f").write_text("new")
    (tmp_path / "target" / "sub").mkdir(parents=True)
    (tmp_path / "target" / "sub" / "f").write_text("old")
    link(tmp_path / "source", tmp_path / "target")
    assert (tmp_path / "target" / "sub" / "f").read_text() == "new"
