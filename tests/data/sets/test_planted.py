"""planted: Assumption 1 and the motivating example hold, at every size and in every flavour."""

import time

import numpy as np
import pytest

from labeldeconv.data.catalog import named_source
from labeldeconv.data.sets.planted import Planted, PlantedSource, planted, psi
from labeldeconv.data.sets.planted_texts import MARKERS, RESIDUES, WORDS
from labeldeconv.errors import ConfigError
from labeldeconv.propagation.adjacency import Adjacency, propagate

FLAVOURS = ("multiclass", "multilabel", "protein", "regression")


def hop_labels(data: Planted, hops: int) -> list[np.ndarray]:
    graph = data.graph
    one_hot = np.eye(graph.num_classes, dtype=np.float32)[graph.labels]
    return list(propagate(Adjacency.from_edges(graph.edges, graph.num_nodes), one_hot, hops))


@pytest.mark.parametrize("phi", [(-1.2, 1.0), (0.26, 0.48, 0.26), (1.0,)])
@pytest.mark.parametrize("num_nodes", [4, 300])
def test_assumption_1(num_nodes, phi):
    data = planted(num_nodes, seed=1, phi=phi)
    adj = Adjacency.from_edges(data.graph.edges, num_nodes).dense()
    matrix = sum(t * np.linalg.matrix_power(adj, i) for i, t in enumerate(phi))
    np.testing.assert_allclose(np.linalg.solve(matrix, data.soft_labels), data.inverse_labels, atol=1e-5)
    np.testing.assert_array_equal(psi(data.latent), data.inverse_labels)
    np.testing.assert_array_equal(data.soft_labels.argmax(1), data.graph.labels)


def test_motivating_example():
    """The own label only says what the topic is not; the labels one hop away name it."""
    data = planted(20_000, seed=0)
    rows, topics = np.arange(20_000), data.inverse_labels.argmax(1)
    own, one_hop, _ = hop_labels(data, 2)
    given_topic = np.stack([own[topics == k].mean(0) for k in range(10)])  # (c, c): E[label | topic]
    assert np.abs(given_topic[~np.eye(10, dtype=bool)] - 1 / 9).max() < 0.05
    assert own[rows, topics].mean() < 0.05
    assert one_hop[rows, topics].mean() > 0.7


def test_decoys_are_shared_by_neighbours_and_say_nothing_of_the_label():
    data = planted(20_000, seed=0)
    decoys = data.latent[:, 10:20].argmax(1)
    given_decoy = np.stack([np.eye(10)[data.graph.labels[decoys == k]].mean(0) for k in range(10)])
    assert np.abs(given_decoy - 0.1).max() < 0.08  # drawn per community, not per node
    adj = Adjacency.from_edges(data.graph.edges, 20_000)
    two_neighbours = np.flatnonzero(np.diff(adj.indptr) == 2)
    first, second = (decoys[adj.indices[adj.indptr[two_neighbours] + k]] for k in (0, 1))
    assert (first == second).mean() > 0.6  # averaging over neighbours does not wash them out


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_same_seed_same_graph(flavour):
    first, again, other = (planted(500, flavour, seed=s, num_features=8) for s in (3, 3, 4))
    parts = ("texts", "edges", "labels", "split", "features")
    assert first.graph.content_key == again.graph.content_key
    for part in parts:
        assert first.graph.key_of(part) == again.graph.key_of(part), part
        assert first.graph.key_of(part) != other.graph.key_of(part), part


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("num_nodes", [4, 5, 1000])
def test_flavours(flavour, num_nodes):
    data = planted(num_nodes, flavour, seed=0)
    graph = data.graph
    assert len(graph.texts) == num_nodes == len(data.latent)
    assert all(len(graph.split.ids(role)) > 0 for role in ("train", "val", "test"))
    assert graph.task == {"protein": "multilabel"}.get(flavour, flavour)
    assert graph.attributes == ("sequence" if flavour == "protein" else "text")
    known = set(RESIDUES) if flavour == "protein" else {*WORDS.split(), *MARKERS}
    for text in graph.texts:
        assert set(text if flavour == "protein" else text.split(" ")) <= known


def test_multilabel_shares():
    labels = planted(5000, "multilabel", seed=0, positives=0.3, missing=0.2).graph.labels
    assert (labels == -1).mean() == pytest.approx(0.2, abs=0.01)
    assert (labels[labels >= 0] == 1).mean() == pytest.approx(0.3, abs=0.01)


def test_split_shares():
    split = planted(1000, seed=0, fractions=(0.5, 0.3)).graph.split
    assert (len(split.train), len(split.val), len(split.test)) == (500, 300, 200)


def test_edges():
    graph = planted(5000, seed=0, mean_degree=6.0).graph
    adj = Adjacency.from_edges(graph.edges, 5000)
    assert graph.num_edges == pytest.approx(15_000, rel=0.01)
    assert set(np.unique(graph.edges)) == set(range(5000))  # nobody is isolated
    assert np.diff(adj.indptr).max() > 2 * 6  # hubs


def test_homophily():
    """With all edges inside the community and a low-pass filter, labels are the topics."""
    data = planted(2000, seed=0, homophily=1.0, random_edges=0.0, phi=(0.26, 0.48, 0.26))
    assert (data.graph.labels == data.inverse_labels.argmax(1)).mean() > 0.95


def test_features():
    data = planted(400, seed=0, num_features=128)
    features = data.graph.features
    assert features is not None
    assert features.shape == (400, 128)
    assert features.dtype == np.float32
    fitted = features @ np.linalg.lstsq(features, data.latent, rcond=None)[0]
    assert np.corrcoef(fitted.ravel(), data.latent.ravel())[0, 1] > 0.9
    assert planted(400, seed=0).graph.features is None


def test_many_classes():
    graph = planted(2000, seed=0, num_classes=500).graph
    assert graph.num_classes == 500
    assert len(set(graph.texts)) > 1900


def test_time_is_linear():
    planted(1000)  # compiles the convolution
    times = []
    for num_nodes in (20_000, 200_000):
        start = time.perf_counter()
        planted(num_nodes)
        times.append(time.perf_counter() - start)
    assert times[1] < 30 * times[0] + 1.0  # 10 for linear; the machine is shared


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_nodes": 3}, "num_nodes of at least 4"),
        ({"num_classes": 1}, "num_classes of at least 2"),
        ({"flavour": "proteins"}, "did you mean 'protein'"),
        ({"phi": (0.5, 1.0)}, "phi without a root"),
        ({"phi": (0.0, 0.0)}, "phi without a root"),
        ({"random_edges": 1.5}, "random_edges between 0 and 1"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ConfigError, match=message):
        planted(**arguments)


def test_the_source_of_a_name():
    assert named_source("planted-protein:50", 3) == PlantedSource(50, "protein", 3, version=2)
    assert named_source("planted") == PlantedSource(3000, "multiclass", 0)
    loaded = PlantedSource(50, "protein", 3).load()
    assert loaded.warnings == []
    assert loaded.graph.content_key == planted(50, "protein", seed=3).graph.content_key
