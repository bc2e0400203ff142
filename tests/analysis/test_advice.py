"""Advice: every rule speaks where it should, and a plain graph is left in peace."""

from dataclasses import replace

import numpy as np
import pytest

from labeldeconv.analysis.advice import FEW_TRAIN, advise
from labeldeconv.data.sets.planted import planted
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.graph.texts import Texts
from labeldeconv.runs.asked import resolve
from labeldeconv.settings.models import Config

N = 300
CONFIG = Config()


def plain() -> AttributedGraph:
    """Three classes of equal size; edges, written once, join nodes at most 8 apart, nearly all of one class."""
    ids = np.arange(N)
    edges = np.concatenate([np.stack([ids[:-k], ids[k:]]) for k in range(1, 9)], axis=1)
    labels = ids * 3 // N
    texts = Texts.from_strings(f"text {i}" for i in ids)
    return AttributedGraph(texts, edges, labels, Split.stratified(labels, 0), ["a", "b", "c"])


def topics(graph, cut=None, config=CONFIG):
    return [advice.topic for advice in advise(graph, config, cut)]


def test_a_plain_graph_is_left_in_peace():
    assert topics(plain(), cut=0.0) == []


def test_low_homophily_by_known_labels_only():
    graph = plain()
    ring = np.stack([np.arange(N - 1), np.arange(1, N)])
    apart = replace(graph, edges=ring, labels=np.arange(N) % 3)
    assert "homophily" in topics(apart)
    few = Split.stratified(graph.labels, 0, (0.3, 0.1))
    labels = np.where(few.roles == 2, 1 + np.arange(N) % 9, 0)  # known labels agree, neighbours among test nodes differ
    hidden = replace(graph, labels=labels, split=few, class_names=list("abcdefghij"))
    assert "homophily" not in topics(hidden)
    found = next(a for a in advise(apart, CONFIG) if a.topic == "homophily")
    assert found.finding == "only 0% of the edges join nodes of one class"
    assert "--gnn auto" in found.command


def test_few_labels():
    graph = plain()
    few = graph.with_split(Split.stratified(graph.labels, 0, (0.05, 0.05)))
    assert "few labels" in topics(few)
    found = next(a for a in advise(few, CONFIG) if a.topic == "few labels")
    assert found.finding == "15 train nodes are 5.0% of the graph"
    assert "few labels" not in topics(graph.with_split(Split.stratified(graph.labels, 0, (FEW_TRAIN, 0.1))))


def test_cut_texts():
    assert topics(plain(), cut=0.19) == []
    found = advise(plain(), CONFIG, 0.5)[0]
    assert found.finding == f"50% of the texts are cut after {CONFIG.encoder.max_tokens} tokens"
    assert found.command.endswith(f"encoder.max_tokens={2 * CONFIG.encoder.max_tokens}")


@pytest.mark.parametrize(("small", "told"), [(5, True), (30, False)])
def test_class_imbalance(small, told):
    graph = plain()
    labels = np.where(np.arange(N) < small, 1, 0)
    uneven = replace(graph, labels=labels, split=Split.stratified(labels, 0), class_names=["a", "b"])
    assert ("class imbalance" in topics(uneven)) is told


def test_which_method_is_expected_to_pay():
    found = {advice.topic: advice for advice in advise(planted(400).graph, resolve(Config(data="planted")))}
    assert found["label deconvolution"].command.endswith("--method ld")
    assert "LD can help" in found["label deconvolution"].reason


def test_labels_that_do_not_depend_on_the_graph():
    labels = np.random.default_rng(0).integers(0, 3, N)
    graph = plain()
    assert "labels without the graph" in topics(replace(graph, labels=labels, split=Split.stratified(labels, 0)))


def test_isolated_nodes():
    graph = plain()
    kept = graph.edges[:, (graph.edges < N - 40).all(0)]
    found = next(a for a in advise(replace(graph, edges=kept), CONFIG) if a.topic == "isolated nodes")
    assert found.finding == "40 nodes, 13%, have no edge"


def test_directed_edges():
    graph = plain()
    turned = np.random.default_rng(0).random(graph.num_edges) < 0.5
    directed = replace(graph, edges=np.where(turned, graph.edges[::-1], graph.edges))
    assert topics(directed) == ["directed edges"]
    both = replace(graph, edges=np.concatenate([graph.edges, graph.edges[::-1]], axis=1))
    assert topics(both) == []
    one_way = CONFIG.model_copy(
        update={
            "labels": CONFIG.labels.model_copy(
                update={"adjacency": CONFIG.labels.adjacency.model_copy(update={"undirected": False})}
            ),
            "gnn": CONFIG.gnn.model_copy(
                update={"adjacency": CONFIG.gnn.adjacency.model_copy(update={"undirected": False})}
            ),
        }
    )
    assert topics(directed, config=one_way) == []  # the user has said so already
