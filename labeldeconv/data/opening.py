"""open_data: the graph of a name or of a folder, converted once and then memory-mapped.

    open_data("ogbn-arxiv").graph
    open_data("my_tables").warnings
    open_data("debian#5000", seed=1).graph        a connected part of at most 5000 nodes

A folder with nodes.* and edges.* holds tables (data/tables), one with graph.json a saved graph, which is opened as it
is; other folders, and single files such as a treebank's, are recognised by their names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labeldeconv.data.catalog import DATASETS, folder_source, is_count, named_source
from labeldeconv.data.findings import Loaded
from labeldeconv.data.origin import Source
from labeldeconv.data.part import connected_part
from labeldeconv.data.tables.folder import is_tables, tables_source
from labeldeconv.errors import DataError, nearest
from labeldeconv.graph.attributed import PARTS, AttributedGraph
from labeldeconv.stages.stage import Artefact, Folder, stage


@dataclass(frozen=True, eq=False)
class SavedGraph(Artefact):
    """A graph in the cache.

    Args:
        folder: what `AttributedGraph.save` wrote.
        warnings: what is odd about the files that it was made of.
        keys: the keys of its parts; they are trusted, since nobody writes to the files of a kept stage.
    """

    folder: Path
    warnings: list[str]
    keys: dict[str, Any]

    def open(self) -> Loaded:
        """The graph, memory-mapped."""
        opened = AttributedGraph.load(self.folder, trusted=True)
        opened._keys.update(self.keys)
        opened.texts._key = self.keys["texts"]["content"]
        return Loaded(opened, self.warnings)


@stage(version=3)  # 2: graphs that an earlier version let pass are made again; 3: graph.json has the tables' columns
def graph(out: Folder, source: Source) -> SavedGraph:
    """Make the graph of a source."""
    loaded = source.load()
    loaded.graph.check()
    return _saved(loaded.graph, out, loaded.warnings)


@stage(version=1)
def part(out: Folder, graph: AttributedGraph, name: str, max_nodes: int, seed: int) -> SavedGraph:
    """Cut a connected part out of a graph, whose `name` is here because it is not in the graph's key."""
    return _saved(connected_part(graph, max_nodes, seed), out, [])


def open_data(name: str, seed: int = 0) -> Loaded:
    """The graph of a name, a folder of tables or raw files, or a saved graph, with what is odd about its files.

    NAME#N takes a connected part of at most N nodes. `seed` chooses the part, and makes a split where there is none.
    """
    whole, sign, most = name.rpartition("#")
    if not sign or not is_count(most):
        return _open_whole(name, seed)
    loaded = _open_whole(whole, seed)
    if int(most) >= loaded.graph.num_nodes:
        return loaded
    cut = part(loaded.graph, loaded.graph.name, int(most), seed).open().graph
    return Loaded(cut, loaded.warnings)


def _open_whole(name: str, seed: int) -> Loaded:
    try:
        return _open_named(name, seed)
    except OSError as error:  # a name that is too long, a loop of links, no right to look
        if isinstance(error.filename, str) and not error.filename.startswith(name):
            raise
        raise DataError(f"data '{name[:200]}': cannot be read: {error.strerror}") from None


def _open_named(name: str, seed: int) -> Loaded:
    source = named_source(name, seed)
    if source is None:
        folder = Path(name)
        if (folder / "graph.json").is_file():
            saved = AttributedGraph.load(folder)
            return Loaded(saved, saved.oddities())
        of_file = folder_source(folder, seed) if folder.is_file() else None
        if of_file is not None:
            return graph(of_file).open()
        if not folder.is_dir():
            base = name.partition("@")[0].partition(":")[0]
            raise DataError(f"data '{name}': no such folder, and not a name; {nearest(base, DATASETS)}")
        raw = None if is_tables(folder) else folder_source(folder, seed)
        source = raw or tables_source(folder, seed)
    return graph(source).open()


def _saved(made: AttributedGraph, out: Folder, warnings: list[str]) -> SavedGraph:
    keys = {name: made.key_of(name) for name in PARTS}
    return SavedGraph(made.save(out.path / "graph"), warnings, keys)
