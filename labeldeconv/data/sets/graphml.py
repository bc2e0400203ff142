"""GraphML, as NetworkX, igraph, Gephi and yEd write it: attributes of nodes become columns.

    labeldeconv inspect papers.graphml             # or .graphml.gz; graph.toml beside it can name the columns

The file is streamed. Document types and entities are refused: a few hundred bytes of them can grow to gigabytes, and
GraphML needs none.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.parsers import expat

from labeldeconv.data.catalog import Request, dataset
from labeldeconv.data.findings import Loaded
from labeldeconv.data.origin import Files
from labeldeconv.data.sets.node_rows import ID, Edge, Node, load_rows, only_file, with_toml
from labeldeconv.data.sets.text_files import open_bytes
from labeldeconv.errors import DataError

BLOCK = 1 << 20  # bytes parsed at a time


@dataclass(frozen=True)
class Graphml:
    """A GraphML file, with a graph.toml perhaps, as the source of a graph."""

    files: Files
    file: str
    seed: int
    version: int = 1

    def load(self) -> Loaded:
        """Read nodes and edges."""
        path = self.files[self.file]
        read = read_graphml(path)
        return load_rows(path, self.files, read.nodes, read.edges, self.seed)


def graphml_file(place: Path) -> Path | None:
    """A .graphml file, or the only one of a folder."""
    return only_file(place, [".graphml"], lambda path: True)


@dataset("graphml", "a GraphML file", recognise=lambda place: graphml_file(place) is not None)
def graphml(request: Request) -> Graphml:
    """The graph of the file, or of the only such file of the folder."""
    path = graphml_file(request.folder) if request.folder else None
    if path is None:
        raise DataError(f"data '{request.written}': the path of one .graphml file, or its folder, expected")
    return Graphml(with_toml(path.parent, [path]), path.name, request.seed)


def read_graphml(path: Path) -> _Reader:
    """Nodes and edges of the file."""
    reader = _Reader(path)
    parse = reader.parser.Parse
    with open_bytes(path) as file:
        try:
            while block := file.read(BLOCK):
                parse(block, False)
            parse(b"", True)
        except expat.ExpatError as error:
            told = expat.ErrorString(error.code)
            raise DataError(f"{path}, line {error.lineno}: not XML: {told}") from None
        except (LookupError, ValueError) as error:
            raise DataError(f"{path}, {reader.place}: not XML: {error}") from None
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise DataError(f"{path}: the gz file is truncated or broken; download it again") from None
    return reader


class _Reader:
    """The parser's handlers and what they have collected."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.nodes, self.edges = list[Node](), list[Edge]()
        self.names, self.defaults = dict[str, str](), dict[str, str]()  # of attributes of nodes, by key
        self.inside = list[str]()  # elements that are open
        self.row: dict[str, Any] | None = None
        self.key, self.text = "", list[str]()
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler, self.parser.EndElementHandler = self.start, self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.StartDoctypeDeclHandler = self.refuse
        self.parser.EntityDeclHandler = self.refuse

    @property
    def place(self) -> str:
        return f"line {self.parser.CurrentLineNumber}"

    def refuse(self, *declared: Any) -> None:
        raise self.wrong("a document type or entity, which is refused: entities can blow up a file; delete it")

    def wrong(self, problem: str) -> DataError:
        return DataError(f"{self.path}, {self.place}: {problem}")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        if not self.inside and name != "graphml":
            raise self.wrong(f"the element graphml expected, got {name[:40]}")
        if name == "key" and attributes.get("for", "all") in ("node", "all"):
            self.key = self.needed("key", attributes, "id")
            self.names[self.key] = attributes.get("attr.name", self.key)
        elif name == "key":
            self.key = ""
        elif (name in ("graph", "node") and "node" in self.inside) or name == "hyperedge":
            raise self.wrong("graphs inside of nodes and hyperedges are not read")
        elif name == "node":
            self.row = {**{self.names[key]: held for key, held in self.defaults.items()}}
            self.row[ID] = self.needed("node", attributes, "id")
            self.nodes.append((self.place, self.row))
        elif name == "edge":
            source, target = (self.needed("edge", attributes, end) for end in ("source", "target"))
            self.edges.append((self.place, source, target))
        elif name == "data" and self.row is not None:
            self.key = self.needed("data", attributes, "key")
            if self.key not in self.names:
                raise self.wrong(f"data of key '{self.key[:40]}', which no element key of nodes declares")
        if name in ("data", "default"):
            self.text = []
        self.inside.append(name)

    def needed(self, element: str, attributes: dict[str, str], name: str) -> str:
        if not attributes.get(name, "").strip():
            raise self.wrong(f"element {element}: an attribute '{name}' expected")
        return attributes[name]

    def characters(self, text: str) -> None:
        if self.inside and self.inside[-1] in ("data", "default"):
            self.text.append(text)

    def end(self, name: str) -> None:
        name = self.inside.pop()
        if name == "data" and self.row is not None and self.inside[-1:] == ["node"]:
            self.row[self.names[self.key]] = "".join(self.text)
        elif name == "default" and self.inside[-1:] == ["key"] and self.key:
            self.defaults[self.key] = "".join(self.text)
        elif name == "node":
            self.row = None
