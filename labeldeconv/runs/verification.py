"""Verify a run or a comparison: every checksum, and every score computed again from the stored predictions.

    labeldeconv verify runs/planted-ld-gcn-0-1a2b3c4d

Nothing is trusted: result.json has a checksum of its own, every file it lists has one, a file that no list has is told,
and val, test and all other metrics are what logits.npy and the labels and split of graph/ give. A comparison is
verified with all its runs; the scores of its rows are those of its runs.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from labeldeconv.errors import DataError, LabelDeconvError
from labeldeconv.runs.directory import (
    COMPARISON,
    COMPARISON_FILES,
    LOGS,
    RESULT,
    ComparisonDirectory,
    RunDirectory,
    is_run,
)
from labeldeconv.stages.cache import Broken, check_files
from labeldeconv.stages.files import files_in

LATER = {"profile.json", "report.html"}  # written after the run; they have no checksum


@dataclass
class Verified:
    """What was looked at, and everything that is wrong, each problem with its file."""

    runs: int = 0
    files: int = 0
    scores: int = 0
    problems: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {"runs": self.runs, "files": self.files, "scores": self.scores, "problems": self.problems}


def verify_run(path: str | Path) -> Verified:
    """Verify the run, or the comparison with all its runs, at `path`."""
    path, found = Path(path), Verified()
    if not is_run(path):
        raise DataError(f"{path}: the directory of a finished `labeldeconv fit`, `compare` or `sweep` expected")
    if (path / COMPARISON).is_file():
        _verify_comparison(path, found)
    else:
        _verify_run(path, found)
    return found


def _verify_run(path: Path, found: Verified) -> RunDirectory | None:
    found.runs += 1
    try:
        run = RunDirectory.open(path, check=False)
    except (LabelDeconvError, OSError) as why:
        found.problems.append(str(why))
        return None
    if not _files_are_right(path, run.result, found):
        return None  # what is damaged is not scored
    known = {*run.result["files"], RESULT, *LATER}
    for file in files_in(path):
        name = str(file.relative_to(path))
        if name not in known and Path(name).parts[0] not in LOGS:
            found.problems.append(f"{file}: no list has it; it was put there after the run")
    _verify_scores(run, found)
    return run


def _files_are_right(path: Path, result: dict[str, Any], found: Verified) -> bool:
    """Compare every listed file, and tell all that differ."""
    before = len(found.problems)
    if "checksum" not in result:
        found.problems.append(f"{path}: no checksum of the result itself: an older version wrote it, or it was changed")
    for name, listed in result.get("files", {}).items():
        found.files += 1
        try:
            check_files(path, {"files": {name: listed}}, content=True)
        except (Broken, LabelDeconvError) as why:
            found.problems.append(f"{path / name}: {why}" if isinstance(why, Broken) else str(why))
    return len(found.problems) == before


def _verify_scores(run: RunDirectory, found: Verified) -> None:
    """Compute val and test again, by the run's metric, and all metrics that the result tells."""
    try:
        graph, logits, task = run.graph, run.logits, run.task
        for role in ("val", "test"):
            ids = graph.split.ids(role)
            scores = task.all_scores(np.asarray(logits[ids]), graph.labels[ids])
            found.scores += 1
            listed = run.result.get("metrics", {}).get(role, {})
            checked = [(role, task.metric_name, run.result[role])]
            checked += [(f"metrics.{role}.{name}", name, value) for name, value in listed.items()]
            for what, name, value in checked:
                if name not in scores or not _same(scores[name], math.nan if value is None else value):
                    told = f"{what} is {value!r}, but logits.npy and graph/ give {scores.get(name)!r}"
                    found.problems.append(f"{run.path / RESULT}: {told}")
    except (LabelDeconvError, OSError, ValueError, KeyError, IndexError) as why:
        found.problems.append(f"{run.path}: the scores cannot be computed again: {why}")


def _verify_comparison(path: Path, found: Verified) -> None:
    try:
        table = ComparisonDirectory.open(path).table
    except (LabelDeconvError, OSError) as why:
        found.problems.append(str(why))
        return
    _files_are_right(path, table, found)
    runs: dict[str, RunDirectory | None] = {}
    for row in table["rows"]:
        for name in row["cells"]:
            if (path / name / RESULT).is_file():
                runs[name] = _verify_run(path / name, found)
            else:
                found.problems.append(f"{path / name}: the run is missing")
        tests = [run.result["test"] for name in row["cells"] if (run := runs.get(name)) is not None]
        if len(tests) == len(row["cells"]):
            found.scores += 1
            right = [*map(_same, row["tests"], tests), _same(row["test"]["mean"], statistics.fmean(tests))]
            if not all(right):
                told = f"the row of {row['method']} with {row['gnn']} has other scores than its runs"
                found.problems.append(f"{path / COMPARISON}: {told}")
    for file in path.iterdir():
        if file.name not in {*COMPARISON_FILES, *runs}:
            found.problems.append(f"{file}: the comparison does not name it")


def _same(a: float, b: float) -> bool:
    """Whether two scores are equal, as numbers that went through JSON are."""
    return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12)
