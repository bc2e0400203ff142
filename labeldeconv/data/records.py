"""Records: several attribute columns of a node as one JSON object, which travels where a text would."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from labeldeconv.errors import DataError
from labeldeconv.texts import Texts


def record_texts(columns: Mapping[str, Sequence[Any]]) -> Texts:
    """Columns of n values each (texts, numbers, categories, image paths; None where missing) as n records.

    Example:
        texts = record_texts({"title": ["a", "b"], "price": [1.5, None], "photo": ["a.png", "b.png"]})
        graph = AttributedGraph(texts, edges, labels, split, names, attributes="record")
    """
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) != 1:
        raise DataError(f"records: columns of equal length expected, got {lengths or 'none'}")
    cells = {name: [None if value is None else str(value) for value in values] for name, values in columns.items()}
    rows = (dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True))
    return Texts.from_strings(json.dumps(row, ensure_ascii=False) for row in rows)
