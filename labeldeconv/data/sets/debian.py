"""The Debian archive as an attributed graph: real data on any Debian or Ubuntu machine.

    labeldeconv inspect debian            # multi-class: the section of a package
    labeldeconv inspect debian-tags       # multi-label: its debtags

Node = binary package, text = synopsis and long description without the package's name, edges = what it depends on,
recommends, suggests and enhances, a virtual package standing for all that provide it. The split keeps the packages of
one source together, so that siblings with nearly the same description do not leak.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labeldeconv.data.catalog import Request, dataset
from labeldeconv.data.findings import Findings, Loaded, shown
from labeldeconv.data.origin import Files
from labeldeconv.data.sets.apt import debian_indices
from labeldeconv.data.sets.control import description, paragraphs, relations
from labeldeconv.data.sets.text_files import first_of
from labeldeconv.errors import DataError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.graph.texts import Texts

INDEX, TRANSLATION = "Packages", "Translation-en"
RELATIONS = ("Depends", "Pre-Depends", "Recommends", "Suggests", "Enhances")
FIELDS = {"Package", "Source", "Section", "Tag", "Provides", "Description", "Description-md5", *RELATIONS}
FRACTIONS = (0.54, 0.18)  # train and val, as in ogbn-arxiv; the rest is test
MIN_POSITIVES = 30  # a debtag with fewer packages is no label


@dataclass(frozen=True)
class Package:
    """A binary package: its fields as the index has them, and its text."""

    name: str
    fields: Mapping[str, str]
    text: str

    @property
    def source(self) -> str:
        """The source package it is built from."""
        return (self.fields.get("Source") or self.name).split()[0]

    @property
    def section(self) -> str:
        """Section without the archive area: 'contrib/net' is 'net'."""
        return self.fields.get("Section", "").rpartition("/")[2]

    @property
    def tags(self) -> list[str]:
        """Its debtags."""
        return [tag.strip() for tag in self.fields.get("Tag", "").split(",") if tag.strip()]


@dataclass(frozen=True)
class Debian:
    """Two indices as the source of a graph whose labels are sections, or with `tags` debtags."""

    files: Files
    tags: bool
    seed: int
    version: int = 1

    def load(self) -> Loaded:
        """Read the packages."""
        return load_debian(self.files, self.tags, self.seed)


@dataset("debian-tags", "the same with debtags as multi-label targets")
@dataset(
    "debian",
    "the packages of this machine's Debian or Ubuntu archive, label = section",
    recognise=lambda folder: first_of(folder, [INDEX]) is not None,
)
def debian(request: Request) -> Debian:
    """The indices of the folder given, or those of this machine's archive."""
    folder = debian_indices().folder if request.folder is None else request.folder
    return Debian(debian_files(folder), request.name == "debian-tags", request.seed)


def debian_files(folder: Path) -> Files:
    """The files Packages and Translation-en of a folder, plain or gz."""
    found = {name: first_of(folder, [name]) for name in (INDEX, TRANSLATION)}
    there = {name: path for name, path in found.items() if path is not None}
    if len(there) < 2:
        raise DataError(f"{folder}: Packages and Translation-en (plain or .gz) of a Debian archive expected")
    return Files(folder, there)


def load_debian(files: Mapping[str, Path], tags: bool = False, seed: int = 0) -> Loaded:
    """The graph of a Packages and a Translation-en index; labels are sections, or with `tags` debtags."""
    findings = Findings()
    packages = read_packages(files[INDEX], files[TRANSLATION], findings)
    labels, names = _tag_labels(packages) if tags else _section_labels(packages)
    if not names:
        what = "Tag" if tags else "Section"
        raise DataError(f"{files[INDEX]}: no label: the field {what} is not in this archive")
    graph = AttributedGraph(
        texts=Texts.from_strings(package.text for package in packages),
        edges=dependency_edges(packages, findings),
        labels=labels,
        split=split_by_group([p.source for p in packages], labels, FRACTIONS, seed),
        class_names=names,
        ids=Texts.from_strings(package.name for package in packages),
        name="debian-tags" if tags else "debian",
    )
    return Loaded(graph, findings.warnings)


