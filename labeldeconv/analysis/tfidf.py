"""TF-IDF of texts (GIANT's measure of text similarity, which the similarity figure takes over) without an n x n matrix.

Weights are tf * (ln((1 + n) / (1 + df)) + 1), rows of length 1, so that a dot product is a cosine. Words are runs of
two or more word characters in lower case; a protein's words are its overlapping triples of residues. Nearest texts come
from an inverted index: words of more than COMMON texts propose no pair, but count in the cosine of a proposed one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np

from labeldeconv.graph import AttributedGraph

WORD = re.compile(r"\w\w+")
COMMON = 2000  # exact up to so many texts; bounds the cost of a query at (words of a text) * COMMON
PROPOSED = 32  # texts whose exact cosine is computed per query


@dataclass(frozen=True, eq=False)
class Tfidf:
    """Rows of unit length in CSR form: words indices[indptr[i]:indptr[i + 1]], ascending, with their weights."""

    indptr: np.ndarray
    indices: np.ndarray
    weights: np.ndarray
    words: int

    @classmethod
    def of(cls, graph: AttributedGraph) -> Tfidf:
        """TF-IDF of all nodes' texts."""
        split = _triples if graph.attributes == "sequence" else _words
        vocabulary: dict[str, int] = {}
        columns: list[np.ndarray] = []
        counts: list[np.ndarray] = []
        for text in graph.texts:
            found = Counter(split(text))
            row = np.array([vocabulary.setdefault(w, len(vocabulary)) for w in found], dtype=np.int32)
            order = np.argsort(row)
            columns.append(row[order])
            counts.append(np.fromiter(found.values(), np.float32, len(found))[order])
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in columns])]).astype(np.int64)
        indices = np.concatenate([np.empty(0, np.int32), *columns])
        weights = np.concatenate([np.empty(0, np.float32), *counts])
        df = np.bincount(indices, minlength=len(vocabulary))
        weights *= (np.log((1 + graph.num_nodes) / (1 + df)) + 1).astype(np.float32)[indices]
        rows = np.repeat(np.arange(graph.num_nodes), np.diff(indptr))
        norms = np.sqrt(np.bincount(rows, weights.astype(np.float64) ** 2, minlength=graph.num_nodes))
        return cls(indptr, indices, (weights / norms[rows]).astype(np.float32), len(vocabulary))

    @property
    def empty(self) -> np.ndarray:
        """Texts (n,) without a word."""
        return np.diff(self.indptr) == 0

    def cosines(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Text similarity (m,) of the pairs of nodes a (m,), b (m,)."""
        return _cosines(self.indptr, self.indices, self.weights, a.astype(np.int64), b.astype(np.int64))

    def nearest(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k most similar other texts (q, k) of the nodes `queries` (q,), -1 where there are fewer; cosines."""
        text_of, place, starts = self._postings
        args = self.indptr, self.indices, self.weights, starts, text_of, self.weights[place]
        return _nearest(*args, queries.astype(np.int64), k, COMMON, PROPOSED)

    @cached_property
    def _postings(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The inverted index: texts by word, where their weights stand, and where each word starts."""
        place = np.argsort(self.indices, kind="stable")
        rows = np.repeat(np.arange(len(self.indptr) - 1, dtype=np.int32), np.diff(self.indptr))
        starts = np.concatenate([[0], np.cumsum(np.bincount(self.indices, minlength=self.words))])
        return rows[place], place, starts.astype(np.int64)


_words: Callable[[str], list[str]] = lambda text: WORD.findall(text.lower())  # noqa: E731


def _triples(sequence: str) -> list[str]:
    return [sequence[i : i + 3] for i in range(len(sequence) - 2)]


@numba.njit(cache=True, nogil=True)
def _cosine(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, i: int, j: int) -> float:
    p, q, end_p, end_q = indptr[i], indptr[j], indptr[i + 1], indptr[j + 1]
    total = 0.0
    while p < end_p and q < end_q:
        if indices[p] == indices[q]:
            total += weights[p] * weights[q]
            p += 1
            q += 1
        elif indices[p] < indices[q]:
            p += 1
        else:
            q += 1
    return total


# Not called by _nearest: when it was, numba's file cache (0.68.1) once held two compilations of it under one name,
# after this file was changed and changed back, and it could not return its array ("'descr' is NULL").
@numba.njit(cache=True, nogil=True)
def _cosines(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = np.zeros(len(a), np.float32)
    for m in range(len(a)):
        out[m] = _cosine(indptr, indices, weights, a[m], b[m])
    return out


@numba.njit(cache=True, nogil=True)
def _nearest(
    indptr: np.ndarray,
    indices: np.ndarray,
    weights: np.ndarray,
    starts: np.ndarray,
    texts: np.ndarray,
    text_weights: np.ndarray,
    queries: np.ndarray,
    k: int,
    common: int,
    proposed: int,
) -> tuple[np.ndarray, np.ndarray]:
    n = len(indptr) - 1
    ids = np.full((len(queries), k), -1, np.int64)
    scores = np.zeros((len(queries), k), np.float32)
    partial = np.zeros(n, np.float32)
    touched = np.empty(n, np.int64)
    for m in range(len(queries)):
        i, count = queries[m], 0
        for p in range(indptr[i], indptr[i + 1]):
            word = indices[p]
            if starts[word + 1] - starts[word] > common:
                continue
            for s in range(starts[word], starts[word + 1]):
                j = texts[s]
                if partial[j] == 0.0:
                    touched[count] = j
                    count += 1
                partial[j] += weights[p] * text_weights[s]
        partial_scores = partial[touched[:count]]
        partial[touched[:count]] = 0.0
        order = np.argsort(-partial_scores, kind="mergesort")[: proposed + 1]  # the text itself is among them
        best = touched[:count][order]
        best = best[best != i]
        exact = np.zeros(len(best), np.float32)
        for b in range(len(best)):
            exact[b] = _cosine(indptr, indices, weights, i, best[b])
        top = np.argsort(-exact, kind="mergesort")[:k]
        ids[m, : len(top)] = best[top]
        scores[m, : len(top)] = exact[top]
    return ids, scores
