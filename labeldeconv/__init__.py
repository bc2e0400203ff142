"""Label Deconvolution: node representation learning on attributed graphs.

    from labeldeconv import fit
    result = fit("planted", method="ld", encoder="minilm", gnn="gcn")

The names below load on first use, so that `labeldeconv --help` does not wait for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labeldeconv.adjacency import Adjacency, propagate
    from labeldeconv.comparison import Comparison, compare
    from labeldeconv.config import Config
    from labeldeconv.data.export import export_run, run_to_pyg
    from labeldeconv.data.planted import planted
    from labeldeconv.data.records import record_texts
    from labeldeconv.data.sources import from_datasets, from_networkx, from_rows, from_tag_dataset
    from labeldeconv.encoders.base import Encoder
    from labeldeconv.errors import ConfigError, DataError, LabelDeconvError, MissingExtra
    from labeldeconv.gnns.base import GNN, Psi
    from labeldeconv.graph import AttributedGraph
    from labeldeconv.labels.hops import hop_labels
    from labeldeconv.labels.inverse import InverseLabels
    from labeldeconv.names import open_data
    from labeldeconv.pipeline import Result, fit, run
    from labeldeconv.settings import load_config
    from labeldeconv.split import Split
    from labeldeconv.task import Task
    from labeldeconv.texts import Texts

__version__ = "0.1.0"

_HOMES = {
    "Adjacency": "adjacency",
    "AttributedGraph": "graph",
    "Comparison": "comparison",
    "Config": "config",
    "ConfigError": "errors",
    "DataError": "errors",
    "Encoder": "encoders.base",
    "GNN": "gnns.base",
    "InverseLabels": "labels.inverse",
    "LabelDeconvError": "errors",
    "MissingExtra": "errors",
    "Psi": "gnns.base",
    "Result": "pipeline",
    "Split": "split",
    "Task": "task",
    "Texts": "texts",
    "compare": "comparison",
    "export_run": "data.export",
    "fit": "pipeline",
    "from_datasets": "data.sources",
    "from_networkx": "data.sources",
    "from_rows": "data.sources",
    "from_tag_dataset": "data.sources",
    "hop_labels": "labels.hops",
    "load_config": "settings",
    "open_data": "names",
    "planted": "data.planted",
    "propagate": "adjacency",
    "record_texts": "data.records",
    "run": "pipeline",
    "run_to_pyg": "data.export",
}
__all__ = [  # noqa: RUF022 (sorted as _HOMES is)
    "Adjacency",
    "AttributedGraph",
    "Comparison",
    "Config",
    "ConfigError",
    "DataError",
    "Encoder",
    "GNN",
    "InverseLabels",
    "LabelDeconvError",
    "MissingExtra",
    "Psi",
    "Result",
    "Split",
    "Task",
    "Texts",
    "compare",
    "export_run",
    "fit",
    "from_datasets",
    "from_networkx",
    "from_rows",
    "from_tag_dataset",
    "hop_labels",
    "load_config",
    "open_data",
    "planted",
    "propagate",
    "record_texts",
    "run",
    "run_to_pyg",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'labeldeconv' has no attribute '{name}'")
    return getattr(importlib.import_module(f"labeldeconv.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
