"""Split: which nodes train, validate and test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labeldeconv.errors import DataError
from labeldeconv.graph.missing import labelled

ROLES = ("train", "val", "test")


@dataclass(frozen=True)
class Split:
    """Which nodes train, validate and test: roles (n,) int8 with 0, 1, 2 and -1 for none of them."""

    roles: np.ndarray

    @classmethod
    def from_ids(cls, num_nodes: int, train: np.ndarray, val: np.ndarray, test: np.ndarray) -> Split:
        """From three lists of node ids; a node in two of them is an error."""
        roles = np.full(num_nodes, -1, dtype=np.int8)
        for role, ids in enumerate((train, val, test)):
            taken = roles[np.asarray(ids, dtype=np.int64)] >= 0
            if taken.any():
                raise DataError(f"split: {int(taken.sum())} nodes of '{ROLES[role]}' are in another part too")
            roles[np.asarray(ids, dtype=np.int64)] = role
        return cls(roles)

    @classmethod
    def stratified(cls, labels: np.ndarray, seed: int, fractions: tuple[float, float] = (0.6, 0.2)) -> Split:
        """Seeded split, class by class, of the labelled nodes: train and val `fractions`, the rest is test.

        Multi-label rows (n, c) are stratified by whether the node has any positive; those of a regression are not
        stratified. Every class with at least
        three nodes gets one in each part. scikit-learn's stratified splits are not used, because the splits of earlier
        results must stay the same and because they fail on classes of fewer than two nodes.
        """
        rng = np.random.default_rng(seed)
        groups = _strata(labels)
        roles = np.full(len(groups), -1, dtype=np.int8)
        order = rng.permutation(len(groups))
        order = order[np.argsort(groups[order], kind="stable")]
        order = order[groups[order] >= 0]
        for ids in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
            k = len(ids)
            train = max(1, round(fractions[0] * k))
            val = max(1, round(fractions[1] * k)) if k >= 3 else 0
            train = min(train, k - val - (k >= 3))
            roles[ids[:train]] = 0
            roles[ids[train : train + val]] = 1
            roles[ids[train + val :]] = 2
        return cls(roles)

    def ids(self, role: str) -> np.ndarray:
        """Node ids of 'train', 'val' or 'test', ascending int64."""
        return np.flatnonzero(self.roles == ROLES.index(role))

    @property
    def train(self) -> np.ndarray:
        """Training node ids."""
        return self.ids("train")

    @property
    def val(self) -> np.ndarray:
        """Validation node ids."""
        return self.ids("val")

    @property
    def test(self) -> np.ndarray:
        """Test node ids."""
        return self.ids("test")


def _strata(labels: np.ndarray) -> np.ndarray:
    """The group (n,) of every node within which roles are drawn; -1 for a node without a label."""
    if labels.dtype.kind == "f":
        return np.where(labelled(labels), 0, -1)
    return labels if labels.ndim == 1 else np.where((labels < 0).all(1), -1, (labels > 0).any(1).astype(int))
