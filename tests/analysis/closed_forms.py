"""Graphs whose spectra have a closed form: edges (2, e) and the number of nodes."""

import numpy as np

from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import AdjacencyConfig


def cycle(n):
    return np.stack([np.arange(n), (np.arange(n) + 1) % n]), n


def path(n):
    return np.stack([np.arange(n - 1), np.arange(1, n)]), n


def complete(n):
    return np.stack(np.triu_indices(n, 1)), n


def bipartite(a, b):
    left, right = np.meshgrid(np.arange(a), a + np.arange(b))
    return np.stack([left.ravel(), right.ravel()]), a + b


def symmetric(edges, n, self_loops=False):
    return Adjacency.from_edges(edges, n, AdjacencyConfig(normalization="symmetric", self_loops=self_loops))
