"""TF-IDF of texts (GIANT's measure of text similarity, which the similarity figure takes over) without an n x n matrix.

scikit-learn weighs the words: tf * (ln((1 + n) / (1 + df)) + 1), rows of length 1, so that a dot product is a cosine.
Words are runs of two or more word characters in lower case; a protein's words are its overlapping triples of residues.
Nearest texts come from sparse products, a block of queries at a time: words of more than COMMON texts propose no pair,
but count in the cosine of a proposed one. scikit-learn's NearestNeighbors would compare every query with all n texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfVectorizer

from labeldeconv.graph.attributed import AttributedGraph

COMMON = 2000  # exact up to so many texts; bounds the cost of a query at (words of a text) * COMMON
PROPOSED = 32  # texts whose exact cosine is computed per query
QUERIES, PAIRS = 64, 1 << 13  # in a block: texts whose nearest ones are looked up, pairs whose cosine is computed


@dataclass(frozen=True, eq=False)
class Tfidf:
    """The weights as a sparse `matrix` (n, words) float32 whose rows have length 1, or 0 where a text has no word."""

    matrix: csr_array

    @classmethod
    def of(cls, graph: AttributedGraph) -> Tfidf:
        """TF-IDF of all nodes' texts."""
        triples = {"analyzer": "char", "ngram_range": (3, 3), "lowercase": False}
        words = triples if graph.attributes == "sequence" else {"token_pattern": r"\w\w+"}
        try:
            matrix = TfidfVectorizer(**words, dtype=np.float32).fit_transform(graph.texts)
        except ValueError as error:
            if "empty vocabulary" not in str(error):
                raise
            matrix = csr_array((graph.num_nodes, 0), dtype=np.float32)  # no text has a word
        return cls(csr_array(matrix))

    @property
    def words(self) -> int:
        """How many different words there are."""
        return int(self.matrix.shape[1])

    @property
    def empty(self) -> np.ndarray:
        """Texts (n,) without a word."""
        return np.diff(self.matrix.indptr) == 0

    def cosines(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Text similarity (m,) of the pairs of nodes a (m,), b (m,)."""
        out = np.zeros(len(a), np.float32)
        for start in range(0, len(a), PAIRS):
            block = slice(start, start + PAIRS)
            out[block] = self.matrix[a[block]].multiply(self.matrix[b[block]]).sum(axis=1)
        return out

    def nearest(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k most similar other texts (q, k) of the nodes `queries` (q,), -1 where there are fewer; cosines."""
        ids = np.full((len(queries), k), -1, np.int64)
        scores = np.zeros((len(queries), k), np.float32)
        for start in range(0, len(queries), QUERIES):
            block = queries[start : start + QUERIES]
            proposed = self._proposed(block)
            exact = self.cosines(np.repeat(block, PROPOSED), proposed.reshape(-1)).reshape(proposed.shape)
            exact[proposed < 0] = -1.0  # behind all cosines
            order = np.argsort(-exact, axis=1, kind="stable")[:, :k]
            place = slice(start, start + len(block)), slice(order.shape[1])
            ids[place] = np.take_along_axis(proposed, order, axis=1)
            scores[place] = np.maximum(np.take_along_axis(exact, order, axis=1), 0.0)
        return ids, scores

    def _proposed(self, queries: np.ndarray) -> np.ndarray:
        """The PROPOSED other texts (q, PROPOSED) nearest by rare words, ascending, -1 where there are fewer."""
        out = np.full((len(queries), PROPOSED), -1, np.int64)
        rare, by_word = self._rare
        shared = rare[queries] @ by_word  # (q, n), with entries only where a rare word is shared
        for m, query in enumerate(queries):
            row = slice(shared.indptr[m], shared.indptr[m + 1])
            others = shared.indices[row] != query
            texts, similar = shared.indices[row][others], shared.data[row][others]
            if len(texts) > PROPOSED:
                texts = texts[np.argpartition(-similar, PROPOSED)[:PROPOSED]]
            out[m, : len(texts)] = np.sort(texts)
        return out

    @cached_property
    def _rare(self) -> tuple[csr_array, csr_array]:
        """The weights of words of at most COMMON texts, (n, r) and transposed (r, n)."""
        df = np.bincount(self.matrix.indices, minlength=self.words)
        rare = self.matrix[:, np.flatnonzero(df <= COMMON)]
        return rare, rare.T.tocsr()
