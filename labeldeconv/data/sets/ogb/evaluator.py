"""The official metric of an OGB data set, by ogb's own Evaluator (extra 'ogb')."""

from __future__ import annotations

from typing import Any

import numpy as np

from labeldeconv.errors import MissingExtra


def ogb_score(name: str, logits: np.ndarray, labels: np.ndarray) -> tuple[str, float]:
    """Name and value of the official metric by ogb's Evaluator: logits (m, c) against labels (m,) or (m, c)."""
    try:
        from ogb.nodeproppred import Evaluator
    except ImportError:
        raise MissingExtra(f"the Evaluator of {name}", "ogb") from None
    evaluator: Any = Evaluator(name)
    predicted = logits.argmax(1)[:, None] if labels.ndim == 1 else logits
    result = evaluator.eval({"y_true": labels.reshape(len(labels), -1), "y_pred": predicted})
    return evaluator.eval_metric, float(result[evaluator.eval_metric])
