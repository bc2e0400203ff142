"""The similarity figure on a run, and where a text says the neighbour's label."""

import json

import numpy as np
import pytest

from labeldeconv.analysis.similarity import similarity
from labeldeconv.analysis.tfidf import Tfidf
from labeldeconv.errors import DataError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.graph.texts import Texts
from labeldeconv.runs.directory import FORMAT, RunDirectory
from labeldeconv.settings.models import Config
from labeldeconv.stages.files import checksum


def test_figure(ld_run):
    found = similarity(ld_run, pairs=2, threshold=0.2)
    assert len(found.nodes) == 4
    assert len({node.node for node in found.nodes}) == 4
    for name in ("text", "true", "pseudo", "inverse"):
        matrix = np.array(getattr(found, name))
        assert matrix.shape == (4, 4)
        assert np.allclose(matrix, matrix.T)
        assert np.diag(matrix) == pytest.approx(1.0, abs=1e-3)
    for a in (0, 2):  # the pairs
        assert found.nodes[a].label != found.nodes[a + 1].label
        assert found.true[a][a + 1] == 0
        assert found.text[a][a + 1] >= 0.2
    assert set(found.fits) == {"true", "pseudo", "inverse"}
    assert found.fits["true"].similar == found.fits["true"].random == 0.0
    assert json.loads(json.dumps(found.to_dict()))["found"] == found.found > 0
    assert len(found.rows()) == 6 + 3


def test_own_pairs_and_seeds(ld_run):
    found = similarity(ld_run, pairs=[(5, 9)])
    assert [node.node for node in found.nodes] == [5, 9]
    assert similarity(ld_run, seed=3) == similarity(ld_run, seed=3)
    with pytest.raises(DataError, match="node numbers"):
        similarity(ld_run, pairs=[(0, 10_000)])


def test_too_few_similar_pairs_take_the_nearest(ld_run):
    found = similarity(ld_run, pairs=2, threshold=1.0)
    assert len(found.nodes) == 4
    assert found.found == 0
    run = RunDirectory.open(ld_run)
    a, b = np.triu_indices(run.graph.num_nodes, 1)
    different = run.graph.labels[a] != run.graph.labels[b]
    a, b = a[different], b[different]
    every = Tfidf.of(run.graph).cosines(a, b)
    best = every.argmax()  # of all pairs with different labels, and the best of those that share no node with it
    apart = ~np.isin(a, (a[best], b[best])) & ~np.isin(b, (a[best], b[best]))
    assert [found.text[i][i + 1] for i in (0, 2)] == pytest.approx([every[best], every[apart].max()], abs=1e-3)


def test_inverse_labels_follow_texts_where_neighbours_tell(tmp_path):
    """The motivating example at size: a text says the neighbour's label, so K_1 follows the texts and Y does not."""
    n = 120
    words = [f"topic{i % 4} only" for i in range(n)]
    topic, partner = np.arange(n) % 4, np.random.default_rng(0).permutation(n)
    edges, labels = np.stack([np.arange(n), partner]), topic[partner]
    graph = AttributedGraph(
        Texts.from_strings(words), edges, labels, Split(np.zeros(n, dtype=np.int8)), list("abcd"), name="example"
    )
    run = tmp_path / "run"
    graph.save(run / "graph")
    Y = np.eye(4, dtype=np.float32)[labels]
    K1 = np.eye(4, dtype=np.float32)[topic]  # what deconvolution should give
    np.save(run / "hop_labels.npy", np.stack([Y, K1], axis=1))
    result = {"metric": "accuracy", "val": 1.0, "test": 1.0, "gamma": [0.1, 0.9], "alpha": 1.0, "seconds": {}}
    result |= {"peak_mib": {}, "encoder_nodes": 0, "encoder_nodes_by_stage": {}, "batch": None, "subgraph": None}
    result["settings"] = Config().model_dump()
    listed = {"hop_labels.npy": [(run / "hop_labels.npy").stat().st_size, checksum(run / "hop_labels.npy")]}
    (run / "result.json").write_text(json.dumps({"format": FORMAT, **result, "files": listed}))
    fits = similarity(run).fits
    assert fits["inverse"].correlation > 0.9
    assert fits["inverse"].correlation > fits["true"].correlation + 0.5
    assert fits["inverse"].similar > 0.9 > fits["inverse"].random
