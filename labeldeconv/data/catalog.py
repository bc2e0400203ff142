"""Data sets by name: each registers itself, in its own file under data/sets or in a module of the user.

    NAME[:ARGUMENT][@FOLDER]      planted:500, ogbn-arxiv@ROOT, string:4932@FOLDER, mymodule:mine

    @dataset("mine", "my papers, label = venue")
    def mine(request: Request) -> Source:
        return MySource(Files.named(request.folder or Path("papers"), ["papers.csv"]), request.seed)

Without @FOLDER, raw files are looked for under LABELDECONV_DATA (default: the folder 'data' of the working directory),
WordNet where Debian installs it, and Debian's indices are fetched once into the cache.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labeldeconv.data.origin import Source
from labeldeconv.errors import ConfigError, DataError
from labeldeconv.registry import Registry


@dataclass(frozen=True)
class Request:
    """What is asked of a data set.

    Args:
        name: of the data set.
        written: the whole name as the user wrote it, for messages.
        argument: what stands after the colon.
        folder: what stands after the @; it exists.
        seed: makes the split of data sets without one, and everything random in generated ones.
        recognised: whether the user gave the folder alone, and the data set was found by what lies in it.
    """

    name: str
    written: str
    argument: str = ""
    folder: Path | None = None
    seed: int = 0
    recognised: bool = False


MakeSource = Callable[[Request], Source]


@dataclass(frozen=True)
class Dataset:
    """A data set.

    Args:
        name: what a user calls it.
        summary: what it is, in a line.
        source: gives the source of a request; it finds the files and says what is missing, but reads no graph.
        suggests: settings by dotted names, used where the user says nothing else.
        recognise: tells whether a folder, or a file, holds its raw data; None for data sets asked for by name alone.
        takes_argument: whether something may stand after the colon.
    """

    name: str
    summary: str
    source: MakeSource
    suggests: Mapping[str, Any]
    recognise: Callable[[Path], bool] | None
    takes_argument: bool


_ORDER = (
    "planted", "planted-multilabel", "planted-protein", "planted-regression", "ogbn-arxiv", "ogbn-products",
    "ogbn-proteins", "conllu", "debian", "debian-tags", "string", "wordnet", "csv-graph", "neo4j", "graphml",
    "node-link", "pyg",
)  # fmt: skip
DATASETS: Registry[Dataset] = Registry("data", "labeldeconv.data.sets", first=_ORDER)


def dataset(
    name: str,
    summary: str,
    *,
    suggests: Mapping[str, Any] | None = None,
    recognise: Callable[[Path], bool] | None = None,
    takes_argument: bool = False,
) -> Callable[[MakeSource], MakeSource]:
    """Register a function from a `Request` to a `Source` as a data set; the function has it as attribute `dataset`.

    Several decorators on one function give it several names; `Request.name` tells them apart.
    """

    def register(function: MakeSource) -> MakeSource:
        made = Dataset(name, summary, function, dict(suggests or {}), recognise, takes_argument)
        DATASETS.add(name, made)
        function.dataset = made  # type: ignore[attr-defined]
        return function

    return register


def named_source(name: str, seed: int = 0) -> Source | None:
    """The source of NAME[:ARGUMENT][@FOLDER]; None where NAME is no data set."""
    found = _parse(name)
    if found is None:
        return None
    chosen, argument, place = found
    folder = Path(place) if place else None
    if folder is not None and not folder.is_dir():
        raise DataError(f"data '{name}': {folder} is no folder")
    if argument and not chosen.takes_argument:
        hint = "--max-nodes takes a part of it"
        raise DataError(f"data '{name}': '{chosen.name}' takes nothing after a colon; {hint}")
    return chosen.source(Request(chosen.name, name, argument, folder, seed))


def folder_source(folder: Path, seed: int = 0) -> Source | None:
    """The source of a folder of raw files, or of one file, recognised by names; None where no data set knows them."""
    for known in DATASETS.values():
        if known.recognise is not None and known.recognise(folder):
            return known.source(Request(known.name, str(folder), "", folder, seed, recognised=True))
    return None


def suggestions(name: str) -> dict[str, Any]:
    """The settings, by dotted names, that the data set of a name suggests: none for folders. No data are read."""
    whole, sign, most = name.rpartition("#")
    found = _parse(whole if sign and is_count(most) else name)
    return {} if found is None else dict(found[0].suggests)


def _parse(name: str) -> tuple[Dataset, str, str] | None:
    """Data set, argument and folder of a name; None where it names no data set, but perhaps a folder."""
    whole, _, place = name.partition("@")
    base, _, rest = whole.partition(":")
    if base in DATASETS:
        return DATASETS[base], rest, place
    if not rest or Path(name).exists() or not _is_module(base):
        return None
    attribute, _, argument = rest.partition(":")
    found: Any = DATASETS.named(f"{base}:{attribute}")
    found = getattr(found, "dataset", found)
    if not isinstance(found, Dataset):
        raise ConfigError(f"data '{name}': {base}:{attribute} is no data set; @dataset makes a function one")
    return found, argument, place


def is_count(text: str) -> bool:
    """Whether a text is a number of nodes or the like: up to 18 ASCII digits, since '²' is a digit to Python too."""
    return text.isascii() and text.isdigit() and len(text) <= 18


def _is_module(name: str) -> bool:
    try:
        return all(part.isidentifier() for part in name.split(".")) and importlib.util.find_spec(name) is not None
    except Exception:  # finding a submodule imports its package, which may fail in any way
        return False
