"""Treebanks in CoNLL-U as word graphs, the way roman-empire was made.

    labeldeconv inspect en_ewt-ud-dev.conllu.gz        # one file, or a folder of them, joined in the order of names

Node = word, text = its form, edges join words that follow each other in the text (across sentences too) and words that
the tree joins, label = the relation to the head without its subtype: the 17 most frequent ones, and 'other'. Multi-word
tokens (ids '3-4') and empty nodes ('5.1') are left out. The split is seeded, class by class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labeldeconv.data.catalog import Request, dataset
from labeldeconv.data.findings import Findings, Loaded
from labeldeconv.data.origin import Files
from labeldeconv.data.sets.text_files import lines
from labeldeconv.errors import DataError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.graph.texts import Texts

COLUMNS = 10
FREQUENT = 17  # relations that are classes of their own
OTHER = "other"
DIGITS = 9  # of a word's number; Python refuses texts of more than 4,300 digits


@dataclass(frozen=True)
class Word:
    """A word of a sentence: its number there (from 1), its form, that of its head (0: the root) and the relation."""

    number: int
    form: str
    head: int
    relation: str


@dataclass(frozen=True)
class Treebank:
    """CoNLL-U files as the source of a word graph."""

    files: Files
    seed: int
    version: int = 1

    def load(self) -> Loaded:
        """Read the sentences."""
        return load_treebank(self.files, self.seed)


def treebank_files(place: Path) -> Files:
    """A .conllu or .conllu.gz file, or all of a folder."""
    found = [place] if place.is_file() else sorted(place.iterdir()) if place.is_dir() else []
    named = [path for path in found if path.is_file() and path.name.removesuffix(".gz").endswith(".conllu")]
    return Files(place if place.is_dir() else place.parent, {path.name: path for path in named})


@dataset(
    "conllu",
    "a treebank in CoNLL-U as a word graph, label = relation to the head",
    recognise=lambda place: len(treebank_files(place)) > 0,
)
def conllu(request: Request) -> Treebank:
    """The treebank of the file or folder given."""
    if request.folder is None:
        raise DataError(f"data '{request.written}': conllu@FOLDER, or the path of a .conllu file, expected")
    files = treebank_files(request.folder)
    if not files:
        raise DataError(f"{request.folder}: files *.conllu or *.conllu.gz expected")
    return Treebank(files, request.seed)


def load_treebank(files: Files, seed: int = 0) -> Loaded:
    """The word graph of the files, one text after the other."""
    findings = Findings()
    forms, relations, edges, skipped = list[str](), list[str](), list[tuple[int, int]](), Counter[str]()
    for path in files.values():
        before = len(forms)  # texts of different files do not follow each other
        for line, sentence in sentences(path, skipped):
            start = len(forms)
            place = {word.number: start + i for i, word in enumerate(sentence)}
            for i, word in enumerate(sentence, start):
                if i > before:
                    edges.append((i - 1, i))
                if word.head and word.head not in place:
                    where = f"{path}, sentence from line {line}"
                    raise DataError(f"{where}: word {word.number} has head {word.head}, which is not in it")
                if word.head:
                    edges.append((place[word.head], i))
            forms += [word.form for word in sentence]
            relations += [word.relation for word in sentence]
    if not forms:
        raise DataError(f"{files.folder}: no words in {', '.join(files)}")
    for what, count in sorted(skipped.items()):
        findings.warn(f"{count:,} {what} are left out")
    names = [name for name, _ in Counter(relations).most_common(FREQUENT)]
    names = sorted(names) + ([OTHER] if len(set(relations)) > FREQUENT else [])
    number = {name: k for k, name in enumerate(names)}
    labels = np.array([number.get(relation, len(names) - 1) for relation in relations], dtype=np.int32)
    graph = AttributedGraph(
        texts=Texts.from_strings(forms),
        edges=_undirected(edges),
        labels=labels,
        split=Split.stratified(labels, seed),
        class_names=names,
        name="-".join(name.removesuffix(".gz").removesuffix(".conllu") for name in files)[:60],
    )
    return Loaded(graph, findings.warnings)


def sentences(path: Path, skipped: Counter[str]) -> Iterator[tuple[int, list[Word]]]:
    """Sentences with the number of their first line; what is left out is counted in `skipped`."""
    first, words = 0, list[Word]()
    for line, row in lines(path):
        if not row.strip():
            if words:
                yield first, words
            words = []
        elif not row.startswith("#"):
            first = first if words else line
            word = _word(path, line, row, skipped)
            if word is not None:
                words.append(word)
    if words:
        yield first, words


def _word(path: Path, line: int, row: str, skipped: Counter[str]) -> Word | None:
    """The word of a line; None for a multi-word token or an empty node."""
    cells = row.split("\t")
    if len(cells) != COLUMNS:
        raise DataError(f"{path}, line {line}: {COLUMNS} columns separated by tabs expected, got {len(cells)}")
    number, form, head, relation = cells[0], cells[1], cells[6], cells[7]
    if "-" in number or "." in number:
        skipped["multi-word tokens" if "-" in number else "empty nodes"] += 1
        return None
    for column, cell in (("ID", number), ("HEAD", head)):
        if not (cell.isascii() and cell.isdigit() and len(cell) <= DIGITS):
            raise DataError(f"{path}, line {line}: column {column}: a number expected, got '{cell[:40]}'")
    if relation in ("", "_"):
        raise DataError(f"{path}, line {line}: column DEPREL is empty")
    return Word(int(number), form, int(head), relation.partition(":")[0])


def _undirected(edges: list[tuple[int, int]]) -> np.ndarray:
    """Edges (2, e), each pair of words once."""
    pairs = np.sort(np.array(edges, dtype=np.int32).reshape(-1, 2), axis=1)
    return np.unique(pairs, axis=0).T
