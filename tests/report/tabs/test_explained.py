"""Explanations in the page: a bounded number, of true contributions; runs that cannot be restored have none."""

import numpy as np
import pytest

from labeldeconv import Predictor, fit, planted
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.registry import trusting
from labeldeconv.report.source import open_source
from labeldeconv.report.tabs import explained as module
from labeldeconv.report.tabs.explained import explained
from labeldeconv.report.tabs.nodes import nodes
from tests.report.run_writing import ring, write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explained")
    quick = {"encoder": "tiny", "gnn__epochs": 3, "gnn__hidden": 8, "encoder__max_tokens": 16}
    fit(planted(80, seed=0).graph, method="pne", out=folder / "run", cache=folder / "cache", **quick)
    return folder / "run"


def test_rows_are_what_the_predictor_says(run):
    source = open_source(run)
    chosen = np.arange(80)
    found = explained(source.reference, chosen, source.graph.split.test)
    assert 0 < len(found) <= module.MOST
    assert list(found)[:16] == source.graph.split.test[:16].tolist()  # test nodes first
    place, (number, logit, baseline, hops, near, others, labels, (own, how, counted)) = next(iter(found.items()))
    told = Predictor.load(run).explain(place, top=module.TOP)
    assert source.graph.class_names[number] == told.of
    assert [logit, baseline, *hops, own] == pytest.approx(
        [told.logit, told.baseline, *told.by_hop, told.own], abs=0.0051
    )
    assert [n[0] for n in near] == [n.id for n in told.neighbours]
    assert (others[0], labels, how, counted) == (told.num_others, None, told.how, told.hops_are)


def test_work_is_bounded(run, monkeypatch):
    source = open_source(run)
    monkeypatch.setattr(module, "MOST", 3)
    assert len(explained(source.reference, np.arange(80), source.graph.split.test)) == 3
    monkeypatch.setattr(module, "LARGEST", 1)
    assert explained(source.reference, np.arange(80), source.graph.split.test) == {}


def test_the_explorer_says_how_many(run):
    source = open_source(run)
    (block,) = nodes(source, Adjacency.from_edges(source.graph.edges, 80)).blocks
    told = [node for node in block.data["nodes"] if "e" in node]
    assert f"What carried the prediction is told of {len(told)} of them." in block.note


def test_a_run_that_cannot_be_restored_has_none(tmp_path):
    write_run(tmp_path / "a", ring())
    source = open_source(tmp_path / "a")
    assert explained(source.reference, np.arange(60), source.graph.split.test) == {}


def test_a_module_is_imported_only_where_it_is_trusted(run, monkeypatch):
    source, opened = open_source(run), []
    monkeypatch.setattr(type(source.runs[0]), "gnn", "somebody.elses:Net")
    monkeypatch.setattr(module, "Predictor", lambda run: opened.append(run) or Predictor(run))
    assert explained(source.reference, np.arange(80), source.graph.split.test) == {}
    assert not opened
    with trusting():
        explained(source.reference, np.arange(80), source.graph.split.test)
    assert opened
