"""AttributedGraph: texts (or sequences), edges, labels and split of one graph, compact and memory-mapped.

A folder written by `AttributedGraph.save` holds only open formats: `graph.json` (written last), `texts.bin` with
`text_offsets.npy`, and one `.npy` per array. Letters: n nodes, e edges, c classes, d features.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from labeldeconv.errors import ConfigError, DataError
from labeldeconv.graph.missing import hidden
from labeldeconv.graph.npy import open_npy
from labeldeconv.graph.split import ROLES, Split
from labeldeconv.graph.texts import Texts
from labeldeconv.graph.validation import NAMED, AttributeKind, check_graph, oddities, structure_problems
from labeldeconv.stages.keys import array_key, digest, token

if TYPE_CHECKING:
    from torch_geometric.data import Data

TaskKind = Literal["multiclass", "multilabel", "regression"]
LABEL_TYPES: dict[TaskKind, Any] = {"multiclass": np.int32, "multilabel": np.int8, "regression": np.float64}
FORMAT = 1
FILES = (
    "texts.bin", "text_offsets.npy", "edges.npy", "labels.npy", "split.npy", "features.npy", "edge_features.npy",
    "ids.npy", "ids.bin", "id_offsets.npy",
)  # fmt: skip
PART_FILES = {
    "texts": "texts.bin and text_offsets.npy", "edges": "edges.npy", "labels": "labels.npy", "split": "split.npy",
    "features": "features.npy", "edge_features": "edge_features.npy", "ids": "ids.npy, or ids.bin and id_offsets.npy",
    "class_names": "graph.json, class_names", "attributes": "graph.json, attributes",
}  # fmt: skip
PARTS = ("texts", "edges", "labels", "split", "class_names", "features", "edge_features", "ids", "attributes")


@dataclass(frozen=True, eq=False)
class AttributedGraph:
    """An attributed graph.

    Args:
        texts: n texts, residue sequences or records.
        edges: (2, e) source and target node numbers as given (directed; `Adjacency` makes them undirected).
        labels: multi-class (n,) int32 with -1 for unlabelled, or multi-label (n, c) int8 with -1 for missing; floats
            are the c targets of a regression, (n, c) float64 with NaN for missing, or (n,) where c is 1.
        split: train, validation and test nodes.
        class_names: c names, of classes or of targets.
        features: optional given features (n, d), the X_OGB of the paper.
        edge_features: optional (e, k).
        ids: the user's node ids, an integer array (n,) or `Texts`; None means 0..n-1.
        attributes: 'text', 'sequence' (protein residues) or 'record' (several columns, a JSON object per node).
        name: for messages and run directories.
        columns: the settings of graph.toml with every column by its name, for graphs made of tables: how tables of new
            nodes are read. No result depends on it.
    """

    texts: Texts
    edges: np.ndarray
    labels: np.ndarray
    split: Split
    class_names: list[str]
    features: np.ndarray | None = None
    edge_features: np.ndarray | None = None
    ids: np.ndarray | Texts | None = None
    attributes: AttributeKind = "text"
    name: str = "graph"
    columns: dict[str, Any] | None = None
    home: Path | None = field(default=None, init=False, repr=False)
    """The folder it was loaded from, which holds all of it but the split; None for a graph made in memory."""
    _keys: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if wrong := structure_problems(self):
            raise DataError(f"graph '{self.name}' does not fit together:", wrong)
        n = len(self.texts)
        index = np.int32 if n < 2**31 else np.int64
        object.__setattr__(self, "edges", np.ascontiguousarray(self.edges, dtype=index))
        if self.task == "regression" and self.labels.ndim == 1:
            object.__setattr__(self, "labels", self.labels[:, None])
        label_type = LABEL_TYPES[self.task]
        object.__setattr__(self, "labels", np.ascontiguousarray(self.labels, dtype=label_type))

    @property
    def num_nodes(self) -> int:
        """n."""
        return len(self.texts)

    @property
    def num_edges(self) -> int:
        """e, as given."""
        return int(self.edges.shape[1])

    @property
    def num_classes(self) -> int:
        """c."""
        return len(self.class_names)

    @property
    def task(self) -> TaskKind:
        """'multiclass' for whole numbers (n,), 'multilabel' for whole numbers (n, c), 'regression' for floats."""
        if self.labels.dtype.kind == "f":
            return "regression"
        return "multiclass" if self.labels.ndim == 1 else "multilabel"

    def node_id(self, node: int) -> str:
        """The user's id of a node, as text."""
        return str(node if self.ids is None else self.ids[node])

    def resplit(self, fractions: Sequence[float] | None, seed: int) -> AttributedGraph:
        """The same graph with a new stratified split of these train and val shares; None leaves it as it is."""
        if fractions is None:
            return self
        train, val = fractions
        if train + val >= 1:
            raise ConfigError(f"split: shares of train and validation nodes below 1 in sum expected, got {train + val}")
        return self.with_split(Split.stratified(self.labels, seed, (train, val)))

    def with_split(self, split: Split) -> AttributedGraph:
        """The same graph with another split."""
        kept = ("texts", "edges", "labels", "features", "edge_features")
        other = replace(self, split=split)
        object.__setattr__(other, "home", self.home)
        other._keys.update({k: v for k, v in self._keys.items() if k in kept})
        return other

    def induced(self, nodes: np.ndarray, name: str) -> AttributedGraph:
        """The graph of some nodes (m,), in that order: their texts, labels and roles, and the edges among them."""
        edges, inside = edges_among(self.edges, nodes, self.num_nodes)
        ids = np.arange(self.num_nodes) if self.ids is None else self.ids
        return replace(
            self,
            texts=self.texts.select(nodes),
            edges=edges,
            labels=self.labels[nodes],
            split=Split(self.split.roles[nodes]),
            features=None if self.features is None else np.asarray(self.features[nodes]),
            edge_features=None if self.edge_features is None else np.asarray(self.edge_features[inside]),
            ids=ids.select(nodes) if isinstance(ids, Texts) else np.asarray(ids[nodes]),
            name=name,
        )

    @property
    def train_labels(self) -> np.ndarray:
        """Labels as `labels`, but of the train nodes only: missing everywhere else."""
        return hidden(self.labels, self.split.roles == 0)

    @property
    def known_labels(self) -> np.ndarray:
        """Labels of train and validation nodes, missing elsewhere: all that training and its choices may ever see."""
        return hidden(self.labels, (self.split.roles == 0) | (self.split.roles == 1))

    def training_view(self) -> AttributedGraph:
        """The graph of the train nodes, in ascending order: what the inductive setting trains on.

        No text, edge or label of another node is in it.
        """
        return self.induced(self.split.train, f"{self.name}-train")

    def key_of(self, part: str) -> Any:
        """What stands for an attribute in the key of a stage: the hash of its content, computed once."""
        if part not in self._keys:
            value = getattr(self, part)
            if isinstance(value, Split):
                value = value.roles
            self._keys[part] = array_key(value) if isinstance(value, np.ndarray) else token(value)
        return self._keys[part]

    @property
    def content_key(self) -> str:
        """Hash of everything in it but its name."""
        return digest([self.key_of(part) for part in PARTS])

    def save(self, folder: str | Path) -> Path:
        """Write the graph as a folder of open formats; `graph.json` comes last and marks it complete."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("graph.json", *FILES):  # a folder used again keeps nothing of an older graph
            (folder / name).unlink(missing_ok=True)
        self.texts.save(folder, "text")
        arrays: dict[str, np.ndarray | None] = {"edges": self.edges, "labels": self.labels, "split": self.split.roles}
        arrays |= {"features": self.features, "edge_features": self.edge_features}
        if isinstance(self.ids, Texts):
            self.ids.save(folder, "id")
        else:
            arrays["ids"] = self.ids
        for name, array in arrays.items():
            if array is not None:
                np.save(folder / f"{name}.npy", array)
        self.write_card(folder)
        return folder

    def write_card(self, folder: Path) -> None:
        """Write graph.json, which marks a folder complete: names, task and sizes."""
        card: dict[str, Any] = {
            "format": FORMAT,
            "name": self.name,
            "task": self.task,
            "attributes": self.attributes,
            "nodes": self.num_nodes,
            "edges": self.num_edges,
            "class_names": self.class_names,
        }
        if self.columns is not None:
            card["columns"] = self.columns
        temporary = folder / "graph.json.tmp"
        temporary.write_text(json.dumps(card, indent=1, ensure_ascii=False), encoding="utf-8")
        temporary.replace(folder / "graph.json")

    @classmethod
    def load(cls, folder: str | Path, trusted: bool = False) -> AttributedGraph:
        """Open a folder written by `save`, memory-mapped.

        Every value is checked, since anybody may have written the files; a `trusted` folder, such as a stage of the
        cache, was checked when it was made.
        """
        folder = Path(folder)
        card = _read_card(folder / "graph.json")

        def array(name: str) -> np.ndarray | None:
            path = folder / f"{name}.npy"
            return open_npy(path) if path.exists() else None

        edges, labels, roles = array("edges"), array("labels"), array("split")
        if edges is None or labels is None or roles is None:
            raise DataError(f"{folder}: edges.npy, labels.npy and split.npy expected beside graph.json")
        try:
            graph = cls(
                texts=Texts.load(folder, "text"),
                edges=edges,
                labels=labels,
                split=Split(np.asarray(roles)),
                class_names=card["class_names"],
                features=array("features"),
                edge_features=array("edge_features"),
                ids=Texts.load(folder, "id") if (folder / "ids.bin").exists() else array("ids"),
                attributes=card["attributes"],
                name=card["name"],
                columns=card.get("columns"),
            )
        except DataError as error:
            if not error.problems:
                raise
            parts = (problem.partition(":") for problem in error.problems)
            wrong = [f"{PART_FILES.get(part, part)}:{rest}" for part, _, rest in parts]
            raise DataError(f"{folder}: {len(wrong)} wrong", wrong) from None
        object.__setattr__(graph, "home", folder)
        if not trusted:
            graph.check(str(folder))
            _check_card(card, graph, folder)
        return graph

    def check(self, where: str | None = None) -> None:
        """Read every value and refuse, with a `DataError`, what cannot be used (graph/validation.py)."""
        check_graph(self, where or f"graph '{self.name}'", self._files)

    def oddities(self) -> list[str]:
        """What is odd about it, as warnings."""
        return oddities(self, self._files)

    @property
    def _files(self) -> Mapping[str, str]:
        return {} if self.home is None else PART_FILES

    def to_pyg(self, x: np.ndarray | None = None) -> Data:
        """A PyG `Data` with x (n, d) (given features unless passed), edge_index, y and the three masks."""
        import torch
        from torch_geometric.data import Data

        x = self.features if x is None else x
        data = Data(
            x=None if x is None else torch.from_numpy(np.array(x, dtype=np.float32)),
            edge_index=torch.from_numpy(self.edges.astype(np.int64)),
            y=torch.from_numpy(self.labels.astype(np.float32 if self.task == "regression" else np.int64)),
            edge_attr=None if self.edge_features is None else torch.from_numpy(np.array(self.edge_features)),
            num_nodes=self.num_nodes,
        )
        for role in ROLES:
            mask = torch.zeros(self.num_nodes, dtype=torch.bool)
            mask[torch.from_numpy(self.split.ids(role))] = True
            data[f"{role}_mask"] = mask
        return data

    @classmethod
    def from_pyg(
        cls,
        data: Data,
        texts: Iterable[str] | None = None,
        class_names: Sequence[str] | None = None,
        name: str = "graph",
        seed: int = 0,
        task: TaskKind | None = None,
    ) -> AttributedGraph:
        """From a PyG `Data` with edge_index and y; texts from the argument or `data.text`.

        Masks make the split; without them a seeded stratified one is made. y is (n,) or (n, 1) for multi-class,
        (n, c) for multi-label, negative or NaN where missing. `task` 'regression' takes the numbers of y as targets,
        NaN where missing.
        """
        texts = getattr(data, "text", None) if texts is None else texts
        if texts is None:
            raise DataError("from_pyg: no texts; pass texts=[...] or set data.text")
        if data.y is None:
            raise DataError("from_pyg: data.y is missing")
        y = _numbers(np.asarray(data.y)) if task == "regression" else _whole_labels(np.asarray(data.y))
        classes = y.shape[1] if y.ndim == 2 else int(y.max(initial=-1)) + 1
        masks = [getattr(data, f"{role}_mask", None) for role in ROLES]
        split = (
            Split.from_ids(len(y), *(np.flatnonzero(np.asarray(m)) for m in masks))
            if all(m is not None for m in masks)
            else Split.stratified(y, seed)
        )
        graph = cls(
            texts=texts if isinstance(texts, Texts) else Texts.from_strings(texts),
            edges=np.asarray(data.edge_index),
            labels=y,
            split=split,
            class_names=list(class_names) if class_names is not None else [str(i) for i in range(classes)],
            features=None if data.x is None else np.asarray(data.x),
            edge_features=None if data.edge_attr is None else np.asarray(data.edge_attr),
            name=name,
        )
        graph.check("from_pyg")
        return graph


def edges_among(edges: np.ndarray, nodes: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Edges (2, k) among some nodes (m,), numbered 0..m-1 in their order, and which of the edges (2, e) these are."""
    number = np.full(num_nodes, -1, dtype=np.int64)
    number[nodes] = np.arange(len(nodes))
    ends = number[edges]
    inside = (ends >= 0).all(0)
    return ends[:, inside], inside


