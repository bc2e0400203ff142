"""Which labels are known: whole numbers have -1 where one is missing, the numbers of a regression have NaN."""

from __future__ import annotations

import numpy as np


def is_known(labels: np.ndarray) -> np.ndarray:
    """Which entries of labels (n,) or (n, c) are known, a bool of the same shape."""
    return np.asarray(~np.isnan(labels) if labels.dtype.kind == "f" else labels >= 0)


def labelled(labels: np.ndarray) -> np.ndarray:
    """Nodes (n,) bool with any known entry in labels (n,) or (n, c)."""
    known = is_known(labels)
    return known if known.ndim == 1 else np.asarray(known.any(1))


def hidden(labels: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """Labels (n,) or (n, c) of the nodes `shown` (n,) bool, missing everywhere else."""
    none = labels.dtype.type(np.nan if labels.dtype.kind == "f" else -1)
    return np.where(shown if labels.ndim == 1 else shown[:, None], labels, none)
