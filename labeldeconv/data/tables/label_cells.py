"""Labels out of a node table: one class per cell, several per cell, or one 0/1 column per class.

Multi-class labels become (n,) with -1 for unlabelled, multi-label ones (n, c) with -1 for missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from labeldeconv.data.findings import EXAMPLES, Findings
from labeldeconv.data.tables.rows import Table
from labeldeconv.data.tables.scan import FLOATS, TableFile, literal, quoted

NUMBER = re.compile(r"[+-]?[0-9]{1,15}(\.[0-9]{1,15})?")
NAN = "lower({}) = 'nan'"
BLANKS = " \t\n\r\v\f\u00a0\u2028\u2029\ufeff"  # the last: a byte order mark
NO_LABEL = (
    "None",
    "null",
    "NULL",
    "<NA>",
)  # as Python, JSON, SQL and pandas write a missing value; 'none' may be a class
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
        tidy, missing = self._tidy(nodes, where, findings)
        bad = "list_contains(list_transform(label, lambda x: lower(x)), 'nan')" if self.several else NAN.format("label")
        count, first = nodes.find(bad)
        if count:
            findings.error(f"{where}: {count} labels are NaN: {first}; {NAN_HELP}")
        cells = f"SELECT rowid AS row, {f'unnest({tidy})' if self.several else tidy} AS name FROM {nodes.name}"
        valid = f"SELECT row, name FROM ({cells}) WHERE name IS NOT NULL AND NOT {NAN.format('name')}"
        counted = f"SELECT name, count(*) FROM ({valid}) GROUP BY name"
        counts = dict(nodes.con.execute(counted).fetchall())
        merged = _one_spelling(counts, where, findings)
        if merged:
            renamed = (
                f"CASE name {' '.join(f'WHEN {literal(a)} THEN {literal(b)}' for a, b in merged.items())} ELSE name END"
            )
            valid = f"SELECT row, {renamed} AS name FROM ({valid})"
        names = _ordered([name for name in counts if name not in merged])
        classes = "SELECT unnest(?::VARCHAR[]) AS name, unnest(range(?)) AS code"
        found = nodes.fetch(f"SELECT row, code FROM ({valid}) JOIN ({classes}) USING (name)", [names, len(names)])
        if not self.several:
            labels = np.full(nodes.rows, -1, dtype=np.int32)
            labels[found["row"]] = found["code"]
            return labels, names
        labels = np.zeros((nodes.rows, len(names)), dtype=np.int8)
        labels[nodes.fetch(f"SELECT rowid AS row FROM {nodes.name} WHERE {missing}")["row"]] = -1
        labels[found["row"], found["code"]] = 1
        return labels, names

    def _tidy(self, nodes: Table, where: str, findings: Findings) -> tuple[str, str]:
        """SQL for the labels of a cell without blanks around them, and for whether a cell means 'no label'.

        What is left out is told with counts. The table itself is not changed: that would move its rows.
        """
        blanks, words = literal(BLANKS), ", ".join(map(literal, NO_LABEL))
        if self.several:
            parts = f"list_transform(label, lambda x: trim(x, {blanks}))"
            tidy = f"list_filter({parts}, lambda x: x NOT IN ({words}, ''))"
            blank, none = f"label <> {parts}", f"list_has_any({parts}, [{words}])"
            missing = f"(label IS NULL OR ({none} AND len({tidy}) = 0))"
        else:
            parts = f"trim(label, {blanks})"
            tidy = f"CASE WHEN {parts} NOT IN ({words}, '') THEN {parts} END"
            blank, none = f"label <> {parts}", f"{parts} IN ({words})"
            missing = f"({tidy}) IS NULL"
        count, first = nodes.find(blank)
        if count:
            findings.warn(f"{where}: {count} labels have blanks around them, which are left out: {first}")
        count, first = nodes.find(none)
        if count:
            told = "say 'None', 'null', 'NULL' or '<NA>', which counts as no label"
            findings.warn(f"{where}: {count} labels {told}: {first}; call such a class otherwise")
        return tidy, missing

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


def _one_spelling(counts: Mapping[str, int], where: str, findings: Findings) -> dict[str, str]:
    """Classes to be renamed: '1.0' to '1' where all are numbers and both occur; others that look alike are told."""
    merged = {}
    if all(NUMBER.fullmatch(name) for name in counts):
        merged = {name: whole for name in counts if (whole := re.sub(r"\.0+$", "", name)) != name and whole in counts}
    if merged:
        pairs = [f"'{a}' ({counts[a]}) as '{b}' ({counts[b]})" for a, b in sorted(merged.items())[:EXAMPLES]]
        findings.warn(f"{where}: the same numbers are written in two ways and count as one class: {', '.join(pairs)}")
    alike: dict[str, list[str]] = {}
    for name in counts:
        if name not in merged:
            alike.setdefault(_folded(name), []).append(name)
    groups = [sorted(names) for names in alike.values() if len(names) > 1]
    if groups:
        told = [" and ".join(f"'{name}' ({counts[name]})" for name in names) for names in sorted(groups)[:EXAMPLES]]
        findings.warn(f"{where}: {len(groups)} classes are written in two ways and count as several: {'; '.join(told)}")
    return merged


def _folded(name: str) -> str:
    """A class name without case, blanks inside and zeros before or behind a number."""
    if NUMBER.fullmatch(name):
        return str(float(name))
    return " ".join(name.casefold().split())
