"""Names and strings inside SQL, with their quotes doubled: all that data brings into a statement goes through here."""

from __future__ import annotations


def quoted(name: str) -> str:
    """A column name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A string for SQL."""
    return "'" + text.replace("'", "''") + "'"
