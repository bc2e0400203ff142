"""Labels out of a node table: one class per cell, several per cell, one 0/1 column per class, or columns of numbers.

Multi-class labels become (n,) with -1 for unlabelled, multi-label ones (n, c) with -1 for missing, and those of a
regression (n, c) floats with NaN for missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from labeldeconv.data.findings import EXAMPLES, Findings
from labeldeconv.data.tables.rows import Table
from labeldeconv.data.tables.scan import FLOATS, TableFile
from labeldeconv.sql import literal, quoted

NUMBER = re.compile(r"[+-]?[0-9]{1,15}(\.[0-9]{1,15})?")
NAN = "lower({}) = 'nan'"
BLANKS = " \t\n\r\v\f\u00a0\u2028\u2029\ufeff"  # the last: a byte order mark
NO_LABEL = (
    "None",
    "null",
    "NULL",
    "<NA>",
)  # as Python, JSON, SQL and pandas write a missing value; 'none' may be a class
TIDY = (  # a cell that may be a number, NULL where it means none
    f"CASE WHEN trim({{0}}, {literal(BLANKS)}) NOT IN ({', '.join(map(literal, NO_LABEL))}, '')"
    f" AND lower(trim({{0}}, {literal(BLANKS)})) <> 'nan' THEN trim({{0}}, {literal(BLANKS)}) END"
)
NAN_HELP = "leave the cell of an unlabelled node empty"


@dataclass(frozen=True)
class LabelColumns:
    """Where the labels are and how the node table holds them.

    `column` alone: table column `label`, text or (`several`) a list of texts. `columns`: `label_0`, `label_1`, ...
    as 1, 0, -1 (missing) and -2 (wrong), or texts where they are `numbers`.
    """

    column: str | None
    columns: tuple[str, ...] = ()
    several: bool = False
    numbers: bool | None = None
    """Whether labels are numbers to be predicted; None: the cells of a single column tell."""

    @classmethod
    def of(
        cls, file: TableFile, label: str | list[str], separator: str | None, task: str | None = None
    ) -> LabelColumns:
        """Tell the forms apart by the settings and the column's type."""
        numbers = None if task is None else task == "regression"
        if isinstance(label, list):
            return cls(None, tuple(label), numbers=bool(numbers))
        return cls(label, several=separator is not None or file.columns[label].endswith("]"), numbers=numbers)

    @property
    def names(self) -> list[str]:
        """The columns of the file."""
        return list(self.columns) if self.column is None else [self.column]

    def sql(self, file: TableFile, separator: str | None) -> dict[str, str]:
        """Expressions that read the labels, by table column."""
        if self.column is None:
            read = _as_text if self.numbers else _binary
            return {f"label_{i}": read(file, column) for i, column in enumerate(self.columns)}
        name = quoted(self.column)
        if not self.several:
            return {"label": _as_text(file, self.column)}
        if file.columns[self.column].endswith("]"):
            return {"label": f"{name}::VARCHAR[]"}
        parts = f"string_split({file.cell(self.column)}, {literal(separator or ';')})"
        return {"label": f"list_filter(list_transform({parts}, lambda x: trim(x)), lambda x: x <> '')"}

    def read(self, nodes: Table, findings: Findings) -> tuple[np.ndarray, list[str]]:
        """Labels (n,) or (n, c) and class names; wrong cells are told and count as missing."""
        if self.column is None and not self.numbers:
            return self._from_columns(nodes, findings), list(self.columns)
        where = f"{nodes.file}, column '{self.column}'"
        if self.several and self.numbers:
            findings.error(f'{where}: task = "regression": a number per cell expected, got lists; name several columns')
        elif self.numbers or (self.numbers is None and not self.several and self._fractions(nodes, where, findings)):
            return self._targets(nodes, findings), self.names
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

    def _fractions(self, nodes: Table, where: str, findings: Findings) -> bool:
        """Whether all labels of the one column are numbers and some are not whole, which is told."""
        number, given = f"TRY_CAST({TIDY.format('label')} AS DOUBLE)", f"{TIDY.format('label')} IS NOT NULL"
        others, _ = nodes.find(f"{given} AND {number} IS NULL")
        count, first = nodes.find(f"isfinite({number}) AND {number} <> trunc({number})", "label")
        if others or not count:
            return False
        told = f"taken for numbers to be predicted, since {count} of them are not whole: {first}"
        findings.warn(f'{where}: {told}; task = "classification" in graph.toml takes them for classes')
        return True

    def _targets(self, nodes: Table, findings: Findings) -> np.ndarray:
        """Numbers (n, c) float64, NaN where a cell is empty or says that there is none."""
        labels = np.empty((nodes.rows, len(self.names)), dtype=np.float64)
        for i, column in enumerate(self.names):
            cell = TIDY.format("label" if self.column else f"label_{i}")
            number = f"TRY_CAST({cell} AS DOUBLE)"
            count, first = nodes.find(f"{cell} IS NOT NULL AND ({number} IS NULL OR isinf({number}))", cell)
            if count:
                told = f"{count} cells are not finite numbers: {first}; a cell without a label is empty"
                findings.error(f"{nodes.file}, column '{column}': {told}")
            found = nodes.fetch(f"SELECT coalesce({number}, 'nan'::DOUBLE) AS value FROM {nodes.name}")
            labels[:, i] = found["value"]
        return labels

    def _from_columns(self, nodes: Table, findings: Findings) -> np.ndarray:
        labels = np.empty((nodes.rows, len(self.columns)), dtype=np.int8)
        for i, column in enumerate(self.columns):
            labels[:, i] = nodes.fetch(f"SELECT label_{i} AS label FROM {nodes.name}")["label"]
            wrong = np.flatnonzero(labels[:, i] == -2)
            if len(wrong):
                places = nodes.examples(wrong)
                told = f"{len(wrong)} cells are not 0, 1 or empty: {places}"
                findings.error(f"{nodes.file}, column '{column}': {told}; task = \"regression\" takes numbers")
        return np.maximum(labels, -1)


def _as_text(file: TableFile, column: str) -> str:
    """SQL for a cell as text: NULL when empty, 'nan' for a float that is none."""
    is_nan = f"isnan({quoted(column)})" if file.columns[column] in FLOATS else "false"
    return f"CASE WHEN {is_nan} THEN 'nan' ELSE {file.cell(column)} END"


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
