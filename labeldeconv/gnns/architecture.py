"""Architecture: which GNN, with which options; builds it for any width of features. GNNs by name, class or object."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from labeldeconv.errors import ConfigError, LabelDeconvError, nearest
from labeldeconv.gnns.adapter import adapted, maker_key
from labeldeconv.gnns.base import GNN, GNNS
from labeldeconv.gnns.norms import make_norm
from labeldeconv.settings.models import AUTO_GNN, GNNConfig
from labeldeconv.stages.keys import digest

MOST = 10_000  # of any whole number among the options: heads, hops, layers
COMMON = ("layers", "hidden", "dropout")  # options that every GNN has


@dataclass(frozen=True, eq=False)
class Architecture:
    """A GNN before it is built.

    Args:
        name: as in the settings, for messages.
        kind: a `GNN` class, or a class or object of PyG, which `gnns.adapter` fits in.
        common: layers, hidden and dropout.
        options: all other options, defaults included, so that a new default is noticed by keys.
    """

    name: str
    kind: Any
    common: Mapping[str, Any]
    options: Mapping[str, Any]

    @classmethod
    def of(cls, config: GNNConfig, module: Any = None) -> Architecture:
        """The architecture that the settings ask for; `module`, a class or an object, takes the place of the name."""
        if config.name == AUTO_GNN and module is None:
            raise ConfigError(f"gnn.name '{AUTO_GNN}': only fit and compare choose one; known here: {', '.join(GNNS)}")
        kind = GNNS.named(config.name) if module is None else module
        if not callable(kind):
            what = f"a class, a function or a module of torch expected, got {type(kind).__name__}"
            raise ConfigError(f"gnn.name '{config.name}': {what}")
        known = gnn_options(kind)
        for option in config.options:
            if option not in known:
                raise ConfigError(f"gnn.options.{option}: {config.name} has no such option; {nearest(option, known)}")
        _check_options(config, kind, known)
        common = {name: getattr(config, name) for name in COMMON}
        return cls(config.name, kind, common, {**known, **config.options})

    def build(self, in_dim: int, out_dim: int) -> GNN:
        """A new GNN from d features to c classes; its weights are drawn from torch's random state."""
        if isinstance(self.kind, type) and issubclass(self.kind, GNN):
            return self.kind(in_dim, out_dim, **self.common, **self.options)
        return adapted(self.kind, in_dim, out_dim, self.common, self.options)

    @cached_property
    def _sample(self) -> GNN:
        """One of it, to ask; the random state is left as it was."""
        try:
            with torch.random.fork_rng():
                return self.build(self.in_dim or 2, 2)
        except LabelDeconvError:
            raise
        except Exception as error:  # whatever a GNN says to options that it cannot be built with
            held = ", ".join(f"{name} {value}" for name, value in {**self.common, **self.options}.items())
            why = (str(error) or type(error).__name__).splitlines()[0]
            raise ConfigError(f"gnn '{self.name}' cannot be built: {why}; its options: {held}") from error

    @property
    def in_dim(self) -> int | None:
        """Width of the features it takes; None where it is built for any."""
        return getattr(self.kind, "in_channels", None) if isinstance(self.kind, nn.Module) else None

    @property
    def finished(self) -> bool:
        """Whether it was given as an object, which has its number of outputs once and for all."""
        return isinstance(self.kind, nn.Module)

    @property
    def hops(self) -> int:
        """Number of convolutions: the default N of label deconvolution."""
        return self._sample.hops

    @property
    def edge_dim(self) -> int:
        """Width of the edge features that it reads; 0 for none."""
        return self._sample.edge_dim

    @property
    def sample(self) -> GNN:
        """A GNN of this architecture for questions about it, never to be trained."""
        return self._sample

    @property
    def content_key(self) -> str:
        """What stands for it in keys."""
        return digest([maker_key(self.kind), dict(self.common), {k: str(v) for k, v in self.options.items()}])


def gnn_options(kind: Any) -> dict[str, Any]:
    """The options a GNN has beside the common ones, with their defaults; a module of PyG has none here."""
    if not (isinstance(kind, type) and issubclass(kind, GNN)):
        return {}
    parameters = inspect.signature(kind).parameters.values()
    keyword = [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    return {p.name: p.default for p in keyword if p.name not in COMMON}


def _check_options(config: GNNConfig, kind: Any, known: Mapping[str, Any]) -> None:
    """Refuse options of another type than their default, and numbers and norms that no GNN of ours can have."""
    ours = getattr(kind, "__module__", "").startswith("labeldeconv.")
    for option, value in config.options.items():
        default, name = known[option], f"gnn.options.{option}"
        accepted = (float, int) if type(default) is float else (type(default),)
        if type(default) in (bool, int, float, str) and type(value) not in accepted:
            raise ConfigError(f"{name}: {type(default).__name__} expected, got {value!r}")
        if not ours:
            continue
        if option.endswith("norm") and isinstance(value, str):
            make_norm(value, 1)
        least = min(default, 1) if type(default) is int and option not in kind.zero_is_none else 0
        most = MOST if type(default) is int else 1
        if type(default) in (int, float) and not least <= float(value) <= most:
            raise ConfigError(f"{name}: a number from {least} to {most} expected, got {value!r}")
