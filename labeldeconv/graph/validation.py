"""The one validation of a graph, for every way in: tables, saved folders, public formats, PyG, and objects in Python.

Two levels. `structure_problems` looks at types, shapes and ranges, costs O(n + e), and is run whenever an
`AttributedGraph` is made. `value_problems` reads every number and every byte, once, where data come in: a saved folder
that is opened, a source that is turned into a graph, an object that is given to `fit`. Each problem says the file or
array, row and column, the first few nodes, what is accepted and what was got. `oddities` are worth a word only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from labeldeconv.errors import DataError
from labeldeconv.graph.missing import labelled
from labeldeconv.graph.split import ROLES, Split
from labeldeconv.graph.texts import Texts

if TYPE_CHECKING:
    from labeldeconv.graph.attributed import AttributedGraph

NAMED = 5  # how many nodes or rows a message names
ROWS = 1 << 16  # rows of features looked at a time
BYTES = 1 << 24  # bytes of texts decoded at a time
MAX_ID = 40  # characters of an id that are shown

AttributeKind = Literal["text", "sequence", "record"]
Files = Mapping[str, str]


def structure_problems(graph: AttributedGraph, files: Files | None = None) -> list[str]:
    """What is wrong with types, shapes and ranges; `files` gives the name of each part in messages."""
    check = _Check(graph, files or {})
    check.texts("texts", graph.texts)
    if check.problems:
        return check.problems  # nodes that cannot be counted fit nothing
    check.edges()
    check.labels()
    check.roles()
    check.numbers("features", graph.features, graph.num_nodes)
    check.numbers("edge_features", graph.edge_features, graph.edges.shape[-1] if graph.edges.ndim else 0)
    check.ids()
    check.names()
    return check.problems


def value_problems(graph: AttributedGraph, files: Files | None = None) -> list[str]:
    """What is wrong with the values of a graph whose structure is sound: every number and every byte is read."""
    check = _Check(graph, files or {})
    for part, texts in (("texts", graph.texts), ("ids", graph.ids)):
        if isinstance(texts, Texts):
            check.utf8(part, texts)
    if check.problems:
        return check.problems  # ids that cannot be read cannot be named
    check.repeated_ids()
    check.finite("features", graph.features, "node")
    check.finite("edge_features", graph.edge_features, "edge")
    check.task()
    return check.problems


def oddities(graph: AttributedGraph, files: Files | None = None) -> list[str]:
    """What a user should know of a sound graph, as warnings."""
    named, told = files or {}, []
    texts, split = named.get("texts", "texts"), named.get("split", "split")
    empty = np.flatnonzero(graph.texts.lengths() == 0)
    if len(empty):
        told.append(f"{texts}: {len(empty):,} of {graph.num_nodes:,} texts are empty: {some_nodes(graph, empty)}")
    told += [f"{split}: no '{role}' nodes" for role in ROLES[1:] if not len(graph.split.ids(role))]
    if missing := absent_from_train(graph.split, graph.labels, graph.class_names):
        told.append(f"{split}: {missing}")
    return told


def check_graph(graph: AttributedGraph, where: str, files: Files | None = None) -> None:
    """Refuse a graph whose values cannot be used, with everything that is wrong."""
    if problems := value_problems(graph, files):
        raise DataError(f"{where}: {len(problems)} wrong", problems)


def absent_from_train(split: Split, labels: np.ndarray, class_names: Sequence[str]) -> str | None:
    """Which classes of val or test the train nodes lack, in words; None where there are none, or no train nodes.

    Of a regression: which targets no train node has.
    """
    present = [classes_among(labels[split.ids(role)], len(class_names)) for role in ROLES]
    absent = np.flatnonzero((present[1] | present[2]) & ~present[0])
    if not len(absent) or not len(split.train):
        return None
    dots = ", ..." if len(absent) > NAMED else ""
    names = ", ".join(f"'{class_names[k]}'" for k in absent[:NAMED])
    what = "targets" if labels.dtype.kind == "f" else "classes"
    return f"{len(absent)} {what} of val or test are absent from train: {names}{dots}"


def classes_among(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Which classes (c,) occur in labels (m,) or (m, c); of a regression, which targets are known of any node."""
    if labels.dtype.kind == "f":
        return np.asarray(~np.isnan(labels).all(0))
    if labels.ndim == 2:
        return np.any(labels > 0, axis=0)
    return np.bincount(labels[labels >= 0], minlength=num_classes) > 0


