"""Settings: one small frozen model per phase, TOML in and out, every error told at once.

`Config` is what a run is made of. `fingerprint` of a part goes into the key of the stage it rules.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from labeldeconv.errors import ConfigError, nearest

Count = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
NonNegative = Annotated[float, Field(ge=0.0)]


class Settings(BaseModel):
    """Base of all settings: frozen, strict about names and types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class AdjacencyConfig(Settings):
    """How A-hat is made from the edges."""

    normalization: Literal["row", "symmetric"] = "row"
    """D^-1 A, or D^-1/2 A D^-1/2."""
    self_loops: bool = False
    """Add the node itself to its neighbours."""
    undirected: bool = True
    """Let every edge work both ways."""


class EncoderConfig(Settings):
    """The node encoder f(.; beta)."""

    name: str = "minilm"
    """'minilm', 'tiny', a Hugging Face hub id, a local folder, or 'package.module:Name'."""
    layers: Count | None = None
    """Keep only this many first layers; None keeps all."""
    pooling: Literal["mean", "first"] = "mean"
    """Mean over the attributes' tokens, or the first token."""
    max_tokens: Annotated[int, Field(ge=4)] = 256
    """Longer attributes are cut."""
    lora_rank: Annotated[int, Field(ge=0)] = 0
    """Train low-rank adapters of this rank instead of all weights (extra 'lora'); 0 trains everything."""


class LabelConfig(Settings):
    """Pseudo, hop and inverse labels."""

    hops: Annotated[int, Field(ge=0)] | None = None
    """N of eqn:inv_label, so N + 1 slices; None takes the GNN's number of convolutions."""
    alpha: Fraction = 1.0
    """Share of the inverse labels in the target (eqn:implementation); 0 is WO/LD."""
    temperature: Positive = 1.0
    """Pseudo labels are softmax(logits / temperature), or sigmoid."""
    pseudo_weight: Fraction | None = None
    """Loss = (1 - w) mean over train nodes + w mean over the others (the authors' code); None: one plain mean."""
    adjacency: AdjacencyConfig = AdjacencyConfig()
    """The A-hat of K_i = A-hat^i Y."""


