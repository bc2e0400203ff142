"""Node-link JSON, as NetworkX's `node_link_data` and d3 write it: attributes of nodes become columns.

labeldeconv inspect papers.json                # graph.toml beside it can name the columns

{"directed": false, "nodes": [{"id": 1, "text": "...", "label": "a"}, ...],
 "links": [{"source": 1, "target": 2}, ...]}   # or "edges"
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labeldeconv.data.catalog import Request, dataset
from labeldeconv.data.findings import Loaded
from labeldeconv.data.origin import Files
from labeldeconv.data.sets.node_rows import ID, Edge, Node, head_of, load_rows, only_file, with_toml
from labeldeconv.data.sets.text_files import open_bytes
from labeldeconv.errors import DataError

LINKS = ("links", "edges")
START = re.compile(r'\s*\{.*"(nodes|links|edges)"\s*:\s*\[', re.DOTALL)


@dataclass(frozen=True)
class NodeLink:
    """A file of node-link JSON, with a graph.toml perhaps, as the source of a graph."""

    files: Files
    file: str
    seed: int
    version: int = 1

    def load(self) -> Loaded:
        """Read nodes and edges."""
        return load_node_link(self.files[self.file], self.files, self.seed)


def node_link_file(place: Path) -> Path | None:
    """A .json file that begins like node-link JSON, or the only one of a folder."""
    return only_file(place, [".json"], lambda path: START.match(head_of(path)) is not None)


@dataset(
    "node-link", "node-link JSON, as NetworkX writes it", recognise=lambda place: node_link_file(place) is not None
)
def node_link(request: Request) -> NodeLink:
    """The graph of the file, or of the only such file of the folder."""
    path = node_link_file(request.folder) if request.folder else None
    if path is None:
        raise DataError(f"data '{request.written}': the path of one node-link .json file, or its folder, expected")
    return NodeLink(with_toml(path.parent, [path]), path.name, request.seed)


def load_node_link(path: Path, files: Files, seed: int = 0) -> Loaded:
    """The graph of the file."""
    held = _read(path)
    nodes = _objects(held, "nodes", path)
    name = next((name for name in LINKS if name in held), None)
    if name is None:
        raise DataError(f"{path}: a list 'links' or 'edges' expected, got {', '.join(list(held)[:10])}")
    links = _objects(held, name, path)
    return load_rows(path, files, _nodes(nodes, path), _edges(links, name, path), seed)


def _nodes(nodes: list[dict[str, Any]], path: Path) -> Iterator[Node]:
    for i, node in enumerate(nodes):
        rest = {name: value for name, value in node.items() if name != "id"}
        yield f"nodes[{i}]", {ID: _id(node, "id", path, f"nodes[{i}]"), **rest}


def _edges(links: list[dict[str, Any]], name: str, path: Path) -> Iterator[Edge]:
    for i, link in enumerate(links):
        place = f"{name}[{i}]"
        yield place, _id(link, "source", path, place), _id(link, "target", path, place)


def _id(held: dict[str, Any], field: str, path: Path, place: str) -> str:
    """An id as text: NetworkX's nodes may be numbers, texts or tuples, which JSON makes lists."""
    value = held.get(field)
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float | list):
        return json.dumps(value)
    raise DataError(f"{path}, {place}: a field '{field}' with a number or text expected, got {str(value)[:40]}")


def _read(path: Path) -> dict[str, Any]:
    try:
        with open_bytes(path) as file:
            held = json.loads(file.read().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON: {error}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise DataError(f"{path}: the gz file is truncated or broken; download it again") from None
    if not isinstance(held, dict):
        raise DataError(f"{path}: a JSON object with 'nodes' and 'links' expected, got {type(held).__name__}")
    return held


def _objects(held: dict[str, Any], name: str, path: Path) -> list[dict[str, Any]]:
    found = held.get(name)
    if not isinstance(found, list):
        raise DataError(f"{path}: a list '{name}' expected, got {type(found).__name__}")
    for i, item in enumerate(found):
        if not isinstance(item, dict):
            raise DataError(f"{path}, {name}[{i}]: a JSON object expected, got {str(item)[:40]}")
    return found
