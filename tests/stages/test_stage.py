"""A stage is a function: computed once, keyed by its arguments, narrow in what it sees, typed in what it gives."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
import torch

from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.runs.fit import fit
from labeldeconv.settings.models import TrainConfig
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.keys import Idle, Reads, Younger
from labeldeconv.stages.stage import Artefact, Folder, current_cache, session, stage

calls: list[str] = []


@dataclass(frozen=True, eq=False)
class Numbers(Artefact):
    values: np.ndarray
    note: Path
    mean: float


@stage(version=1)
def numbers(
    out: Folder,
    graph: Annotated[AttributedGraph, Reads("edges", "num_nodes")],
    factor: float,
    settings: Annotated[TrainConfig, Reads("lr")] = TrainConfig(),  # noqa: B008
    device: Annotated[torch.device, Idle] = torch.device("cpu"),
) -> Numbers:
    calls.append(out.label)
    values = np.bincount(graph.edges[1], minlength=graph.num_nodes) * factor * settings.lr
    (out.path / "note.txt").write_text("made")
    return Numbers(values, out.path / "note.txt", float(values.mean()))


@stage(version=1)
def doubled(out: Folder, given: Numbers) -> Numbers:
    (out.path / "note.txt").write_text("doubled")
    return Numbers(2 * given.values, out.path / "note.txt", 2 * given.mean)


@stage(version=1)
def peeking(out: Folder, graph: Annotated[AttributedGraph, Reads("edges")]) -> Numbers:
    return Numbers(np.asarray(graph.labels), out.path, 0.0)


@pytest.fixture(autouse=True)
def _fresh():
    calls.clear()


def test_computed_once_and_opened_typed(small_graph):
    first, second = numbers(small_graph, 2.0), numbers(small_graph, 2.0)
    assert len(calls) == 1
    assert (first.made.cached, second.made.cached) == (False, True)
    assert isinstance(second, Numbers)
    assert isinstance(second.values, np.memmap)
    np.testing.assert_array_equal(first.values, second.values)
    assert second.note.read_text() == "made"
    assert second.mean == first.mean
    assert second.made.stage == "numbers"


def test_only_what_is_read_changes_the_key(small_graph):
    key = numbers.key(small_graph, 2.0)
    other_labels = replace(small_graph, labels=small_graph.labels[::-1].copy())
    other_edges = replace(small_graph, edges=small_graph.edges[:, :-1])
    assert numbers.key(other_labels, 2.0) == key
    assert numbers.key(other_edges, 2.0) != key
    assert numbers.key(small_graph, 3.0) != key
    assert numbers.key(small_graph, 2.0, TrainConfig(epochs=9)) == key
    assert numbers.key(small_graph, 2.0, TrainConfig(lr=1.0)) != key
    assert numbers.key(small_graph, factor=2.0, device=torch.device("meta")) == key


def test_what_is_not_declared_cannot_be_read(small_graph):
    with pytest.raises(AttributeError, match="reads edges of AttributedGraph, not 'labels'"):
        peeking(small_graph)


def test_versions_reach_every_later_stage(small_graph, monkeypatch):
    before = doubled.key(numbers(small_graph, 2.0))
    monkeypatch.setattr(numbers, "version", 2)
    after = numbers(small_graph, 2.0)
    assert not after.made.cached
    assert doubled.key(after) != before


def test_the_account_of_a_session(small_graph, tmp_path):
    with session(Cache(tmp_path / "here")) as account:
        first = numbers.called("first")(small_graph, 2.0)
        again = numbers(small_graph, 2.0)
        other = numbers.called("first")(small_graph, 3.0)
    assert again is first
    assert [use.label for use in account.used] == ["first", "first 2"]
    assert not any(use.artefact.made.cached for use in account.used)
    assert account.used[0].reads >= {"settings.lr", "graph.edges", "graph.num_nodes"}
    assert other.made.path.is_relative_to(tmp_path / "here")
    with session(Cache(tmp_path / "here")) as later:
        numbers(small_graph, 2.0)
    assert [use.artefact.made.cached for use in later.used] == [True]


def test_the_peak_of_accelerators_is_kept_with_the_stage(small_graph, monkeypatch):
    """None without one; with one what the stage used when it was computed, also if it is taken from the cache."""
    assert numbers(small_graph, 1.0).made.peak_accelerator_mib is None
    asked = iter([123.0, 456.0])
    monkeypatch.setattr("labeldeconv.stages.stage.peak_accelerator_mib", lambda: next(asked))
    for _ in range(2):
        assert numbers(small_graph, 3.0).made.peak_accelerator_mib == 123.0
    assert next(asked) == 456.0


@dataclass(frozen=True, eq=False)
class Sum(Artefact):
    total: float
    seconds: float
    peak_mib: float


@stage(version=1)
def composed(out: Folder, graph: AttributedGraph) -> Sum:
    with session(current_cache()) as inside:
        total = sum(numbers(graph, factor).mean for factor in (1.0, 2.0))
    return Sum(total, float(len(inside.used)), 77.0)


def test_a_stage_made_of_others_accounts_for_them_itself(small_graph, tmp_path):
    """They are kept in the same cache, and are no stages of the run; time and memory are what it says."""
    with session(Cache(tmp_path / "here")) as account:
        made = composed(small_graph).made
        assert current_cache().root == tmp_path / "here"
    assert [use.label for use in account.used] == ["composed"]
    assert (made.seconds, made.peak_mib) == (2.0, 77.0)
    assert len(list((tmp_path / "here" / "numbers").iterdir())) == 2


def test_a_cache_behind_a_link(tmp_path):
    """A memory-mapped result is the file that the stage wrote, by whatever name: it was once cut off and lost."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "disk")
    for name in ("cache", "other"):
        given = {"encoder": "tiny", "gnn__epochs": 2, "gnn__hidden": 8}
        fit("planted:40", "pne", out=tmp_path / f"run-{name}", cache=tmp_path / name, **given)
    first, second = ((tmp_path / f"run-{name}" / "logits.npy").read_bytes() for name in ("cache", "other"))
    assert first == second


def test_kept_results_are_found_by_some_of_their_arguments(small_graph):
    first, second = numbers(small_graph, 2.0), numbers(small_graph, 3.0)
    assert {key for key, _ in numbers.kept()} == {first.made.key, second.made.key}
    ((key, held),) = numbers.kept(factor=3.0)
    assert key == second.made.key
    assert held["factor"] == 3.0
    assert list(numbers.kept(factor=4.0)) == []
    opened = numbers.opened(key)
    np.testing.assert_array_equal(opened.values, second.values)
    assert opened.made.key == key
    assert numbers.opened("0" * 24) is None
    newer = stage(version=2)(numbers.function)
    assert list(newer.kept()) == []


def test_an_argument_added_later_changes_no_key_until_it_is_used():
    def older(out: Folder, factor: float) -> Numbers: ...

    def newer(out: Folder, factor: float, loss: Annotated[str, Younger] = "mse") -> Numbers: ...

    newer.__name__ = newer.__qualname__ = older.__name__
    before, after = stage(version=1)(older), stage(version=1)(newer)
    assert before.key(2.0) == after.key(2.0) == after.key(2.0, "mse") != after.key(2.0, "huber")
