"""What every analysis returns: plain values for JSON, rows for CSV, both with the same content."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from labeldeconv.stages.files import write_json, write_text


class Analysis(Protocol):
    """A finished analysis."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        ...

    def rows(self) -> list[dict[str, Any]]:
        """The same as a table; rows may leave columns out."""
        ...


def to_csv(rows: Sequence[dict[str, Any]]) -> str:
    """CSV with all columns of all rows, in the order in which they first come up."""
    out = io.StringIO()
    columns = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(out, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def write_analysis(result: Analysis, folder: Path, name: str) -> list[Path]:
    """Write NAME.json and NAME.csv into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.json", folder / f"{name}.csv"]
    write_json(paths[0], result.to_dict())
    write_text(paths[1], to_csv(result.rows()))
    return paths
