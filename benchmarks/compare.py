"""Tell a loss of speed from noise: results of two runs of the benchmarks, round by round.

    python benchmarks/compare.py OLD NEW        # two folders of results, or two files; exit code 1 for a regression

Statistic: in every round, contestants of a benchmark run one after the other, so a round has a ratio, seconds of the
peer over own seconds, from which the speed of the machine cancels. For each pair of contestants the ratios of the old
rounds are held against those of the new ones: change = median(new) / median(old), and p is the exact one-sided
Mann-Whitney probability of ranks at least so far apart if nothing had changed. A regression has p <= 0.05 and a median
at least 5% lower; an improvement the same upwards; all else is noise. Fewer than 3 rounds on both sides cannot reach
0.05 and are called too few. Every pair is asked on its own: of twenty without a change one may be called by chance, if
its medians happen to differ by 5% too. Runs of other settings (sizes, threads) are not compared.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.stats import mannwhitneyu

LEAST, LEVEL = 0.05, 0.05  # change that counts, and probability
OWN = ("own", "own_float32", "feed")  # names of our side, in the order in which they are looked for
SETTINGS = ("nodes", "entries", "columns", "hidden", "layers", "threads", "shape")
Verdict = Literal["regression", "improvement", "noise", "too few"]


@dataclass(frozen=True)
class Finding:
    """What became of one ratio between two runs."""

    name: str
    old: float
    new: float
    p: float
    verdict: Verdict

    @property
    def change(self) -> float:
        """median(new) / median(old)."""
        return self.new / self.old


def judge(name: str, old: list[float], new: list[float]) -> Finding:
    """One ratio, by its values in the rounds of both runs."""
    middle = float(np.median(old)), float(np.median(new))
    if 1 / math.comb(len(old) + len(new), len(old)) > LEVEL:
        return Finding(name, *middle, math.nan, "too few")
    less = middle[1] < middle[0]
    p = float(mannwhitneyu(new, old, alternative="less" if less else "greater", method="exact").pvalue)
    changed = abs(middle[1] / middle[0] - 1) >= LEAST and p <= LEVEL
    verdict: Verdict = "noise"
    if changed:
        verdict = "regression" if less else "improvement"
    return Finding(name, *middle, p, verdict)


def ratios(raw: Any, name: str = "") -> Iterator[tuple[str, list[float]]]:
    """Names of pairs and their ratios, peer over own, round by round, wherever a result lists rounds of both."""
    if not isinstance(raw, dict):
        return
    rounds = {key: _seconds(value) for key, value in raw.items()}
    own = next((key for key in OWN if rounds.get(key)), None)
    for key, value in raw.items():
        inside = f"{name} {key}".strip()
        if isinstance(value, dict):
            yield from ratios(value, inside)
        elif own and key != own and len(rounds[key]) == len(rounds[own]) > 0:
            yield inside, [peer / mine for peer, mine in zip(rounds[key], rounds[own], strict=True)]


def compare(old: dict[str, Any], new: dict[str, Any], name: str) -> list[Finding]:
    """All ratios that two results of one benchmark share."""
    differ = [key for key in SETTINGS if key in old and key in new and old[key] != new[key]]
    if differ:
        print(f"{name}: not compared, {', '.join(f'{key} {old[key]} and {new[key]}' for key in differ)}")
        return []
    before = dict(ratios(old.get("raw")))
    return [judge(f"{name}: {key}", before[key], now) for key, now in ratios(new.get("raw")) if key in before]


def _seconds(rounds: Any) -> list[float]:
    """Seconds of the processor, where a round has them, of every round; empty if these are no rounds."""
    if not isinstance(rounds, list):
        return []
    firsts = [r["cpu"] if isinstance(r, dict) else r[0] if isinstance(r, list) else r for r in rounds]
    return [float(s) for s in firsts]


def main() -> None:
    """Parse, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    args = parser.parse_args()
    pairs = [(args.old, args.new)]
    if args.old.is_dir():
        pairs = [(path, args.new / path.name) for path in sorted(args.old.glob("*.json"))]
    findings: list[Finding] = []
    for old, new in pairs:
        if new.exists() and old.stat().st_size and new.stat().st_size:
            findings += compare(json.loads(old.read_text()), json.loads(new.read_text()), old.stem)
    for f in findings:
        print(f"{f.verdict:12} {f.name:44} {f.old:7.2f} -> {f.new:7.2f}  ({f.change - 1:+.0%}, p {f.p:.3f})")
    lost = [f.name for f in findings if f.verdict == "regression"]
    sys.exit(f"slower: {', '.join(lost)}" if lost else 0)


if __name__ == "__main__":
    main()