def _whole_labels(y: np.ndarray) -> np.ndarray:
    """y (n,), (n, 1) or (n, c) of PyG as int64, -1 where it is negative or NaN; fractions are refused."""
    y = y.reshape(-1) if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim not in (1, 2) or y.dtype.kind not in "fiub":
        raise DataError(f"from_pyg: data.y: class numbers (n,) or 0 and 1 (n, c) expected, got {y.dtype} {y.shape}")
    if y.dtype.kind == "f":
        y = np.where(np.isnan(y), -1, y)
        rows = np.argwhere((y != np.trunc(y)) | np.isinf(y))
        if len(rows):
            first = ", ".join(f"node {row[0]}: {y[tuple(row)]}" for row in rows[:NAMED])
            told = f"whole numbers expected, got {len(rows)} others: {first}; task='regression' takes numbers"
            raise DataError(f"from_pyg: data.y: {told}")
    return y.astype(np.int64)


def _numbers(y: np.ndarray) -> np.ndarray:
    """y (n,) or (n, c) of PyG as the targets (n, c) of a regression, float64 with NaN where missing."""
    if y.ndim not in (1, 2) or y.dtype.kind not in "fiub":
        raise DataError(f"from_pyg: data.y: numbers (n,) or (n, c) expected, got {y.dtype} {y.shape}")
    return y.reshape(len(y), -1).astype(np.float64)


