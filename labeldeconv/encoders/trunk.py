"""An encoder split in two: a frozen trunk, whose token states are computed once, and its last layers, which train.

f(x; beta) = head(trunk(x); beta'): the trunk is the embeddings and the first layers, beta' the last `train_layers` ones
and what follows them (a last norm). Weights that both parts read, such as DeBERTa's relative positions, are frozen too:
otherwise the saved encoder would not give the states that its layers were trained on.

Nothing here knows a family of models. A layer is any module of the model's list of layers; where a part does not run,
its layers are replaced by ones that pass on what they get, so that masks, positions and local attention are made by the
model's own code. A family in which more than the states goes from layer to layer (T5's position bias) is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.tokens import Tokens, flat_rows
from labeldeconv.errors import ConfigError

PROBE_TOKENS = 16  # of the text on which a split is tried
TOLERANCE = 1e-3  # of features of the split encoder on it, relative to the largest


@dataclass(frozen=True, eq=False)
class TokenStates(Tokens):
    """Tokens of all nodes with the trunk's states of them.

    Args:
        states: (total, w) float16, of every distinct attribute's tokens, without padding.
        starts: (n,) the first row of a node's states; nodes with equal attributes have the same.
        train_layers: how many layers follow the trunk.
        seconds: that it took.
    """

    states: np.ndarray
    starts: np.ndarray
    train_layers: int
    seconds: float

    def batch(self, nodes: np.ndarray) -> tuple[Tensor, ...]:
        """Input ids and mask (b, t) of the given nodes, and their states (b, t, w), 0 behind the end."""
        input_ids, mask = super().batch(nodes)
        states = np.zeros((*mask.shape, self.states.shape[1]), self.states.dtype)
        states[mask.numpy().astype(bool)] = self.states[flat_rows(self.starts[nodes], self.lengths_of(nodes))]
        return input_ids, mask, torch.from_numpy(states)


class SplitEncoder(Encoder):
    """An encoder whose first layers are frozen and in evaluation mode; `forward` goes on from the states they gave.

    The layers of the trunk are no part of this module: they stay where they are when it moves to a device, until they
    are to run, and no checkpoint holds them. `save` writes the whole encoder.

    Args:
        whole: the encoder, which is changed.
        train_layers: how many of its last layers train.
    """

    def __init__(self, whole: Encoder, train_layers: int) -> None:
        super().__init__()
        self.whole, self.train_layers = whole, train_layers
        self.dim, self.pad_id, self.vocab_size, self.takes = whole.dim, whole.pad_id, whole.vocab_size, whole.takes
        self.probe = whole.probe
        self._trunk: list[nn.Module] = []  # the frozen layers; in a list, so that torch does not see them
        self._given: Tensor | None = None  # states (b, t, w) that the first trained layer gets
        self._split()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, states: Tensor | None = None) -> Tensor:
        """Tokens (b, t), mask (b, t) and the trunk's states (b, t, w), computed if None, to features (b, d)."""
        self._given = self.states(input_ids, attention_mask) if states is None else states
        return self.whole(input_ids, attention_mask)  # ends in `_enter`, which puts the states in

    def states(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Tokens (b, t) and mask (b, t) to the trunk's states (b, t, w): what the first trained layer reads.

        The other layers do not run, and no gradient is kept, since all that the states depend on is frozen.
        """
        layers, depth = self._layers, len(self._trunk)
        before = list(layers)
        stops = [Passing(layer, self._form) for layer in before[depth:]]
        for i, layer in enumerate([*self._trunk, *stops]):
            layers[i] = layer.to(input_ids.device)
        try:
            self.whole(input_ids, attention_mask)
        finally:
            for i, layer in enumerate(before):
                layers[i] = layer
        assert stops[0].passed is not None
        return stops[0].passed

    def train(self, mode: bool = True) -> SplitEncoder:
        """Only the trained layers ever have dropout."""
        super().train(False)
        self.training = mode
        for layer in self._layers[len(self._trunk) :]:
            layer.train(mode)
        return self

    def tokenize(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """As the whole encoder does."""
        return self.whole.tokenize(texts, max_tokens)

    def save(self, folder: Path) -> None:
        """Write the whole encoder, trunk and trained layers, as if it had never been split."""
        with self._joined():
            self.whole.save(folder)

    def restore(self, folder: Path) -> None:
        """Take the weights that `save` wrote, those of the trunk too."""
        self._join()
        self.whole.restore(folder)
        self._split()

    def trained_layers(self) -> nn.ModuleList:
        """The layers behind the trunk."""
        return self._layers[len(self._trunk) :]

    def enable_gradient_checkpointing(self, layers: int | None = None) -> None:
        """Recompute the activations of the trained layers, of the first `layers` of them or of all."""
        self.whole.enable_gradient_checkpointing(None if layers is None else len(self._trunk) + layers)

    def tokenizer_key(self) -> str:
        """As the whole encoder's."""
        return self.whole.tokenizer_key()

    def weights_key(self) -> str:
        """As the whole encoder's: a split changes no feature."""
        with self._joined():
            return self.whole.weights_key()

    @property
    def _layers(self) -> nn.ModuleList:
        return layers_of(self.whole)

    def _split(self) -> None:
        """Take the trunk's layers out, freeze all that its states depend on, and see whether nothing else changed."""
        layers = self._layers
        if self.train_layers > len(layers):
            raise ConfigError(f"encoder.train_layers: at most {len(layers)} for this encoder, got {self.train_layers}")
        depth = len(layers) - self.train_layers
        self.whole.eval()
        device = next(self.whole.parameters()).device
        tokens = torch.tensor(self.whole.tokenize([self.probe], PROBE_TOKENS)).to(device)  # (1, t)
        mask = torch.ones_like(tokens)
        with torch.no_grad():
            expected, self._form = _layer_form(self.whole, layers, tokens, mask)
        self._trunk = list(layers[:depth])
        for i, layer in enumerate(self._trunk):
            layers[i] = Passing(layer, self._form)
        self._hook = layers[depth].register_forward_pre_hook(self._enter, with_kwargs=True)
        states = self.states(tokens, mask)
        self.width = states.shape[-1]
        _freeze(states, [*self.parameters(), *(p for part in self._trunk for p in part.parameters())])
        with torch.no_grad():
            found = self(tokens, mask)
        if not torch.allclose(found, expected, atol=TOLERANCE * float(expected.abs().max()), rtol=0):
            raise refusal(self.whole, "its last layers read more than the states of the layer before")

    def _join(self) -> None:
        """Put the trunk's layers back in their places."""
        layers, device = self._layers, next(self.whole.parameters()).device
        for i, layer in enumerate(self._trunk):
            layers[i] = layer.to(device)
        self._hook.remove()
        self._given = None

    @contextmanager
    def _joined(self) -> Iterator[None]:
        """Inside, the encoder is whole."""
        self._join()
        try:
            yield
        finally:
            layers = self._layers
            for i, layer in enumerate(self._trunk):
                layers[i] = Passing(layer, self._form)
            self._hook = layers[len(self._trunk)].register_forward_pre_hook(self._enter, with_kwargs=True)

    def _enter(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Give the first trained layer the states (b, t, w) instead of what came through the empty trunk."""
        given = self._given
        assert given is not None
        if args:
            return (given.to(args[0].dtype), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": given.to(kwargs["hidden_states"].dtype)}


class Passing(nn.Module):
    """Stands in the place of a layer and gives back the states that it gets, which it keeps, in the layer's form.

    What else a model asks of its layers, such as ModernBERT their kind of attention, the layer itself answers.

    Args:
        layer: which does not run, and is no part of this module.
        form: how many values the layer returns in a tuple, the states first; 0 if it returns the states alone.
    """

    def __init__(self, layer: nn.Module, form: int) -> None:
        super().__init__()
        self.__dict__["layer"] = layer
        self.form = form
        self.passed: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        """An attribute of the layer, where this module has none of that name."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["layer"], name)

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """The states (b, t, w) as they are."""
        self.passed = hidden_states
        return (hidden_states, *[None] * (self.form - 1)) if self.form else hidden_states


def split_for(encoder: Encoder, tokens: Tokens) -> Encoder:
    """The encoder as it takes batches of `tokens`: split where they have states, else as it is."""
    return SplitEncoder(encoder, tokens.train_layers) if isinstance(tokens, TokenStates) else encoder


def layers_of(encoder: Encoder) -> nn.ModuleList:
    """The layers of an encoder, first to last; a plain error where it has no list of them."""
    found = encoder.trained_layers()
    if len(found) == 0:
        raise refusal(encoder, "it has no list of layers")
    return found


def refusal(encoder: Encoder, reason: str) -> ConfigError:
    """What is said of an encoder that cannot be split."""
    model: Any = getattr(encoder, "model", encoder)
    model = model.get_base_model() if hasattr(model, "get_base_model") else model
    kind = type(model).__name__
    return ConfigError(
        f"encoder.train_layers: {kind} cannot be split into frozen and trained layers, since {reason}; leave it unset, "
        "so that all layers train, or set encoder.layers or encoder.lora_rank"
    )


def _layer_form(encoder: Encoder, layers: nn.ModuleList, tokens: Tensor, mask: Tensor) -> tuple[Tensor, int]:
    """Features (1, d) of the whole encoder, and the form of what its layers return (`Passing`)."""
    forms: list[Any] = []
    hooks = [layer.register_forward_hook(lambda _layer, _args, out: forms.append(out)) for layer in layers]
    try:
        features = encoder(tokens, mask)
    finally:
        for hook in hooks:
            hook.remove()
    if any(isinstance(out, tuple) and any(part is not None for part in out[1:]) for out in forms):
        raise refusal(encoder, "a layer gives more than its states to the next one")
    sizes = {len(out) if isinstance(out, tuple) else 0 for out in forms}
    if len(forms) != len(layers) or len(sizes) != 1:
        raise refusal(encoder, "its layers do not follow one another")
    return features, sizes.pop()


def _freeze(states: Tensor, parameters: list[nn.Parameter]) -> None:
    """Let nothing train that `states` depend on."""
    trained = [p for p in parameters if p.requires_grad]
    if not states.requires_grad:
        return  # adapters train alone, and the trunk has none
    found = torch.autograd.grad(states.float().sum(), trained, allow_unused=True)
    for parameter, gradient in zip(trained, found, strict=True):
        if gradient is not None:
            parameter.requires_grad_(False)
