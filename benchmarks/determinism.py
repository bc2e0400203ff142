"""What may change a result, and by how much: threads, vector widths and libraries, each in a process of its own.

    python -m benchmarks.determinism                 # LD with MiniLM and a GCN on planted:300: a few minutes
    python -m benchmarks.determinism --encoder tiny --nodes 60 --json

The same fit with the same seed runs once plainly with one thread and then once per change, each with an empty cache.
The table has the largest difference from the plain run in the encoder's features and in the logits, the predictions
that are others, and the differences of the two scores; 'equal' means that no byte of both arrays differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

PLAIN = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}
CHANGES: dict[str, dict[str, str]] = {
    "nothing: once more": {},
    "other hash seed, locale, time zone": {"PYTHONHASHSEED": "4711", "LC_ALL": "C", "TZ": "Asia/Kathmandu"},
    "2 threads": {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"},
    "2 threads, once more": {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"},
    "torch's kernels without vectors": {"ATEN_CPU_CAPABILITY": "default"},
    "torch's kernels with AVX2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "MKL and oneDNN at most AVX2": {"MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "MKL and oneDNN at most SSE4": {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "our kernels for any x86-64": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
}


def run(place: Path, words: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """A fit with an empty cache: its features (n, d), logits (n, c) and result.json."""
    command = [sys.executable, "-m", "labeldeconv", *words, "--out", str(place / "run"), "--quiet"]
    env = {**os.environ, **PLAIN, "LABELDECONV_CACHE": str(place / "cache"), **environment}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-800:]}")
    read = {name: np.load(place / "run" / f"{name}.npy").astype(np.float64) for name in ("features", "logits")}
    return {**read, **json.loads((place / "run" / "result.json").read_text())}


def difference(name: str, plain: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """A row of the table."""
    arrays = {key: float(np.abs(plain[key] - other[key]).max()) for key in ("features", "logits")}
    others = int((plain["logits"].argmax(1) != other["logits"].argmax(1)).sum())
    scores = {key: abs(plain[key] - other[key]) for key in ("val", "test")}
    capability = other["provenance"]["hardware"]["vector instructions"]
    return {"change": name, **arrays, "predictions": others, **scores, "torch": capability}


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--method", default="ld")
    parser.add_argument("--gnn", default="gcn")
    parser.add_argument("--only", help="changes whose names hold this word")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    words = ["fit", f"planted:{args.nodes}", "--method", args.method, "--gnn", args.gnn, "--encoder", args.encoder]
    words += ["--set", "train.epochs=1", "--set", "encoder.max_tokens=32", "--set", "gnn.epochs=50"]
    rows = []
    with tempfile.TemporaryDirectory(prefix="labeldeconv-determinism-") as folder:
        plain = run(Path(folder) / "plain", words, {})
        for number, (name, environment) in enumerate(CHANGES.items()):
            if args.only and args.only not in name:
                continue
            rows.append(difference(name, plain, run(Path(folder) / str(number), words, environment)))
            print(rows[-1], file=sys.stderr)
    if args.json:
        print(json.dumps({"nodes": args.nodes, "plain": {k: plain[k] for k in ("val", "test")}, "rows": rows}))
        return
    print("| changed | features, largest difference | logits | other predictions | val | test |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        cells = ["equal" if row[key] == 0 else f"{row[key]:.1e}" for key in ("features", "logits")]
        scores = [f"{100 * row[key]:.2f}" for key in ("val", "test")]
        print(
            f"| {row['change']} | {' | '.join(cells)} | {row['predictions']} of {args.nodes} | {' | '.join(scores)} |"
        )


if __name__ == "__main__":
    main()