def _read_card(path: Path) -> dict[str, Any]:
    """graph.json, with the fields that a graph needs."""
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path.parent}: no graph.json; not a folder written by AttributedGraph.save") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(card, dict):
        raise DataError(f"{path}: a JSON object expected, got {type(card).__name__}")
    if card.get("format") != FORMAT:
        raise DataError(f"{path}: format {FORMAT} expected, got {card.get('format')}")
    names = card.get("class_names")
    wrong = [
        f"{name}: a text expected, got {card.get(name)!r}"
        for name in ("name", "attributes")
        if not isinstance(card.get(name), str)
    ]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        wrong.append(f"class_names: a list of texts expected, got {str(names)[:40]}")
    if wrong:
        raise DataError(f"{path}: {len(wrong)} wrong", wrong)
    return card


def _check_card(card: Mapping[str, Any], graph: AttributedGraph, folder: Path) -> None:
    """What graph.json says must be what the arrays hold: a file of another graph is noticed."""
    held = {"task": graph.task, "nodes": graph.num_nodes, "edges": graph.num_edges}
    different = {name: value for name, value in held.items() if card.get(name) != value}
    wrong = [f"graph.json, {k}: {v} expected, as in the arrays, got {card.get(k)}" for k, v in different.items()]
    if wrong:
        raise DataError(f"{folder}: {len(wrong)} wrong", wrong)
