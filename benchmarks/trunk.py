"""Ways to train MiniLM for less, against training all of its layers, and equal texts encoded once.

    python benchmarks/trunk.py --data FOLDER                       # nodes a second of the training step: a frozen trunk
    python benchmarks/trunk.py --data FOLDER --ways all,lora,bfloat16,8bit,compile    # adapters, moments, torch.compile
    python benchmarks/trunk.py --data FOLDER --quality --seeds 2   # validation and test score, whole fits
    python benchmarks/trunk.py --words FILE.conllu.gz              # words of a treebank: each different one once

Steps of all ways are interleaved on the same batches, and a ratio is the median over rounds of CPU time, so that a busy
machine does not matter. `begin` is what the first steps cost, which do not count: compilation. `trunk_seconds` is what
the states cost once; `pays_after_epochs` the epochs that win it back.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labeldeconv import fit
from labeldeconv.data.opening import open_data
from labeldeconv.data.part import connected_part
from labeldeconv.encoders.pretrained import Pretrained, Weights
from labeldeconv.encoders.tokens import Tokens, epoch_batches, tokens
from labeldeconv.encoders.trunk import split_for
from labeldeconv.encoders.vocabulary import used_vocabulary
from labeldeconv.gnns.base import Psi
from labeldeconv.gnns.gcn import GCN
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.task import Task
from labeldeconv.graph.texts import Texts
from labeldeconv.labels.inverse import InverseLabels
from labeldeconv.settings.models import EncoderConfig, TrainConfig
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.stage import Folder, session
from labeldeconv.training.encoder import Objective, _prepare, _step, make_optimizer
from labeldeconv.training.features import export_features
from labeldeconv.training.steps import autocast
from labeldeconv.training.token_states import token_states

CPU = torch.device("cpu")
CLASSES = 40  # of made-up labels: what they say does not change the time


@dataclass
class Stepper:
    """A way to train, called with batches, a step for each."""

    objective: Objective
    optimizer: torch.optim.Optimizer
    store: Tokens

    def __call__(self, batches: list[np.ndarray]) -> float:
        """The CPU seconds of these steps."""
        start, computing = time.process_time(), autocast("float32", CPU)
        for batch in batches:
            _step(self.objective, self.optimizer, _prepare(self.store, [batch]), 1.0, computing, CPU)
        return time.process_time() - start

    @property
    def trained(self) -> int:
        """Weights of the encoder that train."""
        return sum(p.numel() for p in self.objective.encoder.parameters() if p.requires_grad)

    @property
    def moments_mib(self) -> float:
        """Memory of the optimiser's state, after the first step."""
        values = (v for state in self.optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor))
        return sum(v.nbytes for v in values) / 2**20


def stepper(weights: Weights, store: Tokens, held: ExitStack, way: str = "all") -> Stepper:
    """A way to train; `held` leaves only the word vectors that occur, as in training."""
    torch.manual_seed(0)
    model = split_for(weights.load(), store)
    labels = np.eye(CLASSES, dtype=np.float32)[np.arange(store.num_nodes) % CLASSES][:, None].repeat(2, 1)
    psi = Psi(GCN(model.dim, CLASSES, norm="layer"))
    objective = Objective(model, psi, InverseLabels(labels), Task("multiclass", CLASSES))
    held.enter_context(used_vocabulary(model, store))
    if way == "compile":
        model.compile(dynamic=True)
    states = way if way in ("bfloat16", "8bit") else "float32"
    optimizer = make_optimizer(objective, TrainConfig(optimizer_states=states))
    objective.train()
    return Stepper(objective, optimizer, store)


