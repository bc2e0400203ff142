"""Graphs of one file (CSV, GraphML, JSON) as rows of nodes and edges, read and checked as own tables are.

Columns are guessed as in tables, and what each was taken for is said; a graph.toml in the folder of the file can say
otherwise (text, join, label, label_separator, task, split, split_values, features, attributes, name). Every message
names the file itself and the place in it.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import tempfile
import tomllib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from labeldeconv.data.findings import Loaded, shown
from labeldeconv.data.origin import Files
from labeldeconv.data.sets.text_files import open_bytes
from labeldeconv.data.tables.folder import load_tables
from labeldeconv.data.tables.graph_toml import GRAPH_TOML
from labeldeconv.data.tables.rows import RowPlaces
from labeldeconv.errors import DataError

ID = "node id"  # the column of ids, which every reader fills itself
TEXTS = ("text", "raw_text", "raw_texts", "node_text")  # before the guesses of tables: title, abstract, ...
LABELS = ("label", "labels", "y", "class", "category", "subject")
CELL = 1 << 30  # characters of a cell; Python's own limit, 131,072, is less than some texts have
MANY = 200  # files of a folder that are looked into

Node = tuple[str, Mapping[str, Any]]
"""Where a node stands in its file, and its columns, ID among them."""
Edge = tuple[str, str, str]
"""Where an edge stands in its file, and the ids of its ends."""


def only_file(place: Path, suffixes: Sequence[str], fits: Callable[[Path], bool]) -> Path | None:
    """A file of these suffixes that fits, or the only such file of a folder; None where there is none, or several."""
    found = [place] if place.is_file() else sorted(place.iterdir())[:MANY] if place.is_dir() else []
    named = [path for path in found if path.name.lower().removesuffix(".gz").endswith(tuple(suffixes))]
    fitting = [path for path in named if path.is_file() and fits(path)]
    return fitting[0] if len(fitting) == 1 else None


def with_toml(folder: Path, paths: Iterable[Path]) -> Files:
    """The files of a source, with the graph.toml of their folder where there is one."""
    return Files(folder, {path.name: path for path in [*paths, folder / GRAPH_TOML] if path.is_file()})


def stem(path: Path) -> str:
    """The name of a graph: that of its file without endings."""
    return path.name.removesuffix(".gz").rpartition(".")[0] or path.name


def head_of(path: Path, size: int = 1 << 16) -> str:
    """The first bytes of a file as text; nothing where it cannot be read."""
    try:
        with open_bytes(path) as file:
            return file.read(size).decode("utf-8", "replace").removeprefix("\ufeff")
    except (DataError, OSError, EOFError, zlib.error):
        return ""


def header_of(path: Path) -> list[str]:
    """The cells of the first line of a CSV file."""
    try:
        return next(csv.reader([head_of(path).partition("\n")[0]]), [])
    except csv.Error:
        return []


def csv_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of a CSV file by the names of its header, each with the number of its last line."""
    before = csv.field_size_limit(CELL)
    try:
        with open_bytes(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            try:
                names = next(reader, [])
                if len(set(names)) < len(names):
                    raise DataError(f"{path}, line 1: more than one column is called {shown(_twice(names))}")
                for cells in reader:
                    if cells and len(cells) != len(names):
                        where = f"{path}, line {reader.line_num}"
                        raise DataError(f"{where}: {len(names)} cells expected, as in the header, got {len(cells)}")
                    if cells:
                        yield reader.line_num, dict(zip(names, cells, strict=True))
            except csv.Error as error:
                raise DataError(f"{path}, line {reader.line_num}: not CSV: {error}") from None
            except UnicodeDecodeError as error:
                raise DataError(f"{path}, after line {reader.line_num}: not UTF-8 ({error.reason})") from None
            except (EOFError, zlib.error, gzip.BadGzipFile):
                told = f"the gz file is truncated or broken after line {reader.line_num}"
                raise DataError(f"{path}: {told}; download it again") from None
    finally:
        csv.field_size_limit(before)


def load_rows(
    path: Path, files: Files, nodes: Iterable[Node], edges: Iterable[Edge], seed: int, **columns: Any
) -> Loaded:
    """The graph of rows made of `path`; `columns` are settings of graph.toml that the reader knows for sure."""
    with tempfile.TemporaryDirectory(prefix="labeldeconv-") as scratch:
        folder = Path(scratch)
        node_places, names = _write_nodes(folder / "nodes.jsonl", path, nodes)
        edge_places = _write_edges(folder / "edges.csv", edges)
        settings = {"name": stem(path), **_guessed(names), **columns, **_toml(files)}
        settings |= {"id": ID, "source": "source", "target": "target"}
        (folder / GRAPH_TOML).write_text(tomli_w.dumps(settings), encoding="utf-8")
        places = {
            "nodes": RowPlaces(path.name, node_places.__getitem__),
            "edges": RowPlaces(path.name, edge_places.__getitem__),
        }
        try:
            loaded = load_tables(folder, seed, places)
        except DataError as error:
            problems = [_without_scratch(problem, folder) for problem in error.problems]
            raise DataError(str(error).splitlines()[0].replace(str(folder), str(path)), problems) from None
    return Loaded(loaded.graph, [_understood(path, loaded), *loaded.warnings])


def _write_nodes(target: Path, path: Path, nodes: Iterable[Node]) -> tuple[list[str], list[str]]:
    """Write the nodes; their places and the names of their columns."""
    places, names = list[str](), dict[str, None]()
    with target.open("w", encoding="utf-8") as out:
        for place, row in nodes:
            kept = {name: value for name, value in row.items() if name.strip() and value is not None and value != ""}
            names.update(dict.fromkeys(kept))
            try:
                out.write(json.dumps(kept, ensure_ascii=False) + "\n")
            except UnicodeEncodeError:
                raise DataError(f"{path}, {place}: a text that is no UTF-8: half of a surrogate pair") from None
            places.append(place)
    if not places:
        raise DataError(f"{path}: no nodes in it")
    return places, list(names)


def _write_edges(target: Path, edges: Iterable[Edge]) -> list[str]:
    places = list[str]()
    with target.open("w", encoding="utf-8", newline="", errors="replace") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["source", "target"])
        for place, source, end in edges:
            writer.writerow([source, end])
            places.append(place)
    return places


def _guessed(names: Sequence[str]) -> dict[str, Any]:
    """Text and label where one of the usual names is there; the rest is guessed, and refused, by the tables."""
    by_lower = {name.lower(): name for name in names if name != ID}
    text = next((by_lower[name] for name in TEXTS if name in by_lower), None)
    label = next((by_lower[name] for name in LABELS if name in by_lower), None)
    return {role: name for role, name in (("text", text), ("label", label)) if name is not None}


def _toml(files: Files) -> dict[str, Any]:
    """What the graph.toml beside the file says."""
    path = files.paths.get(GRAPH_TOML)
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not valid TOML: {error}") from None


def _understood(path: Path, loaded: Loaded) -> str:
    """Which column became what, in a sentence."""
    columns = loaded.graph.columns or {}
    label = columns.get("label")
    told = {
        "text": " and ".join(columns.get("text", [])),
        "label": " and ".join(label) if isinstance(label, list) else label,
        "split": columns.get("split") or "made",
    }
    return f"{path.name}: read as {', '.join(f'{role} = {name}' for role, name in told.items())}"


def _without_scratch(problem: str, folder: Path) -> str:
    return problem.replace(f"{folder}: ", "")


def _twice(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})