def infinite_cells(array: np.ndarray) -> tuple[int, list[tuple[int, int]]]:
    """How many rows of numbers (m, d) hold a value that is no finite float32, and the first such cells (row, column).

    Features are computed with in float32, in which a float64 of 1e300 is infinite.
    """
    count, first = 0, list[tuple[int, int]]()
    if array.dtype.kind in "iub":
        return 0, []
    for start in range(0, len(array), ROWS):
        with np.errstate(over="ignore", invalid="ignore"):
            wrong = ~np.isfinite(np.asarray(array[start : start + ROWS]).astype(np.float32))
        rows = np.flatnonzero(wrong.any(1))
        count += len(rows)
        first += [(start + int(row), int(wrong[row].argmax())) for row in rows[: NAMED - len(first)]]
    return count, first


def some_nodes(graph: AttributedGraph, nodes: np.ndarray) -> str:
    """The first few of the nodes, by number and, where there are ids, by id."""
    told = [_node(graph, int(node)) for node in nodes[:NAMED]]
    return ", ".join(told) + (", ..." if len(nodes) > NAMED else "")


def _node(graph: AttributedGraph, node: int) -> str:
    try:
        return f"node {node}" if graph.ids is None else f"node {node} ('{graph.node_id(node)[:MAX_ID]}')"
    except (UnicodeDecodeError, IndexError, ValueError, TypeError):
        return f"node {node}"  # its id is one of the problems


def _got(array: np.ndarray) -> str:
    return f"{array.dtype} {array.shape}"


