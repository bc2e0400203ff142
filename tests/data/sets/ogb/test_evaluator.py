"""ogb's own Evaluator and our score give the same numbers."""

import numpy as np
import pytest

from labeldeconv.data.sets.ogb.evaluator import ogb_score
from labeldeconv.graph.task import Task


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_evaluator_agrees_with_our_score():
    pytest.importorskip("ogb", reason="needs the extra ogb")
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(300, 40)), rng.integers(0, 40, 300)
    metric, value = ogb_score("ogbn-arxiv", logits, labels)
    assert metric == "acc"
    assert value == pytest.approx(Task("multiclass", 40).score(logits, labels))
    logits, labels = rng.normal(size=(200, 112)), rng.integers(0, 2, (200, 112))
    metric, value = ogb_score("ogbn-proteins", logits, labels)
    assert metric == "rocauc"
    assert value == pytest.approx(Task("multilabel", 112).score(logits, labels))
