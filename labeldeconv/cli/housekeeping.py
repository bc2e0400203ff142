"""`labeldeconv cache`: what is kept of earlier runs; list it, verify it, prune it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labeldeconv.cli.terminal import AsJson, console, print_json, print_table
from labeldeconv.errors import ConfigError

if TYPE_CHECKING:
    from labeldeconv.stages.cache import Cache, Kept

cache = typer.Typer(no_args_is_help=True, help="Stages kept in the cache: list, verify, prune.")

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@cache.command("list")
def list_stages(as_json: AsJson = False) -> None:
    """Every kept stage: its size, the days since it was last used, and the run directories that used it."""
    opened = _cache()
    kept = opened.stages()
    if as_json:
        return print_json({"cache": str(opened.root), "stages": [_plain(k) for k in kept]})
    rows = [[k.stage, k.key[:12], _size(k.bytes), f"{k.days:.1f}", "\n".join(k.used_by)] for k in kept]
    heads = ["stage", "key", "size", "days", "used by"]
    print_table(str(opened.root), heads, rows, left=2, folds=["used by"])
    console.print(f"{len(kept)} stages, {_size(sum(k.bytes for k in kept))}")


@cache.command()
def verify(as_json: AsJson = False) -> None:
    """Compare every file with the checksum it had when it was written; exit code 1 where one differs."""
    opened = _cache()
    wrong = opened.verify()
    if as_json:
        print_json({"stages": len(opened.stages()), "broken": [{**_plain(k), "why": why} for k, why in wrong]})
    else:
        for kept, why in wrong:
            console.print(f"{kept.path}: {why}", soft_wrap=True)
        told = "; the next run that needs one computes it again" if wrong else ""
        console.print(f"{len(opened.stages())} stages, {len(wrong)} broken{told}")
    if wrong:
        raise typer.Exit(1)


@cache.command()
def prune(
    older: Annotated[float | None, typer.Option(min=0, help="Delete what was not used for so many days.")] = None,
    keep: Annotated[
        str | None, typer.Option(help="Delete the longest unused until so much is left: 20G, 500M.")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="Delete what only this run directory uses.")] = None,
    as_json: AsJson = False,
) -> None:
    """Delete kept stages. That is always safe: what is needed again is computed again, and run directories stay."""
    if older is None and keep is None and run is None:
        raise ConfigError("cache prune: one of --older, --keep and --run expected")
    gone = _cache().prune(older, None if keep is None else _bytes(keep), run)
    if as_json:
        return print_json({"deleted": [_plain(k) for k in gone]})
    console.print(f"{len(gone)} stages deleted, {_size(sum(k.bytes for k in gone))}")


def _cache() -> Cache:
    from labeldeconv.stages.cache import Cache

    return Cache()


def _plain(kept: Kept) -> dict[str, Any]:
    return {**kept.__dict__, "path": str(kept.path), "days": round(kept.days, 3)}


def _size(count: float) -> str:
    """'1.2 MB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _bytes(text: str) -> int:
    """'20G' to bytes."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found:
        raise ConfigError(f"--keep {text}: a size such as 20G or 500M expected")
    return int(float(found[1]) * UNITS[found[2].upper()])