class _Check:
    """Collects the problems of a graph, each under the name that a part has for the user."""

    def __init__(self, graph: AttributedGraph, files: Files) -> None:
        self.graph, self.files, self.problems = graph, files, list[str]()

    def wrong(self, part: str, problem: str) -> None:
        self.problems.append(f"{self.files.get(part, part)}: {problem}")

    def texts(self, part: str, texts: Any) -> None:
        """Offsets must rise from 0 to the number of bytes."""
        if not isinstance(texts, Texts):
            return self.wrong(part, f"Texts expected, such as Texts.from_strings makes, got {type(texts).__name__}")
        offsets, size = texts.offsets, int(texts.buffer.size)
        if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or not len(offsets):
            return self.wrong(part, f"offsets: whole numbers (n + 1,) expected, got {_got(offsets)}")
        if texts.buffer.dtype != np.uint8 or texts.buffer.ndim != 1:
            return self.wrong(part, f"bytes: uint8 (bytes,) expected, got {_got(texts.buffer)}")
        if len(fallen := np.flatnonzero(offsets[1:] < offsets[:-1])):
            row = int(fallen[0])
            told = f"{offsets[row + 1]} follows {offsets[row]}, at node {row}"
            return self.wrong(part, f"offsets: rising numbers expected, but {told}")
        if offsets[0] != 0 or offsets[-1] != size:
            what = "the bytes are truncated" if offsets[-1] > size else "they do not belong together"
            span = f"{offsets[0]}..{offsets[-1]}"
            self.wrong(part, f"offsets from 0 to the number of bytes, {size}, expected, got {span}: {what}")
        return None

    def edges(self) -> None:
        edges, n = self.graph.edges, self.graph.num_nodes
        if edges.ndim != 2 or edges.shape[0] != 2 or (edges.dtype.kind not in "iu" and edges.size):
            return self.wrong("edges", f"whole numbers of shape (2, e) expected, got {_got(edges)}")
        if edges.size and not (0 <= edges.min() and edges.max() < n):
            outside = np.flatnonzero(((edges < 0) | (edges >= n)).any(0))
            first = ", ".join(f"edge {e} ({edges[0, e]} to {edges[1, e]})" for e in outside[:NAMED])
            span = f"{edges.min()}..{edges.max()}"
            return self.wrong("edges", f"node numbers 0..{n - 1} expected, got {span}: {len(outside):,} edges: {first}")
        return None

    def labels(self) -> None:
        labels, n, c = self.graph.labels, self.graph.num_nodes, self.graph.num_classes
        if labels.dtype.kind == "f":
            return self.targets(labels, n, c)
        if labels.dtype.kind not in ("iu" if labels.ndim == 1 else "iub") and labels.size:
            return self.wrong("labels", f"whole numbers expected, got {_got(labels)}")
        if labels.shape not in ((n,), (n, c)):
            return self.wrong("labels", f"({n},) or ({n}, {c}) expected, got {labels.shape}")
        top = c - 1 if labels.ndim == 1 else 1
        if labels.size and not (-1 <= labels.min() and labels.max() <= top):
            outside = (labels < -1) | (labels > top)
            rows = np.flatnonzero(outside if labels.ndim == 1 else outside.any(1))
            kind = f"0..{top}, or -1 for none" if labels.ndim == 1 else "0, 1, or -1 for missing"
            got = f"values {labels.min()}..{labels.max()} for {c} classes"
            self.wrong("labels", f"{kind} expected, got {got}: {some_nodes(self.graph, rows)}")
        return None

    def targets(self, labels: np.ndarray, n: int, c: int) -> None:
        """Numbers (n, c), or (n,) where there is one target: finite, or NaN where missing."""
        if labels.shape != (n, c) and not (labels.shape == (n,) and c == 1):
            what = f"numbers ({n}, {c}), a column for each of the {c} names, or whole numbers for classes,"
            return self.wrong("labels", f"{what} expected, got {_got(labels)}")
        with np.errstate(over="ignore"):
            outside = np.isinf(labels.astype(np.float32)).reshape(n, -1).any(1)  # in which they are learned
        if len(rows := np.flatnonzero(outside)):
            first = some_nodes(self.graph, rows)
            what = "finite numbers within float32, or NaN for missing,"
            self.wrong("labels", f"{what} expected; {len(rows):,} nodes have others: {first}")
        return None

    def roles(self) -> None:
        roles, labels, n = self.graph.split.roles, self.graph.labels, self.graph.num_nodes
        if roles.shape != (n,):
            return self.wrong("split", f"{n} rows expected, got {_got(roles) if roles.ndim != 1 else len(roles)}")
        if roles.dtype.kind not in "iu" and roles.size:
            return self.wrong("split", f"whole numbers expected, got {_got(roles)}")
        accepted = "0 (train), 1 (val), 2 (test) or -1 (none of them)"
        if len(strange := np.flatnonzero((roles < -1) | (roles >= len(ROLES)))):
            got = f"{roles[strange[0]]}: {len(strange):,} nodes: {some_nodes(self.graph, strange)}"
            return self.wrong("split", f"{accepted} expected, got {got}")
        if (labels.shape == (n,) and labels.dtype.kind in "iu") or (labels.dtype.kind == "f" and len(labels) == n):
            unlabelled = np.flatnonzero((roles == 0) & ~labelled(labels))
            if len(unlabelled):
                first = some_nodes(self.graph, unlabelled)
                self.wrong("split", f"{len(unlabelled)} train nodes have no label: {first}")
        return None

    def numbers(self, part: str, array: Any, rows: int) -> None:
        if array is None:
            return
        if array.ndim != 2 or array.dtype.kind not in "fiub":
            self.wrong(part, f"numbers of shape ({rows}, d) expected, got {_got(array)}")
        elif len(array) != rows:
            self.wrong(part, f"{rows} rows expected, got {len(array)}")

    def ids(self) -> None:
        ids, n = self.graph.ids, self.graph.num_nodes
        if ids is None:
            return
        if isinstance(ids, Texts):
            self.texts("ids", ids)
        elif ids.ndim != 1 or ids.dtype.kind not in "iuU":
            return self.wrong("ids", f"whole numbers or texts (n,) expected, got {_got(ids)}")
        if len(ids) != n:
            self.wrong("ids", f"{n} rows expected, got {len(ids)}")
        return None

    def names(self) -> None:
        graph = self.graph
        if not all(isinstance(name, str) for name in graph.class_names):
            strange = next(name for name in graph.class_names if not isinstance(name, str))
            self.wrong("class_names", f"texts expected, got {strange!r}")
        if graph.attributes not in get_args(AttributeKind):
            self.wrong("attributes", f"{', '.join(get_args(AttributeKind))} expected, got {graph.attributes!r}")

    def utf8(self, part: str, texts: Texts) -> None:
        """Every text must be UTF-8 of its own; blocks of whole texts are decoded at a time."""
        start, n = 0, len(texts)
        while start < n:
            stop = int(np.searchsorted(texts.offsets, texts.offsets[start] + BYTES, side="right")) - 1
            stop = min(max(stop, start + 1), n)
            if not _is_utf8(texts, start, stop):
                node = next(i for i in range(start, stop) if not _is_utf8(texts, i, i + 1))
                return self.wrong(part, f"UTF-8 expected, but that of node {node} is not")
            start = stop
        return None

    def repeated_ids(self) -> None:
        ids = self.graph.ids
        if ids is None:
            return
        place: dict[Any, int] = {}
        again: list[tuple[int, int]] = []
        for node, name in enumerate(ids.tolist() if isinstance(ids, np.ndarray) else ids):
            first = place.setdefault(name, node)
            if first != node:
                again.append((node, first))
        if again:
            told = [f"node {node} repeats {_node(self.graph, first)}" for node, first in again[:NAMED]]
            dots = ", ..." if len(again) > NAMED else ""
            self.wrong("ids", f"an id of its own expected for every node, but {', '.join(told)}{dots}")

    def finite(self, part: str, array: np.ndarray | None, row: str) -> None:
        if array is None:
            return
        count, cells = infinite_cells(array)
        if not count:
            return
        name: Callable[[int], str] = (lambda i: _node(self.graph, i)) if row == "node" else (lambda i: f"edge {i}")
        told = ", ".join(f"{name(r)}, column {k}: {array[r, k]}" for r, k in cells)
        dots = ", ..." if count > NAMED else ""
        self.wrong(part, f"finite numbers within float32 expected; {count:,} {row}s have others: {told}{dots}")

    def task(self) -> None:
        """There must be something to learn: train nodes, a label among them, and two classes."""
        graph = self.graph
        labels, train = graph.labels, graph.split.train
        if not graph.num_nodes:
            return self.wrong("texts", "at least one node expected, got none")
        if not len(train):
            counts = ", ".join(f"{len(graph.split.ids(role)):,} {role}" for role in ROLES)
            return self.wrong("split", f"train nodes (role 0) expected, got none; {counts}")
        if not labelled(labels[train]).any():
            return self.wrong("labels", f"labels of train nodes expected, but all {len(train):,} have none")
        if graph.task == "multiclass" and graph.num_classes < 2:
            return self.wrong("class_names", f"at least two classes expected, got {graph.num_classes}")
        return None


def _is_utf8(texts: Texts, start: int, stop: int) -> bool:
    """Whether the texts start..stop are UTF-8, each by itself: no boundary may cut a character."""
    low, high = int(texts.offsets[start]), int(texts.offsets[stop])
    block = texts.buffer[low:high]
    bounds = texts.offsets[start:stop]
    heads = np.asarray(texts.buffer[bounds[bounds < high]])
    if ((heads & 0xC0) == 0x80).any():
        return False
    try:
        bytes(block).decode("utf-8")
        return True
    except UnicodeDecodeError:
        return False
