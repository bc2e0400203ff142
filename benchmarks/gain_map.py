"""Where LD pays, and by how much: 200 planted graphs, from labels that are a node's own to labels of its neighbours.

    python benchmarks/gain_map.py --minutes 40        # run graphs until the time is up; again to go on
    python benchmarks/gain_map.py --report            # how well the bias before training told the gain

Every graph draws its filter (own share, smoothing or sharpening), homophily, edges without meaning, denied words,
degree and share of labels. PNE, WO/LD, LD and hop heads are trained with GCN; each row keeps what `analyze bias` said
before training, which reads labels of train nodes alone. The encoder is a bag of words and denied words, so that 200
graphs take an hour: it learns in seconds, and what it can learn is what decides here. Rows go to
benchmarks/results/gain_map.jsonl.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import qmc, spearmanr
from torch import Tensor, nn

from labeldeconv.analysis.bias import before_training
from labeldeconv.data.sets.planted import planted
from labeldeconv.encoders.base import Encoder
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.runs.fit import fit
from labeldeconv.settings.models import Config, EncoderConfig

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "gain_map.jsonl"
GRAPHS = 200
NODES = 1200
METHODS = ("pne", "wo-ld", "ld", "ld-heads")
SETTINGS = {
    "encoder": "benchmarks.gain_map:Words", "encoder__max_tokens": 48, "train__epochs": 12, "train__lr": 2e-2,
    "gnn": "gcn", "gnn__epochs": 60,
}  # fmt: skip


class Words(Encoder):
    """Words, each with whether it is denied ('not ... but'), hashed into buckets; the sum of their vectors."""

    pad_id = 0

    def __init__(self, config: EncoderConfig, buckets: int = 4096, dim: int = 256) -> None:
        super().__init__()
        self.dim, self.vocab_size = dim, buckets
        self.words = nn.EmbeddingBag(buckets, dim, mode="sum")
        with torch.random.fork_rng():
            torch.manual_seed(0)
            nn.init.normal_(self.words.weight, std=0.3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Tokens and mask (b, t) to features (b, d)."""
        return self.words(input_ids, per_sample_weights=attention_mask.to(self.words.weight.dtype))

    def tokenize(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """Buckets of words and of denied words."""
        return [[1 + zlib.crc32(word.encode()) % (self.vocab_size - 1) for word in _denied(text)[:max_tokens]] or [1]
                for text in texts]  # fmt: skip

    def save(self, folder: Path) -> None:
        """One file of weights."""
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(self.state_dict(), folder / "weights.pt")

    def restore(self, folder: Path) -> None:
        """Take them."""
        self.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))


def _denied(text: str) -> list[str]:
    """The words of a text; those from 'not' to 'but' with a mark."""
    out, denied = [], False
    for word in text.lower().split():
        denied = word == "not" or (denied and word != "but")
        out.append(f"not {word}" if denied else word)
    return out


def drawn(number: int) -> tuple[AttributedGraph, dict[str, Any]]:
    """Graph `number` of all, and what it was drawn with; together they fill the space evenly (a Sobol sequence)."""
    point = qmc.Sobol(7, seed=0).random_base2(8)[number]
    own, sign, homophily, noise, decoys, degree, labels = point
    share = 0.51 + 0.48 * own  # of the node itself in phi; below a half, phi could not be undone
    phi = (share * (1 if sign < 0.5 else -1), 1 - share)
    told = {
        "own": round(float(share), 4), "filter": "smoothing" if sign < 0.5 else "sharpening",
        "homophily": round(float(homophily), 4), "random_edges": round(0.6 * float(noise), 4),
        "decoy_words": round(0.8 * float(decoys), 4), "mean_degree": round(2 + 8 * float(degree), 2),
        "train": round(float(0.05 + 0.55 * labels), 4),
    }  # fmt: skip
    made = planted(
        NODES, seed=number, phi=phi, homophily=told["homophily"], random_edges=told["random_edges"],
        decoy_words=told["decoy_words"], mean_degree=told["mean_degree"], fractions=(told["train"], 0.2),
    )  # fmt: skip
    return made.graph, told


def row_of(number: int, cache: Path) -> dict[str, Any]:
    """What was drawn, what the bias said, and the scores in percent."""
    graph, told = drawn(number)
    before = before_training(graph, Config.model_validate({"gnn": {"name": "gcn"}}))
    quantities = {k: v for k, v in vars(before).items() if isinstance(v, int | float)}
    scores = {}
    for method in METHODS:
        with tempfile.TemporaryDirectory() as out:
            result = fit(graph, method=method, seed=0, out=Path(out) / "run", cache=cache, **SETTINGS)  # type: ignore[arg-type]
        scores[method] = {"val": round(100 * (result.val or 0), 3), "test": round(100 * (result.test or 0), 3)}
    return {"graph": number, "drawn": told, "before": quantities, "scores": scores}


def rows() -> list[dict[str, Any]]:
    """What is done."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def report() -> None:
    """Rank correlations of every quantity with the gains, and mean gains by own share and filter."""
    done = rows()
    for winner, base in (("ld", "wo-ld"), ("ld-heads", "wo-ld"), ("ld-heads", "ld")):
        gains = np.array([row["scores"][winner]["test"] - row["scores"][base]["test"] for row in done])
        print(
            f"\n{winner} - {base}: mean {gains.mean():+.2f}, above 1 point on {(gains > 1).mean():.0%} of {len(done)}"
        )
        for name in done[0]["before"]:
            values = [row["before"][name] for row in done]
            if len(set(values)) > 1:
                print(f"  {name:16} Spearman {spearmanr(values, gains).statistic:+.2f}")
        for filter_ in ("smoothing", "sharpening"):
            for lo in (0.5, 0.6, 0.7, 0.8, 0.9):
                at = [g for g, row in zip(gains, done, strict=True)
                      if row["drawn"]["filter"] == filter_ and lo <= row["drawn"]["own"] < lo + 0.1]  # fmt: skip
                print(f"  {filter_:10} own {lo:.1f}: {np.mean(at):+.2f} ({len(at)})" if at else "")


def main() -> None:
    """Run graphs until the time is up, or say what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    if args.report:
        return report()
    end, finished = time.time() + 60 * args.minutes, {row["graph"] for row in rows()}
    for number in range(GRAPHS):
        if number in finished:
            continue
        if time.time() > end:
            print("time is up; run the same command again to go on")
            return None
        with tempfile.TemporaryDirectory() as cache:
            row = row_of(number, Path(cache))
        with RESULTS.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(number, row["drawn"], {m: s["test"] for m, s in row["scores"].items()}, flush=True)
    return None


if __name__ == "__main__":
    main()
