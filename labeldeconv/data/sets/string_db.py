"""One species of STRING from its own download files, with a table of labels.

    labeldeconv inspect string:4932@FOLDER          # or string:4932:700@FOLDER for another least score

FOLDER holds, as STRING names them, `4932.protein.info.v12.0.txt.gz`, `4932.protein.sequences.v12.0.fa.gz` and
`4932.protein.physical.links.v12.0.txt.gz` (or `4932.protein.links...`), of any version, plain or gz; and `labels.tsv`
with the columns protein and term. The info file's annotation tells what a protein does, so it is never read: it would
leak the labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labeldeconv.data.catalog import Request, dataset, is_count
from labeldeconv.data.findings import Findings, Loaded, shown
from labeldeconv.data.origin import Files
from labeldeconv.data.sets.expected_files import MissingFiles, data_root
from labeldeconv.data.sets.fasta import read_fasta
from labeldeconv.data.sets.text_files import first_of, lines, read_columns
from labeldeconv.errors import DataError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.graph.texts import Texts

SCORE = 400  # STRING's 'medium confidence'
MIN_POSITIVES = 30  # a term with fewer proteins is no label
KINDS = {
    "info": ("*.protein.info.*txt", "string_protein_id, preferred_name, protein_size, annotation, tab-separated"),
    "links": ("*.protein.physical.links.*txt", "protein1 protein2 combined_score, separated by blanks"),
    "sequences": ("*.protein.sequences.*fa", "FASTA with names such as >4932.YAL001C"),
}


@dataclass(frozen=True)
class String:
    """The files of one species as the source of a graph with the links of at least `score`."""

    files: Files
    species: str
    score: int
    seed: int
    version: int = 1

    def load(self) -> Loaded:
        """Read the proteins."""
        return load_string(self.files, self.species, self.score, self.seed)


@dataset(
    "string",
    "string:SPECIES[:SCORE]@FOLDER, a species of STRING from its download files and labels.tsv",
    recognise=lambda folder: bool(species_in(folder)),
    takes_argument=True,
)
def string(request: Request) -> String:
    """The species and least score of the argument; a folder given alone may hold just one species."""
    folder = request.folder or data_root() / "string"
    there = species_in(folder)
    argument = there[0] if request.recognised and len(there) == 1 else request.argument
    species, _, text = argument.partition(":")
    score = text or str(SCORE)
    if not is_count(species) or not (is_count(score) and int(score) <= 1000):
        form = "string:SPECIES or string:SPECIES:SCORE expected, such as string:4932:400"
        raise DataError(f"data '{request.written}': {form}; species in {folder}: {', '.join(there) or 'none'}")
    return String(string_files(folder, species), species, int(score), request.seed)


def species_in(folder: Path) -> list[str]:
    """The species whose STRING info file is in `folder`."""
    found = (path for path in folder.glob("*.protein.info.*txt*") if path.is_file())
    return sorted({path.name.split(".")[0] for path in found})


def string_files(folder: Path, species: str) -> Files:
    """The files of a species by kind; raises `MissingFiles` for those that are not there."""
    found: dict[str, Path] = {}
    wanted: list[str] = []
    for kind, (pattern, looks) in KINDS.items():
        names = [pattern] if kind != "links" else [pattern, pattern.replace("physical.", "")]
        places = [name.replace("*", f"{species}", 1) + "*" for name in names]
        paths = [path for place in places for path in sorted(folder.glob(place)) if path.is_file()]
        if paths:
            found[kind] = paths[0] if kind == "links" else paths[-1]
        else:
            name = pattern.replace("*.", f"{species}.", 1).replace("*", "v12.0.")
            wanted.append(
                f"missing {folder / name}.gz (or without .gz): {looks}; a download of STRING for one organism"
            )
    if labels := first_of(folder, ["labels.tsv"]):
        found["labels"] = labels
    else:
        wanted.append(f"missing {folder / 'labels.tsv'}: a header 'protein<tab>term', one line per label of a protein")
    if terms := first_of(folder, ["terms.tsv"]):
        found["terms"] = terms
    if wanted:
        card: dict[str, Any] = {"name": f"string-{species}", "files": {kind: str(path) for kind, path in found.items()}}
        if "info" in found:
            card["nodes"] = len(_proteins(found["info"]))
        raise MissingFiles(f"{folder}: {len(wanted)} files of string:{species} are missing", wanted, card)
    return Files(folder, found)


def load_string(files: Mapping[str, Path], species: str, score: int = SCORE, seed: int = 0) -> Loaded:
    """The graph: proteins of the info file, links of at least `score`, sequences, and frequent terms as labels."""
    findings = Findings()
    names = _proteins(files["info"])
    number = {name: i for i, name in enumerate(names)}
    edges, scores = _links(files["links"], number, score)
    labels, terms = _labels(files["labels"], number, findings)
    sequences = read_fasta(files["sequences"], number.keys())
    for change in sequences.changes():
        findings.warn(f"{files['sequences'].name}: {change}")
    absent = [name for name in names if name not in sequences.by_name]
    if len(absent) == len(names):
        findings.error(f"{files['sequences'].name}: no sequence of any protein of {files['info'].name}; wrong species?")
        findings.stop(f"string:{species}")
    if absent:
        findings.warn(f"{files['sequences'].name}: {len(absent):,} proteins have no sequence: {shown(absent)}")
    titles = _titles(files.get("terms"))
    graph = AttributedGraph(
        texts=Texts.from_strings(sequences.by_name.get(name, "") for name in names),
        edges=edges,
        labels=labels,
        split=Split.stratified(labels, seed),
        class_names=[titles.get(term, term) for term in terms],
        edge_features=(scores / 1000).astype(np.float32)[:, None],
        ids=Texts.from_strings(names),
        attributes="sequence",
        name=f"string-{species}",
    )
    return Loaded(graph, findings.warnings)


def _proteins(path: Path) -> list[str]:
    """Protein ids of the info file, in its order."""
    names: dict[str, int] = {}
    for line, text in lines(path):
        cells = text.split("\t")
        if line == 1:
            if not cells[0].startswith("#"):
                raise DataError(f"{path}, line 1: the header '#string_protein_id<tab>...' expected, got '{text[:40]}'")
            continue
        if len(cells) != 4:
            raise DataError(f"{path}, line {line}: 4 columns expected, got {len(cells)}")
        if cells[0] in names:
            raise DataError(f"{path}, line {line}: '{cells[0]}' was already on line {names[cells[0]]}")
        names[cells[0]] = line
    if not names:
        raise DataError(f"{path}: no proteins")
    return list(names)


def _links(path: Path, number: Mapping[str, int], score: int) -> tuple[np.ndarray, np.ndarray]:
    """Edges (2, e) of at least `score`, each pair once though STRING lists both ways, and their scores (e,)."""
    header = next((text for _, text in lines(path)), "").split()
    if header[:2] != ["protein1", "protein2"] or header[-1] != "combined_score":
        raise DataError(f"{path}, line 1: the header 'protein1 protein2 ... combined_score' expected")
    types = {name: "VARCHAR" if name.startswith("protein") else "INTEGER" for name in header}
    found = read_columns(path, types, header=True, delimiter=" ")
    ends = np.empty((2, len(found["protein1"])), dtype=np.int32)
    for side, column in enumerate(("protein1", "protein2")):
        names, inverse = np.unique(found[column].astype(str), return_inverse=True)
        codes = np.array([number.get(str(name), -1) for name in names], dtype=np.int32)
        ends[side] = codes[inverse]
        wrong = np.flatnonzero(ends[side] < 0)
        if len(wrong):
            told = f"'{found[column][wrong[0]]}' is not in the info file ({len(wrong):,} such links)"
            raise DataError(f"{path}, line {wrong[0] + 2}: {told}")
    kept = (found["combined_score"] >= score) & (ends[0] != ends[1])
    ends, scores = np.sort(ends[:, kept], axis=0), found["combined_score"][kept]
    _, first = np.unique(ends[0].astype(np.int64) * len(number) + ends[1], return_index=True)
    return ends[:, first], scores[first]


def _labels(path: Path, number: Mapping[str, int], findings: Findings) -> tuple[np.ndarray, list[str]]:
    """Labels (n, c) of the terms with at least MIN_POSITIVES proteins; -1 for a protein without any term."""
    header = next((text for _, text in lines(path)), "").split("\t")
    if header[:2] != ["protein", "term"]:
        raise DataError(f"{path}, line 1: the header 'protein<tab>term' expected")
    found = read_columns(path, {"protein": "VARCHAR", "term": "VARCHAR"}, header=True, delimiter="\t")
    nodes = np.array([number.get(str(name), -1) for name in found["protein"]])
    if not (nodes >= 0).any():
        raise DataError(f"{path}, line 2: no protein of the info file has a label; '{found['protein'][0]}' is unknown")
    if strange := int((nodes < 0).sum()):
        names = shown([str(name) for name in found["protein"][nodes < 0]])
        findings.warn(f"{path.name}: {strange:,} labels belong to no protein of the info file: {names}")
    terms, code = np.unique(found["term"][nodes >= 0].astype(str), return_inverse=True)
    everything = np.zeros((len(number), len(terms)), dtype=np.int8)
    everything[nodes[nodes >= 0], code] = 1
    kept = everything.sum(0, dtype=np.int64) >= MIN_POSITIVES
    if not kept.any():
        raise DataError(f"{path}: no term has {MIN_POSITIVES} proteins")
    labels = everything[:, kept]
    labels[~everything.any(1)] = -1
    return labels, [str(term) for term in terms[kept]]


def _titles(path: Path | None) -> dict[str, str]:
    """Readable names of terms, from the columns term and name of an optional table."""
    if path is None:
        return {}
    rows = [text.split("\t") for _, text in lines(path)]
    try:
        term, name = rows[0].index("term"), rows[0].index("name")
        return {row[term]: f"{row[term]} {row[name]}" for row in rows[1:]}
    except (ValueError, IndexError):
        raise DataError(f"{path}: a table with the columns term and name expected") from None
