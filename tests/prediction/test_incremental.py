"""Steps over what leads to new nodes: what is changed is found, what is kept is read, and nothing else."""

import itertools

import numpy as np
import pytest
import torch

from labeldeconv.prediction.incremental import along, convolutions, new_only, reached
from labeldeconv.propagation.adjacency import Adjacency, propagate
from labeldeconv.propagation.grown import GrownAdjacency
from labeldeconv.settings.models import AdjacencyConfig
from tests.samples import random_edges

N = 40
OLD = random_edges(N, 60)
NEW = np.array([[40, 7, 41], [3, 40, 40]])


def grown_and_whole(**adjacency):
    config = AdjacencyConfig(**adjacency)
    base = Adjacency.from_edges(OLD, N, config)
    whole = Adjacency.from_edges(np.concatenate([OLD, NEW], axis=1), N + 2, config)
    return GrownAdjacency.of(base, config, 2, NEW), whole


@pytest.mark.parametrize(("normalization", "undirected"), list(itertools.product(["row", "symmetric"], [True, False])))
def test_reached_are_all_nodes_that_differ(normalization, undirected):
    grown, whole = grown_and_whole(normalization=normalization, undirected=undirected)
    x = np.random.default_rng(0).normal(size=(N + 2, 3)).astype(np.float32)
    before = list(propagate(grown.base, x[:N], 3))
    after = list(propagate(whole, x, 3))
    masks = reached(grown, 4)
    assert len(masks) == 3
    for level, mask in enumerate(masks, start=1):
        differ = np.abs(after[level][:N] - before[level]).max(1) > 1e-7
        assert not (differ & ~mask[:N]).any()
        assert mask[N:].all()
    assert not masks[0].all()
    assert (masks[0] <= masks[1]).all()


@pytest.mark.parametrize("kept", [False, True])
def test_powers_of_the_matrix(kept):
    grown, whole = grown_and_whole()
    x = np.random.default_rng(0).normal(size=(N + 2, 3)).astype(np.float32)
    hops = [np.asarray(h) for h in propagate(grown.base, x[:N], 2)]
    read = []

    def inputs(ids):
        read.append(ids)
        return torch.from_numpy(x[ids])

    given = (hops[1:], reached(grown, 3)) if kept else ()
    outs = along(convolutions(3), grown, inputs, grown.new_nodes, *given)
    for out, wanted in zip(outs, propagate(whole, x, 3), strict=True):
        np.testing.assert_allclose(out, wanted[N:], rtol=1e-5, atol=1e-6)
    # With activations at hand, features of nodes that no new node changes are not read.
    needed = set(np.concatenate(read))
    ball = set(np.flatnonzero((np.linalg.matrix_power((whole.dense() > 0) + np.eye(N + 2), 3) > 0)[N:].any(0)))
    assert needed <= ball
    assert (needed == ball) != kept


def test_fast_computes_the_new_nodes_alone():
    grown, _ = grown_and_whole()
    x = np.random.default_rng(0).normal(size=(N + 2, 3)).astype(np.float32)
    kept = np.full((N, 3), 5, np.float32)
    outs = along(
        convolutions(2), grown, lambda ids: torch.from_numpy(x[ids]), grown.new_nodes, [kept], new_only(grown, 2)
    )
    # Node 41 reads 40 alone; node 40 reads 3, 7 and 41, of which 3 and 7 are as they were kept.
    np.testing.assert_allclose(outs[2][1], outs[1][0], rtol=1e-6)
    np.testing.assert_allclose(outs[2][0], (5 + 5 + outs[1][1].numpy()) / 3, rtol=1e-6)
