"""The split of a node table: its split column, or a seeded stratified one where there is none."""

from __future__ import annotations

import numpy as np

from labeldeconv.data.findings import Findings
from labeldeconv.data.tables.graph_toml import SplitValues
from labeldeconv.data.tables.rows import Table
from labeldeconv.graph.missing import labelled
from labeldeconv.graph.split import ROLES, Split
from labeldeconv.sql import literal

FRACTIONS = (0.6, 0.2)  # train and val of a split that is made


def made_split(nodes: Table, labels: np.ndarray, seed: int, findings: Findings) -> Split:
    """A seeded stratified split of the labelled nodes, which is said; that of a regression is not stratified."""
    split = Split.stratified(labels, seed, FRACTIONS)
    how = "random" if labels.dtype.kind == "f" else "stratified"
    shares = (*FRACTIONS, 1 - sum(FRACTIONS))
    parts = [f"{share:.0%} {role} ({len(split.ids(role))})" for role, share in zip(ROLES, shares, strict=True)]
    findings.warn(f"{nodes.file}: no split column; a {how} split was made with seed {seed}: {', '.join(parts)}")
    return split


def given_split(nodes: Table, column: str, values: SplitValues, labels: np.ndarray, findings: Findings) -> Split:
    """The split of the table's column `split`, called `column` in the file; nodes without a label are left out."""
    where = f"{nodes.file}, column '{column}'"
    roles = _roles(nodes, where, values, findings)
    unlabelled = ~labelled(labels)
    rows = np.flatnonzero(unlabelled & (roles >= 0))
    if len(rows):
        findings.warn(f"{where}: {len(rows)} nodes have no label and are left out: {nodes.examples(rows, 'id')}")
    return Split(np.where(unlabelled, -1, roles).astype(np.int8))


def _roles(nodes: Table, where: str, values: SplitValues, findings: Findings) -> np.ndarray:
    """Roles (n,): 0 train, 1 val, 2 test, -1 none; values that mean none of them are told."""
    names = {role: [value.lower() for value in getattr(values, role)] for role in ROLES}
    lists = [", ".join(map(literal, part)) or "''" for part in names.values()]
    count, first = nodes.find(f"split NOT IN ({', '.join(lists)})", "split")
    if count:
        accepted = "; ".join(f"{', '.join(part)} for {role}" for role, part in names.items())
        findings.error(f"{where}: {count} cells name no part of the split: {first}; accepted: {accepted}; or empty")
    cases = " ".join(f"WHEN split IN ({part}) THEN {role}" for role, part in enumerate(lists))
    return nodes.fetch(f"SELECT (CASE {cases} ELSE -1 END)::TINYINT AS role FROM {nodes.name}")["role"]
