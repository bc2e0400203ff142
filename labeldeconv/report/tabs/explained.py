"""Explanations of some nodes of the explorer: what carried the reference's prediction, by hop and by neighbour.

The bound is on work, not on time, so that a page does not depend on the machine's load: as many nodes, of those that
the explorer shows first, as have neighbourhoods of `MOST_REACHED` nodes together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labeldeconv.errors import LabelDeconvError
from labeldeconv.gnns.base import GNNS
from labeldeconv.graph.task import RegressionTask
from labeldeconv.prediction.attribution import reach_of
from labeldeconv.prediction.predictor import Predictor
from labeldeconv.prediction.reach import within
from labeldeconv.progress import logger
from labeldeconv.registry import imports_trusted
from labeldeconv.report.source import Entry
from labeldeconv.report.tabs.node_numbers import decimals
from labeldeconv.report.wording import shortened

MOST = 24  # nodes that are explained
TRIED = 240  # nodes that are looked at, of which those with small neighbourhoods are explained
MOST_REACHED = 4_000  # nodes in all neighbourhoods together: below 3 s for GCN and 384 features on one core
LARGEST = 800  # nodes in one of them
TOP = 6  # neighbours of a node
ID = 60  # characters


def explained(entry: Entry, chosen: np.ndarray, test: np.ndarray) -> dict[int, Any]:
    """By place in `chosen` (m,): [class, logit, baseline, contributions by hop, neighbours, others, labels].

    Where labels are numbers, the class is the first target and logits are numbers in the unit of the labels.
    Test nodes (k,) come first. A run that cannot be restored, such as one of a GNN that was an object or of a
    module that is not trusted, has none.
    """
    if not entry.runs or not (entry.runs[0].gnn in GNNS or imports_trusted()):
        return {}
    try:
        predictor = Predictor(entry.runs[0])
        model = predictor.model
        grown = model.grow(0, np.empty((2, 0), np.int64))
        places = np.argsort(~np.isin(chosen, test), kind="stable")[:TRIED]
        out: dict[int, Any] = {}
        left = MOST_REACHED
        for place in map(int, places):
            near, _ = within(grown, int(chosen[place]), reach_of(model.gnn), most=min(left, LARGEST))
            if len(near) > min(left, LARGEST):
                continue
            left -= len(near)
            out[place] = _row(predictor, int(chosen[place]))
            if len(out) == MOST:
                break
        return out
    except LabelDeconvError as why:
        logger.info("the report explains no nodes: %s", why)
        return {}


def _row(predictor: Predictor, node: int) -> list[Any]:
    graph, task = predictor.run.graph, predictor.task
    told = predictor.explain(graph.node_id(node), top=TOP)
    number = graph.class_names.index(told.of)
    digits = decimals(task.std[number]) if isinstance(task, RegressionTask) else 2
    near = [[shortened(n.id, ID), n.distance, round(n.contribution, digits)] for n in told.neighbours]
    return [
        number,
        round(told.logit, digits),
        round(told.baseline, digits),
        [round(value, digits) for value in told.by_hop],
        near,
        [told.num_others, round(told.others, digits)],
        None if told.of_labels is None else round(told.of_labels, digits),
        [round(told.own, digits), told.how, told.hops_are],
    ]
