"""The graph of an OGB data set from its raw files: edges, labels, official split, given features and class names.

Files are read through duckdb, not through ogb's Dataset classes, which need an older torch.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from labeldeconv.data.findings import Findings, Loaded, shown
from labeldeconv.data.origin import Files
from labeldeconv.data.sets.expected_files import MissingFiles, find_all, missing
from labeldeconv.data.sets.ogb.layout import OgbSpec
from labeldeconv.data.sets.ogb.raw_texts import node_texts, product_texts, protein_sequences, title_abstracts
from labeldeconv.data.sets.text_files import first_of, lines, matrix, read_columns
from labeldeconv.errors import DataError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.graph.texts import Texts
from labeldeconv.graph.validation import infinite_cells

PARTS = ("train", "valid", "test")
SPLIT_FILE = "split.npz"  # the three parts in one file, for those who have them so
NODE_TEXTS = "raw/node-text.csv"  # of PyG's TAGDataset: the text of every node in the order of the nodes


def ogb_files(spec: OgbSpec, folder: Path) -> Files:
    """All files of the data set in `folder`; raises `MissingFiles` if some are needed and not there."""
    files = find_all(spec.files, folder)
    wanted = missing(spec.files, folder, files)
    if not all(part in files for part in PARTS) and (folder / SPLIT_FILE).is_file():
        files = {key: path for key, path in files.items() if key not in PARTS} | {"split": folder / SPLIT_FILE}
        wanted = [told for told in wanted if "official" not in told]
    plain = first_of(folder, [NODE_TEXTS, Path(NODE_TEXTS).name])
    raw = [file for file in spec.files if file.key.endswith("texts")]
    if plain is not None and not all(file.key in files for file in raw):
        keys = {file.key for file in raw}
        files = {key: path for key, path in files.items() if key not in keys} | {"node texts": plain}
        wanted = [told for told in wanted if told not in [file.wanted(folder) for file in raw]]
    if wanted:
        there = f"{folder}: {len(files)} files of {spec.name} are there, {len(wanted)} are missing"
        raise MissingFiles(there, wanted, _what_is_there(spec, files))
    return Files(folder, files)


def load_ogb(spec: OgbSpec, files: Mapping[str, Path]) -> Loaded:
    """The graph of one data set from its raw files."""
    findings = Findings()
    labels = _labels(spec, files["labels"])
    n = len(labels)
    ids = _node_ids(spec, files["ids"], n)
    edges = _edges(files["edges"], n)
    split = _split(files, n)
    features = _numbers(files["features"], spec.node_features, n) if "features" in files else None
    weights = _numbers(files["edge features"], spec.edge_features, edges.shape[1]) if spec.edge_features else None
    if features is None and weights is not None:
        features = incident_means(edges, weights, n)
    texts = _texts(spec, files, ids, findings)
    if findings.errors:
        findings.stop(spec.name)
    graph = AttributedGraph(
        texts=texts,
        edges=edges,
        labels=labels,
        split=split,
        class_names=_class_names(spec, files, findings),
        features=features,
        edge_features=weights,
        ids=ids,
        attributes=spec.attributes,
        name=spec.name,
    )
    return Loaded(graph, findings.warnings)


def incident_means(edges: np.ndarray, weights: np.ndarray, n: int) -> np.ndarray:
    """X_OGB of a data set without node features, as OGB's own examples make it: the mean of a node's edge features.

    Edges (2, e) with features (e, k) give (n, k) float32; every edge counts at both of its ends, and a node without
    edges has 0.
    """
    degree = np.bincount(edges.reshape(-1), minlength=n)
    sums = [np.bincount(edges[0], column, n) + np.bincount(edges[1], column, n) for column in weights.T]
    return (np.stack(sums, axis=1) / np.maximum(degree, 1)[:, None]).astype(np.float32)


def _what_is_there(spec: OgbSpec, files: Mapping[str, Path]) -> dict[str, Any]:
    """Counts that the files at hand give, and which they are."""
    card: dict[str, Any] = {"name": spec.name, "task": spec.task, "classes": spec.num_classes}
    if "labels" in files:
        labels = _labels(spec, files["labels"])
        card |= {"nodes": len(labels), "labelled": int((labels.reshape(len(labels), -1) >= 0).any(1).sum())}
        if "split" in files or all(part in files for part in PARTS):
            split = _split(files, len(labels))
            card["split"] = {"train": len(split.train), "val": len(split.val), "test": len(split.test)}
    return {**card, "files": {key: str(path) for key, path in files.items()}}


def _labels(spec: OgbSpec, path: Path) -> np.ndarray:
    if spec.task == "multilabel":
        columns = read_columns(path, {f"label {i}": "TINYINT" for i in range(spec.num_classes)})
        labels = matrix(columns, np.int8)
    else:
        columns = read_columns(path, {"label": "FLOAT"})  # some releases write 4.0, and nan where unlabelled
        values = np.nan_to_num(columns["label"], nan=-1, posinf=0.5, neginf=0.5)
        broken = np.flatnonzero(values != np.trunc(values))
        if len(broken):
            got = columns["label"][broken[0]]
            raise DataError(f"{path}, line {broken[0] + 1}: a class number or nan expected, got {got}")
        labels = np.clip(values, -(2**30), 2**30).astype(np.int32)
    top = 1 if spec.task == "multilabel" else spec.num_classes - 1
    wrong = np.flatnonzero(
        (labels.reshape(len(labels), -1) > top).any(1) | (labels.reshape(len(labels), -1) < -1).any(1)
    )
    if len(wrong):
        raise DataError(f"{path}, line {wrong[0] + 1}: labels 0..{top} expected, got {labels[wrong[0]]}")
    return labels


def _node_ids(spec: OgbSpec, path: Path, n: int) -> Texts:
    """The raw id of every node (n), by the mapping file, whose rows may come in any order."""
    header = next((line for _, line in lines(path)), "").split(",")
    if [name.strip() for name in header] != ["node idx", spec.ids]:
        raise DataError(f"{path}, line 1: the header 'node idx,{spec.ids}' expected, got '{','.join(header)}'")
    found = read_columns(path, {"node": "BIGINT", "id": "VARCHAR"}, header=True, rows=n)
    order = np.argsort(found["node"], kind="stable")
    if not np.array_equal(found["node"][order], np.arange(n)):
        sorted_nodes = found["node"][order]
        row = int(order[np.flatnonzero(sorted_nodes != np.arange(n))[0]]) + 2
        raise DataError(f"{path}, line {row}: each of the node numbers 0..{n - 1} is expected once")
    return Texts.from_strings(str(value) for value in found["id"][order])


def _edges(path: Path, n: int) -> np.ndarray:
    ends = read_columns(path, {"source": "INTEGER", "target": "INTEGER"})
    for side, nodes in ends.items():
        wrong = np.flatnonzero((nodes < 0) | (nodes >= n))
        if len(wrong):
            told = f"node numbers 0..{n - 1} expected as {side}, got {nodes[wrong[0]]}"
            raise DataError(f"{path}, line {wrong[0] + 1}: {told} ({len(wrong):,} such edges)")
    return matrix(ends, np.int32).T


def _split(files: Mapping[str, Path], n: int) -> Split:
    if "split" in files:
        parts = _split_file(files["split"])
    else:
        parts = [read_columns(files[part], {"node": "BIGINT"})["node"] for part in PARTS]
    for part, ids in zip(PARTS, parts, strict=True):
        path = files.get(part) or files["split"]
        wrong = np.flatnonzero((ids < 0) | (ids >= n))
        if len(wrong):
            raise DataError(f"{path}, line {wrong[0] + 1}: node numbers 0..{n - 1} expected, got {ids[wrong[0]]}")
        if part == "train" and not len(ids):
            raise DataError(f"{path}: train nodes expected, got none")
    return Split.from_ids(n, *parts)


def _split_file(path: Path) -> list[np.ndarray]:
    """Node numbers (m,) of train, valid and test from an .npz file."""
    try:
        with np.load(path, allow_pickle=False) as held:
            if absent := [part for part in PARTS if part not in held]:
                raise DataError(f"{path}: no array {shown(absent)}; train, valid and test expected")
            parts = [held[part] for part in PARTS]
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path}: not a readable .npz file: {str(error).splitlines()[0] if str(error) else error!r}"
        ) from None
    for part, ids in zip(PARTS, parts, strict=True):
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise DataError(f"{path}, array '{part}': node numbers (m,) expected, got {ids.dtype} {ids.shape}")
    return [ids.astype(np.int64) for ids in parts]


def _texts(spec: OgbSpec, files: Mapping[str, Path], ids: Texts, findings: Findings) -> Texts:
    if "node texts" in files:
        findings.warn(
            f"{files['node texts'].name}: taken for the texts, a row per node, since the raw ones are not there"
        )
        return node_texts(files["node texts"], len(ids))
    if spec.name == "ogbn-arxiv":
        return title_abstracts(files["texts"], ids, findings)
    if spec.name == "ogbn-products":
        return product_texts([files["trn texts"], files["tst texts"]], ids, findings)
    return protein_sequences(files["texts"], ids, findings)


def _class_names(spec: OgbSpec, files: Mapping[str, Path], findings: Findings) -> list[str]:
    """Names by the mapping file where it is there and can be read, else the class numbers."""
    if "classes" not in files:
        return [str(k) for k in range(spec.num_classes)]
    columns = {"label": "BIGINT", "name": "VARCHAR"}
    try:
        found = read_columns(files["classes"], columns, header=True, rows=spec.num_classes)
    except DataError as error:
        findings.warn(f"classes have numbers instead of names: {str(error).splitlines()[0]}")
        return [str(k) for k in range(spec.num_classes)]
    names = {int(k): str(name) for k, name in zip(found["label"], found["name"], strict=True)}
    return [names.get(k, str(k)) for k in range(spec.num_classes)]


def _numbers(path: Path, width: int, rows: int) -> np.ndarray:
    found = matrix(read_columns(path, {f"{i}": "FLOAT" for i in range(width)}, rows=rows), np.float32)
    count, cells = infinite_cells(found)
    if count:
        first = ", ".join(f"line {row + 1}, column {column + 1}: {found[row, column]}" for row, column in cells)
        raise DataError(f"{path}: finite numbers expected; {count:,} lines hold others: {first}")
    return found