class TrainConfig(Settings):
    """Training phase of the encoder (Algorithm 1, lines 6-11)."""

    epochs: Count = 3
    """Passes over the training nodes of the method."""
    lr: Positive = 5e-5
    """Peak learning rate of the encoder, beta."""
    psi_lr: Positive = 1e-3
    """Peak learning rate of psi, theta."""
    gamma_lr: NonNegative = 1e-2
    """Peak learning rate of gamma'. The authors use the encoder's, under which gamma hardly moves."""
    weight_decay: NonNegative = 0.01
    """AdamW decay of encoder and psi; gamma' has none."""
    warmup: Fraction = 0.1
    """Share of the training over which the learning rates rise; then they fall linearly to 0."""
    clip: NonNegative = 1.0
    """Largest norm of the gradient; 0 does not clip."""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Dropout on the encoder's output, before psi."""
    batch_nodes: Count = 32
    """Nodes per batch at most."""
    batch_tokens: Count = 16384
    """Tokens per batch at most, padding included."""
    accumulate: Count = 1
    """Batches per optimiser step."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """'auto' takes bfloat16 where the hardware multiplies it fast."""
    gradient_checkpointing: bool = False
    """Recompute activations instead of storing them."""
    psi_init: Literal["fresh", "gnn"] = "fresh"
    """Start psi from new weights, or from the first GNN."""
    checkpoint_minutes: NonNegative = 2.0
    """Time between checkpoints; 0 writes one after every step. Does not change results."""


class GNNConfig(Settings):
    """The GNN and its training phase (Algorithm 1, lines 14-17)."""

    name: str = "gcn"
    """'gcn', 'sagn' or 'package.module:Name'."""
    layers: Count = 2
    """Convolutions; hops for SAGN."""
    hidden: Count = 256
    """Width."""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.5
    """Dropout between layers."""
    options: dict[str, bool | int | float | str] = {}
    """Settings of this GNN alone; `labeldeconv list` names them."""
    lr: Positive = 0.01
    """Adam learning rate."""
    weight_decay: NonNegative = 5e-4
    """Adam weight decay."""
    epochs: Count = 200
    """Passes at most."""
    patience: Count = 40
    """Stop after this many evaluations without a better validation score."""
    batch_rows: Count = 50_000
    """Rows per batch for GNNs fed by rows of hop features."""
    checkpoint_minutes: NonNegative = 2.0
    """Time between checkpoints; 0 writes one after every epoch. Does not change results."""
    adjacency: AdjacencyConfig = AdjacencyConfig(normalization="symmetric", self_loops=True)
    """The A-hat of the GNN."""


class Config(Settings):
    """Everything a run needs."""

    data: str = "planted"
    """A folder of tables, a saved graph, or a name from `labeldeconv list`."""
    method: str = "ld"
    """One of `labeldeconv list`."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of everything random in the run."""
    data_seed: Annotated[int, Field(ge=0)] = 0
    """Seed of a generated graph, or of the split made where the data has none."""
    device: str = "auto"
    """'cpu', 'cuda', ...; 'auto' takes a GPU where there is one."""
    encoder: EncoderConfig = EncoderConfig()
    labels: LabelConfig = LabelConfig()
    train: TrainConfig = TrainConfig()
    gnn: GNNConfig = GNNConfig()

    def to_toml(self) -> str:
        """The settings as TOML; None values are left out, since TOML has none."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))


def load_config(base: Path | Config | None = None, overrides: Mapping[str, Any] | None = None) -> Config:
    """Settings from a TOML file or another `Config`, then `overrides` with dotted names ('train.lr'); None unsets."""
    values = base.model_dump(exclude_none=True) if isinstance(base, Config) else _read_toml(base) if base else {}
    for name, value in (overrides or {}).items():
        *parents, last = name.split(".")
        place = values
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{name}: '{parent}' is a setting, not a group of settings")
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return parse_config(values, str(base) if isinstance(base, Path) else "settings")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def parse_config(values: Mapping[str, Any], where: str = "settings") -> Config:
    """A `Config` from nested values; `where` names their origin in the error."""
    try:
        return Config.model_validate(_widen(Config, values))
    except ValidationError as error:
        lines = [_explain(e) for e in error.errors()]
        raise ConfigError("\n".join([f"{where}: {len(lines)} wrong", *(f"  - {line}" for line in lines)])) from None


def parse_set(assignment: str) -> tuple[str, Any]:
    """'train.lr=1e-4' to ('train.lr', 0.0001): the value is TOML, or a bare string; 'none' unsets."""
    name, sign, text = assignment.partition("=")
    if not sign or not name.strip():
        raise ConfigError(f"--set {assignment}: KEY=VALUE expected, such as --set train.epochs=2")
    text = text.strip()
    if text.lower() == "none":
        return name.strip(), None
    try:
        return name.strip(), tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), text


def setting_names(model: type[Settings] = Config, prefix: str = "") -> Iterator[str]:
    """All dotted names of settings."""
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Settings):
            yield from setting_names(info.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _widen(model: type[Settings], values: Mapping[str, Any]) -> dict[str, Any]:
    """Let an integer stand where a float is expected (TOML writes 1 for 1.0); everything else stays strict."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        info = model.model_fields.get(name)
        if info is None:
            out[name] = value
        elif isinstance(info.annotation, type) and issubclass(info.annotation, Settings) and isinstance(value, Mapping):
            out[name] = _widen(info.annotation, value)
        elif isinstance(value, int) and not isinstance(value, bool) and "float" in str(info.annotation):
            out[name] = value if name == "options" else float(value)
        else:
            out[name] = value
    return out


def _explain(error: Any) -> str:
    name = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        names = list(setting_names())
        parent = name.rpartition(".")[0]
        siblings = [n for n in names if n.rpartition(".")[0] == parent] or names
        return f"{name}: unknown setting; {nearest(name, siblings)}"
    return f"{name}: {error['msg'][0].lower() + error['msg'][1:]}, got {error['input']!r}"
