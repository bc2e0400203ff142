"""The GNN phase of a small graph, training and evaluation every epoch, against the same GNN written with PyG and torch.

    python benchmarks/gnn_train.py
    python benchmarks/gnn_train.py --gnns sagn,gamlp --before ../old --json

25,147 nodes (the words of a treebank), 384 features, 150,000 random edges, 60% train nodes. Peers: SAGN and GAMLP as
torch modules over hop features in memory, in float32; GCN by GCNConv on a torch sparse matrix; GAT and RevGAT by
GATConv on an edge_index, RevGAT in PyG's GroupAddRev. All take the same steps: forward and backward on the train nodes,
Adam, logits and accuracy of the validation nodes, a copy of the best weights. Every contestant runs in a process of its
own (`--before` is a folder with another version of labeldeconv) and they take turns. The first epoch of a turn is not
counted; ratios are of the least epoch over all turns, in CPU seconds and in wall seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GroupAddRev

NODES, WIDTH, CLASSES, EDGES = 25_147, 384, 17, 150_000
HIDDEN, HEADS, HOPS = 256, 3, 2
GNNS = ("sagn", "gamlp", "gcn", "gat", "revgat")
ROW_NORMALISED = ("sagn", "gamlp", "gat")


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features (n, d) float16, edges (2, e), labels (n,)."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((NODES, WIDTH)).astype(np.float16)
    return x, rng.integers(NODES, size=(2, EDGES)), rng.integers(CLASSES, size=NODES)


def clock() -> tuple[float, float]:
    """CPU and wall seconds."""
    return time.process_time(), time.perf_counter()


def own(name: str, epochs: int) -> list[tuple[float, float]]:
    """The clock at the start of every epoch of the stage `gnn`, but for the last."""
    from labeldeconv.gnns.architecture import Architecture
    from labeldeconv.graph.attributed import AttributedGraph
    from labeldeconv.graph.split import Split
    from labeldeconv.graph.texts import Texts
    from labeldeconv.settings.models import GNNAdjacencyConfig, GNNConfig
    from labeldeconv.stages.cache import Cache
    from labeldeconv.stages.stage import session
    from labeldeconv.training import gnn as module
    from labeldeconv.training.features import given

    x, edges, labels = data()
    texts = Texts.from_strings(["word"] * NODES)
    names = [str(c) for c in range(CLASSES)]
    graph = AttributedGraph(texts, edges, labels, Split.stratified(labels, 0), names, name="words")
    row = name in ROW_NORMALISED
    adjacency = GNNAdjacencyConfig(normalization="row" if row else "symmetric", self_loops=not row)
    config = GNNConfig(name=name, epochs=epochs, layers=3 if name == "revgat" else 2, adjacency=adjacency)
    times, real = [], module._Training.epoch

    def timed(training: Any, *rest: Any) -> float:
        times.append(clock())
        return real(training, *rest)

    module._Training.epoch = timed  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder, session(Cache(Path(folder))):
        module.gnn(given(x), graph, Architecture.of(config), config, 0)
    return times


class PlainSAGN(nn.Module):
    """SAGN of plain torch: hop features (b, h, d) to logits (b, c)."""

    def __init__(self) -> None:
        super().__init__()
        self.hops = nn.ModuleList(nn.Linear(WIDTH, HIDDEN) for _ in range(HOPS + 1))
        self.own, self.other = nn.Linear(HIDDEN, 1, bias=False), nn.Linear(HIDDEN, 1, bias=False)
        self.residual, self.norm = nn.Linear(WIDTH, HIDDEN, bias=False), nn.BatchNorm1d(HIDDEN)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Attention over the hops, a residual, one linear map."""
        x = F.dropout(x, 0.2, self.training)
        z = torch.stack([hop(x[:, i]) for i, hop in enumerate(self.hops)], 1)
        theta = F.leaky_relu(self.own(z[:, :1]) + self.other(z), 0.2).softmax(1)
        h = self.norm((theta * z).sum(1) + self.residual(x[:, 0])).relu()
        return self.head(F.dropout(h, 0.5, self.training))


