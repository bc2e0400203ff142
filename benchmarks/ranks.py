"""What a second rank brings, and what FSDP2 saves: seconds, CPU seconds and memory, on one machine.

    python benchmarks/ranks.py                             # scaling: 5 rounds of all parts
    python benchmarks/ranks.py --only encoder,hops --rounds 3 --scale 0.2 --json
    python benchmarks/ranks.py --memory                    # ddp and fsdp, an encoder of 100 million parameters

Parts are what ranks share: training and features of an encoder, hops, a GNN fed by rows and one with sampled
neighbours. Every round runs all parts as one process with one thread (the baseline), as one process with two threads
(what anybody would run on two cores, and so the honest peer) and as two ranks with one thread each, in turn: others on
the machine disturb all alike. Two ranks can at most be twice as fast as the baseline. CPU seconds are of all ranks.

Scaling efficiency by wall is t(1 rank) / (2 t(2 ranks)), by CPU cpu(1 rank) / cpu(2 ranks); the peer's ratio is
t(1 process, 2 threads) / t(2 ranks). Medians over the rounds of ratios inside a round.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labeldeconv.encoders.pretrained import Pretrained, Weights, load_encoder, wrapped
from labeldeconv.encoders.tokens import Tokens
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.graph.task import Task
from labeldeconv.graph.texts import Texts
from labeldeconv.labels.targets import TrueLabels
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.hop_blocks import RowBlock, write_hops_together
from labeldeconv.propagation.outofcore import write_hops
from labeldeconv.settings.models import AdjacencyConfig, EncoderConfig, GNNConfig, TrainConfig
from labeldeconv.stages import ranks
from labeldeconv.stages.files import map_array
from labeldeconv.stages.memory import anonymous_memory_mib, peak_memory_mib, reset_peak_memory
from labeldeconv.stages.shared_arrays import rows_of_all
from labeldeconv.stages.stage import Folder
from labeldeconv.training.encoder import LinearHead, Objective, train_encoder
from labeldeconv.training.features import features
from labeldeconv.training.gnn import gnn
from labeldeconv.training.sharding import own_part

SETUPS = {"1 rank": (1, 1), "1 process, 2 threads": (1, 2), "2 ranks": (2, 1)}  # ranks, threads of each
CLASSES, WIDTH, MIB = 10, 64, 1 << 20
VOCABULARY = 1000
WARM = 0.02  # scale of the run before the measured one


def bert(hidden: int, layers: int) -> Any:
    """A random transformer without dropout, with the tokenizer of 'tiny', as an encoder."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "intermediate_size": 4 * hidden}
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(vocab_size=VOCABULARY, num_attention_heads=hidden // 64 or 1, **sizes, **still)
    tokenizer: Any = load_encoder(EncoderConfig(name="tiny"))
    return BertModel(config, add_pooling_layer=False), tokenizer.tokenizer


def random_tokens(nodes: int, length: int) -> Tokens:
    """Tokens of nodes with attributes of `length` on average."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(length // 2, 3 * length // 2 + 1, nodes)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Tokens(generator.integers(1, 100, offsets[-1]).astype(np.int32), offsets, 0)


def random_graph(nodes: int, edges: int) -> AttributedGraph:
    """A random graph with labels."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, CLASSES, nodes)
    split = Split.stratified(labels, 0)
    texts = Texts.from_strings("" for _ in range(nodes))
    ends = generator.integers(0, nodes, (2, edges))
    return AttributedGraph(texts, ends, labels, split, [str(k) for k in range(CLASSES)], name="random")


class X:
    """Random features (n, d), as an artefact has them."""

    content_key = "x"

    def __init__(self, nodes: int) -> None:
        self.values = np.random.default_rng(0).normal(size=(nodes, WIDTH)).astype(np.float16)


Part = Callable[[Path], object]


def parts(scale: float) -> dict[str, Callable[[], Part]]:
    """By name what prepares a part and gives what is measured, a function of a new folder that all ranks see."""

    def encoder() -> Part:
        tokens, model = random_tokens(int(600 * scale), 64), wrapped(bert(256, 4), EncoderConfig())
        settings = TrainConfig(epochs=1, precision="float32", checkpoint_minutes=60.0)
        labels = TrueLabels(np.arange(tokens.num_nodes) % CLASSES, Task("multiclass", CLASSES), 0.0)
        head = LinearHead(CLASSES).build(model.dim, labels, np.empty(0))
        goal = Objective(model, head, labels, Task("multiclass", CLASSES))
        return lambda folder: train_encoder(goal, tokens, np.arange(tokens.num_nodes), settings, 0, Folder(folder))

    def encoded() -> Part:
        tokens = random_tokens(int(2000 * scale), 64)
        weights = Weights(Pretrained(EncoderConfig(), bert(256, 4)))
        return lambda folder: features.function(Folder(folder), tokens, weights, "float32")

    def hops() -> Part:
        nodes = int(400_000 * scale)
        ends = np.random.default_rng(0).integers(0, nodes, (2, 8 * nodes))
        x = X(nodes).values.astype(np.float32)

        def made(folder: Path) -> None:
            """A-hat and three hops."""
            shape, path = (nodes, 4, WIDTH), folder / "K.npy"
            if ranks.world() == 1:
                adj = Adjacency.from_edges(ends, nodes, AdjacencyConfig())
                write_hops(adj, x, 3, map_array(path, shape, np.float32), folder)
                return
            block = RowBlock.from_edges(ends, nodes, AdjacencyConfig())
            with rows_of_all(path, shape, np.float32, block.rows) as own:
                write_hops_together(block, x, 3, own, folder)

        return made

    def trained(config: GNNConfig, nodes: int, degree: int) -> Callable[[], Part]:
        def prepared() -> Part:
            graph, x = random_graph(nodes, degree * nodes), X(nodes)
            return lambda folder: gnn.function(Folder(folder), x, graph, Architecture.of(config), config, 0)

        return prepared

    common = {"layers": 2, "hidden": 128, "checkpoint_minutes": 60.0}
    rows = GNNConfig(name="sagn", epochs=5, batch_rows=10_000, **common)
    neighbours = GNNConfig(
        name="sage", epochs=2, batching="neighbors", batch_nodes=512, fanouts=[10], eval_every=2, **common
    )
    return {
        "encoder": encoder,
        "features": encoded,
        "hops": hops,
        "gnn by rows": trained(rows, int(40_000 * scale), 8),
        "gnn by neighbours": trained(neighbours, int(20_000 * scale), 8),
    }


def measured(folder: Path, names: list[str], scale: float) -> dict[str, list[float]]:
    """Seconds and CPU seconds of the parts on this rank; each is run once before, small, so that kernels are there."""
    found = {}
    for name in names:
        runs = {"warm": parts(WARM)[name]()} if scale > WARM else {}
        runs["real"] = parts(scale)[name]()
        for kind, run in runs.items():
            own = folder / f"{name} {kind}"
            own.mkdir(parents=True, exist_ok=True)
            ranks.meet(f"the start of {name}")
            start, cpu = time.perf_counter(), time.process_time()
            run(own)
            ranks.meet(f"the end of {name}")
            found[name] = [time.perf_counter() - start, time.process_time() - cpu]
    return found


def memory(folder: Path, parallel: str, hidden: int, layers: int) -> dict[str, Any]:
    """What a rank holds and its peak, in MiB beyond what it had before, over three steps of a random encoder."""
    base = anonymous_memory_mib() or 0.0
    model = wrapped(bert(hidden, layers), EncoderConfig())
    tokens = random_tokens(24, 16)
    labels = TrueLabels(np.arange(24) % CLASSES, Task("multiclass", CLASSES), 0.0)
    head = LinearHead(CLASSES).build(model.dim, labels, np.empty(0))
    settings = TrainConfig(epochs=1, batch_nodes=8, precision="float32", checkpoint_minutes=60.0, parallel=parallel)
    held: dict[str, float] = {}
    step = torch.optim.AdamW.step

    def seen(optimizer: Any, *args: Any) -> Any:
        """Looks after the last step, when moments, weights and gradients are there."""
        told = step(optimizer, *args)
        weights = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [p.grad for p in weights if p.grad is not None]
        moments = [slot for state in optimizer.state.values() for slot in state.values()]
        sizes = {"weights": weights, "gradients": gradients, "moments": moments}
        for kind, tensors in sizes.items():
            held[kind] = sum(own_part(t).nbytes for t in tensors) / MIB
        if "resident" not in held:
            reset_peak_memory()  # the loading of a whole encoder, before it is cut, is not a step's peak
        held["resident"] = (anonymous_memory_mib() or 0.0) - base
        return told

    torch.optim.AdamW.step = seen  # type: ignore[method-assign, assignment]
    goal = Objective(model, head, labels, Task("multiclass", CLASSES))
    start = time.perf_counter()
    train_encoder(goal, tokens, np.arange(24), settings, 0, Folder(folder))
    numbers = sum(p.numel() for p in model.parameters())
    return {
        "parameters": numbers,
        **{kind: round(size, 1) for kind, size in held.items()},
        "peak": round((peak_memory_mib() or 0.0) - base, 1),
        "seconds": round(time.perf_counter() - start, 1),
    }


def rank_of(asked: argparse.Namespace) -> None:
    """One rank: measures what it is asked for and writes it beside the others'."""
    folder = Path(asked.folder)
    with ranks.joined():
        if asked.memory:
            found: Any = memory(folder, asked.parallel, asked.hidden, asked.layers)
        else:
            found = measured(folder, asked.only.split(","), asked.scale)
    (folder / f"told-{ranks.rank()}.json").write_text(json.dumps(found))


def launched(world: int, threads: int, options: list[str]) -> list[Any]:
    """What all ranks of one setup tell, started as a launcher would."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--folder", folder, *options]
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
        where |= {"OMP_NUM_THREADS": threads, "NUMBA_NUM_THREADS": threads, "PYTHONPATH": Path(__file__).parents[1]}
        started = []
        for rank in range(world):
            own = {**where, "RANK": rank, "LOCAL_RANK": rank}
            started.append(subprocess.Popen(command, env={**os.environ, **{k: str(v) for k, v in own.items()}}))
        codes = [process.wait() for process in started]
        if any(codes):
            sys.exit(f"ranks of {' '.join(command)} ended with {codes}")
        return [json.loads((Path(folder) / f"told-{rank}.json").read_text()) for rank in range(world)]


def scaling(only: str, rounds: int, scale: float) -> Iterator[dict[str, Any]]:
    """Rounds of all setups in turn: seconds of the slowest rank and CPU seconds of all, by setup and part."""
    options = ["--only", only, "--scale", str(scale)]
    launched(1, 1, options)  # not counted: kernels that many rows alone use are compiled, which took 10 s, and cached
    for number in range(rounds):
        row = {}
        for setup in sorted(SETUPS, reverse=bool(number % 2)):
            told = launched(*SETUPS[setup], options)
            row[setup] = {
                name: {"wall": max(t[name][0] for t in told), "cpu": sum(t[name][1] for t in told)} for name in told[0]
            }
        yield row


def summary(rows: list[dict[str, Any]], name: str) -> dict[str, float]:
    """Medians of a part: seconds by setup, and ratios inside a round."""

    def median(value: Callable[[dict[str, Any]], float]) -> float:
        return statistics.median(value(row) for row in rows)

    one, peer, two = SETUPS
    found = {}
    for setup in SETUPS:
        for kind in ("wall", "cpu"):
            found[f"{kind}, {setup}"] = statistics.median(row[setup][name][kind] for row in rows)
    return {
        **found,
        "efficiency_wall": median(lambda r: r[one][name]["wall"] / (2 * r[two][name]["wall"])),
        "efficiency_cpu": median(lambda r: r[one][name]["cpu"] / r[two][name]["cpu"]),
        "ratio_two_threads": median(lambda r: r[peer][name]["wall"] / r[two][name]["wall"]),
    }


def main() -> None:
    """Measure, and print a line for each part, or for each way to hold an encoder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(parts(1.0)), help="parts, by comma")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes")
    parser.add_argument("--memory", action="store_true", help="memory of ddp and fsdp in place of scaling")
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--layers", type=int, default=14, help="of the encoder whose memory is measured")
    parser.add_argument("--parallel", default="ddp", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)  # a rank
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.folder:
        return rank_of(asked)
    told: dict[str, Any] = {"cores": os.cpu_count(), "load": os.getloadavg()}
    if asked.memory:
        size = ["--memory", "--hidden", str(asked.hidden), "--layers", str(asked.layers)]
        for world, parallel in ((1, "ddp"), (2, "ddp"), (2, "fsdp")):
            name = f"{world} x {parallel}"
            told[name] = launched(world, 1, [*size, "--parallel", parallel])
            for rank, found in enumerate(told[name]):
                sys.stderr.write(f"{name:10} rank {rank}: {found}\n")
    else:
        rows = []
        for row in scaling(asked.only, asked.rounds, asked.scale):
            rows.append(row)
            sys.stderr.write(f"round {len(rows)} of {asked.rounds}\n")
        for name in asked.only.split(","):
            told[name] = summary(rows, name)
            figures = ", ".join(f"{what} {value:.2f}" for what, value in told[name].items())
            sys.stderr.write(f"{name}: {figures}\n")
    if asked.json:
        print(json.dumps(told))
    return None


if __name__ == "__main__":
    main()
