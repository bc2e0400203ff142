"""Label Deconvolution: node representation learning on attributed graphs.

    from labeldeconv import LabelDeconvolution, fit
    result = fit("planted", method="ld", encoder="minilm")  # the GNN: the best on validation nodes
    model = LabelDeconvolution(encoder="minilm", gnn="sagn").fit(graph)

The names below load on first use, so that `labeldeconv --help` does not wait for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labeldeconv.data.convert import from_datasets, from_networkx, from_rows, from_tag_dataset, record_texts
    from labeldeconv.data.opening import open_data
    from labeldeconv.data.sets.planted import planted
    from labeldeconv.encoders.base import Encoder
    from labeldeconv.encoders.pretrained import encoder
    from labeldeconv.encoders.tokens import Tokens
    from labeldeconv.errors import ConfigError, DataError, LabelDeconvError, MissingExtra
    from labeldeconv.estimator import LabelDeconvolution
    from labeldeconv.gnns.base import GNN, Psi, register
    from labeldeconv.graph.attributed import AttributedGraph
    from labeldeconv.graph.split import Split
    from labeldeconv.graph.task import Task
    from labeldeconv.graph.texts import Texts
    from labeldeconv.labels.hops import hop_labels
    from labeldeconv.labels.inverse import InverseLabelLoss, InverseLabels
    from labeldeconv.methods.base import Learned, Method, Run, method
    from labeldeconv.prediction.predictor import Predictor
    from labeldeconv.propagation.adjacency import Adjacency, propagate
    from labeldeconv.runs.compare import Comparison, compare, sweep
    from labeldeconv.runs.directory import RunDirectory
    from labeldeconv.runs.export import export_run, run_to_pyg
    from labeldeconv.runs.fit import fit
    from labeldeconv.runs.result import Result
    from labeldeconv.runs.search import search
    from labeldeconv.settings.models import Config
    from labeldeconv.settings.reading import load_config
    from labeldeconv.stages.cache import Cache
    from labeldeconv.stages.keys import Reads
    from labeldeconv.stages.stage import Artefact, Folder, session, stage

__version__ = "0.1.0"

_HOMES = {
    "data.convert": ("from_datasets", "from_networkx", "from_rows", "from_tag_dataset", "record_texts"),
    "data.opening": ("open_data",),
    "data.sets.planted": ("planted",),
    "encoders.base": ("Encoder",),
    "encoders.pretrained": ("encoder",),
    "encoders.tokens": ("Tokens",),
    "errors": ("ConfigError", "DataError", "LabelDeconvError", "MissingExtra"),
    "estimator": ("LabelDeconvolution",),
    "gnns.base": ("GNN", "Psi", "register"),
    "graph.attributed": ("AttributedGraph",),
    "graph.split": ("Split",),
    "graph.task": ("Task",),
    "graph.texts": ("Texts",),
    "labels.hops": ("hop_labels",),
    "labels.inverse": ("InverseLabelLoss", "InverseLabels"),
    "methods.base": ("Learned", "Method", "Run", "method"),
    "prediction.predictor": ("Predictor",),
    "propagation.adjacency": ("Adjacency", "propagate"),
    "runs.compare": ("Comparison", "compare", "sweep"),
    "runs.directory": ("RunDirectory",),
    "runs.export": ("export_run", "run_to_pyg"),
    "runs.fit": ("fit",),
    "runs.result": ("Result",),
    "runs.search": ("search",),
    "settings.models": ("Config",),
    "settings.reading": ("load_config",),
    "stages.cache": ("Cache",),
    "stages.keys": ("Reads",),
    "stages.stage": ("Artefact", "Folder", "session", "stage"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = [  # noqa: RUF022 (sorted as Python sorts, capitals first)
    "Adjacency",
    "Artefact",
    "AttributedGraph",
    "Cache",
    "Comparison",
    "Config",
    "ConfigError",
    "DataError",
    "Encoder",
    "Folder",
    "GNN",
    "InverseLabelLoss",
    "InverseLabels",
    "LabelDeconvError",
    "LabelDeconvolution",
    "Learned",
    "Method",
    "MissingExtra",
    "Predictor",
    "Psi",
    "Reads",
    "Result",
    "Run",
    "RunDirectory",
    "Split",
    "Task",
    "Texts",
    "Tokens",
    "compare",
    "encoder",
    "export_run",
    "fit",
    "from_datasets",
    "from_networkx",
    "from_rows",
    "from_tag_dataset",
    "hop_labels",
    "load_config",
    "method",
    "open_data",
    "planted",
    "propagate",
    "record_texts",
    "register",
    "run_to_pyg",
    "search",
    "session",
    "stage",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'labeldeconv' has no attribute '{name}'")
    return getattr(importlib.import_module(f"labeldeconv.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
