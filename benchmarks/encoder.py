"""Encoder training and feature export against what a user would run otherwise, on the same nodes and weights.

    python benchmarks/encoder.py                       # planted texts of many lengths, minilm
    python benchmarks/encoder.py --data FOLDER --json
    python benchmarks/encoder.py --export              # feature export against sentence-transformers

Training, from the same start with the same batches of 32 nodes, epochs and rates: the own loop; the authors' recipe
(every text padded to 512 tokens, no other difference); transformers.Trainer grouping by length. Rounds are interleaved.
`loss` is the mean over all nodes after training, in evaluation mode, so that equal work can be seen. The last ratio is
an LD step over a plain cross-entropy step on the same batches, interleaved step by step.
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from torch import nn

from labeldeconv.data.opening import open_data
from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.encoders.tokens import Tokens, epoch_batches, write_tokens
from labeldeconv.encoders.vocabulary import used_vocabulary
from labeldeconv.gnns.base import Psi
from labeldeconv.gnns.gcn import GCN
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.task import Task
from labeldeconv.graph.texts import Texts
from labeldeconv.labels.hops import hop_labels
from labeldeconv.labels.inverse import InverseLabels
from labeldeconv.settings.models import EncoderConfig, TrainConfig
from labeldeconv.stages.stage import Folder
from labeldeconv.training.encoder import Objective, make_optimizer, train_encoder
from labeldeconv.training.features import export_features

LR = 5e-5


class Classes(nn.Module):
    """Plain labels: the targets of ordinary fine-tuning."""

    def __init__(self, labels: np.ndarray, classes: int) -> None:
        super().__init__()
        self.one_hot = torch.eye(classes)[torch.from_numpy(labels.astype(np.int64))]

    def forward(self, ids: np.ndarray) -> torch.Tensor:
        """Node ids (b,) to one-hot labels (b, c)."""
        return self.one_hot[ids]


class Bench:
    """Texts, labels, tokens and the starting weights of all contestants."""

    def __init__(self, graph: AttributedGraph, nodes: int, layers: int | None, folder: Path) -> None:
        self.nodes = np.arange(min(nodes, graph.num_nodes))
        self.config = EncoderConfig(layers=layers, max_tokens=512)
        self.encoder = load_encoder(self.config)
        self.texts = [str(graph.texts[int(i)]) for i in self.nodes]
        self.tokenizer = self.encoder.tokenizer_part
        self.store = write_tokens(self.tokenizer, Texts.from_strings(self.texts), 512, folder)
        self.classes = int(graph.labels.max()) + 1
        self.labels = np.maximum(graph.labels[self.nodes], 0)
        inside = (graph.edges < len(self.nodes)).all(0)
        self.K = hop_labels(graph.edges[:, inside], np.eye(self.classes, dtype=np.float32)[self.labels], 2)
        self.task = Task("multiclass", self.classes)

    def objective(self, targets: nn.Module | None = None) -> Objective:
        """A fresh copy of the same start."""
        torch.manual_seed(0)
        psi = Psi(GCN(self.encoder.dim, self.classes, norm="layer"))
        targets = targets or Classes(self.labels, self.classes)
        return Objective(copy.deepcopy(self.encoder), psi, targets, self.task)

    def final_loss(self, objective: Objective) -> float:
        """Mean loss over all nodes in evaluation mode."""
        objective.eval()
        batches = epoch_batches(self.store.lengths, self.nodes, 64, 8192, 0, 0)
        with torch.inference_mode():
            total = sum(float(objective(ids, *self.store.batch(ids))) * len(ids) for ids in batches)
        return total / len(self.nodes)


class Padded(Tokens):
    """A store whose batches are padded to 512 tokens, as in the authors' code."""

    def batch(self, nodes: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Input ids and mask (b, 512)."""
        ids, mask = super().batch(nodes)
        more = 512 - ids.shape[1]
        return F.pad(ids, (0, more), value=self.pad_id), F.pad(mask, (0, more))


def train_own(bench: Bench, store: Tokens) -> Objective:
    """One epoch of the own loop."""
    objective = bench.objective()
    config = TrainConfig(epochs=1, lr=LR, batch_tokens=1 << 20, precision="float32")
    with tempfile.TemporaryDirectory() as folder, used_vocabulary(objective.encoder, store):
        train_encoder(objective, store, bench.nodes, config, 0, Folder(Path(folder)))
    return objective


class ForTrainer(nn.Module):
    """The same encoder and psi behind the interface that transformers.Trainer expects."""

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, input_ids: Any, attention_mask: Any, labels: Any) -> dict[str, Any]:
        """Loss and logits."""
        logits = self.objective.head(self.objective.encoder(input_ids, attention_mask))
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def train_trainer(bench: Bench) -> Objective:
    """One epoch of transformers.Trainer with batches grouped by length, its AdamW and its linear schedule."""
    objective = bench.objective()
    lengths = bench.store.lengths
    rows = [
        {"input_ids": bench.store.ids[a:b].astype(np.int64).tolist(), "labels": int(y), "length": int(n)}
        for a, b, y, n in zip(bench.store.offsets[:-1], bench.store.offsets[1:], bench.labels, lengths, strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            num_train_epochs=1,
            per_device_train_batch_size=32,
            learning_rate=LR,
            weight_decay=0.01,
            warmup_steps=0.1,
            train_sampling_strategy="group_by_length",
            length_column_name="length",
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
            label_names=["labels"],
        )
        optimizer = make_optimizer(objective, TrainConfig(lr=LR))  # the same rates; the schedule is the Trainer's
        trainer = transformers.Trainer(
            model=ForTrainer(objective),
            args=arguments,
            train_dataset=rows,
            data_collator=transformers.DataCollatorWithPadding(bench.encoder.tokenizer),
            optimizers=(optimizer, None),
        )
        trainer.train()
    return objective


def interleaved(works: dict[str, Callable[[], Any]], rounds: int) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Seconds of every work in every round, and what each returned last."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    results = {}
    for _ in range(rounds):
        for name, work in works.items():
            start = time.perf_counter()
            results[name] = work()
            seconds[name].append(time.perf_counter() - start)
    return seconds, results


def step_ratio(bench: Bench, steps: int) -> dict[str, Any]:
    """Seconds of LD steps and of cross-entropy steps on the same batches, in turn."""
    contestants = {"ce": bench.objective(), "ld": bench.objective(InverseLabels(bench.K))}
    optimizers = {name: make_optimizer(o, TrainConfig(lr=LR)) for name, o in contestants.items()}
    batches = epoch_batches(bench.store.lengths, bench.nodes, 32, 1 << 20, 0, 0)[:steps]
    taken: dict[str, list[float]] = {"ce": [], "ld": []}
    for k, ids in enumerate(batches):
        for name in ("ce", "ld") if k % 2 else ("ld", "ce"):
            start = time.process_time()
            contestants[name](ids, *bench.store.batch(ids)).backward()
            optimizers[name].step()
            optimizers[name].zero_grad(set_to_none=True)
            taken[name].append(time.process_time() - start)
    ratios = np.array(taken["ld"][2:]) / np.array(taken["ce"][2:])
    return {"ld_step_over_ce_step": float(np.median(ratios)), "steps": {k: v[2:] for k, v in taken.items()}}


def training(bench: Bench, rounds: int) -> dict[str, Any]:
    """Ratios of the three ways to train."""
    padded = Padded(bench.store.ids, bench.store.offsets, bench.store.pad_id)
    works: dict[str, Callable[[], Any]] = {
        "own": lambda: train_own(bench, bench.store),
        "hf_trainer": lambda: train_trainer(bench),
        "padded_512": lambda: train_own(bench, padded),
    }
    seconds, trained = interleaved(works, rounds)
    lengths = bench.store.lengths
    batches = epoch_batches(lengths, bench.nodes, 32, 1 << 20, 0, 0)
    tokens = sum(len(ids) * int(lengths[ids].max()) for ids in batches)
    best = {name: min(s) for name, s in seconds.items()}
    steps = step_ratio(bench, 40)
    return {
        "ratio_padded_512": best["padded_512"] / best["own"],
        "ratio_hf_trainer": best["hf_trainer"] / best["own"],
        "ld_step_over_ce_step": steps["ld_step_over_ce_step"],
        "padding_share": 1 - float(lengths[bench.nodes].sum()) / tokens,
        "mean_tokens": float(lengths.mean()),
        "nodes_per_second": {name: len(bench.nodes) / s for name, s in best.items()},
        "loss": {name: bench.final_loss(o) for name, o in trained.items()},
        "raw": {"seconds": seconds, "steps": steps["steps"]},
    }


def export(bench: Bench, rounds: int) -> dict[str, Any]:
    """Ratios of feature export against sentence-transformers, at its best batch size and at its default."""
    import sentence_transformers

    encoder: Encoder = bench.encoder.eval()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        encoder.save(folder / "encoder")
        peer = sentence_transformers.SentenceTransformer(str(folder / "encoder"), device="cpu")
        peer.max_seq_length = 512

        def own() -> np.ndarray:
            place = Path(tempfile.mkdtemp(dir=folder))
            tokens = write_tokens(bench.tokenizer, Texts.from_strings(bench.texts), 512, place)
            export_features(encoder, tokens, Folder(place), "float32")
            return np.load(place / "values.npy")

        works = {
            "own": own,
            "peer": lambda: peer.encode(bench.texts, batch_size=128, convert_to_numpy=True, show_progress_bar=False),
            "peer_default": lambda: peer.encode(bench.texts, show_progress_bar=False),
        }
        seconds, found = interleaved(works, rounds)
    a, b = found["own"].astype(np.float32), np.asarray(found["peer"])
    cosine = (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    best = {name: min(s) for name, s in seconds.items()}
    return {
        "ratio_sentence_transformers": best["peer"] / best["own"],
        "ratio_sentence_transformers_default": best["peer_default"] / best["own"],
        "least_cosine": float(cosine.min()),
        "nodes_per_second": {name: len(bench.nodes) / s for name, s in best.items()},
        "sentence_transformers": sentence_transformers.__version__,
        "raw": {"seconds": seconds},
    }


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="planted", help="a data set as the commands take it")
    parser.add_argument("--nodes", type=int, default=640)
    parser.add_argument("--layers", type=int, help="only the first layers of MiniLM")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--export", action="store_true", help="feature export instead of training")
    parser.add_argument("--json", action="store_true", help="one JSON line")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        graph = open_data(args.data).graph
        bench = Bench(graph, args.nodes, args.layers, Path(folder))
        result = export(bench, args.rounds) if args.export else training(bench, args.rounds)
    result |= {"nodes": len(bench.nodes), "threads": torch.get_num_threads(), "precision": "float32"}
    result["versions"] = {"torch": torch.__version__, "transformers": transformers.__version__}
    if args.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        if name != "raw":
            print(f"{name:36} {value}")


if __name__ == "__main__":
    main()
