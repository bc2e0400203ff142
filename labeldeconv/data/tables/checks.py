"""Checks of a graph made of tables: errors make it unusable, oddities only warn.

| error | oddity |
|---|---|
| missing or duplicate ids, edges to unknown nodes | self-loops, duplicate edges, isolated nodes |
| all texts empty | some texts empty |
| one class only, a part of the split without labels | classes absent from train, unlabelled nodes in a part |
"""

from __future__ import annotations

import numpy as np

from labeldeconv.data.findings import EXAMPLES, Findings, shown
from labeldeconv.data.tables.rows import Table
from labeldeconv.graph.missing import is_known
from labeldeconv.graph.split import ROLES, Split
from labeldeconv.graph.validation import absent_from_train


def check_ids(nodes: Table, column: str, findings: Findings) -> None:
    """Every node needs an id of its own; `ids` is the table of (id, node, last, copies)."""
    where = f"{nodes.file}, column '{column}'"
    count, first = nodes.find("id IS NULL")
    if count:
        findings.error(f"{where}: {count} ids are missing: {first}")
    duplicates = nodes.con.execute("SELECT count(*) FROM ids WHERE copies > 1").fetchone()[0]
    if duplicates:
        sql = f"SELECT id, node, last, copies FROM ids WHERE copies > 1 ORDER BY node LIMIT {EXAMPLES}"
        rows = nodes.con.execute(sql).fetchall()
        told = [f"'{i}' {k} times ({nodes.place(node)}, {nodes.place(last)})" for i, node, last, k in rows]
        findings.error(f"{where}: {duplicates} ids occur more than once: {', '.join(told)}")


def check_texts(nodes: Table, columns: list[str], findings: Findings) -> None:
    """Some texts may be empty, not all."""
    where = f"{nodes.file}, column {shown(columns)}"
    count, first = nodes.find(r"NOT regexp_matches(text, '\S')", "id")  # stops at the first letter, unlike trim
    if count == nodes.rows:
        findings.error(f"{where}: all {count} texts are empty or missing")
    elif count:
        findings.warn(f"{where}: {count} texts are empty or missing: {first}")


def check_numbers(table: Table, features: dict[str, str], findings: Findings) -> None:
    """Every feature must be a finite number; `features` gives the table's name of each column of the file."""
    for column, name in features.items():
        count, first = table.find(f"{name} IS NULL OR NOT isfinite({name})")
        if count:
            findings.error(f"{table.file}, column '{column}': {count} cells are not finite numbers: {first}")


def check_edges(edges: np.ndarray, nodes: Table, table: Table, findings: Findings) -> None:
    """Tell self-loops, duplicate edges and isolated nodes of edges (2, e); -1 marks an unknown node."""
    source, target = edges
    loop = (source == target) & (source >= 0)
    if loop.any():
        rows = np.flatnonzero(loop)
        findings.warn(f"{table.file}: {len(rows)} self-loops: {table.examples(rows, 'source')}; A-hat drops them")
    copies, seconds = duplicate_edges(edges, nodes.rows)
    if copies:
        dots = ", ..." if copies > len(seconds) else ""
        findings.warn(f"{table.file}: {copies} duplicate edges: {table.examples(seconds)}{dots}; A-hat takes each once")
    touched = np.zeros(nodes.rows + 1, dtype=bool)  # the last one stands for -1
    real = source != target
    touched[source[real]] = touched[target[real]] = True
    alone = np.flatnonzero(~touched[:-1])
    if len(alone):
        findings.warn(f"{nodes.file}: {len(alone)} isolated nodes, without an edge: {nodes.examples(alone, 'id')}")


def duplicate_edges(edges: np.ndarray, num_nodes: int) -> tuple[int, list[int]]:
    """How many edges (2, e) repeat an earlier one, and the second row of some of them; edges to -1 do not count."""
    base = num_nodes + 1
    keys = (edges[0].astype(np.int64) + 1) * base + (edges[1] + 1)
    keys.sort()  # 62 M keys: 1 s, against gigabytes for a hash table
    repeated = keys[1:][keys[1:] == keys[:-1]]
    repeated = repeated[(repeated >= base) & (repeated % base > 0)]
    pairs = [divmod(int(key), base) for key in np.unique(repeated)[:EXAMPLES]]
    rows = [np.flatnonzero((edges[0] == s - 1) & (edges[1] == t - 1))[1] for s, t in pairs]
    return len(repeated), sorted(int(row) for row in rows)


def check_labels(labels: np.ndarray, class_names: list[str], where: str, findings: Findings) -> bool:
    """Whether labels (n,) or (n, c), or numbers (n, c), pose a task; says why if not."""
    if not is_known(labels).any():
        findings.error(f"{where}: no node has a label")
        return False
    if labels.dtype.kind == "f":
        names = [class_names[k] for k, y in enumerate(labels.T) if len(np.unique(y[~np.isnan(y)])) < 2]
        if names:
            findings.error(f"{where}: the same number on every node, nothing to predict: {shown(names)}")
        return not names
    if labels.ndim == 1:
        if len(class_names) == 1:
            findings.error(f"{where}: labels of one class only, '{class_names[0]}'; at least two expected")
        return len(class_names) > 1
    constant = ~((labels == 1).any(0) & (labels == 0).any(0))
    names = [class_names[k] for k in np.flatnonzero(constant)]
    if constant.all():
        findings.error(f"{where}: labels of one class only: none is both present and absent: {shown(names)}")
    elif names:
        findings.warn(f"{where}: {len(names)} labels are the same on every node and cannot be scored: {shown(names)}")
    return not constant.all()


def check_split(split: Split, labels: np.ndarray, class_names: list[str], where: str, findings: Findings) -> None:
    """Every part of the split needs labelled nodes; a class outside train should be in train."""
    for role in ROLES:
        if not len(split.ids(role)):
            findings.error(f"{where}: no labelled '{role}' nodes; train, val and test all need some")
    if missing := absent_from_train(split, labels, class_names):
        findings.warn(f"{where}: {missing}")
