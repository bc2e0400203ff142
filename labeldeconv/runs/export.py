"""Features and predictions of a run with the user's node ids, as Parquet, npy or safetensors, or in a PyG `Data`.

    labeldeconv export runs/planted-ld-gcn-0 features.parquet

| file | holds |
|---|---|
| .parquet | id, features (FLOAT[d]), prediction, probability; multi-label: predictions and probabilities as lists |
| .npy | features (n, d), beside it .ids.txt, .logits.npy and .classes.txt; .json where names have line breaks |
| .safetensors | features (n, d), logits (n, c) and, where ids are integers, ids (n,); names in the metadata |

Of a regression all have numbers in the unit of the labels instead: a column `prediction`, or `prediction_NAME` for each
of several targets; .predictions.npy with .targets.txt; a tensor `predictions` (n, c).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import torch

from labeldeconv.errors import DataError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.task import RegressionTask, Task
from labeldeconv.graph.texts import Texts
from labeldeconv.progress import logger
from labeldeconv.runs.directory import COMPARISON, RESULT, RunDirectory
from labeldeconv.sql import literal, quoted
from labeldeconv.stages.files import write_text

if TYPE_CHECKING:
    from torch_geometric.data import Data

ROWS = 1 << 16  # nodes held as wide columns at a time
LINE_ENDS = tuple("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")  # what str.splitlines takes for one
FORMATS = (".parquet", ".npy", ".safetensors")


def export_run(run: str | Path, out: str | Path) -> Path:
    """Write features and predictions of a run directory to `out`, in the format of its ending."""
    opened = RunDirectory.open(run)
    return export(opened.graph, opened.features, opened.logits, out)


def export(graph: AttributedGraph, features: np.ndarray, logits: np.ndarray | None, out: str | Path) -> Path:
    """Write features (n, d) and logits (n, c), rows in the order of the graph's nodes, complete or not at all."""
    out = Path(out)
    if out.suffix not in FORMATS:
        raise DataError(f"{out}: a name that ends in {', '.join(FORMATS)} expected")
    refuse_runs(out)
    temporary = out.with_name(f".{out.stem}.tmp{out.suffix}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            {".parquet": _parquet, ".npy": _npy, ".safetensors": _safetensors}[out.suffix](
                graph, features, logits, temporary, out
            )
            temporary.replace(out)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, duckdb.Error) as error:
        why = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise DataError(f"{out}: cannot be written: {why}") from None
    return out


def refuse_runs(out: Path) -> None:
    """Nothing is written into the directory of a run or a comparison: its own files have such names too."""
    for folder in Path(os.path.abspath(out)).parents:  # noqa: PTH100 (a loop of links is no reason to fail here)
        if any((folder / name).is_file() for name in (RESULT, COMPARISON)):
            raise DataError(
                f"{out}: inside the run directory {folder}, whose files stay as they are; another place expected"
            )


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A place beside `folder`, an empty one or none, to write into; it becomes the folder, whole or not at all."""
    refuse_runs(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder}: an empty folder or none expected")
    work = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        yield work
        if folder.exists():
            folder.rmdir()
        work.replace(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def run_to_pyg(run: str | Path) -> Data:
    """The run's graph as a PyG `Data` with the learned features as x (n, d)."""
    opened = RunDirectory.open(run)
    return opened.graph.to_pyg(opened.features)


def probabilities(graph: AttributedGraph, logits: np.ndarray) -> np.ndarray:
    """softmax or sigmoid of logits (m, c), float32."""
    return Task.of(graph).probabilities(torch.from_numpy(np.array(logits, dtype=np.float32))).numpy()


def number_columns(graph: AttributedGraph) -> list[str]:
    """Columns of the predicted numbers of a regression: 'prediction', of several targets 'prediction_NAME'."""
    return ["prediction"] if graph.num_classes == 1 else [f"prediction_{name}" for name in graph.class_names]


def node_ids(graph: AttributedGraph) -> np.ndarray:
    """The user's ids (n,): int64, or an object array of texts."""
    if isinstance(graph.ids, Texts):
        return np.array(list(graph.ids), dtype=object)
    return np.arange(graph.num_nodes) if graph.ids is None else np.asarray(graph.ids)


