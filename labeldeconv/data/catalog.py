"""Real data sets by name or by what lies in a folder: how to read each, and what its cache key is made of.

    NAME[:ARGUMENT][@FOLDER]      ogbn-arxiv, ogbn-arxiv@ROOT, string:4932@FOLDER, wordnet, debian-tags

Without @FOLDER, raw files are looked for under LABELDECONV_DATA (default: the folder 'data' of the working directory),
WordNet where Debian installs it, and Debian's indices are fetched once into the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labeldeconv.data import debian, ogb, ogb_files, string_db, wordnet
from labeldeconv.data.findings import Loaded
from labeldeconv.data.raw_files import data_root
from labeldeconv.data.text_files import fingerprint, first_of
from labeldeconv.errors import DataError

REAL_DATA = {
    "ogbn-arxiv": "OGB's papers with titles and abstracts, from raw files under LABELDECONV_DATA",
    "ogbn-products": "OGB's products with titles and descriptions, likewise",
    "ogbn-proteins": "OGB's proteins with sequences, likewise",
    "debian": "the packages of this machine's Debian or Ubuntu archive, label = section",
    "debian-tags": "the same with debtags as multi-label targets",
    "string": "string:SPECIES[:SCORE]@FOLDER, a species of STRING from its download files and labels.tsv",
    "wordnet": "WordNet synsets with glosses (Debian's package wordnet-base), label = lexicographer file",
}


@dataclass(frozen=True)
class Reader:
    """How to make one graph: `parts` is all it depends on, for the cache key."""

    parts: Mapping[str, Any]
    load: Callable[[], Loaded]


def named_reader(name: str, seed: int, cache: Path) -> Reader | None:
    """The reader of a name such as 'string:4932@FOLDER'; None if it is not the name of real data."""
    whole, _, place = name.partition("@")
    base, _, argument = whole.partition(":")
    if base not in REAL_DATA:
        return None
    folder = Path(place) if place else None
    if folder is not None and not folder.is_dir():
        raise DataError(f"data '{name}': {folder} is no folder")
    if argument and base != "string":
        raise DataError(f"data '{name}': '{base}' takes nothing after a colon; --max-nodes takes a part of it")
    if base in ogb_files.SPECS:
        return _ogb(ogb_files.SPECS[base], folder or data_root())
    if base == "string":
        return _string(name, folder or data_root() / "string", argument, seed)
    if base == "wordnet":
        return _wordnet(folder or wordnet.FOLDER, seed)
    return _debian(folder or cache / "debian", fetch=folder is None, tags=base == "debian-tags", seed=seed)


def folder_reader(folder: Path, seed: int) -> Reader | None:
    """The reader of a folder of raw files, recognised by their names; None if there are none we know."""
    if spec := ogb_files.recognise(folder):
        return _ogb(spec, folder)
    if species := string_db.species_in(folder):
        return _string(str(folder), folder, species[0] if len(species) == 1 else "", seed)
    if first_of(folder, ["data.noun"]):
        return _wordnet(folder, seed)
    if first_of(folder, ["Packages"]):
        return _debian(folder, fetch=False, tags=False, seed=seed)
    return None


def _ogb(spec: ogb_files.OgbSpec, root: Path) -> Reader:
    folder = root / spec.folder
    files = ogb.ogb_files(spec, root if not folder.is_dir() and ogb_files.recognise(root) else folder)
    parts = {"ogb": spec.name, "files": fingerprint(files.values()), "version": 1}
    return Reader(parts, lambda: ogb.load_ogb(spec, files))


def _string(name: str, folder: Path, argument: str, seed: int) -> Reader:
    species, _, text = argument.partition(":")
    score = text or str(string_db.SCORE)
    if not species.isdigit() or not (score.isdigit() and int(score) <= 1000):
        there = ", ".join(string_db.species_in(folder)) or "none"
        form = "string:SPECIES or string:SPECIES:SCORE expected, such as string:4932:400"
        raise DataError(f"data '{name}': {form}; species in {folder}: {there}")
    files = string_db.string_files(folder, species)
    parts = {"string": species, "score": int(score), "seed": seed, "files": fingerprint(files.values()), "version": 1}
    return Reader(parts, lambda: string_db.load_string(files, species, int(score), seed))


def _wordnet(folder: Path, seed: int) -> Reader:
    files = wordnet.wordnet_files(folder)
    parts = {"wordnet": fingerprint(files), "seed": seed, "version": 1}
    return Reader(parts, lambda: wordnet.load_wordnet(files, seed))


def _debian(folder: Path, fetch: bool, tags: bool, seed: int) -> Reader:
    files = debian.debian_files(folder, fetch)
    parts = {"debian": fingerprint(files), "tags": tags, "seed": seed, "version": 1}
    return Reader(parts, lambda: debian.load_debian(files, tags, seed))