def interleaved(
    works: dict[str, Stepper], rounds: list[list[np.ndarray]]
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds of every work in every round, in an order that turns, and those of a first round, before them."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    begin = {}
    for k, batches in enumerate(rounds):
        order = list(works) if k % 2 else list(works)[::-1]
        for name in order:
            taken = works[name](batches)
            if k:
                seconds[name].append(taken)
            else:
                begin[name] = taken
    return seconds, begin


def steps(graph: AttributedGraph, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Nodes a second of the training step, in every way."""
    ways = args.ways.split(",")
    weights = {way: Weights(Pretrained(EncoderConfig(max_tokens=args.tokens))) for way in ways}
    if "lora" in ways:
        weights["lora"] = Weights(Pretrained(EncoderConfig(max_tokens=args.tokens, lora_rank=args.rank)))
    with session(Cache(folder)):
        store = tokens(graph.texts, weights[ways[0]].pretrained.tokenizer, args.tokens)
        states = token_states(store, weights["trunk"], args.train_layers, "float32") if "trunk" in ways else None
    all_batches = epoch_batches(store.lengths, np.arange(store.num_nodes), 32, 1 << 20, 0, 0)
    rounds = [part for k in range(args.rounds + 1) if (part := all_batches[k * args.steps : (k + 1) * args.steps])]
    with ExitStack() as held:
        works = {w: stepper(weights[w], states if w == "trunk" and states else store, held, w) for w in ways}
        seconds, begin = interleaved(works, rounds)
        sizes = {way: {"trained_weights": work.trained, "moments_mib": work.moments_mib} for way, work in works.items()}
    nodes = sum(sum(map(len, part)) for part in rounds[1:])
    found: dict[str, Any] = {}
    for way in ways:
        found[way] = {"nodes_per_second": nodes / sum(seconds[way]), "begin": begin[way], **sizes[way]}
        if "all" in ways:
            ratios = [a / b for a, b in zip(seconds["all"], seconds[way], strict=True)]
            found[way] |= {"speed": statistics.median(ratios), "speeds": ratios}
    if states is not None and "all" in ways:
        saved = 1 / found["all"]["nodes_per_second"] - 1 / found["trunk"]["nodes_per_second"]
        found["trunk"] |= {
            "trunk_seconds": states.seconds,
            "pays_after_epochs": states.seconds / (store.num_nodes * saved),
            "states_mb": states.states.nbytes / 1e6,
        }
    return {**found, "mean_tokens": float(store.lengths.mean()), "raw": {"seconds": seconds}}


def quality(graph: AttributedGraph, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Scores of whole fits with all layers and with the last ones trained, and the seconds of their encoder phases."""
    found: dict[str, list[dict[str, Any]]] = {"all": [], "trunk": []}
    for seed in range(args.seeds):
        for name, number in (("all", None), ("trunk", args.train_layers)):
            own = {} if number is None else {"encoder__train_layers": number}
            result = fit(
                graph,
                method=args.method,
                encoder="minilm",
                seed=seed,
                out=folder / f"{name}{seed}",
                cache=folder / "cache",
                encoder__max_tokens=args.tokens,
                train__epochs=2,
                train__lr=2e-4,
                gnn__epochs=150,
                **own,
            )
            row = {"val": 100 * result.val, "test": 100 * result.test, "seconds": dict(result.seconds)}
            found[name].append(row)
            print(name, seed, json.dumps(row), flush=True)
    means = {
        name: {key: statistics.fmean(row[key] for row in rows) for key in ("val", "test")}
        for name, rows in found.items()
    }
    difference = {key: means["trunk"][key] - means["all"][key] for key in ("val", "test")}
    return {"method": args.method, "means": means, "trunk_minus_all": difference, "raw": found}


def words(path: Path, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Export and training step over the words of a treebank, each different word once against every word."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = (line.split("\t") for line in file if line[:1].isdigit())
        texts = Texts.from_strings([row[1] for row in rows if row[0].isdigit()][: args.nodes])
    weights = Weights(Pretrained(EncoderConfig(max_tokens=args.tokens, layers=args.layers)))
    with session(Cache(folder)):
        once = tokens(texts, weights.pretrained.tokenizer, args.tokens)
        every = tokens(texts, weights.pretrained.tokenizer, args.tokens)
    n = once.num_nodes
    every = Tokens(every.ids, every.offsets, every.pad_id)
    every.__dict__["first"] = np.arange(n)  # as if all words differed
    encoder = weights.load().eval()
    exported: dict[str, list[float]] = {"once": [], "every": []}
    values = {}
    for _ in range(args.rounds):
        for name, store in (("once", once), ("every", every)):
            place = Path(tempfile.mkdtemp(dir=folder))
            start = time.perf_counter()
            export_features(encoder, store, Folder(place), "float32")
            exported[name].append(time.perf_counter() - start)
            values[name] = np.load(place / "values.npy").astype(np.float32)
    batches = epoch_batches(once.lengths, np.arange(n), 32, 1 << 20, 0, 0)
    rounds = [batches[k * args.steps : (k + 1) * args.steps] for k in range(args.rounds + 1)]
    with ExitStack() as held:
        works = {"once": stepper(weights, once, held), "every": stepper(weights, every, held)}
        seconds, _ = interleaved(works, rounds)
    return {
        "nodes": n,
        "different": int((once.first == np.arange(n)).sum()),
        "different_in_a_batch": float(np.mean([len(once.distinct(ids)[0]) / len(ids) for ids in batches])),
        "ratio_export": statistics.median(a / b for a, b in zip(exported["every"], exported["once"], strict=True)),
        "ratio_training_step": statistics.median(a / b for a, b in zip(seconds["every"], seconds["once"], strict=True)),
        "largest_difference": float(np.abs(values["once"] - values["every"]).max()),
        "raw": {"export": exported, "steps": seconds},
    }


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="planted", help="a data set as the commands take it")
    parser.add_argument("--words", type=Path, help="a treebank (CoNLL-U, gzipped), whose words are the texts")
    parser.add_argument("--nodes", type=int, default=640)
    parser.add_argument("--tokens", type=int, default=32, help="most tokens of a text")
    parser.add_argument("--layers", type=int, help="with --words: only the first layers of MiniLM")
    parser.add_argument("--train-layers", type=int, default=2, help="of the way 'trunk'")
    parser.add_argument(
        "--ways", default="all,trunk", help="comma-separated: all, trunk, lora, bfloat16, 8bit, compile"
    )
    parser.add_argument("--rank", type=int, default=8, help="of the way 'lora'")
    parser.add_argument("--steps", type=int, default=4, help="in a round")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--quality", action="store_true", help="whole fits instead of steps")
    parser.add_argument("--method", default="fne")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON line")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.words:
            result = words(args.words, args, folder)
        else:
            graph = connected_part(open_data(args.data).graph, args.nodes, 0)
            result = {"nodes": graph.num_nodes, **(quality if args.quality else steps)(graph, args, folder)}
    result |= {"train_layers": args.train_layers, "tokens": args.tokens, "threads": torch.get_num_threads()}
    if args.json:
        print(json.dumps(result))
        return
    for key, value in result.items():
        if key != "raw":
            print(f"{key:24} {value}")


if __name__ == "__main__":
    main()
