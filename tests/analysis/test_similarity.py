"""TF-IDF against hand-computed numbers and a dense product; the similarity figure on planted and real texts."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from labeldeconv.analysis import tfidf
from labeldeconv.analysis.similarity import similarity
from labeldeconv.analysis.tfidf import Tfidf
from labeldeconv.errors import DataError
from labeldeconv.graph import AttributedGraph
from labeldeconv.split import Split
from labeldeconv.texts import Texts


def graph_of(texts, attributes="text"):
    n = len(texts)
    edges, labels = np.zeros((2, 0), dtype=np.int64), np.arange(n) % 2
    split = Split(np.zeros(n, dtype=np.int8))
    return AttributedGraph(Texts.from_strings(texts), edges, labels, split, ["a", "b"], attributes=attributes)


def random_texts(n, words=60, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(f"word{w}" for w in rng.zipf(1.3, 12) % words) for _ in range(n)]


def dense(table, n):
    out = np.zeros((n, table.words))
    for i in range(n):
        part = slice(table.indptr[i], table.indptr[i + 1])
        out[i, table.indices[part]] = table.weights[part]
    return out


def test_weights_by_hand():
    """Two texts share 'red' (df 2 of 3); idf ln(4/3) + 1 and ln(4/2) + 1."""
    table = Tfidf.of(graph_of(["Red red apple", "red pear", "x"]))  # one letter is no word
    common, rare = math.log(4 / 3) + 1, math.log(4 / 2) + 1
    a, b = np.array([2 * common, rare]), np.array([common, rare])
    expected = 2 * common * common / np.linalg.norm(a) / np.linalg.norm(b)
    assert table.cosines(np.array([0, 0, 0]), np.array([1, 0, 2])) == pytest.approx([expected, 1.0, 0.0], abs=1e-6)
    assert table.empty.tolist() == [False, False, True]


def test_sequences_are_read_in_triples():
    table = Tfidf.of(graph_of(["MKVLA", "MKVXX", "AAA"], "sequence"))
    assert table.words == 6  # MKV KVL VLA KVX VXX AAA
    assert table.cosines(np.array([0]), np.array([1]))[0] > 0


@pytest.mark.parametrize("n", [50, 300])
def test_nearest_are_those_of_the_dense_product(n):
    table = Tfidf.of(graph_of(random_texts(n, words=4 * n)))
    product = dense(table, n) @ dense(table, n).T
    np.fill_diagonal(product, -1)
    ids, scores = table.nearest(np.arange(n), 3)
    assert scores == pytest.approx(-np.sort(-product, axis=1)[:, :3], abs=1e-5)
    assert product[np.arange(n)[:, None], ids] == pytest.approx(scores, abs=1e-5)


def test_common_words_propose_nothing(monkeypatch):
    texts = ["same word first", "same word second", "same word third", "rare first"]
    monkeypatch.setattr(tfidf, "COMMON", 2)
    ids, _ = Tfidf.of(graph_of(texts)).nearest(np.arange(4), 2)
    assert ids.tolist() == [[3, -1], [-1, -1], [-1, -1], [0, -1]]


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
    assert -1 <= found.fits["inverse"].correlation <= 1
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
    assert found.text[0][1] <= 1.0


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
    result = {"metric": "accuracy", "test": 1.0, "gamma": [0.1, 0.9], "seconds": {}, "peak_mib": {}}
    result |= {"encoder_nodes": 0, "settings": {"method": "ld", "seed": 0, "gnn": {"name": "gcn"}}}
    (run / "result.json").write_text(json.dumps(result))
    fits = similarity(run).fits
    assert fits["inverse"].correlation > 0.9
    assert fits["inverse"].correlation > fits["true"].correlation + 0.5
    assert fits["inverse"].similar > 0.9 > fits["inverse"].random


def test_citeseer_texts():
    folder = Path("/work/shared/data/citeseer")
    if not folder.is_dir():
        pytest.skip("the real graphs of /work/shared/data are not here")
    from labeldeconv.names import open_data
    from labeldeconv.record import Cache

    graph = open_data(str(folder), 0, Cache()).graph
    table = Tfidf.of(graph)
    queries = np.arange(0, graph.num_nodes, 50)
    ids, scores = table.nearest(queries, 1)
    assert scores.min() > 0
    assert (ids[:, 0] != queries).all()
    assert (scores > 0.6).mean() < 0.5
