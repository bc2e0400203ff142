"""The whole of `fit`, stage by stage, against the same flow of transformers.Trainer, sentence-transformers and PyG.

    python benchmarks/journey.py                                   # planted:600, minutes
    python benchmarks/journey.py --data debian#6000,stacks,planted:100000 --layers 6 --json

LD with a GCN on MiniLM: features of the pre-trained encoder, a GCN, its pseudo labels, hop labels, one epoch of the
encoder on inverse labels, features again, a second GCN. The peer is what a user would write: `encode` of
sentence-transformers in batches of 128; GCNConv on a torch sparse matrix with its best epoch by validation; products
with that matrix for the hop labels; transformers.Trainer with batches of 32 grouped by length, a learned gamma and
fused AdamW. Both sides read the same graph, which is not counted, and have the same epochs, batch, lengths and
precision. Each runs in a process of its own, with an empty cache. `stacks` is ../shared/data/stacks beside the project,
or in LABELDECONV_TEST_DATA; data that are not there are said to be skipped.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labeldeconv.data.opening import open_data
from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.errors import LabelDeconvError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import AdjacencyConfig, EncoderConfig
from labeldeconv.stages.memory import peak_memory_mib, reset_peak_memory, resident_memory_mib, return_freed_memory

HERE = Path(__file__).parent
REAL = Path(os.environ.get("LABELDECONV_TEST_DATA", HERE.parents[1] / "shared" / "data"))
TOKENS, HIDDEN, GNN_EPOCHS, HOPS = 64, 256, 200, 2
LR, PSI_LR, WEIGHT_DECAY = 5e-5, 1e-3, 0.01


class Clock:
    """Wall and CPU seconds by stage."""

    def __init__(self) -> None:
        reset_peak_memory()
        self.wall: dict[str, float] = {}
        self.start = time.perf_counter(), time.process_time()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a block."""
        start = time.perf_counter()
        yield
        self.wall[name] = self.wall.get(name, 0.0) + time.perf_counter() - start

    def done(self, memory: float, test: float) -> dict[str, Any]:
        """What a contestant reports."""
        wall, cpu = time.perf_counter() - self.start[0], time.process_time() - self.start[1]
        added = (peak_memory_mib() or 0.0) - memory
        return {"stages": self.wall, "wall": wall, "cpu": cpu, "added_mib": added, "test": test}


def opened(name: str) -> AttributedGraph:
    """The graph, by name or from the folder of real data."""
    base = name.partition("#")[0]
    return open_data(str(REAL / name) if (REAL / base).is_dir() else name, 0).graph


def own(graph: AttributedGraph, layers: int) -> dict[str, Any]:
    """`fit`, with the seconds that it tells of its stages."""
    from labeldeconv import fit

    memory, clock = resident_memory_mib() or 0.0, Clock()
    settings: dict[str, Any] = {"encoder.layers": layers, "encoder.max_tokens": TOKENS, "train.epochs": 1}
    settings |= {"train.precision": "float32", "gnn.epochs": GNN_EPOCHS}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        result = fit(graph, "ld", "minilm", "gcn", out=place / "run", cache=place / "cache", **settings)
        clock.wall = dict(result.seconds)
        return clock.done(memory, result.test)


class PlainGCN(nn.Module):
    """Two GCNConvs; without a matrix its psi."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        from torch_geometric.nn import GCNConv

        self.first = GCNConv(width, HIDDEN, normalize=False)
        self.second = GCNConv(HIDDEN, classes, normalize=False)
        self.norm = nn.BatchNorm1d(HIDDEN)

    def forward(self, x: Tensor, matrix: Tensor) -> Tensor:
        """(n, d) to (n, c)."""
        h = F.dropout(self.norm(self.first(x, matrix)).relu(), 0.5, self.training)
        return self.second(h, matrix)

    def psi(self, x: Tensor) -> Tensor:
        """(b, d) to (b, c)."""
        h = self.norm(self.first.lin(x) + self.first.bias).relu()
        return self.second.lin(F.dropout(h, 0.5, self.training)) + self.second.bias


def train_gcn(x: np.ndarray, matrix: Tensor, graph: AttributedGraph, classes: int) -> np.ndarray:
    """Logits (n, c) at the best validation epoch."""
    torch.manual_seed(0)
    model, features = PlainGCN(x.shape[1], classes), torch.from_numpy(x.astype(np.float32))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, GNN_EPOCHS)
    labels = torch.from_numpy(np.asarray(graph.labels, dtype=np.int64))
    train, val = (torch.from_numpy(ids) for ids in (graph.split.train, graph.split.val))
    best, logits = -1.0, torch.zeros(0)
    for _ in range(GNN_EPOCHS):
        model.train()
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(features, matrix)[train], labels[train]).backward()
        optimizer.step()
        schedule.step()
        model.eval()
        with torch.inference_mode():
            out = model(features, matrix)
        score = float((out[val].argmax(1) == labels[val]).float().mean())
        if score > best:
            best, logits = score, out
    return logits.numpy()


class InverseLoss(nn.Module):
    """Encoder, psi and gamma behind the interface of transformers.Trainer."""

    def __init__(self, encoder: Any, psi: PlainGCN, K: Tensor) -> None:
        super().__init__()
        self.encoder, self.head, self.K = encoder, psi, K
        self.gamma = nn.Parameter(torch.zeros(K.shape[1]))

    def forward(self, input_ids: Tensor, attention_mask: Tensor, node: Tensor) -> dict[str, Tensor]:
        """Cross entropy with the mixed hop labels of the batch's nodes."""
        told = self.encoder({"input_ids": input_ids, "attention_mask": attention_mask})["sentence_embedding"]
        logits = self.head.psi(told)
        targets = (self.gamma.softmax(0)[:, None] * self.K[node]).sum(1)
        return {"loss": F.cross_entropy(logits, targets), "logits": logits}


