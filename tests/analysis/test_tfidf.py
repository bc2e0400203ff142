"""TF-IDF against hand-computed numbers and a dense product, and on real texts."""

import math

import numpy as np
import pytest

from labeldeconv import open_data
from labeldeconv.analysis import tfidf
from labeldeconv.analysis.tfidf import Tfidf
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.graph.texts import Texts
from tests.samples import real_data


def graph_of(texts, attributes="text"):
    n = len(texts)
    edges, labels = np.zeros((2, 0), dtype=np.int64), np.arange(n) % 2
    split = Split(np.zeros(n, dtype=np.int8))
    return AttributedGraph(Texts.from_strings(texts), edges, labels, split, ["a", "b"], attributes=attributes)


def random_texts(n, words=60, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(f"word{w}" for w in rng.zipf(1.3, 12) % words) for _ in range(n)]


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


def test_weights_of_triples_by_hand():
    """MKV stands in two of four sequences, every other triple in one; case counts, and two residues are no word."""
    table = Tfidf.of(graph_of(["MKVL", "MKVX", "mkv", "mk"], "sequence"))
    common, rare = math.log(5 / 3) + 1, math.log(5 / 2) + 1
    cosine = common**2 / (common**2 + rare**2)
    assert table.words == 4  # MKV KVL KVX mkv
    assert table.cosines(np.array([0, 0, 0]), np.array([1, 2, 3])) == pytest.approx([cosine, 0.0, 0.0], abs=1e-6)
    assert table.empty.tolist() == [False, False, False, True]


def test_texts_without_any_word():
    table = Tfidf.of(graph_of(["a", "", "b c"]))
    assert (table.words, table.empty.tolist()) == (0, [True, True, True])
    assert table.cosines(np.array([0]), np.array([1])).tolist() == [0.0]
    ids, scores = table.nearest(np.arange(3), 2)
    assert (ids.tolist(), scores.tolist()) == ([[-1, -1]] * 3, [[0.0, 0.0]] * 3)


def test_blocks_do_not_change_the_answer(monkeypatch):
    """Blocks of three queries and five pairs, neither of which divides the number of texts."""
    table = Tfidf.of(graph_of(random_texts(40)))
    queries = np.arange(1, 39)
    whole = table.nearest(queries, 4)
    monkeypatch.setattr(tfidf, "QUERIES", 3)
    monkeypatch.setattr(tfidf, "PAIRS", 5)
    blocks = table.nearest(queries, 4)
    assert (blocks[0] == whole[0]).all()
    assert blocks[1] == pytest.approx(whole[1], abs=1e-6)


def test_only_the_proposed_are_ranked(monkeypatch):
    """One proposal of two: it is the nearest by rare words, and the asked second one is missing."""
    monkeypatch.setattr(tfidf, "PROPOSED", 1)
    ids, scores = Tfidf.of(graph_of(["red apple tree", "red apple", "red pear"])).nearest(np.arange(3), 2)
    assert ids[:2].tolist() == [[1, -1], [0, -1]]
    assert (scores[:, 0] > 0).all()
    assert (scores[:, 1] == 0).all()


@pytest.mark.parametrize("n", [50, 300])
def test_nearest_are_those_of_the_dense_product(n):
    table = Tfidf.of(graph_of(random_texts(n, words=4 * n)))
    product = table.matrix.toarray() @ table.matrix.toarray().T
    np.fill_diagonal(product, -1)
    ids, scores = table.nearest(np.arange(n), 3)
    assert scores == pytest.approx(-np.sort(-product, axis=1)[:, :3], abs=1e-5)
    assert product[np.arange(n)[:, None], ids] == pytest.approx(scores, abs=1e-5)


def test_common_words_propose_nothing(monkeypatch):
    texts = ["same word first", "same word second", "same word third", "rare first"]
    monkeypatch.setattr(tfidf, "COMMON", 2)
    ids, _ = Tfidf.of(graph_of(texts)).nearest(np.arange(4), 2)
    assert ids.tolist() == [[3, -1], [-1, -1], [-1, -1], [0, -1]]


def test_citeseer_texts():
    graph = open_data(str(real_data("citeseer"))).graph
    table = Tfidf.of(graph)
    queries = np.arange(0, graph.num_nodes, 50)
    ids, scores = table.nearest(queries, 1)
    assert scores.min() > 0
    assert (ids[:, 0] != queries).all()
    assert (scores > 0.6).mean() < 0.5
