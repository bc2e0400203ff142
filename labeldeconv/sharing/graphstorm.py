"""A run as the input of GraphStorm, which trains GNNs on graphs that no single machine holds.

    labeldeconv export runs/planted-ld-gcn-0 --graphstorm FOLDER

| file | holds |
|---|---|
| nodes-00000.parquet ... | `id`, `features` (a list of d numbers) and `label`, or `label_0` ... of several targets |
| edges-00000.parquet ... | `source` and `target`, ids; both directions where the run's graph is undirected |
| train.parquet, valid.parquet, test.parquet | `id` of the nodes of each part of the split |
| gconstruct.json | what GraphStorm's graph construction reads, in its schema gconstruct-v0.1 |
| train.yaml | settings of a GraphSAGE, for GraphStorm's training |
| classes.json | names of classes or targets by number |
| README.md | the commands |

GraphStorm itself is never imported. Its graph is of one type of nodes, `_N`, and one of edges, `_E`: what it takes for
homogeneous, which its GraphSAGE demands.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from labeldeconv.errors import DataError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.missing import is_known
from labeldeconv.graph.split import ROLES
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.runs.directory import RunDirectory
from labeldeconv.runs.export import ROWS, as_list, columns_of, new_folder, node_ids
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.sql import literal
from labeldeconv.stages.files import write_json, write_text

SCHEMA = "gconstruct-v0.1"
NODE, EDGE = "_N", "_E"
EDGES = 1 << 24  # of a file: GraphStorm's processes read whole files, 256 MB of two columns
PARTS = {"train": "train", "val": "valid", "test": "test"}  # GraphStorm's names of ours
METRICS = {"multiclass": "accuracy", "multilabel": "roc_auc", "regression": "rmse"}


def export_graphstorm(run: str | Path, folder: str | Path) -> Path:
    """Write the graph of a run, with the features that it has learned, into a new folder for GraphStorm."""
    opened = RunDirectory.open(run)
    return write_graphstorm(opened.graph, opened.features, opened.config().gnn.adjacency.undirected, folder)


def write_graphstorm(graph: AttributedGraph, features: np.ndarray, undirected: bool, folder: str | Path) -> Path:
    """Write a graph with features (n, d), labels and split into a new folder, as GraphStorm's construction reads them.

    GraphStorm knows no missing entries: a node that lacks one of several labels or targets is in no part of the split.
    """
    folder = Path(folder)
    with new_folder(folder) as work:
        try:
            nodes = _write_nodes(graph, features, work)
            edges = _write_edges(graph, undirected, work)
            split = _write_split(graph, work)
        except (OSError, duckdb.Error) as error:
            raise DataError(f"{folder}: cannot be written: {str(error).splitlines()[0]}") from None
        if not edges:
            raise DataError(f"graph '{graph.name}': edges between two nodes expected by GraphStorm, got none")
        write_json(work / "gconstruct.json", _construction(graph, nodes, edges, split))
        write_json(work / "classes.json", graph.class_names)
        write_text(work / "train.yaml", _training(graph))
        write_text(work / "README.md", _readme(graph, undirected))
    return folder


def label_columns(graph: AttributedGraph) -> list[str]:
    """Columns of labels: 'label', of several targets 'label_0' ..., since GraphStorm regresses one number at a time."""
    several = graph.task == "regression" and graph.num_classes > 1
    return [f"label_{k}" for k in range(graph.num_classes)] if several else ["label"]


def _write_nodes(graph: AttributedGraph, features: np.ndarray, folder: Path) -> list[str]:
    ids, names, d, c = node_ids(graph), label_columns(graph), features.shape[1], graph.num_classes
    files = []
    for number, start in enumerate(range(0, graph.num_nodes, ROWS)):
        chosen = slice(start, start + ROWS)
        labels = np.asarray(graph.labels[chosen])
        block = {"id": ids[chosen]} | columns_of("f", np.asarray(features[chosen], np.float32))
        block |= columns_of("y", labels.reshape(len(labels), -1))
        select = ["id", f"{as_list('f', d, 'FLOAT')} AS features"]
        if graph.task == "multilabel":
            select.append(f"{as_list('y', c, 'INTEGER')} AS label")
        else:
            kind = "INTEGER" if graph.task == "multiclass" else "FLOAT"
            select += [f"y{k}::{kind} AS {name}" for k, name in enumerate(names)]
        files.append(_parquet(folder / f"nodes-{number:05d}.parquet", block, ", ".join(select)))
    return files


def _write_edges(graph: AttributedGraph, undirected: bool, folder: Path) -> list[str]:
    """The edges of A-hat without duplicates and self-loops: GraphStorm's GNNs add a node's own part themselves."""
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes, AdjacencyConfig(undirected=undirected))
    ids = node_ids(graph)
    blocks = ({"source": ids[source], "target": ids[target]} for source, target in _entries(adj) if len(source))
    return [_parquet(folder / f"edges-{k:05d}.parquet", block, "source, target") for k, block in enumerate(blocks)]


def _entries(adj: Adjacency) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Sources and targets (k,) of the entries of A-hat off its diagonal, some EDGES at a time."""
    for start in range(0, len(adj.indices), EDGES):
        source = np.asarray(adj.indices[start : start + EDGES])
        target = np.searchsorted(adj.indptr, np.arange(start, start + len(source)), side="right") - 1
        between = source != target
        yield source[between], target[between]


