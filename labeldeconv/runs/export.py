"""Features and predictions of a run with the user's node ids, as Parquet, npy or safetensors, or in a PyG `Data`.

    labeldeconv export runs/planted-ld-gcn-0 features.parquet

| file | holds |
|---|---|
| .parquet | id, features (FLOAT[d]), prediction, probability; multi-label: predictions and probabilities as lists |
| .npy | features (n, d), beside it .ids.txt, .logits.npy and .classes.txt |
| .safetensors | features (n, d), logits (n, c) and, where ids are integers, ids (n,); names in the metadata |
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import torch

from labeldeconv.data.tables.scan import literal
from labeldeconv.errors import DataError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.task import Task
from labeldeconv.graph.texts import Texts
from labeldeconv.runs.directory import RunDirectory
from labeldeconv.stages.files import write_text

if TYPE_CHECKING:
    from torch_geometric.data import Data

ROWS = 1 << 16  # nodes held as wide columns at a time
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
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.stem}.tmp{out.suffix}")
    try:
        {".parquet": _parquet, ".npy": _npy, ".safetensors": _safetensors}[out.suffix](
            graph, features, logits, temporary, out
        )
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)
    return out


def run_to_pyg(run: str | Path) -> Data:
    """The run's graph as a PyG `Data` with the learned features as x (n, d)."""
    opened = RunDirectory.open(run)
    return opened.graph.to_pyg(opened.features)


def probabilities(graph: AttributedGraph, logits: np.ndarray) -> np.ndarray:
    """softmax or sigmoid of logits (m, c), float32."""
    return Task.of(graph).probabilities(torch.from_numpy(np.array(logits, dtype=np.float32))).numpy()


def node_ids(graph: AttributedGraph) -> np.ndarray:
    """The user's ids (n,): int64, or an object array of texts."""
    if isinstance(graph.ids, Texts):
        return np.array(list(graph.ids), dtype=object)
    return np.arange(graph.num_nodes) if graph.ids is None else np.asarray(graph.ids)


def _parquet(graph: AttributedGraph, features: np.ndarray, logits: np.ndarray | None, path: Path, out: Path) -> None:
    ids, d, c = node_ids(graph), features.shape[1], graph.num_classes
    spill = {"memory_limit": "2GB", "temp_directory": str(path.with_suffix(".spill"))}
    with duckdb.connect(config=spill) as con:
        con.execute(
            "CREATE TABLE names AS SELECT unnest(range(?))::INTEGER AS k, unnest(?::VARCHAR[]) AS name",
            [c, graph.class_names],
        )
        for start in range(0, graph.num_nodes, ROWS):
            chosen = slice(start, start + ROWS)
            block: dict[str, np.ndarray] = {"id": ids[chosen]}
            block |= {
                f"f{k}": np.ascontiguousarray(column)
                for k, column in enumerate(np.asarray(features[chosen], np.float32).T)
            }
            select = ["id", f"[{', '.join(f'f{k}' for k in range(d))}]::FLOAT[{d}] AS features"]
            if logits is not None:
                p = probabilities(graph, logits[chosen])
                if graph.task == "multiclass":
                    block |= {"k": p.argmax(1).astype(np.int32), "probability": p.max(1)}
                    select += ["(SELECT name FROM names WHERE names.k = block.k) AS prediction", "probability"]
                else:
                    block |= {f"p{k}": np.ascontiguousarray(column) for k, column in enumerate(p.T)}
                    select += [f"[{', '.join(f'p{k}' for k in range(c))}]::FLOAT[{c}] AS probabilities"]
            con.register("block", block)
            verb = "INSERT INTO result" if start else "CREATE TABLE result AS"
            con.execute(f"{verb} SELECT {', '.join(select)} FROM block")
            con.unregister("block")
        con.execute(f"COPY result TO {literal(str(path))} (FORMAT parquet, COMPRESSION zstd)")


def _npy(graph: AttributedGraph, features: np.ndarray, logits: np.ndarray | None, path: Path, out: Path) -> None:
    with path.open("wb") as file:
        np.save(file, features)
    write_text(out.with_suffix(".ids.txt"), "".join(f"{graph.node_id(i)}\n" for i in range(graph.num_nodes)))
    if logits is not None:
        np.save(out.with_suffix(".logits.npy"), logits)
        write_text(out.with_suffix(".classes.txt"), "".join(f"{name}\n" for name in graph.class_names))


def _safetensors(
    graph: AttributedGraph, features: np.ndarray, logits: np.ndarray | None, path: Path, out: Path
) -> None:
    from safetensors.numpy import save_file

    ids = node_ids(graph)
    tensors = {"features": np.ascontiguousarray(features)}
    if logits is not None:
        tensors["logits"] = np.ascontiguousarray(logits)
    metadata = {"name": graph.name, "task": graph.task, "class_names": json.dumps(graph.class_names)}
    if ids.dtype == object:
        metadata["ids"] = json.dumps(ids.tolist(), ensure_ascii=False)
    else:
        tensors["ids"] = np.ascontiguousarray(ids)
    save_file(tensors, path, metadata)
