"""What is asked of a run: settings out of arguments, files and objects, and what the data set and the GNN suggest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labeldeconv.data.catalog import suggestions
from labeldeconv.errors import ConfigError
from labeldeconv.gnns.base import GNN, GNNS
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.methods.base import Method
from labeldeconv.settings.models import AUTO_GNN, Config
from labeldeconv.settings.reading import load_config, said, with_suggestions

OF_FIT = {"method": "auto", "gnn.name": AUTO_GNN}  # where `fit` is told none; settings alone have LD and a GCN


@dataclass(frozen=True)
class Parts:
    """Objects that take the place of names in the settings; None where the name counts."""

    graph: AttributedGraph | None = None
    method: Any = None
    encoder: Any = None
    gnn: Any = None

    @classmethod
    def of(cls, data: Any, method: Any = None, encoder: Any = None, gnn: Any = None) -> Parts:
        """Those of the arguments that are objects and not names."""
        return cls(*(None if isinstance(part, str | Path) else part for part in (data, method, encoder, gnn)))


def with_choices_of_fit(config: Config) -> Config:
    """The settings of a `fit`: method and GNN are chosen by validation score unless they are named."""
    return load_config(config, {name: value for name, value in OF_FIT.items() if not said(config, name)})


def dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as keywords spell them, by their dotted names: train__epochs is train.epochs."""
    return {name.replace("__", "."): value for name, value in settings.items()}


def settings_from(
    data: Any,
    method: Any,
    encoder: Any,
    gnn: Any,
    seed: int | None,
    config: Config | str | Path | None,
    given: Mapping[str, Any],
) -> Config:
    """The settings that arguments ask for, objects by their names; `given` has dotted names."""
    names = {"method": method, "encoder.name": encoder, "gnn.name": gnn}
    overrides: dict[str, Any] = {name: name_of(thing) for name, thing in names.items() if thing is not None}
    overrides |= {} if seed is None else {"seed": seed}
    overrides["data"] = data.name if isinstance(data, AttributedGraph) else str(data)
    base = config if config is None or isinstance(config, Config) else Path(config)
    return load_config(base, {**overrides, **given})


def name_of(thing: Any) -> str:
    """A method, an encoder or a GNN as settings name it: objects and classes by the name of their class."""
    if isinstance(thing, str | Path):
        return str(thing)
    if isinstance(thing, Method):
        return thing.name
    if isinstance(getattr(thing, "method", None), Method):
        return thing.method.name
    thing = thing[0] if isinstance(thing, tuple) and thing else thing
    return getattr(thing, "__name__", type(thing).__name__)


def resolve(config: Config, parts: Parts | None = None) -> Config:
    """The settings with what the data set and the GNN suggest wherever the user has said nothing.

    The data set goes before the GNN, but for fewer layers than the GNN needs. Where the GNN is 'auto', its settings
    stay as they were said: each candidate resolves them with its own suggestions (`contenders`).
    """
    parts = parts or Parts()
    suggested = {} if parts.graph is not None else suggestions(config.data)
    if is_auto(config, parts):
        return with_suggestions(config, {k: v for k, v in suggested.items() if not k.startswith("gnn.")})
    kind = GNNS.named(config.gnn.name) if parts.gnn is None else parts.gnn
    kind = type(kind) if isinstance(kind, GNN) else kind
    if isinstance(kind, type) and issubclass(kind, GNN):
        suggested = {**kind.suggests, **suggested}
        if not said(config, "gnn.layers"):
            layers = suggested.get("gnn.layers", config.gnn.layers)
            suggested["gnn.layers"] = max(layers, kind.least_layers)
    return with_suggestions(config, suggested)


def is_auto(config: Config, parts: Parts | None = None) -> bool:
    """Whether the GNN is still to be chosen."""
    return config.gnn.name == AUTO_GNN and (parts is None or parts.gnn is None)


def candidates(config: Config, parts: Parts | None = None) -> list[Config]:
    """The resolved settings of every GNN that the settings allow: of those that race, or of the one that is named."""
    if not is_auto(config, parts):
        return [config]
    if config.gnn.options:
        named = ", ".join(config.gnn.options)
        raise ConfigError(f"gnn.options ({named}): options belong to one GNN; gnn.name expected, got '{AUTO_GNN}'")
    names = dict.fromkeys(config.gnn.candidates or GNNS.first)
    for name in names:
        GNNS.named(name)  # a wrong name is told now
    return [resolve(load_config(config, {"gnn.name": name}), parts) for name in names]
