"""The approximation figure of Appendix A.4: training curves of GCN against SpeGCN and of RevGAT against SpeGNN.

    labeldeconv analyze approximation DATA --epochs 200

All four are trained on the same X_PNE by full-batch gradient descent, without early stopping. SpeGCN is A-hat^N MLP(X)
and SpeGNN sum_i theta_i A-hat^i MLP(X) with i up to N C, N layers and C groups of the RevGAT. The plot is an SVG made
here, so that it needs no extra.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labeldeconv import stages
from labeldeconv.analysis.curves import Curve, line_chart
from labeldeconv.config import Config
from labeldeconv.graph import AttributedGraph
from labeldeconv.names import open_data
from labeldeconv.pipeline import make_job
from labeldeconv.record import Cache, write_json, write_text
from labeldeconv.settings import load_config
from labeldeconv.task import Task

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
    config: Config,
    epochs: int = 200,
    out: Path | None = None,
    graph: AttributedGraph | None = None,
    cache: Cache | None = None,
) -> Approximation:
    """Train the four GNNs on X_PNE of `config.data` and write numbers and plot."""
    cache = cache or Cache()
    graph = graph or open_data(config.data, config.data_seed, cache).graph
    graph = graph.resplit(config.split, config.data_seed)
    curves = [_train(name, config, epochs, graph, cache) for pair in PAIRS for name in pair]
    out = out or Path("runs") / f"{graph.name}-approximation"
    out.mkdir(parents=True, exist_ok=True)
    result = Approximation(graph.name, Task.of(graph).metric, curves, out)
    write_text(out / "approximation.csv", result.to_csv())
    write_text(out / "approximation.svg", result.to_svg())
    write_json(out / "approximation.json", result.to_dict())
    return result


def _train(name: str, config: Config, epochs: int, graph: AttributedGraph, cache: Cache) -> Training:
    layers = max(config.gnn.layers, 3) if name in ("revgat", "spegnn") else config.gnn.layers  # 3: one reversible block
    options: dict[str, Any] = {"revgat": {"groups": GROUPS}, "spegnn": {"convolutions": layers * GROUPS}}.get(name, {})
    settings = {"name": name, "options": options, "layers": layers, "epochs": epochs, "patience": epochs}
    settings |= {"batching": "full", "eval_every": 1}
    job = make_job(load_config(config, {f"gnn.{k}": v for k, v in settings.items()}), graph, cache)
    stage = stages.gnn(job, stages.encode(job))
    rows = [json.loads(line) for line in (stage.path / "epochs.jsonl").read_text().splitlines()]
    columns = {key: [row[key] for row in rows] for key in ("epoch", "loss", "val")}
    scores = stage.info["val"], stage.info["test"]
    return Training(name, columns["epoch"], columns["loss"], columns["val"], *scores)
