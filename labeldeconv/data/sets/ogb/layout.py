"""The three OGB data sets with raw attributes: their files, folders, official splits and sizes.

    LABELDECONV_DATA/ogbn_arxiv/{raw,split/time,mapping}/*.csv.gz and titleabs.tsv

This is the layout in which OGB's own zip files unpack and in which the ogb package leaves them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from labeldeconv.data.sets.expected_files import RawFile
from labeldeconv.data.sets.text_files import first_of
from labeldeconv.graph.attributed import AttributeKind, TaskKind


@dataclass(frozen=True)
class OgbSpec:
    """What is particular to one OGB data set."""

    name: str
    num_classes: int
    task: TaskKind
    attributes: AttributeKind
    scheme: str
    """Name of the official split's folder."""
    ids: str
    """Column of the mapping file that the raw attributes are joined by."""
    files: tuple[RawFile, ...]
    edge_features: int = 0
    node_features: int = 0

    @property
    def folder(self) -> str:
        """Folder under the data root, as the ogb package calls it."""
        return self.name.replace("-", "_")


def _graph_files(zip_name: str, scheme: str, edges: int, nodes: int, labels: str) -> tuple[RawFile, ...]:
    origin = f"unpack {zip_name}.zip of OGB, or let the ogb package download it"
    split = tuple(
        RawFile(part, (f"split/{scheme}/{part}.csv",), f"node numbers of the official {part} part, one a line", origin)
        for part in ("train", "valid", "test")
    )
    return (
        RawFile("edges", ("raw/edge.csv",), f"{edges:,} lines 'source,target' of node numbers, no header", origin),
        RawFile("labels", ("raw/node-label.csv",), f"{nodes:,} lines of {labels}, no header", origin),
        *split,
    )


def _mapping(name: str, looks: str, zip_name: str, key: str = "ids", optional: bool = False) -> RawFile:
    origin = f"in the folder mapping of OGB's {zip_name}.zip"
    return RawFile(key, (f"mapping/{name}.csv",), f"a table with the header '{looks}'", origin, optional)


_FEATURES = RawFile(
    "features", ("raw/node-feat.csv",), "the given features, one line per node", "in OGB's zip", optional=True
)

ARXIV = OgbSpec(
    "ogbn-arxiv",
    40,
    "multiclass",
    "text",
    "time",
    "paper id",
    (
        *_graph_files("arxiv", "time", 1_166_243, 169_343, "a class number"),
        _mapping("nodeidx2paperid", "node idx,paper id", "arxiv"),
        _mapping("labelidx2arxivcategeory", "label idx,arxiv category", "arxiv", "classes", optional=True),
        _FEATURES,
        RawFile(
            "texts",
            ("titleabs.tsv", "raw/titleabs.tsv"),
            "179,719 lines 'paper id<tab>title<tab>abstract', no header",
            "OGB publishes it apart from the graph, as raw texts of titles and abstracts of ogbn-arxiv",
        ),
    ),
    node_features=128,
)
PRODUCTS = OgbSpec(
    "ogbn-products",
    47,
    "multiclass",
    "text",
    "sales_ranking",
    "asin",
    (
        *_graph_files("products", "sales_ranking", 61_859_140, 2_449_029, "a class number"),
        _mapping("nodeidx2asin", "node idx,asin", "products"),
        _mapping("labelidx2productcategory", "label idx,product category", "products", "classes", optional=True),
        _FEATURES,
        *(
            RawFile(
                f"{part} texts",
                (f"Amazon-3M.raw/{part}.json", f"raw/{part}.json"),
                'one JSON object a line: {"uid": ASIN, "title": ..., "content": ...}',
                "Amazon-3M.raw of the Extreme Classification Repository",
            )
            for part in ("trn", "tst")
        ),
    ),
    node_features=100,
)
PROTEINS = OgbSpec(
    "ogbn-proteins",
    112,
    "multilabel",
    "sequence",
    "species",
    "protein id",
    (
        *_graph_files("proteins", "species", 39_561_252, 132_534, "112 comma-separated 0 or 1"),
        RawFile("edge features", ("raw/edge-feat.csv",), "8 numbers per edge, no header", "in OGB's proteins.zip"),
        _mapping("nodeidx2proteinid", "node idx,protein id", "proteins"),
        _mapping("labelidx2GO", "label idx,label", "proteins", "classes", optional=True),
        RawFile(
            "texts",
            (
                "protein.sequences.v11.0.fa",
                *(f"{folder}protein.sequences.v{v}.fa" for folder in ("", "raw/") for v in ("11.0", "11.5", "12.0")),
            ),
            "FASTA with names such as >4932.YAL001C",
            "protein.sequences of all organisms from STRING, version 11.0, 11.5 or 12.0",
        ),
    ),
    edge_features=8,
)
SPECS = {spec.name: spec for spec in (ARXIV, PRODUCTS, PROTEINS)}


def recognise(folder: Path) -> OgbSpec | None:
    """Which OGB data set a folder holds, by its mapping file; None if it holds none."""
    for spec in SPECS.values():
        places = next(file.places for file in spec.files if file.key == "ids")
        if first_of(folder, [*places, *(Path(place).name for place in places)]):
            return spec
    return None
