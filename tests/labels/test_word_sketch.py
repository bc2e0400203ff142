"""GIANT's TF-IDF by hashing, against scikit-learn's own on its whole vocabulary; and the projection."""

import tracemalloc

import numpy as np
import pytest
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from labeldeconv.data.sets.planted import planted
from labeldeconv.labels import word_sketch as module
from labeldeconv.labels.word_sketch import PUBLISHED, Words, WordWeights, project, residue_runs, write_sketches

TEXTS = [
    "the red fox and the brown dog", "The dog sleeps", "a fox, a fox; the fox", "", "the Zürich graph of a dog",
    "the quick brown fox", "the end", "the beginning of the end", "the 日本 graph", "the",
]  # fmt: skip


def published(texts):
    """Word 1-grams, word 2-grams and character triples of words, max_df 0.98, each of length 1, joined: (n, words)."""
    settings = [("word", (1, 1), 1_000_000), ("word", (2, 2), 3_000_000), ("char_wb", (3, 3), 200_000)]
    parts = [
        TfidfVectorizer(analyzer=analyzer, ngram_range=ngrams, max_features=most, max_df=0.98).fit_transform(texts)
        for analyzer, ngrams, most in settings
    ]
    return normalize(hstack(parts).tocsr())


def test_it_is_the_published_tfidf(monkeypatch):
    """Hashing keeps words apart here, so that inner products of all rows are scikit-learn's; in blocks of 3."""
    monkeypatch.setattr(module, "ROWS", 3)
    weights = WordWeights.of(TEXTS, PUBLISHED)
    rows = hstack(weights.rows(TEXTS)).tocsr()
    assert rows.shape == (10, 4_200_000)
    np.testing.assert_allclose((rows @ rows.T).toarray(), (lambda X: X @ X.T)(published(TEXTS)).toarray(), atol=1e-6)


def test_a_word_of_nearly_all_texts_weighs_nothing():
    """'the' stands in all of 100 texts, 'own' in 98, 'rare' in one."""
    texts = ["the own"] * 97 + ["the own rare", "the", "the"]
    weights = WordWeights.of(texts, PUBLISHED[:1])
    (part,) = weights.rows(["the", "own", "rare"])
    assert [float(abs(part[i]).sum()) for i in range(3)] == [0.0, 1.0, 1.0]
    (both,) = weights.rows(["own rare"])
    expected = np.array([np.log(101 / 99) + 1, np.log(101 / 2) + 1])
    np.testing.assert_allclose(sorted(both.data), expected / np.linalg.norm(expected), rtol=1e-5)


def test_words_of_proteins_are_runs_of_residues():
    (two,) = WordWeights.of(["ABCD"], residue_runs(2)).kinds
    assert two.count(["ABAB"]).sum() == 3
    assert len(two.count(["ABAB"]).indices) == 2
    assert two.count(["ab"]).indices != two.count(["AB"]).indices  # case is kept
    triples, reverse = residue_runs(3)[0].count(["ABCABC", "CBACBA"])
    assert not set(triples.indices) & set(reverse.indices)


def test_sketches_keep_inner_products(monkeypatch, tmp_path):
    """On average over seeds exactly, and within a few 1/sqrt(dim) each."""
    monkeypatch.setattr(module, "ROWS", 7)
    texts = planted(60, seed=0).graph.texts
    X = published(list(texts))
    exact = (X @ X.T).toarray()
    grams = []
    for seed in range(40):
        out = np.empty((60, 128), np.float32)
        write_sketches(texts, PUBLISHED, out, seed)
        grams.append(out.astype(float) @ out.T)
    assert np.abs(grams[0] - exact).max() < 5 / np.sqrt(128)
    assert np.abs(np.mean(grams, axis=0) - exact).max() < 5 / np.sqrt(128 * 40)
    assert np.abs(grams[0] - grams[1]).max() > 0.05  # another seed is another projection


@pytest.mark.parametrize("dim", [8, 64])
def test_the_projection_is_linear_and_every_column_has_length_one(dim):
    one = csr_matrix(np.eye(50, dtype=np.float32))
    columns = project([one], dim)
    np.testing.assert_allclose(np.linalg.norm(columns, axis=1), 1, rtol=1e-6)
    assert set(np.abs(columns).ravel()) == {0.0, 0.5}
    X = csr_matrix(np.random.default_rng(0).random((9, 50), dtype=np.float32))
    np.testing.assert_allclose(project([X], dim), X @ columns, atol=1e-5)
    left, right = csr_matrix(X[:, :20]), csr_matrix(X[:, 20:])
    np.testing.assert_allclose(project([left, right], dim), project([X], dim), atol=1e-5)


def test_no_matrix_of_texts_by_words_is_held(monkeypatch):
    """Four times the texts need no more memory but the sketches, which are given: blocks alone are held."""
    monkeypatch.setattr(module, "ROWS", 100)
    kinds = tuple(Words(kind.analyzer, kind.run, 500) for kind in PUBLISHED)  # few columns, so that rows would show
    texts = list(planted(400, seed=0).graph.texts)
    write_sketches(texts[:10], kinds, np.empty((10, 128), np.float32))  # imports
    peaks = []
    for times in (1, 4):
        out = np.empty((400 * times, 128), np.float32)
        given = texts * times
        tracemalloc.start()
        write_sketches(given, kinds, out)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]


def splitmix64(number, seed):
    """By Python's own whole numbers, which know no 64 bits (Steele, Lea and Flood 2014)."""
    z = (number * 0x9E3779B97F4A7C15 + seed * 0xD1342543DE82EF95 + 1) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


@pytest.mark.parametrize("seed", [0, 7])
def test_places_and_signs_of_columns_by_hand(seed):
    """Column j adds to place p of four, in the p-th quarter of the sketch, with the sign of the lowest bit."""
    expected = np.zeros((30, 20))
    for j in range(30):
        for p in range(4):
            bits = splitmix64(4 * j + p, seed)
            expected[j, 5 * p + (bits >> 1) % 5] += (1 - 2 * (bits & 1)) / 2
    eye = np.eye(30, dtype=np.float32)
    parts = [csr_matrix(eye[:, :12]), csr_matrix(eye[:, 12:])]
    np.testing.assert_allclose(project(parts, 20, seed), expected, atol=1e-7)
    if seed == 0:
        np.testing.assert_array_equal(project(parts, 20), project(parts, 20, 0))
        one, other = np.empty((2, 10, 8), np.float32)
        write_sketches(TEXTS, PUBLISHED, one)
        write_sketches(TEXTS, PUBLISHED, other, 0)
        np.testing.assert_array_equal(one, other)
