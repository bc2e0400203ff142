"""ogbn-arxiv, ogbn-products and ogbn-proteins from OGB's raw files, with their raw attributes joined to the nodes.

labeldeconv inspect ogbn-arxiv        # says what is there and what is missing under LABELDECONV_DATA
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from labeldeconv.data.catalog import Request, dataset
from labeldeconv.data.findings import Loaded
from labeldeconv.data.origin import Files
from labeldeconv.data.sets.expected_files import data_root
from labeldeconv.data.sets.ogb.layout import ARXIV, PRODUCTS, PROTEINS, SPECS, recognise
from labeldeconv.data.sets.ogb.raw_graph import load_ogb, ogb_files


@dataclass(frozen=True)
class Ogb:
    """The raw files of the OGB data set `name` as the source of its graph."""

    files: Files
    name: str
    version: int = 2  # proteins have features: the means of their edges'

    def load(self) -> Loaded:
        """Read the nodes and join their attributes."""
        return load_ogb(SPECS[self.name], self.files)


@dataset(
    "ogbn-proteins",
    "OGB's proteins with sequences, likewise",
    recognise=lambda folder: recognise(folder) is PROTEINS,
)
@dataset(
    "ogbn-products",
    "OGB's products with titles and descriptions, likewise",
    recognise=lambda folder: recognise(folder) is PRODUCTS,
)
@dataset(
    "ogbn-arxiv",
    "OGB's papers with titles and abstracts, from raw files under LABELDECONV_DATA",
    recognise=lambda folder: recognise(folder) is ARXIV,
)
def ogb(request: Request) -> Ogb:
    """The files of a data set in its own folder under the root, or directly in the folder given."""
    root: Path = request.folder or data_root()
    spec = SPECS[request.name]
    own = root / spec.folder
    return Ogb(ogb_files(spec, root if not own.is_dir() and recognise(root) else own), spec.name)