def _write_split(graph: AttributedGraph, folder: Path) -> dict[str, str]:
    known = np.all(is_known(np.asarray(graph.labels)).reshape(graph.num_nodes, -1), axis=1)
    ids, files = node_ids(graph), {}
    for role in ROLES:
        nodes = graph.split.ids(role)
        nodes = nodes[known[nodes]]
        if len(nodes):  # GraphStorm refuses files without rows
            files[PARTS[role]] = _parquet(folder / f"{PARTS[role]}.parquet", {"id": ids[nodes]}, "id")
    if "train" not in files:
        raise DataError(f"graph '{graph.name}': no train node has all its {graph.num_classes} labels")
    return files


def _parquet(path: Path, block: dict[str, np.ndarray], select: str) -> str:
    """Write a block of columns as one Parquet file; its name."""
    spill = path.with_suffix(".spill")
    with duckdb.connect(config={"memory_limit": "2GB", "temp_directory": str(spill)}) as con:
        con.register("block", block)
        con.execute(f"COPY (SELECT {select} FROM block) TO {literal(str(path))} (FORMAT parquet, COMPRESSION zstd)")
    shutil.rmtree(spill, ignore_errors=True)
    return path.name


def _construction(graph: AttributedGraph, nodes: list[str], edges: list[str], split: dict[str, str]) -> dict[str, Any]:
    """The configuration of GraphStorm's graph construction; files are named relative to the folder."""
    task = "regression" if graph.task == "regression" else "classification"
    labels = [
        {"task_type": task, "label_col": name, "custom_split_filenames": {**split, "column": ["id"]}}
        for name in label_columns(graph)
    ]
    node = {
        "node_type": NODE,
        "format": {"name": "parquet"},
        "files": nodes,
        "node_id_col": "id",
        "features": [{"feature_col": "features", "feature_name": "features", "out_dtype": "float32"}],
        "labels": labels,
    }
    edge = {
        "relation": [NODE, EDGE, NODE],
        "format": {"name": "parquet"},
        "files": edges,
        "source_id_col": "source",
        "dest_id_col": "target",
    }
    return {"version": SCHEMA, "nodes": [node], "edges": [edge]}


def _training(graph: AttributedGraph) -> str:
    """train.yaml: a GraphSAGE of two layers, to begin with."""
    classes = f"""    num_classes: {graph.num_classes}
    multilabel: {str(graph.task == "multilabel").lower()}
"""
    return f"""---
version: 1.0
gsf:
  basic:
    backend: gloo
    model_encoder_type: sage
  gnn:
    node_feat_name:
      - "{NODE}:features"
    num_layers: 2
    hidden_size: 256
    fanout: "15,10"
    eval_fanout: "15,10"
    use_mini_batch_infer: false
  output:
    topk_model_to_save: 1
  hyperparam:
    dropout: 0.3
    lr: 0.001
    num_epochs: 20
    batch_size: 1024
  rgcn:
    num_bases: -1
    use_self_loop: true
  {_task(graph)}:
    target_ntype: "{NODE}"
    label_field: {label_columns(graph)[0]}
    eval_metric:
      - {METRICS[graph.task]}
{"" if graph.task == "regression" else classes}"""


def _task(graph: AttributedGraph) -> str:
    return "node_regression" if graph.task == "regression" else "node_classification"


def _readme(graph: AttributedGraph, undirected: bool) -> str:
    name = re.sub(r"\W", "_", f"g_{graph.name}", flags=re.ASCII)
    ways = "both directions of every edge, so not to be reversed again" if undirected else "directed, as given"
    several = label_columns(graph)
    notes = {
        "multiclass": "`label` is a class by number, -1 where there is none; names are in classes.json.",
        "multilabel": "`label` has a 0 or 1 per label, -1 where it is missing; names are in classes.json. Nodes with "
        "missing ones are in no part of the split.",
        "regression": "Labels are numbers in their own unit, float32; scale them before if they are far from 1. Nodes "
        "that lack one are in no part of the split.",
    }
    each = f" Train one model per target: `--label-field {several[1]}` ..." if len(several) > 1 else ""
    command = f"python -m graphstorm.run.gs_{_task(graph)}"
    return f"""# {graph.name} for GraphStorm

Written by `labeldeconv export RUN --graphstorm`: {graph.num_nodes:,} nodes with the features that the run has learned,
their labels and split, and edges ({ways}). {notes[graph.task]}{each}

Install [GraphStorm](https://graphstorm.readthedocs.io) with the versions of torch and DGL that it names. All commands
are run in this folder. Construct the graph, in as many parts as there are machines:

    python -m graphstorm.gconstruct.construct_graph --conf-file gconstruct.json \\
        --output-dir constructed --graph-name {name} --num-parts 1 --num-processes 4

Train, with as many trainers as the machine has GPUs:

    {command} --workspace "$PWD" --num-trainers 1 \\
        --part-config "$PWD/constructed/{name}.json" --cf "$PWD/train.yaml" --save-model-path "$PWD/model"

That is a GraphSAGE; `--model-encoder-type rgcn`, `gat` or `rgat` takes another GNN. On several machines add
`--ip-config ip_list.txt --ssh-port 22`, with an address per line and this folder on all of them.

Predict, with the epoch that was kept in `model`:

    {command} --inference --workspace "$PWD" --num-trainers 1 \\
        --part-config "$PWD/constructed/{name}.json" --cf "$PWD/train.yaml" \\
        --restore-model-path "$PWD/model/epoch-0" --save-prediction-path "$PWD/predictions"
"""
