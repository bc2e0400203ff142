"""Control files: the paragraphs of Debian's Packages and Translation-en indices, and the relations in their fields."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from labeldeconv.data.sets.text_files import lines
from labeldeconv.errors import DataError

_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9+.\-]*)")


def paragraphs(path: Path, fields: Collection[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """First line and wanted `fields` of every paragraph; continuation lines keep their line breaks, without indent."""
    start, found, field = 0, dict[str, list[str]](), None
    for number, line in lines(path):
        if not line.strip():
            if start:
                yield start, {name: "\n".join(parts) for name, parts in found.items()}
            start, found, field = 0, {}, None
            continue
        if line[0] in " \t":
            if not start:
                raise DataError(f"{path}, line {number}: a continuation line without a field before it")
            if field is not None:
                found[field].append(line[1:])
            continue
        name, colon, value = line.partition(":")
        if not colon:
            raise DataError(f"{path}, line {number}: 'Field: value' expected, got '{line[:40]}'")
        start = start or number
        field = name if name in fields else None
        if field is not None:
            found[field] = [value.strip()]
    if start:
        yield start, {name: "\n".join(parts) for name, parts in found.items()}


def relations(value: str) -> list[str]:
    """Package names in a relation field, alternatives included: 'a (>= 1), b | c:any' to a, b, c."""
    parts = (alternative for group in value.split(",") for alternative in group.split("|"))
    return [match[1] for part in parts if (match := _NAME.match(part))]


def description(value: str) -> str:
    """Synopsis and long description as running text: ' .' ends a paragraph, lines are joined."""
    synopsis, *rest = value.split("\n")
    blocks = "\n".join("" if line.strip() == "." else line.strip() for line in rest).split("\n\n")
    return "\n".join([synopsis.strip(), *(" ".join(block.split()) for block in blocks if block.strip())])