class PlainGAMLP(nn.Module):
    """GAMLP of plain torch with recursive attention: hop features (b, h, d) to logits (b, c)."""

    def __init__(self) -> None:
        super().__init__()

        def hop() -> nn.Module:
            parts = (nn.BatchNorm1d(HIDDEN), nn.PReLU(), nn.Dropout(0.5))
            return nn.Sequential(nn.Linear(WIDTH, HIDDEN), *parts, nn.Linear(HIDDEN, HIDDEN))

        self.hops = nn.ModuleList(hop() for _ in range(HOPS + 1))
        self.attend, self.residual = nn.Linear(2 * HIDDEN, 1), nn.Linear(WIDTH, HIDDEN, bias=False)
        self.linears = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm1d(HIDDEN) for _ in range(3))
        self.act, self.head_act, self.output = nn.PReLU(), nn.PReLU(), nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """MLPs per hop, attention, a residual, an MLP with initial residuals."""
        x = F.dropout(x, 0.2, self.training)
        z = [hop(x[:, i]) for i, hop in enumerate(self.hops)]
        scores: list[Tensor] = []
        for i, z_i in enumerate(z):
            against = self._mixed(z[:i], scores) if i else z_i
            scores.append(F.leaky_relu(self.attend(torch.cat([against, z_i], 1)), 0.2))
        h = F.dropout(self.act(self._mixed(z, scores) + self.residual(x[:, 0])), 0.5, self.training)
        h = first = self.norms[0](self.linears[0](h)) + h
        for linear, norm in zip(list(self.linears)[1:], list(self.norms)[1:], strict=True):
            g = F.dropout(self.head_act(h), 0.5, self.training)
            h = norm(linear(0.5 * g + 0.5 * first)) + g
        return self.output(F.dropout(self.head_act(h), 0.5, self.training))

    def _mixed(self, z: list[Tensor], scores: list[Tensor]) -> Tensor:
        theta = F.dropout(torch.cat(scores, 1).softmax(1), 0.5, self.training)
        return sum((theta[:, i : i + 1] * z_i for i, z_i in enumerate(z)), torch.zeros(()))


