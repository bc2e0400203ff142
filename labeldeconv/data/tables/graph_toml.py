"""graph.toml: which columns of the node and edge tables mean what, and sensible guesses where it is silent.

    text = ["title", "abstract"]
    join = "Title: {title} Abstract: {abstract}"
    label = "category"

Every setting is a field of `TablesConfig`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, field_validator

from labeldeconv.data.findings import Findings
from labeldeconv.errors import nearest
from labeldeconv.graph.attributed import AttributeKind
from labeldeconv.settings.models import Settings

GUESSES = {
    "id": ("id", "node_id", "node"),
    "label": ("label", "labels", "y", "class", "category"),
    "split": ("split",),
    "source": ("source", "src", "from"),
    "target": ("target", "dst", "to"),
}
TEXT_GUESSES = {"text": ("text",), "sequence": ("sequence", "seq"), "record": ("text",)}
GRAPH_TOML = "graph.toml"
TEXT_PARTS = ("title", "abstract", "content", "body", "description")


def _as_list(value: Any) -> Any:
    """One name stands for a list of one; split values may be written as integers."""
    values = value if isinstance(value, list) else [value]
    return [str(v) if isinstance(v, int) else v for v in values]


Names = Annotated[list[str], BeforeValidator(_as_list)]


class SplitValues(Settings):
    """What the split column holds; case does not matter, an empty cell is in no part."""

    train: Names = ["train", "training"]
    """Training nodes."""
    val: Names = ["val", "valid", "validation", "dev"]
    """Validation nodes."""
    test: Names = ["test", "testing"]
    """Test nodes."""


class TablesConfig(Settings):
    """The columns of the node and edge tables; None is guessed."""

    name: str | None = None
    """Of the graph; None takes the folder's."""
    id: str | None = None
    """Node ids of any type."""
    text: Names | None = None
    """One column or several."""
    join: str = " "
    """Between several texts, or a template such as "Title: {title} Abstract: {abstract}"."""
    label: str | list[str] | None = None
    """A column of classes (a list in a cell means multi-label), or several columns of 0, 1 and empty; or a column, or
    several, of numbers (`task`)."""
    task: Literal["classification", "regression"] | None = None
    """'regression' takes labels as numbers to be predicted, one per label column, 'classification' as classes; None:
    numbers where all of one column are numbers and some are not whole, classes elsewhere."""
    label_separator: Annotated[str, Field(min_length=1)] | None = None
    """Between the labels of one cell; makes the task multi-label."""
    split: str | None = None
    """Without such a column a seeded stratified split is made."""
    split_values: SplitValues = SplitValues()
    """What the split column holds."""
    source: str | None = None
    """Where an edge starts."""
    target: str | None = None
    """Where an edge ends."""
    features: Names | None = None
    """Numeric columns of the nodes, or a file such as "features.npy" in the folder."""
    edge_features: Names = []
    """Numeric columns of the edges."""
    attributes: AttributeKind = "text"
    """'text', 'sequence' (protein residues), or 'record': each column of `text` has an encoder of its own."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    """Between the cells of CSV files."""

    @field_validator("join")
    @classmethod
    def _plain_fields(cls, join: str) -> str:
        if any(name == "" or spec or conversion for _, name, spec, conversion in Formatter().parse(join)):
            raise ValueError('a template holds only column names in braces, such as "{title}. {abstract}"')
        return join

    @property
    def template_columns(self) -> list[str]:
        """The columns a template in `join` names, each once; none if it is a separator."""
        return list(dict.fromkeys(name for _, name, _, _ in Formatter().parse(self.join) if name))

    @property
    def features_file(self) -> str | None:
        """The .npy file that `features` names, if it does."""
        return self.features[0] if self.features and self.features[0].endswith(".npy") else None


@dataclass(frozen=True)
class NodeColumns:
    """Columns of the node table."""

    id: str
    text: list[str]
    label: str | list[str]
    split: str | None
    features: list[str]


@dataclass(frozen=True)
class EdgeColumns:
    """Columns of the edge table."""

    source: str
    target: str
    features: list[str]


def settled(config: TablesConfig, nodes: NodeColumns, edges: EdgeColumns) -> dict[str, Any]:
    """The settings with every column by its name, guessed ones too, as plain values: how more tables are read."""
    named = {"id": nodes.id, "text": nodes.text, "label": nodes.label, "split": nodes.split}
    named |= {"source": edges.source, "target": edges.target, "edge_features": edges.features}
    return config.model_copy(update=named).model_dump(exclude_none=True)


def read_config(folder: Path, findings: Findings) -> TablesConfig | None:
    """The settings of graph.toml, or the defaults where there is none; None if it is wrong."""
    path = folder / GRAPH_TOML
    if not path.is_file():
        return TablesConfig()
    try:
        return TablesConfig.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        findings.error(f"graph.toml: not valid TOML: {error}")
    except ValidationError as error:
        for problem in dict.fromkeys(_explain(e) for e in error.errors()):
            findings.error(f"graph.toml: {problem}")
    return None


def node_columns(config: TablesConfig, file: str, known: Collection[str], findings: Findings) -> NodeColumns | None:
    """Settle the columns of the node table; a missing one is told with the nearest name."""
    resolve = _Resolver(file, known, findings)
    node_id = resolve.one("id", config.id)
    text = resolve.texts(config)
    label = resolve.all(config.label) if isinstance(config.label, list) else resolve.one("label", config.label)
    split = resolve.one("split", config.split, optional=True)
    features = [] if config.features_file else resolve.all(config.features or [])
    if resolve.failed or node_id is None or label is None:
        return None
    return NodeColumns(node_id, text, label, split, features)


def edge_columns(config: TablesConfig, file: str, known: Collection[str], findings: Findings) -> EdgeColumns | None:
    """Settle the columns of the edge table; a missing one is told with the nearest name."""
    resolve = _Resolver(file, known, findings)
    source, target = resolve.one("source", config.source), resolve.one("target", config.target)
    features = resolve.all(config.edge_features)
    if resolve.failed or source is None or target is None:
        return None
    return EdgeColumns(source, target, features)


class _Resolver:
    """Finds columns by the name given or by guessing, and tells what it did."""

    def __init__(self, file: str, known: Collection[str], findings: Findings) -> None:
        self.file = file
        self.known = known
        self.findings = findings
        self.failed = False

    def one(self, role: str, given: str | None, optional: bool = False) -> str | None:
        """The column of a role; guessed if not given."""
        if given is not None:
            return next(iter(self.all([given])), None)
        guess = self._guess(GUESSES[role])
        if guess is None and not optional:
            self._missing(GUESSES[role][0], role)
        elif guess is not None and guess != GUESSES[role][0]:
            self.findings.warn(f"{self.file}: column '{guess}' is taken for the {role}; graph.toml can say otherwise")
        return guess

    def all(self, given: list[str]) -> list[str]:
        """The given columns, those that are missing told."""
        for name in given:
            if name not in self.known:
                self._missing(name)
        return [name for name in given if name in self.known]

    def texts(self, config: TablesConfig) -> list[str]:
        """The columns that make the text."""
        if fields := config.template_columns:
            if unused := [name for name in config.text or [] if name not in fields]:
                self.failed = True
                self.findings.error(f"graph.toml: the template in join does not use the text column '{unused[0]}'")
            return self.all(fields)
        if config.text is not None:
            return self.all(config.text)
        names = TEXT_GUESSES[config.attributes]
        if guess := self._guess(names):
            return [guess]
        parts = [guess for name in TEXT_PARTS if (guess := self._guess((name,)))]
        if not parts or config.attributes == "sequence":
            self._missing(names[0], config.attributes)
            return []
        self.findings.warn(f"{self.file}: text is made of the columns {', '.join(parts)}; graph.toml can say otherwise")
        return parts

    def _guess(self, names: tuple[str, ...]) -> str | None:
        by_lower = {name.lower(): name for name in self.known}
        return next((by_lower[name] for name in names if name in by_lower), None)

    def _missing(self, name: str, role: str | None = None) -> None:
        self.failed = True
        hint = f"; name the {role} column in graph.toml" if role else ""
        self.findings.error(f"{self.file}: no column '{name}'{hint}; {nearest(name, self.known)}")


def _explain(error: Any) -> str:
    """One wrong setting: name, what is accepted, what was got."""
    *parents, last = (str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        siblings = SplitValues.model_fields if parents else TablesConfig.model_fields
        return f"{'.'.join([*parents, last])}: unknown setting; {nearest(last, siblings)}"
    name = ".".join(
        part for part in (*parents, last) if part in {**TablesConfig.model_fields, **SplitValues.model_fields}
    )
    message = error["msg"].removeprefix("Value error, ")
    return f"{name}: {message[0].lower() + message[1:]}, got {error['input']!r}"