def read_packages(index: Path, translation: Path, findings: Findings) -> list[Package]:
    """The packages of an index, each once (the first version counts), with long descriptions by Description-md5."""
    long = {
        found["Description-md5"]: found["Description-en"]
        for _, found in paragraphs(translation, {"Description-md5", "Description-en"})
        if len(found) == 2
    }
    packages: dict[str, Package] = {}
    again, without = 0, []
    for line, fields in paragraphs(index, FIELDS):
        name = fields.get("Package")
        if not name:
            raise DataError(f"{index}, line {line}: a paragraph without the field Package")
        if name in packages:
            again += 1
            continue
        md5 = fields.get("Description-md5", "")
        if md5 not in long:
            without.append(name)
        text = description(long.get(md5, fields.get("Description", "")))
        packages[name] = Package(name, fields, without_name(text, name))
    if not packages:
        raise DataError(f"{index}: no packages")
    if again:
        findings.warn(f"{index.name}: {again:,} other versions of packages are left out")
    if without:
        findings.warn(f"{translation.name}: {len(without):,} packages have no long description: {shown(without)}")
    return list(packages.values())


def without_name(text: str, name: str) -> str:
    """The text with every mention of the package's own name left out, since names spell sections ('python3-...')."""
    if name not in text:
        return text
    left = re.sub(rf"(?<![\w+.-]){re.escape(name)}(?![\w+-])", "", text)
    return re.sub(r"[ \t]{2,}", " ", left).strip()


def dependency_edges(packages: Sequence[Package], findings: Findings) -> np.ndarray:
    """Edges (2, e) from a package to every package its relations name or, if it is virtual, to all providers."""
    number = {package.name: i for i, package in enumerate(packages)}
    providers: dict[str, list[int]] = {}
    for i, package in enumerate(packages):
        for virtual in relations(package.fields.get("Provides", "")):
            providers.setdefault(virtual, []).append(i)
    edges, unknown = dict[tuple[int, int], None](), Counter[str]()
    for i, package in enumerate(packages):
        for field in RELATIONS:
            for name in relations(package.fields.get(field, "")):
                ends = [number[name]] if name in number else providers.get(name, [])
                if not ends:
                    unknown[name] += 1
                edges.update({(i, end): None for end in ends if end != i})
    if total := sum(unknown.values()):
        common = [name for name, _ in unknown.most_common(6)]
        findings.warn(f"{total:,} relations name packages outside the archive and are left out: {shown(common)}")
    return np.array(list(edges), dtype=np.int32).reshape(-1, 2).T


def split_by_group(groups: Sequence[str], labels: np.ndarray, fractions: tuple[float, float], seed: int) -> Split:
    """Seeded split of the labelled nodes in which all nodes of one group fall into the same part."""
    names, group = np.unique(np.asarray(groups), return_inverse=True)
    labelled = (labels.reshape(len(labels), -1) >= 0).any(1)
    order = np.random.default_rng(seed).permutation(len(names))
    sizes = np.bincount(group[labelled], minlength=len(names))[order]
    middle = (np.cumsum(sizes) - sizes / 2) / max(1, sizes.sum())
    role_of_group = np.empty(len(names), dtype=np.int8)
    role_of_group[order] = np.searchsorted(np.cumsum(fractions), middle, side="right")
    return Split(np.where(labelled, role_of_group[group], -1).astype(np.int8))


def _section_labels(packages: Sequence[Package]) -> tuple[np.ndarray, list[str]]:
    """Class numbers (n,), -1 without a section, and the sections."""
    names = sorted({package.section for package in packages} - {""})
    number = {name: k for k, name in enumerate(names)}
    return np.array([number.get(package.section, -1) for package in packages], dtype=np.int32), names


def _tag_labels(packages: Sequence[Package]) -> tuple[np.ndarray, list[str]]:
    """Labels (n, c) of the debtags with at least MIN_POSITIVES packages; -1 for a package without any tag."""
    counts = Counter(tag for package in packages for tag in set(package.tags))
    names = sorted(tag for tag, count in counts.items() if count >= MIN_POSITIVES)
    number = {name: k for k, name in enumerate(names)}
    labels = np.zeros((len(packages), len(names)), dtype=np.int8)
    for i, package in enumerate(packages):
        tags = package.tags
        labels[i, [number[tag] for tag in tags if tag in number]] = 1
        if not tags:
            labels[i] = -1
    return labels, names
