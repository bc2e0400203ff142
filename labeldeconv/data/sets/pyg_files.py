"""Public text-attributed graphs kept as PyG's `Data`, by file or folder, opened without running anything in them.

    labeldeconv inspect cora.pt                    # GLBench, LLMNodeBed, GraphCLIP: raw_texts, label_name, masks
    labeldeconv inspect cora/processed_data.pt     # LLaGA, Graph-COM: with raw_texts.pt and categories.csv beside it
    labeldeconv inspect Cora/cora.pt               # TAGLAS: with cora_node.json
    labeldeconv inspect SET/processed/NAME.pkl     # TEG-DB; TSGFM: geometric_data_processed.pt and texts.pkl
    labeldeconv inspect pyg:3@FOLDER               # the split of number 3, from 0; else data_seed chooses

How the fields are read stands in pyg_fields.py, what is opened and what is refused in pickled.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labeldeconv.data.catalog import Request, dataset, is_count
from labeldeconv.data.findings import Findings, Loaded
from labeldeconv.data.origin import Files
from labeldeconv.data.sets.node_rows import csv_rows, stem
from labeldeconv.data.sets.pickled import fields_of, open_pickle, open_torch, plain_field
from labeldeconv.data.sets.pyg_fields import PygFields
from labeldeconv.errors import DataError

MAIN = ("processed_data.pt", "geometric_data_processed.pt")
BESIDE = {"raw_texts.pt", "texts.pkl", "data.pt", "pre_filter.pt", "pre_transform.pt"}  # no graphs of their own
FOLDERS = ("", "processed")  # where the file lies in a folder that is given


@dataclass(frozen=True)
class PygFiles:
    """A file of PyG, and what belongs to it, as the source of a graph."""

    files: Files
    choice: int
    seed: int
    version: int = 1

    def load(self) -> Loaded:
        """Open the file and read its fields."""
        return load_pyg(self.files, self.choice, self.seed)


def pyg_candidates(place: Path) -> list[Path]:
    """The files that may hold the graph: the one given, or those of a folder."""
    if place.is_file():
        return [place] if place.suffix in (".pt", ".pth", ".pkl") else []
    for inner in FOLDERS:
        folder = place / inner
        if not folder.is_dir():
            continue
        held = sorted(path for path in folder.iterdir() if path.suffix in (".pt", ".pth", ".pkl") and path.is_file())
        main = [path for path in held if path.name in MAIN]
        if found := main or [path for path in held if path.name not in BESIDE and not path.stem.endswith("_x")]:
            return found
    return []


@dataset(
    "pyg",
    "a PyG Data with texts, as GLBench, LLMNodeBed, LLaGA, TAGLAS and others publish it (pyg:SPLIT@FOLDER)",
    recognise=lambda place: bool(pyg_candidates(place)),
    takes_argument=True,
)
def pyg(request: Request) -> PygFiles:
    """The graph of the file, or of the only one of the folder."""
    found = pyg_candidates(request.folder) if request.folder else []
    if request.argument and not is_count(request.argument):
        raise DataError(f"data '{request.written}': pyg:SPLIT@FOLDER with the number of a split from 0 on expected")
    if len(found) != 1:
        names = ", ".join(path.name for path in found[:10]) or "none"
        expected = "pyg@FOLDER with one .pt or .pkl file of a graph, or the path of one, expected"
        raise DataError(f"data '{request.written}': {expected}; found {names}")
    path = found[0]
    beside = {"texts": ("raw_texts.pt", "texts.pkl"), "names": ("categories.csv", f"{path.stem}_node.json")}
    there = {
        part: path.with_name(name)
        for part, names in beside.items()
        for name in reversed(names)
        if path.with_name(name).is_file() and path.name != name
    }
    choice = int(request.argument) if request.argument else request.seed
    return PygFiles(Files(path.parent, {"graph": path, **there}), choice, request.seed)


def load_pyg(files: Files, choice: int = 0, seed: int = 0) -> Loaded:
    """The graph of a file; `choice` is the number of its split, modulo how many there are."""
    path, findings = files["graph"], Findings()
    fields = fields_of(_open(path), path)
    texts = (files["texts"].name, _texts(files["texts"])) if "texts" in files else None
    names = (files["names"].name, _class_names(files["names"])) if "names" in files else None
    read = PygFields(path, fields, texts, names, choice, seed)
    name = path.parent.name if path.name in MAIN else stem(path)
    if name == "processed":
        name = path.parent.parent.name
    graph = read.graph(name or "graph", findings)
    return Loaded(graph, findings.warnings + [f"{path.name}, {told}" for told in graph.oddities()])


def _open(path: Path) -> Any:
    return open_pickle(path) if path.suffix == ".pkl" else open_torch(path)


def _texts(path: Path) -> Any:
    """n texts; TSGFM keeps lists of node texts, edge texts and others, of which the first is that of the nodes."""
    held = plain_field(_open(path), path, "texts")
    if path.name == "texts.pkl" and isinstance(held, list) and held and not isinstance(held[0], str):
        return plain_field(held[0], path, "texts of nodes")
    return held


def _class_names(path: Path) -> list[str]:
    """Names of categories.csv (Graph-COM: the first column, a row per class) or of TAGLAS's list of objects."""
    if path.suffix == ".csv":
        return [next(iter(row.values())) for _, row in csv_rows(path)]
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(held, list) or not all(
        isinstance(row, dict) and isinstance(row.get("name"), str) for row in held
    ):
        raise DataError(f"{path}: a list of objects with a field 'name' expected, one for each class")
    return [row["name"] for row in held]
