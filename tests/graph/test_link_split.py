"""The split of edges, its negatives, and OGB's metrics."""

import numpy as np
import pytest

from labeldeconv.errors import ConfigError, DataError
from labeldeconv.graph.link_split import edge_codes, link_metrics, ranks_of, split_edges
from tests.samples import random_edges

N = 80
EDGES = random_edges(N, 300)


def pairs(edges):
    return {frozenset(pair) for pair in edges.T.tolist() if pair[0] != pair[1]}


def test_parts_hold_every_edge_once():
    split = split_edges(EDGES, N, 0)
    parts = [pairs(split.train), pairs(split.val), pairs(split.test)]
    whole = pairs(EDGES)
    assert set.union(*parts) == whole
    assert sum(map(len, parts)) == len(whole)
    assert [round(len(part) / len(whole), 2) for part in parts] == [0.85, 0.05, 0.10]
    assert split.content_key == split_edges(EDGES, N, 0).content_key != split_edges(EDGES, N, 1).content_key


def test_negatives_are_no_edges():
    split = split_edges(EDGES, N, 0, 60)
    whole = pairs(EDGES)
    for role in ("val", "test"):
        edges, wrong = split.part(role)
        assert wrong.shape == (edges.shape[1], 60)
        found = [(u, w) for u, row in zip(edges[0].tolist(), wrong.tolist(), strict=True) for w in row]
        assert all(u != w and frozenset((u, w)) not in whole for u, w in found)
    drawn = split.draw(split.train[0], 2, np.random.default_rng(0))
    assert not np.isin(split.train[0][:, None] * N + drawn, edge_codes(EDGES, N)).any()


def test_hard_negatives_have_the_class_of_the_true_end():
    group = np.arange(N) % 4
    group[:8] = -1
    split = split_edges(EDGES, N, 0, 50, group)
    known = group[split.test[1]] >= 0
    assert known.any()
    assert (group[split.test_negatives[known]] == group[split.test[1][known], None]).all()
    assert len(set(group[split.test_negatives[~known]].ravel().tolist())) == 5  # any, where nothing is known


def test_ranks_by_hand():
    """Two above: rank 3; one above and one tie: 2.5; all tied: 1 + 3 / 2."""
    negative = np.array([[9.0, 8, 1], [9, 5, 1], [5, 5, 5]])
    np.testing.assert_array_equal(ranks_of(np.array([5.0, 5, 5]), negative), [3, 2.5, 2.5])


def test_metrics_are_those_of_ogb():
    evaluate = pytest.importorskip("ogb.linkproppred", reason="extra 'ogb' is not installed").Evaluator
    import torch

    rng = np.random.default_rng(0)
    positive, negative = rng.integers(0, 9, 50).astype(np.float32), rng.integers(0, 9, (50, 60)).astype(np.float32)
    theirs = evaluate("ogbl-citation2").eval(
        {"y_pred_pos": torch.from_numpy(positive), "y_pred_neg": torch.from_numpy(negative)}
    )
    ours = link_metrics(positive, negative)
    assert ours["mrr"] == pytest.approx(float(theirs["mrr_list"].mean()))
    for k in (1, 10):
        assert ours[f"hits@{k}"] == pytest.approx(float(theirs[f"hits@{k}_list"].mean()))


def test_metrics_by_another_way():
    """Ranks by sorting every row, the true score put in the middle of its ties."""
    rng = np.random.default_rng(1)
    positive, negative = rng.integers(0, 30, 40), rng.integers(0, 30, (40, 70))
    ranks = []
    for p, row in zip(positive.tolist(), negative.tolist(), strict=True):
        places = [i + 1 for i, score in enumerate(sorted([*row, p], reverse=True)) if score == p]
        ranks.append(sum(places) / len(places))
    ours = link_metrics(positive, negative)
    assert ours["mrr"] == pytest.approx(np.mean([1 / r for r in ranks]))
    assert ours["hits@50"] == pytest.approx(np.mean([r <= 50 for r in ranks]))


def test_what_cannot_be_split():
    with pytest.raises(DataError, match="at least 20 edges expected"):
        split_edges(np.array([[0, 1], [1, 2]]), 3, 0)
    with pytest.raises(ConfigError, match="at least 50 expected for Hits@50, got 10"):
        split_edges(EDGES, N, 0, 10)
    everyone = np.stack(np.triu_indices(9, 1))
    with pytest.raises(DataError, match="not nearly complete"):
        split_edges(everyone, 9, 0)