class PlainGCN(nn.Module):
    """Two GCNConvs on a sparse matrix."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.first = GCNConv(WIDTH, HIDDEN, normalize=False)
        self.second = GCNConv(HIDDEN, CLASSES, normalize=False)
        self.norm, self.matrix = nn.BatchNorm1d(HIDDEN), matrix

    def forward(self, x: Tensor) -> Tensor:
        """(n, d) to (n, c)."""
        h = F.dropout(self.norm(self.first(x, self.matrix)).relu(), 0.5, self.training)
        return self.second(h, self.matrix)


class Conv(nn.Module):
    """GATConv with a linear residual."""

    def __init__(self, a: int, b: int, heads: int) -> None:
        super().__init__()
        self.conv = GATConv(a, b, heads, add_self_loops=False, bias=False)
        self.skip = nn.Linear(a, b * heads)

    def forward(self, h: Tensor, edges: Tensor) -> Tensor:
        """(n, a) to (n, heads * b)."""
        return self.conv(h, edges) + self.skip(h)


class PlainGAT(nn.Module):
    """Two layers of GATConv with residuals between an input and an output map."""

    def __init__(self, edges: Tensor) -> None:
        super().__init__()
        self.input = nn.Linear(WIDTH, HIDDEN)
        self.convs = nn.ModuleList([Conv(HIDDEN, HIDDEN, HEADS), Conv(HEADS * HIDDEN, HIDDEN, HEADS)])
        self.norms = nn.ModuleList(nn.BatchNorm1d(HEADS * HIDDEN) for _ in range(2))
        self.output, self.edges = nn.Linear(HEADS * HIDDEN, CLASSES), edges

    def forward(self, x: Tensor) -> Tensor:
        """(n, d) to (n, c)."""
        h = self.convs[0](F.dropout(self.input(x).relu(), 0.1, self.training), dropped(self, 0.1))
        h = self.convs[1](self._between(0, h), dropped(self, 0.1)) + h
        return self.output(self._between(1, h))

    def _between(self, i: int, h: Tensor) -> Tensor:
        return F.dropout(self.norms[i](h).relu(), 0.5, self.training)


class Group(nn.Module):
    """A group of a reversible block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm1d(width), Conv(width, width // HEADS, HEADS)

    def forward(self, h: Tensor, edges: Tensor, mask: Tensor | None) -> Tensor:
        """(n, width) to (n, width)."""
        h = self.norm(h).relu()
        return self.conv(h if mask is None else h * mask, edges)


class PlainRevGAT(nn.Module):
    """Input convolution, one reversible block of two groups, output convolution."""

    def __init__(self, edges: Tensor) -> None:
        super().__init__()
        width = HEADS * HIDDEN
        self.input_norm, self.input = nn.BatchNorm1d(WIDTH), Conv(WIDTH, HIDDEN, HEADS)
        self.block = GroupAddRev(nn.ModuleList(Group(width // 2) for _ in range(2)))
        self.norm, self.output, self.edges = nn.BatchNorm1d(width), Conv(width, CLASSES, 1), edges

    def forward(self, x: Tensor) -> Tensor:
        """(n, d) to (n, c)."""
        edges = dropped(self, 0.3)
        h = self.input(F.dropout(self.input_norm(x), 0.25, self.training), edges)
        mask = torch.empty_like(h[:, ::2]).bernoulli_(0.25).div_(0.25) if self.training else None
        self.block.disable = not torch.is_grad_enabled()
        h = self.block(h, edges, mask)
        return self.output(F.dropout(self.norm(h).relu(), 0.75, self.training), edges)


def dropped(module: Any, share: float) -> Tensor:
    """The edges of a module, some left out in training."""
    edges = module.edges
    return edges[:, torch.rand(edges.shape[1]) >= share] if module.training else edges


def peer(name: str, epochs: int) -> list[tuple[float, float]]:
    """The clock at the start of every epoch of the same training with PyG and torch."""
    from labeldeconv.graph.split import Split
    from labeldeconv.propagation.adjacency import Adjacency, propagate
    from labeldeconv.settings.models import AdjacencyConfig

    warnings.filterwarnings("ignore", message="Sparse")
    features, edges, labels = data()
    split, row = Split.stratified(labels, 0), name in ROW_NORMALISED
    config = AdjacencyConfig(normalization="row" if row else "symmetric", self_loops=not row)
    adj, cpu = Adjacency.from_edges(edges, NODES, config), torch.device("cpu")
    x = torch.from_numpy(features.astype(np.float32))
    train, val = torch.from_numpy(split.train), torch.from_numpy(split.val)
    y = torch.from_numpy(labels)
    inputs = (x, x)
    if name in ("sagn", "gamlp"):
        hops = torch.from_numpy(np.stack(list(propagate(adj, x.numpy(), HOPS)), 1))
        inputs = hops[train], hops[val]
    make: dict[str, Callable[[], nn.Module]] = {
        "sagn": PlainSAGN,
        "gamlp": PlainGAMLP,
        "gcn": lambda: PlainGCN(adj.on(cpu)),
        "gat": lambda: PlainGAT(adj.edge_index(cpu)),
        "revgat": lambda: PlainRevGAT(adj.edge_index(cpu)),
    }
    model = make[name]()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    chosen = (slice(None), slice(None)) if name in ("sagn", "gamlp") else (train, val)
    best, times = -1.0, []
    for _ in range(epochs):
        times.append(clock())
        model.train()
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(inputs[0])[chosen[0]], y[train]).backward()
        optimizer.step()
        model.eval()
        with torch.inference_mode():
            score = float((model(inputs[1])[chosen[1]].argmax(1) == y[val]).float().mean())
        if score > best:
            best, _kept = score, {k: v.clone() for k, v in model.state_dict().items()}
    return times


def turn(contestant: str, name: str, epochs: int, folder: Path | None) -> list[list[float]]:
    """CPU and wall seconds of the epochs of one turn, in a process of its own."""
    root = str(Path(__file__).parents[1] if folder is None else folder)
    command = [sys.executable, __file__, "--one", contestant, "--gnns", name, "--epochs", str(epochs + 2)]
    environment = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def run(names: list[str], rounds: int, epochs: int, before: Path | None) -> dict[str, Any]:
    """Ratios for every GNN."""
    contestants = {"own": None, "peer": None} | ({"before": before} if before else {})
    result: dict[str, Any] = {"nodes": NODES, "threads": torch.get_num_threads()}
    for name in names:
        raw: dict[str, list[list[float]]] = {c: [] for c in contestants}
        for _ in range(rounds):
            for contestant, folder in contestants.items():
                raw[contestant] += turn("peer" if contestant == "peer" else "own", name, epochs, folder)
        least = {c: np.min(times, 0) for c, times in raw.items()}
        for c in contestants:
            if c != "own":
                result[f"ratio_{name}_{c}"] = float(least[c][0] / least["own"][0])
                result[f"ratio_{name}_{c}_wall"] = float(least[c][1] / least["own"][1])
        result[f"cpu_seconds_{name}"] = float(least["own"][0])
        result.setdefault("raw", {})[name] = raw
    return result


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gnns", default="sagn,gamlp,gcn,gat,revgat")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4, help="counted epochs of a turn")
    parser.add_argument("--before", type=Path, help="folder of another version of labeldeconv")
    parser.add_argument("--json", action="store_true", help="one JSON line")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        times = (own if args.one == "own" else peer)(args.gnns, args.epochs)
        print(json.dumps(np.diff(np.array(times), axis=0)[1:].tolist()))
        return
    result = run(args.gnns.split(","), args.rounds, args.epochs, args.before)
    if args.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        if name != "raw":
            print(f"{name:28} {value}")


if __name__ == "__main__":
    main()
