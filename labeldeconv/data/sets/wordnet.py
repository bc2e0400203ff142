"""WordNet from its database files (Debian's package wordnet-base installs them in /usr/share/wordnet).

    labeldeconv inspect wordnet

Node = synset, text = gloss (definition and examples), label = lexicographer file, edges = pointers (hypernym, part,
antonym, ...). A line of data.noun, data.verb, data.adj or data.adv is one synset:

    offset lex_filenum ss_type w_cnt word lex_id ... p_cnt symbol offset pos source/target ... | gloss
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labeldeconv.data.catalog import Request, dataset
from labeldeconv.data.findings import Findings, Loaded, shown
from labeldeconv.data.origin import Files
from labeldeconv.data.sets.text_files import first_of, lines
from labeldeconv.errors import DataError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.graph.texts import Texts

FOLDER = Path("/usr/share/wordnet")
PARTS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
LEXNAMES = [  # lexnames(5WN), whose file not every package installs
    "adj.all",
    "adj.pert",
    "adv.all",
    "noun.Tops",
    "noun.act",
    "noun.animal",
    "noun.artifact",
    "noun.attribute",
    "noun.body",
    "noun.cognition",
    "noun.communication",
    "noun.event",
    "noun.feeling",
    "noun.food",
    "noun.group",
    "noun.location",
    "noun.motive",
    "noun.object",
    "noun.person",
    "noun.phenomenon",
    "noun.plant",
    "noun.possession",
    "noun.process",
    "noun.quantity",
    "noun.relation",
    "noun.shape",
    "noun.state",
    "noun.substance",
    "noun.time",
    "verb.body",
    "verb.change",
    "verb.cognition",
    "verb.communication",
    "verb.competition",
    "verb.consumption",
    "verb.contact",
    "verb.creation",
    "verb.emotion",
    "verb.motion",
    "verb.perception",
    "verb.possession",
    "verb.social",
    "verb.stative",
    "verb.weather",
    "adj.ppl",
]


@dataclass(frozen=True)
class Wordnet:
    """The four data files of WordNet as the source of a graph."""

    files: Files
    seed: int
    version: int = 1

    def load(self) -> Loaded:
        """Read the synsets."""
        return load_wordnet(self.files, self.seed)


@dataset(
    "wordnet",
    "WordNet synsets with glosses (Debian's package wordnet-base), label = lexicographer file",
    recognise=lambda folder: first_of(folder, ["data.noun"]) is not None,
)
def wordnet(request: Request) -> Wordnet:
    """The data files of the folder given, or those that Debian's package installs."""
    return Wordnet(wordnet_files(request.folder or FOLDER), request.seed)


def wordnet_files(folder: Path) -> Files:
    """The four data files of a folder by part of speech."""
    found = {part: first_of(folder, [f"data.{part}"]) for part in PARTS}
    absent = [f"data.{part}" for part, path in found.items() if path is None]
    if absent:
        hint = "install Debian's package wordnet-base, or say wordnet@FOLDER with the folder of the WordNet database"
        raise DataError(f"wordnet: no {', '.join(absent)} in {folder}; {hint}")
    return Files(folder, {part: path for part, path in found.items() if path is not None})


def load_wordnet(files: Mapping[str, Path], seed: int = 0) -> Loaded:
    """The graph of the data files by part of speech, with a seeded split, stratified by lexicographer file."""
    ids: dict[str, int] = {}
    glosses: list[str] = []
    numbers: list[int] = []
    pointers: list[tuple[int, str, Path, int]] = []
    for part, pos in PARTS.items():
        path = files[part]
        for line, text in lines(path):
            if text.startswith("  "):
                continue  # the licence at the top
            name, number, targets, gloss = _synset(path, line, text, pos)
            if name in ids:
                raise DataError(f"{path}, line {line}: synset {name} was there before")
            pointers += [(len(ids), target, path, line) for target in targets]
            ids[name] = len(ids)
            numbers.append(number)
            glosses.append(gloss)
    if not ids:
        raise DataError(f"{files['noun'].parent}: no synsets")
    findings = Findings()
    edges = _edges(ids, pointers, findings)
    used = sorted(set(numbers))
    labels = np.searchsorted(used, numbers).astype(np.int32)
    graph = AttributedGraph(
        texts=Texts.from_strings(glosses),
        edges=edges,
        labels=labels,
        split=Split.stratified(labels, seed),
        class_names=[LEXNAMES[k] if k < len(LEXNAMES) else str(k) for k in used],
        ids=Texts.from_strings(ids),
        name="wordnet",
    )
    return Loaded(graph, findings.warnings)


def _synset(path: Path, line: int, text: str, pos: str) -> tuple[str, int, list[str], str]:
    """Id such as 'n00001740', lexicographer file, ids of the pointers' targets and gloss of one line."""
    head, bar, gloss = text.partition(" | ")
    cells = head.split()
    try:
        words = int(cells[3], 16)
        count = int(cells[4 + 2 * words])
        links = cells[5 + 2 * words : 5 + 2 * words + 4 * count]
        if not bar or len(links) != 4 * count:
            raise ValueError
        targets = [f"{_pos(links[i + 2])}{links[i + 1]}" for i in range(0, len(links), 4)]
        return f"{pos}{cells[0]}", int(cells[1]), targets, gloss.strip()
    except (IndexError, ValueError):
        raise DataError(f"{path}, line {line}: not a synset line of the WordNet database: '{text[:50]}'") from None


def _pos(letter: str) -> str:
    """Satellite adjectives ('s') live in data.adj."""
    return "a" if letter == "s" else letter


def _edges(ids: dict[str, int], pointers: Sequence[tuple[int, str, Path, int]], findings: Findings) -> np.ndarray:
    """Pointers as edges (2, e), each pair once, lexical ones included."""
    lost = [(target, path, line) for _, target, path, line in pointers if target not in ids]
    if lost:
        _, path, line = lost[0]
        named = shown([name for name, _, _ in lost])
        findings.warn(f"{len(lost):,} pointers lead to no synset, first in {path.name}, line {line}: {named}")
    pairs = {(source, ids[target]): None for source, target, _, _ in pointers if target in ids}
    return np.array(list(pairs), dtype=np.int32).reshape(-1, 2).T
