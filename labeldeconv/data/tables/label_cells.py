"""Labels out of a node table: one class per cell, several per cell, or one 0/1 column per class.

Multi-class labels become (n,) with -1 for unlabelled, multi-label ones (n, c) with -1 for missing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labeldeconv.data.findings import Findings
from labeldeconv.data.tables.rows import Table
from labeldeconv.data.tables.scan import FLOATS, TableFile, literal, quoted

NAN = "lower({}) = 'nan'"
NAN_HELP = "leave the cell of an unlabelled node empty"


@dataclass(frozen=True)
class LabelColumns:
    """Where the labels are and how the node table holds them.

    `column` alone: table column `label`, text or (`several`) a list of texts. `columns`: `label_0`, `label_1`, ...
    as 1, 0, -1 (missing) and -2 (wrong).
    """

    column: str | None
    columns: tuple[str, ...] = ()
    several: bool = False

    @classmethod
    def of(cls, file: TableFile, label: str | list[str], separator: str | None) -> LabelColumns:
        """Tell the three forms apart by the settings and the column's type."""
        if isinstance(label, list):
            return cls(None, tuple(label))
        return cls(label, several=separator is not None or file.columns[label].endswith("]"))

    @property
    def names(self) -> list[str]:
        """The columns of the file."""
        return list(self.columns) if self.column is None else [self.column]

    def sql(self, file: TableFile, separator: str | None) -> dict[str, str]:
        """Expressions that read the labels, by table column."""
        if self.column is None:
            return {f"label_{i}": _binary(file, column) for i, column in enumerate(self.columns)}
        name = quoted(self.column)
        if not self.several:
            is_nan = f"isnan({name})" if file.columns[self.column] in FLOATS else "false"
            return {"label": f"CASE WHEN {is_nan} THEN 'nan' ELSE {file.cell(self.column)} END"}
        if file.columns[self.column].endswith("]"):
            return {"label": f"{name}::VARCHAR[]"}
        parts = f"string_split({file.cell(self.column)}, {literal(separator or ';')})"
        return {"label": f"list_filter(list_transform({parts}, lambda x: trim(x)), lambda x: x <> '')"}

    def read(self, nodes: Table, findings: Findings) -> tuple[np.ndarray, list[str]]:
        """Labels (n,) or (n, c) and class names; wrong cells are told and count as missing."""
        if self.column is None:
            return self._from_columns(nodes, findings), list(self.columns)
        where = f"{nodes.file}, column '{self.column}'"
        bad = "list_contains(list_transform(label, lambda x: lower(x)), 'nan')" if self.several else NAN.format("label")
        count, first = nodes.find(bad)
        if count:
            findings.error(f"{where}: {count} labels are NaN: {first}; {NAN_HELP}")
        cells = "SELECT rowid AS row, " + ("unnest(label)" if self.several else "label") + f" AS name FROM {nodes.name}"
        valid = f"SELECT row, name FROM ({cells}) WHERE name IS NOT NULL AND NOT {NAN.format('name')}"
        names = _ordered([name for (name,) in nodes.con.execute(f"SELECT DISTINCT name FROM ({valid})").fetchall()])
        classes = "SELECT unnest(?::VARCHAR[]) AS name, unnest(range(?)) AS code"
        found = nodes.fetch(f"SELECT row, code FROM ({valid}) JOIN ({classes}) USING (name)", [names, len(names)])
        if not self.several:
            labels = np.full(nodes.rows, -1, dtype=np.int32)
            labels[found["row"]] = found["code"]
            return labels, names
        labels = np.zeros((nodes.rows, len(names)), dtype=np.int8)
        labels[nodes.fetch(f"SELECT rowid AS row FROM {nodes.name} WHERE label IS NULL")["row"]] = -1
        labels[found["row"], found["code"]] = 1
        return labels, names

    def _from_columns(self, nodes: Table, findings: Findings) -> np.ndarray:
        labels = np.empty((nodes.rows, len(self.columns)), dtype=np.int8)
        for i, column in enumerate(self.columns):
            labels[:, i] = nodes.fetch(f"SELECT label_{i} AS label FROM {nodes.name}")["label"]
            wrong = np.flatnonzero(labels[:, i] == -2)
            if len(wrong):
                places = nodes.examples(wrong)
                findings.error(f"{nodes.file}, column '{column}': {len(wrong)} cells are not 0, 1 or empty: {places}")
        return np.maximum(labels, -1)


def _binary(file: TableFile, column: str) -> str:
    """SQL for a cell of a 0/1 column: 1, 0, -1 when empty and -2 when something else, such as NaN."""
    name, text = quoted(column), f"lower({file.cell(column)})"
    nan = f"WHEN isnan({name}) THEN -2 " if file.columns[column] in FLOATS else ""
    cases = f"{nan}WHEN {text} IS NULL THEN -1 WHEN {text} IN ('1', '1.0', 'true') THEN 1"
    return f"(CASE {cases} WHEN {text} IN ('0', '0.0', 'false') THEN 0 ELSE -2 END)::TINYINT"


def _ordered(names: list[str]) -> list[str]:
    """Class names in the order of their numbers if all are integers, else of the alphabet."""
    try:
        return sorted(names, key=int)
    except ValueError:
        return sorted(names)
