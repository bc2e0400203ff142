"""From the fields of a PyG `Data`, as public text-attributed graphs name them, to an `AttributedGraph`.

| part | fields, the first that is there |
|---|---|
| texts | raw_texts, raw_text, text_nodes, texts, text, node_text; or a file beside it |
| labels | y, label, labels, text_node_labels, node_labels: (n,), (n, c) of 0 and 1, a list or lists; -1: none |
| | or numbers to be predicted: some are not whole and no class has a name; NaN: none |
| class names | label_names, label_name, label_texts, class_names, category_names: of the classes, or of each node |
| split | train_mask(s), val_..., test_...: (n,), (n, splits), (splits, n) or lists; train_id, train_idx, ... |
| features | x, node_text_feat |
| edges | edge_index (2, e) |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from labeldeconv.data.findings import Findings
from labeldeconv.errors import DataError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.missing import labelled
from labeldeconv.graph.split import ROLES, Split
from labeldeconv.graph.texts import Texts

TEXTS = ("raw_texts", "raw_text", "text_nodes", "texts", "text", "node_text")
LABELS = ("y", "label", "labels", "text_node_labels", "node_labels")
NAMES = ("label_names", "label_name", "label_texts", "class_names", "category_names")
FEATURES = ("x", "node_text_feat")
ROLE_NAMES = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}
MASKS = ("{}_mask", "{}_masks", "{}_id", "{}_ids", "{}_idx")
SPLITS = 1000  # no file has more of them


@dataclass
class PygFields:
    """The fields of one graph, with the file they come from.

    Args:
        path: of the file, for messages.
        fields: plain values by name.
        texts: n texts from a file beside it, with its name; they count before those of the fields.
        names: class names from a file beside it, with its name.
        choice: which of several splits is taken, modulo their number.
        seed: of the split that is made where there is none.
    """

    path: Path
    fields: Mapping[str, Any]
    texts: tuple[str, Any] | None = None
    names: tuple[str, Any] | None = None
    choice: int = 0
    seed: int = 0
    read_as: dict[str, str] = field(default_factory=dict)
    """What each part was read from, in words."""

    def graph(self, name: str, findings: Findings) -> AttributedGraph:
        """The graph, with the oddities told."""
        texts = self._texts(findings)
        n = len(texts)
        edges = self._edges(n)
        labels, names = self._labels(n, findings)
        features = self._numbers(FEATURES, n)
        split = self._split(labels, n, findings)
        told = ", ".join(f"{part} = {source}" for part, source in self.read_as.items())
        findings.warnings.insert(0, f"{self.path.name}: read as {told}")
        try:
            return AttributedGraph(texts, edges, labels, split, names, features=features, name=name)
        except DataError as error:
            raise DataError(f"{self.path}: {len(error.problems)} wrong", error.problems) from None

    def _first(self, names: Sequence[str]) -> tuple[str, Any] | None:
        return next(((name, self.fields[name]) for name in names if self.fields.get(name) is not None), None)

    def _missing(self, what: str, names: Sequence[str]) -> DataError:
        held = ", ".join(sorted(self.fields)[:20]) or "nothing"
        return DataError(f"{self.path}: no {what}; a field {' or '.join(names)} expected, got {held}")

    def wrong(self, name: str, problem: str) -> DataError:
        """An error of a field."""
        return DataError(f"{self.path}, field '{name}': {problem}")

    def _texts(self, findings: Findings) -> Texts:
        found = self.texts or self._first(TEXTS)
        if found is None:
            raise self._missing("texts", TEXTS)
        name, held = found
        rows = held.tolist() if isinstance(held, np.ndarray) else held
        if not isinstance(rows, list | tuple):
            raise self.wrong(name, f"a list of texts expected, got {type(held).__name__}")
        empty = [i for i, text in enumerate(rows) if text is None or (isinstance(text, float) and text != text)]
        if empty:
            first = ", ".join(f"node {i}" for i in empty[:5])
            findings.warn(f"{self.path.name}, field '{name}': {len(empty)} texts are missing: {first}")
        gone = set(empty)
        for i, text in enumerate(rows):
            if i not in gone and not isinstance(text, str):
                raise self.wrong(name, f"texts expected, got {type(text).__name__} at node {i}")
        self.read_as["texts"] = name
        try:
            return Texts.from_strings("" if i in gone else text for i, text in enumerate(rows))
        except UnicodeEncodeError:
            node = next(i for i, text in enumerate(rows) if i not in gone and not _is_text(text))
            raise self.wrong(name, f"UTF-8 expected, but that of node {node} is not") from None

    def _edges(self, n: int) -> np.ndarray:
        edges = self.fields.get("edge_index")
        if not isinstance(edges, np.ndarray):
            raise self._missing("edges", ["edge_index"])
        if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
            raise self.wrong("edge_index", f"whole numbers (2, e) expected, got {edges.dtype} {edges.shape}")
        outside = np.flatnonzero(((edges < 0) | (edges >= n)).any(0))
        if len(outside):
            e = int(outside[0])
            told = f"node numbers 0..{n - 1} expected, as there are {n} texts"
            raise self.wrong("edge_index", f"{told}; edge {e} is {edges[0, e]} to {edges[1, e]}")
        return edges

    def _numbers(self, names: Sequence[str], rows: int) -> np.ndarray | None:
        """Numbers (rows, d) of the first such field; None where there is none."""
        for name in names:
            held = self.fields.get(name)
            if isinstance(held, np.ndarray) and held.ndim == 2 and held.dtype.kind in "fiub" and held.shape[1]:
                if len(held) != rows:
                    raise self.wrong(name, f"{rows} rows expected, one for each text, got {len(held)}")
                self.read_as["features"] = f"{name} ({held.shape[1]} columns)"
                return held.astype(np.float32)
        return None

    def _labels(self, n: int, findings: Findings) -> tuple[np.ndarray, list[str]]:
        """Labels (n,) or (n, c) and the names of the classes, or of the numbers to be predicted."""
        found = self._first(LABELS)
        if found is None:
            raise self._missing("labels", LABELS)
        name, held = found
        names: list[str] | None
        if (targets := self._targets(name, held, findings)) is not None:
            labels, c = targets, targets.shape[1]
            names = [name] if c == 1 else [f"{name} {k}" for k in range(c)]
        elif isinstance(held, list | tuple):
            labels, names = self._listed(name, held)
        else:
            labels, names = self._numbered(name, np.asarray(held)), None
        if len(labels) != n:
            raise self.wrong(name, f"{n} labels expected, one for each text, got {len(labels)}")
        self.read_as["labels"] = name
        return labels, names or self._names(labels)

    def _targets(self, name: str, held: Any, findings: Findings) -> np.ndarray | None:
        """Numbers (n, c) to be predicted, NaN where missing; None where labels are classes."""
        if self.names or self._first(NAMES):
            return None
        try:
            y = np.asarray(held, dtype=np.float64 if isinstance(held, list | tuple) else None)
        except (TypeError, ValueError):  # names of classes, or lists of various lengths
            return None
        if y.dtype.kind != "f" or y.ndim not in (1, 2) or not y.size:
            return None
        y = y.reshape(len(y), -1).astype(np.float64)
        parts = np.argwhere(np.isfinite(y) & (y != np.trunc(y)))
        if not len(parts):
            return None
        if len(endless := np.argwhere(np.isinf(y))):
            raise self.wrong(
                name, f"finite numbers, or NaN for none, expected, got {y[tuple(endless[0])]} at node {endless[0][0]}"
            )
        first = f"{y[tuple(parts[0])]:g} at node {parts[0][0]}"
        told = f"taken for numbers to be predicted, since {len(parts)} of them are not whole: {first}"
        findings.warn(f"{self.path.name}, field '{name}': {told}")
        return y

    def _numbered(self, name: str, y: np.ndarray) -> np.ndarray:
        y = y.reshape(-1) if y.ndim == 2 and y.shape[1] == 1 else y
        if y.ndim not in (1, 2) or y.dtype.kind not in "fiub":
            raise self.wrong(name, f"class numbers (n,) or 0 and 1 (n, c) expected, got {y.dtype} {y.shape}")
        y = np.where(np.isnan(y), -1, y) if y.dtype.kind == "f" else y
        whole = np.clip(np.nan_to_num(y, posinf=0.5, neginf=0.5), -1, 1 << 30)
        top = (1 << 20) - 1 if y.ndim == 1 else 1
        rows = np.argwhere((whole != np.trunc(whole)) | (whole > top))
        if len(rows):
            told = f"class numbers 0..{top}" if y.ndim == 1 else "0 and 1"
            raise self.wrong(name, f"{told}, or -1 for none, expected, got {y[tuple(rows[0])]} at node {rows[0][0]}")
        return whole.astype(np.int32 if y.ndim == 1 else np.int8)

    def _listed(self, name: str, held: Sequence[Any]) -> tuple[np.ndarray, list[str]]:
        """Labels of a Python list: -1 or None is no label, a list is several of them."""
        cells = [None if not isinstance(cell, list | tuple) and cell in (-1, None) else cell for cell in held]
        several = any(isinstance(cell, list | tuple) for cell in cells)
        rows = [None if cell is None else list(cell) if isinstance(cell, list | tuple) else [cell] for cell in cells]
        for i, row in enumerate(rows):
            if strange := [cell for cell in row or [] if not isinstance(cell, str | int)]:
                raise self.wrong(name, f"numbers, texts or lists of them expected, got {strange[0]!r:.40} at node {i}")
        known = sorted({cell for row in rows for cell in row or []}, key=lambda cell: (isinstance(cell, str), cell))
        number = {cell: k for k, cell in enumerate(known)}
        if not several:
            numbers = [-1 if row is None else number[row[0]] for row in rows]
            return np.array(numbers, dtype=np.int32), [str(cell) for cell in known]
        labels = np.full((len(rows), len(known)), -1, dtype=np.int8)
        for i, row in enumerate(rows):
            if row is not None:
                labels[i] = 0
                labels[i, [number[cell] for cell in row]] = 1
        return labels, [str(cell) for cell in known]

    def _names(self, labels: np.ndarray) -> list[str]:
        """Names of the classes; their numbers where there are none."""
        n, count = len(labels), labels.shape[1] if labels.ndim == 2 else int(labels.max(initial=-1)) + 1
        found = self.names or self._first(NAMES)
        if found is None:
            return [str(k) for k in range(count)]
        name, held = found
        rows = held.tolist() if isinstance(held, np.ndarray) else held
        if not isinstance(rows, list | tuple) or not all(isinstance(row, str) for row in rows):
            raise self.wrong(name, "a list of class names expected")
        self.read_as["class names"] = name
        if len(rows) == n > count and labels.ndim == 1:  # the name of every node's class
            by_class: dict[int, str] = {}
            for node, (k, row) in enumerate(zip(labels.tolist(), rows, strict=True)):
                if k >= 0 and by_class.setdefault(k, row) != row:
                    raise self.wrong(name, f"one name of class {k} expected, got '{by_class[k]}' and '{row}' at {node}")
            return [by_class.get(k, str(k)) for k in range(count)]
        if len(rows) < count or (labels.ndim == 2 and len(rows) != count):
            raise self.wrong(name, f"names of {count} classes expected, got {len(rows)}")
        return [str(row) for row in rows]

    def _split(self, labels: np.ndarray, n: int, findings: Findings) -> Split:
        """The split that was chosen, or a seeded stratified one."""
        found = {role: self._first([m.format(r) for r in names for m in MASKS]) for role, names in ROLE_NAMES.items()}
        there = {role: held for role, held in found.items() if held is not None}
        if len(there) < len(ROLES):
            what = f"only {' and '.join(there)} are given" if there else "none is given"
            how = "random" if labels.dtype.kind == "f" else "stratified"
            findings.warn(f"{self.path.name}: {what}; a {how} split was made with seed {self.seed}, 60/20/20")
            self.read_as["split"] = "made"
            return Split.stratified(labels, self.seed)
        sides = {role: self._sides(name, held, n) for role, (name, held) in there.items()}
        counts = {role: len(side) for role, side in sides.items()}
        number = max(counts.values())
        if any(count not in (1, number) for count in counts.values()):
            told = ", ".join(f"{count} of {there[role][0]}" for role, count in counts.items())
            raise DataError(f"{self.path}: splits of one number expected, got {told}")
        chosen = self.choice % number
        self.read_as["split"] = ", ".join(name for name, _ in there.values())
        if number > 1:
            told = f"{number} splits; number {chosen} is taken (data_seed {self.choice} modulo {number})"
            findings.warn(f"{self.path.name}: {told}")
        nodes = [np.flatnonzero(side[chosen % len(side)]) for side in sides.values()]
        try:
            split = Split.from_ids(n, *nodes)
        except DataError as error:
            raise DataError(f"{self.path}, split {chosen}: {error}") from None
        unlabelled = ~labelled(labels) & (split.roles >= 0)
        if unlabelled.any():
            findings.warn(
                f"{self.path.name}: {int(unlabelled.sum())} nodes of the split have no label and are left out"
            )
        return Split(np.where(unlabelled, -1, split.roles).astype(np.int8))

    def _sides(self, name: str, held: Any, n: int) -> list[np.ndarray]:
        """Masks (n,) of each split."""
        if isinstance(held, list | tuple) and held and isinstance(held[0], np.ndarray | list):
            return [side for one in held for side in self._sides(name, np.asarray(one), n)]
        mask = np.asarray(held)
        accepted = f"a mask ({n},), ({n}, splits) or node numbers expected, got {mask.dtype} {mask.shape}"
        if mask.ndim == 2 and mask.shape[1] == n != mask.shape[0]:
            mask = mask.T
        if mask.ndim == 2 and len(mask) == n and mask.dtype.kind in "biu" and mask.shape[1] <= SPLITS:
            return [column > 0 for column in mask.T]
        if mask.ndim == 1 and len(mask) == n and (mask.dtype.kind == "b" or name.rstrip("s").endswith("mask")):
            if mask.dtype.kind in "biu":
                return [mask > 0]
        elif mask.ndim == 1 and mask.dtype.kind in "iu" and not name.rstrip("s").endswith("mask"):
            if mask.size and not (mask.min() >= 0 and mask.max() < n):
                raise self.wrong(name, f"node numbers 0..{n - 1} expected, got {mask.min()}..{mask.max()}")
            side = np.zeros(n, dtype=bool)
            side[mask] = True
            return [side]
        raise self.wrong(name, accepted)


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