def columns_of(letter: str, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Rows (m, d) as d columns of DuckDB, named by a letter and their number."""
    return {f"{letter}{k}": np.ascontiguousarray(column) for k, column in enumerate(rows.T)}


def as_list(letter: str, size: int, kind: str) -> str:
    """SQL for the columns of `columns_of` as one array column of a type such as FLOAT."""
    return f"[{', '.join(f'{letter}{k}' for k in range(size))}]::{kind}[{size}]"


def _parquet(graph: AttributedGraph, features: np.ndarray, logits: np.ndarray | None, path: Path, out: Path) -> None:
    ids, d, c, task = node_ids(graph), features.shape[1], graph.num_classes, Task.of(graph)
    spill = {"memory_limit": "2GB", "temp_directory": str(path.with_suffix(".spill"))}
    with duckdb.connect(config=spill) as con:
        con.execute(
            "CREATE TABLE names AS SELECT unnest(range(?))::INTEGER AS k, unnest(?::VARCHAR[]) AS name",
            [c, graph.class_names],
        )
        for start in range(0, graph.num_nodes, ROWS):
            chosen = slice(start, start + ROWS)
            block: dict[str, np.ndarray] = {"id": ids[chosen]}
            block |= columns_of("f", np.asarray(features[chosen], np.float32))
            select = ["id", f"{as_list('f', d, 'FLOAT')} AS features"]
            if logits is not None:
                if isinstance(task, RegressionTask):
                    block |= columns_of("y", task.values(logits[chosen]))
                    select += [f"y{k} AS {quoted(name)}" for k, name in enumerate(number_columns(graph))]
                elif graph.task == "multiclass":
                    p = probabilities(graph, logits[chosen])
                    block |= {"k": p.argmax(1).astype(np.int32), "probability": p.max(1)}
                    select += ["(SELECT name FROM names WHERE names.k = block.k) AS prediction", "probability"]
                else:
                    p = probabilities(graph, logits[chosen])
                    block |= columns_of("p", p)
                    select += [f"{as_list('p', c, 'FLOAT')} AS probabilities"]
            con.register("block", block)
            verb = "INSERT INTO result" if start else "CREATE TABLE result AS"
            con.execute(f"{verb} SELECT {', '.join(select)} FROM block")
            con.unregister("block")
        con.execute(f"COPY result TO {literal(str(path))} (FORMAT parquet, COMPRESSION zstd)")


def _npy(graph: AttributedGraph, features: np.ndarray, logits: np.ndarray | None, path: Path, out: Path) -> None:
    with path.open("wb") as file:
        np.save(file, features)
    _write_lines(out, "ids", [graph.node_id(i) for i in range(graph.num_nodes)])
    task = Task.of(graph)
    if logits is not None and isinstance(task, RegressionTask):
        np.save(out.with_suffix(".predictions.npy"), task.values(logits))
        _write_lines(out, "targets", graph.class_names)
    elif logits is not None:
        np.save(out.with_suffix(".logits.npy"), logits)
        _write_lines(out, "classes", graph.class_names)


def _write_lines(out: Path, what: str, names: Sequence[str]) -> None:
    """Names as a text file of a line each or, where some have line breaks of their own, as a JSON array."""
    plain, exact = out.with_suffix(f".{what}.txt"), out.with_suffix(f".{what}.json")
    if all(len(name.splitlines()) < 2 and not name.endswith(LINE_ENDS) for name in names):
        write_text(plain, "".join(f"{name}\n" for name in names))
        exact.unlink(missing_ok=True)
    else:
        logger.warning("warning: some %s have line breaks, so that %s takes the place of %s", what, exact, plain)
        write_text(exact, json.dumps(list(names), ensure_ascii=False) + "\n")
        plain.unlink(missing_ok=True)


def _safetensors(
    graph: AttributedGraph, features: np.ndarray, logits: np.ndarray | None, path: Path, out: Path
) -> None:
    from safetensors.numpy import save_file

    ids = node_ids(graph)
    tensors = {"features": np.ascontiguousarray(features)}
    task = Task.of(graph)
    if logits is not None and isinstance(task, RegressionTask):
        tensors["predictions"] = np.ascontiguousarray(task.values(logits))
    elif logits is not None:
        tensors["logits"] = np.ascontiguousarray(logits)
    metadata = {"name": graph.name, "task": graph.task, "class_names": json.dumps(graph.class_names)}
    if ids.dtype == object:
        metadata["ids"] = json.dumps(ids.tolist(), ensure_ascii=False)
    else:
        tensors["ids"] = np.ascontiguousarray(ids)
    save_file(tensors, path, metadata)
