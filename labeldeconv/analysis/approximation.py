"""The approximation figure of Appendix A.4: training curves of GCN against SpeGCN and of RevGAT against SpeGNN.

    labeldeconv analyze approximation DATA --epochs 200

All four are trained on the same X_PNE by full-batch gradient descent, without early stopping, a GNN and its twin with
the same settings. SpeGCN is A-hat^N MLP(X) and SpeGNN sum_i theta_i A-hat^i MLP(X) with i up to N C, N layers and C
groups of the RevGAT. The plot is an SVG made here, so that it needs no extra.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from labeldeconv.analysis.line_chart import Curve, line_chart
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.task import Task
from labeldeconv.methods.base import Run
from labeldeconv.runs.asked import resolve
from labeldeconv.runs.preparation import open_graph, plain_name, prepare
from labeldeconv.settings.models import Config
from labeldeconv.settings.reading import load_config
from labeldeconv.stages.files import write_json, write_text
from labeldeconv.stages.stage import session
from labeldeconv.training.features import Features

GROUPS = 2  # C of the RevGAT
PAIRS = (("gcn", "spegcn"), ("revgat", "spegnn"))


@dataclass(frozen=True)
class Training:
    """One GNN's curve: loss on the train nodes and validation score per epoch; the scores at the best epoch."""

    gnn: str
    epochs: list[int]
    loss: list[float]
    val: list[float]
    best_val: float
    test: float


@dataclass(frozen=True)
class Approximation:
    """The four curves; `out` holds approximation.json, approximation.csv and approximation.svg."""

    data: str
    metric: str
    curves: list[Training]
    out: Path

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints and approximation.json holds."""
        return {**asdict(self), "out": str(self.out), "gaps": self.gaps()}

    def gaps(self) -> dict[str, float]:
        """Test score of every GNN minus that of its spectral twin."""
        tests = {c.gnn: c.test for c in self.curves}
        return {f"{a} - {b}": round(tests[a] - tests[b], 6) for a, b in PAIRS}

    def to_csv(self) -> str:
        """One row per GNN and epoch."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["gnn", "epoch", "loss", "val"])
        for c in self.curves:
            writer.writerows((c.gnn, *row) for row in zip(c.epochs, c.loss, c.val, strict=True))
        return out.getvalue()

    def to_svg(self) -> str:
        """Loss above, validation score below; a GNN and its twin share a column."""
        by_name = {c.gnn: c for c in self.curves}
        panels = [
            (f"{a} and {b}: {what}", [Curve(g, by_name[g].epochs, getattr(by_name[g], key)) for g in (a, b)])
            for key, what in (("loss", "training loss"), ("val", f"validation {self.metric}"))
            for a, b in PAIRS
        ]
        return line_chart(panels, columns=2)


def approximation(
    config: Config, epochs: int = 200, out: Path | None = None, graph: AttributedGraph | None = None
) -> Approximation:
    """Train the four GNNs on X_PNE of `config.data`, or of a given graph, and write numbers and plot."""
    with session():
        settings = resolve(config)
        whole = open_graph(settings, graph)
        first = prepare(settings, whole)
        X = first.features(None, "encode")
        curves = [curve for pair in PAIRS for curve in _train_pair(pair, config, epochs, first, X)]
    out = out or Path("runs") / f"{plain_name(whole.name)}-approximation"
    out.mkdir(parents=True, exist_ok=True)
    result = Approximation(whole.name, first.task.metric, curves, out)
    write_text(out / "approximation.csv", result.to_csv())
    write_text(out / "approximation.svg", result.to_svg())
    write_json(out / "approximation.json", result.to_dict())
    return result


def _train_pair(pair: tuple[str, str], config: Config, epochs: int, first: Run, X: Features) -> list[Training]:
    """The curves of a GNN and of its twin, whose settings are those that the data set and the GNN suggest."""
    shared = {"name": pair[0], "options": {}, "epochs": epochs, "patience": epochs, "batching": "full", "eval_every": 1}
    settings = resolve(load_config(config, {f"gnn.{name}": value for name, value in shared.items()}))
    layers = max(settings.gnn.layers, 3) if "revgat" in pair else settings.gnn.layers  # 3: one reversible block
    options: dict[str, dict[str, Any]] = {"revgat": {"groups": GROUPS}, "spegnn": {"convolutions": layers * GROUPS}}
    own = [{"gnn.name": name, "gnn.layers": layers, "gnn.options": options.get(name, {})} for name in pair]
    return [_train(load_config(settings, names), first, X) for names in own]


def _train(settings: Config, first: Run, X: Features) -> Training:
    name, whole = settings.gnn.name, first.whole
    trained = replace(first, settings=settings, architecture=Architecture.of(settings.gnn)).gnn(X, label=name)
    rows = [json.loads(line) for line in trained.log.read_text(encoding="utf-8").splitlines()]
    columns = {key: [row[key] for row in rows] for key in ("epoch", "loss", "val")}
    test = Task.of(whole, settings.metric).score(trained.logits[whole.split.test], whole.labels[whole.split.test])
    return Training(name, columns["epoch"], columns["loss"], columns["val"], trained.val, test)