def peer(graph: AttributedGraph, layers: int) -> dict[str, Any]:
    """The same flow of other libraries."""
    import sentence_transformers
    import transformers

    warnings.filterwarnings("ignore")
    texts = [str(text) for text in graph.texts]
    classes = int(np.asarray(graph.labels).max()) + 1
    with tempfile.TemporaryDirectory() as folder:
        load_encoder(EncoderConfig(layers=layers)).save(Path(folder) / "encoder")
        return_freed_memory()
        memory, clock = resident_memory_mib() or 0.0, Clock()
        model = sentence_transformers.SentenceTransformer(str(Path(folder) / "encoder"), device="cpu")
    model.max_seq_length = TOKENS
    config = AdjacencyConfig(normalization="symmetric", self_loops=True)
    cpu = torch.device("cpu")
    matrix = Adjacency.from_edges(graph.edges, graph.num_nodes, config).on(cpu)

    def encode() -> np.ndarray:
        return model.encode(texts, batch_size=128, convert_to_numpy=True, show_progress_bar=False)

    with clock.stage("features"):
        X = encode()
    with clock.stage("gnn"):
        logits = train_gcn(X, matrix, graph, classes)
    with clock.stage("hop labels"):
        Y = torch.from_numpy(logits).softmax(1)
        known = torch.from_numpy(np.asarray(graph.labels, dtype=np.int64)[graph.split.train])
        Y[graph.split.train] = F.one_hot(known, classes).float()
        hops = [Y]
        row = Adjacency.from_edges(graph.edges, graph.num_nodes).on(cpu)
        for _ in range(HOPS):
            hops.append(row @ hops[-1])
        K = torch.stack(hops, 1)
    with clock.stage("train"):
        ids = model.tokenizer(texts, truncation=True, max_length=TOKENS)["input_ids"]
        rows = [{"input_ids": row, "node": i, "length": len(row)} for i, row in enumerate(ids)]
        loss = InverseLoss(model, PlainGCN(X.shape[1], classes), K)
        groups = [
            {"params": list(model.parameters()), "lr": LR},
            {"params": [*loss.head.parameters(), loss.gamma], "lr": PSI_LR},
        ]
        optimizer = torch.optim.AdamW(groups, weight_decay=WEIGHT_DECAY, fused=True)
        with tempfile.TemporaryDirectory() as folder:
            arguments = transformers.TrainingArguments(
                output_dir=folder,
                num_train_epochs=1,
                per_device_train_batch_size=32,
                warmup_steps=0.1,
                train_sampling_strategy="group_by_length",
                length_column_name="length",
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
                dataloader_pin_memory=False,
                remove_unused_columns=True,
            )
            trainer = transformers.Trainer(
                model=loss,
                args=arguments,
                train_dataset=rows,
                data_collator=transformers.DataCollatorWithPadding(model.tokenizer),
                optimizers=(optimizer, None),
            )
            trainer.train()
    with clock.stage("features"):
        X = encode()
    with clock.stage("gnn"):
        logits = train_gcn(X, matrix, graph, classes)
    test = graph.split.test
    return clock.done(memory, float((logits[test].argmax(1) == np.asarray(graph.labels)[test]).mean()))


def run(names: list[str], layers: int) -> dict[str, Any]:
    """Ratios for every graph."""
    result: dict[str, Any] = {"layers": layers, "threads": torch.get_num_threads(), "data": {}}
    for name in names:
        told: dict[str, Any] = {}
        for contestant in ("own", "peer"):
            command = [sys.executable, __file__, "--one", contestant, "--data", name, "--layers", str(layers)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(done.stderr)
            told[contestant] = json.loads(done.stdout.splitlines()[-1])
            if "skipped" in told[contestant]:
                told = told[contestant]
                break
        if "skipped" not in told:
            mine, theirs = told["own"], told["peer"]
            told |= {f"ratio_{kind}": theirs[kind] / mine[kind] for kind in ("cpu", "wall", "added_mib")}
        result["data"][name] = told
    return result


def one(contestant: Callable[[AttributedGraph, int], dict[str, Any]], name: str, layers: int) -> dict[str, Any]:
    """What one side reports; data that are not there are skipped."""
    try:
        graph = opened(name)
    except (LabelDeconvError, OSError) as error:
        return {"skipped": str(error)}
    return contestant(graph, layers) | {"nodes": graph.num_nodes}


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="planted:600", help="names, with commas between them")
    parser.add_argument("--layers", type=int, default=2, help="of MiniLM, which has 6")
    parser.add_argument("--json", action="store_true", help="one JSON line")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(own if args.one == "own" else peer, args.data, args.layers)))
        return
    result = run(args.data.split(","), args.layers)
    if args.json:
        print(json.dumps(result))
        return
    for name, told in result["data"].items():
        if "skipped" in told:
            print(f"{name}: skipped, {told['skipped']}")
            continue
        ratios = ", ".join(f"{kind} {told[f'ratio_{kind}']:.2f}" for kind in ("cpu", "wall", "added_mib"))
        print(f"{name}: peer over own: {ratios}; test {told['own']['test']:.3f}, peer {told['peer']['test']:.3f}")
        for side in ("own", "peer"):
            print(f"  {side:5}", ", ".join(f"{stage} {s:.1f} s" for stage, s in told[side]["stages"].items()))


if __name__ == "__main__":
    main()
