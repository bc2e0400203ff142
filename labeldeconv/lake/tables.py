"""What is asked of tables in a lake, and what is said when they cannot be used; the same for both engines.

| table | columns |
|---|---|
| nodes | `id`, whole numbers or strings; `label`: a class (number or string), a list of c numbers, or none |
| edges | `source`, `target`: ids of nodes |
| out: `K_i.parquet` | `id`; `row`, the place of the id among all, sorted; `degree`; `values`: c numbers |
| out: `X.parquet` | `id`, `row`, `values`: d numbers |
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from labeldeconv.errors import DataError, nearest
from labeldeconv.settings.models import AdjacencyConfig

ASKED = "asked.json"  # what a folder was made for, written first
DONE = "hops.json"  # what was made, written last
WORK = "work"  # the folder of what only Spark needs, deleted at the end
SUCCESS = "_SUCCESS"  # Spark's mark of a complete folder of Parquet files


@dataclass(frozen=True)
class HopTables:
    """Hop labels K_0..K_N of a graph in tables: where they lie, what their columns are called, which A-hat."""

    nodes: str
    edges: str
    hops: int
    adjacency: AdjacencyConfig = field(default_factory=AdjacencyConfig)
    store: str = "float32"
    backward: bool = False
    classes: int | None = None
    id: str = "id"
    label: str = "label"
    source: str = "source"
    target: str = "target"

    @property
    def fixed(self) -> bool:
        """Whether K is made in fixed point, as `write_hop_labels` decides."""
        return self.store == "uint16" and self.adjacency.normalization == "row"

    def question(self) -> dict[str, Any]:
        """All that the result depends on, as JSON has it: also the names, sizes and times of local files."""
        told = asdict(self) | {"adjacency": self.adjacency.model_dump()}
        return json.loads(json.dumps(told | {"files": {url: file_states(url) for url in (self.nodes, self.edges)}}))


@dataclass(frozen=True)
class Cluster:
    """Where Spark works: the master's URL, the memory of an executor and of the driver, and Spark's own settings."""

    master: str = "local[*]"
    memory: str = "1g"
    settings: tuple[tuple[str, str], ...] = ()
    blocks: int | None = None
    block_mib: int = 256


def path_of(url: str) -> Path | None:
    """The path of a URL or plain name on this machine; None where it is elsewhere."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return Path(url) if "://" not in url else None


def spark_url(url: str) -> str:
    """The same place as Spark takes it: plain names are files of this machine."""
    path = path_of(url)
    return url if path is None else path.absolute().as_uri()


def parquet_files(url: str) -> list[Path]:
    """The Parquet files of a table on this machine: the file itself, or those of a folder."""
    path = path_of(url)
    if path is None:
        raise DataError(f"{url}: a file or folder of this machine expected; `--engine spark` reads what is elsewhere")
    if path.is_file():
        return [path]
    found = sorted(p for p in path.rglob("*.parquet") if p.is_file() and not p.name.startswith((".", "_")))
    if not found:
        raise DataError(f"{url}: a Parquet file, or a folder with some, expected; there is {_what(path)}")
    return found


def _what(path: Path) -> str:
    return "a folder without any" if path.is_dir() else "nothing"


def file_states(url: str) -> list[Any] | None:
    """Names, sizes and times of a table's files; None where they are elsewhere."""
    if path_of(url) is None:
        return None
    return [[p.name, p.stat().st_size, p.stat().st_mtime_ns] for p in parquet_files(url)]


def need_columns(url: str, wanted: Sequence[str], there: Sequence[str]) -> None:
    """Refuse a table without the wanted columns."""
    if missing := [f"column '{name}' is missing; {nearest(name, there)}" for name in wanted if name not in there]:
        raise DataError(f"{url}: it cannot be read", missing)


def refuse_ids(url: str, column: str, rows: int, nulls: int, distinct: int) -> None:
    """Refuse nodes without an id, nodes of one id, and a table without nodes."""
    if rows == 0:
        raise DataError(f"{url}: no rows; a row per node expected")
    if nulls:
        raise DataError(f"{url}: {nulls:,} of {rows:,} rows have no '{column}'")
    if distinct < rows:
        raise DataError(f"{url}: '{column}' must be different in every row; {rows:,} rows have {distinct:,} values")


def refuse_unknown(tables: HopTables, count: int, examples: Sequence[Any]) -> None:
    """Refuse edges to nodes that do not exist."""
    if count:
        shown = ", ".join(str(example) for example in examples)
        raise DataError(f"{tables.edges}: {count:,} ends of edges are no '{tables.id}' of {tables.nodes}: {shown}, ...")


def class_count(url: str, column: str, least: int | None, most: int | None, asked: int | None) -> int:
    """c of classes given as whole numbers, of which the least and the most are these; None: there is no label."""
    if most is None or least is None:
        raise DataError(f"{url}: no row has a '{column}'")
    if least < 0 or (asked is not None and most >= asked):
        accepted = f"0 to {asked - 1}" if asked is not None else "0 and more"
        raise DataError(f"{url}: classes in '{column}' must be {accepted}; they are {least} to {most}")
    return asked or most + 1


def list_length(url: str, column: str, least: int | None, most: int | None, nulls: int) -> int:
    """c of labels given as lists, of which the shortest and the longest are these."""
    if not most or least != most or nulls:
        raise DataError(
            f"{url}: lists of equal length, without empty places, expected in '{column}'; "
            f"their lengths are {least} to {most}, {nulls:,} have empty places"
        )
    return most


def refuse_range(tables: HopTables, least: float, most: float) -> None:
    """Refuse labels that fixed point cannot hold."""
    if tables.fixed and not 0 <= least <= most <= 1:
        raise DataError(
            f"{tables.nodes}: '{tables.label}' must lie in 0 to 1 for --store uint16, and is {least:g} to {most:g}; "
            "--store float32 takes any numbers"
        )


def refuse_type(url: str, column: str, got: str, accepted: str) -> DataError:
    """The error of a column of another type."""
    return DataError(f"{url}: '{column}' must be {accepted}; it is {got}")


def differing(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """What an earlier question has otherwise than this one; None where it is the same."""
    names = sorted(before.keys() | now.keys())
    changed = [name for name in names if before.get(name) != now.get(name)]
    if not changed:
        return None
    return ", ".join(
        "files of the tables" if name == "files" else f"{name} {before.get(name)} and not {now.get(name)}"
        for name in changed
    )


def refuse_other(out: str, text: str, now: dict[str, Any]) -> None:
    """Refuse a folder whose `asked.json` holds another question."""
    try:
        changed = differing(json.loads(text), now)
    except ValueError:
        changed = f"an {ASKED} that cannot be read"
    if changed:
        raise DataError(
            f"{out}: holds the result of another question ({changed}); another --out expected, or none there"
        )
