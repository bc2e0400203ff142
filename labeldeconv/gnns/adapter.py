"""Any PyG module with forward(x, edge_index) as a GNN: psi is forward with every node its own and only neighbour.

    fit(graph, gnn=torch_geometric.nn.GraphSAGE)                       # a class: built for the features of the encoder
    fit(graph, gnn=MyNet(384, 7))                                      # an object: copied, its weights drawn anew

A class is called with what its constructor takes of in_channels, hidden_channels, out_channels, num_layers and dropout,
or else of in_dim, out_dim, hidden, layers and dropout, or with (in, out) alone.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.nn import MessagePassing

from labeldeconv.errors import ConfigError
from labeldeconv.gnns.base import GNN
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.stages.keys import array_key, code_key, digest

WORDS = {  # what PyG's constructors call things, and what we do
    "in_channels": "in_dim",
    "in_dim": "in_dim",
    "in_feats": "in_dim",
    "out_channels": "out_dim",
    "out_dim": "out_dim",
    "num_classes": "out_dim",
    "hidden_channels": "hidden",
    "hidden": "hidden",
    "num_layers": "layers",
    "layers": "layers",
    "dropout": "dropout",
}


class PyGModule(GNN):
    """A module with forward(x (n, d), edge_index (2, e)) to (n, c); A-hat's entries are the edges it is given."""

    feed = "graph"
    psi_exact = True

    def __init__(self, module: nn.Module, in_dim: int, out_dim: int) -> None:
        super().__init__(in_dim, out_dim)
        self.module = module

    @property
    def hops(self) -> int:
        """Number of convolutions: its message-passing layers."""
        return sum(isinstance(part, MessagePassing) for part in self.module.modules())

    def forward(self, x: Tensor, adj: Adjacency) -> Tensor:
        """Features (n, d) and A-hat to logits (n, c)."""
        return self.module(x, adj.edge_index(x.device))


def adapted(kind: Any, in_dim: int, out_dim: int, common: Mapping[str, Any], options: Mapping[str, Any]) -> GNN:
    """A PyG class or object as a GNN for d features and c classes."""
    if isinstance(kind, nn.Module):
        module = copy.deepcopy(kind)
        made_for = getattr(module, "in_channels", in_dim)
        if isinstance(made_for, int) and made_for not in (in_dim, -1):
            raise ConfigError(f"gnn {type(module).__name__}: made for {made_for} features, and there are {in_dim}")
        for part in module.modules():
            reset = getattr(part, "reset_parameters", None)
            if callable(reset):
                reset()  # so that every seed draws its own weights
        return module if isinstance(module, GNN) else PyGModule(module, in_dim, out_dim)
    if not callable(kind):
        raise ConfigError(f"gnn: a name, a class or a module expected, got {type(kind).__name__}")
    module = _made(kind, {"in_dim": in_dim, "out_dim": out_dim, **common}, options)
    if isinstance(module, GNN):
        return module
    if not isinstance(module, nn.Module):
        raise ConfigError(f"gnn {kind.__name__}: a torch module expected, got {type(module).__name__}")
    return PyGModule(module, in_dim, out_dim)


def maker_key(kind: Any) -> str:
    """What stands for a class, a function or an object in keys."""
    if isinstance(kind, nn.Module):
        return module_key(kind)
    if isinstance(kind, partial):
        return digest([maker_key(kind.func), _plain(kind.args), _plain(kind.keywords)])
    if isinstance(kind, FunctionType):
        held = [cell.cell_contents for cell in kind.__closure__ or ()]
        code = [kind.__code__.co_code.hex(), kind.__code__.co_names, kind.__code__.co_consts]
        return digest([code_key(kind), _plain(code), _plain(held), _plain(kind.__defaults__)])  # type: ignore[arg-type]
    return code_key(kind)


def module_key(module: nn.Module) -> str:
    """What stands for an object in keys: classes, attributes and shapes of all its parts, and weights that stay.

    Weights of parts that can draw theirs anew are left out, since they do. The repr would not do: that of PyG's GCN
    tells neither the width nor the dropout.
    """
    usual = vars(nn.Module())
    parts = []
    for name, part in module.named_modules():
        stays = not hasattr(part, "reset_parameters")
        tensors = {k: _tensor_key(t, stays) for k, t in {**part._parameters, **part._buffers}.items()}
        held = {k: _plain(v) for k, v in vars(part).items() if k not in usual}
        parts.append([name, code_key(type(part)), held, tensors])
    return digest(parts)


def _tensor_key(tensor: Tensor | None, content: bool) -> Any:
    if tensor is None or is_lazy(tensor):
        return None
    whole = array_key(tensor.detach().cpu().numpy()) if content else None
    return [str(tensor.dtype), list(tensor.shape), whole]


def _plain(value: Any) -> Any:
    """A value as JSON can hold it, the same in every process; others by the name of their function or class."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, set | frozenset):
        return sorted(str(v) for v in value)
    if isinstance(value, nn.Module):
        return module_key(value)
    if isinstance(value, Tensor | np.ndarray):
        return array_key(np.asarray(value))
    return getattr(value, "__qualname__", type(value).__qualname__)


def _made(kind: Any, given: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """Call a constructor with those of our values that it has a word for."""
    parameters = inspect.signature(kind).parameters
    named = {word: given[ours] for word, ours in WORDS.items() if word in parameters}
    if not any(WORDS[word] == "in_dim" for word in named):
        return kind(given["in_dim"], given["out_dim"], **options)
    return kind(**named, **options)
