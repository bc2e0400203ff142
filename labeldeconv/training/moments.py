"""AdamW whose two moments take fewer bits between the steps: `train.optimizer_states`.

A step raises a piece of a matrix's moments to float32, makes torch's own step with it and lowers it again. What is kept
of a number are the first bits of its float32:

    bfloat16    the first 16: 4 bytes a weight for both moments, in place of 8
    8bit        sign and exponent to 1/8 octave, counted down from the largest number of the row: 2 bytes a weight.
                The first moment reaches 16 octaves down, below which it is 0, and the second, without a sign, 32

beta2 = 0.999 changes the second moment by a thousandth a step, less than half of what either can tell apart: rounded to
the nearest, it would not move. Step t therefore rounds up what lies above a bound that goes through [0, 1) evenly,
1 - (t * golden ratio mod 1), so that over some steps a number is rounded up as often as it is owed. No number is drawn:
ranks, shards and resumed runs round alike.

Vectors and narrow rows stay in float32: there is little to save. The master weights are never rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from labeldeconv.training.sharding import own_part

States = Literal["float32", "bfloat16", "8bit"]
MOMENTS = ("exp_avg", "exp_avg_sq")  # torch's names, of the first and the second one
TYPES = {"bfloat16": (torch.bfloat16, torch.bfloat16), "8bit": (torch.int8, torch.uint8)}
CUT = {torch.bfloat16: 16, torch.int8: 20, torch.uint8: 20}  # last bits of a float32 that are not kept
HIGHEST = {torch.int8: 127, torch.uint8: 255}  # the code of a row's largest number
NARROW = 16  # rows of fewer weights stay in float32
PIECE = 1 << 18  # weights whose moments are raised at a time: 1 MiB each, which caches hold
GOLDEN = 2654435769  # the golden ratio's fraction in units of 2^-32


class CompactAdamW(torch.optim.AdamW):
    """torch's AdamW, with moments of matrices in `states`.

    Args:
        groups: of parameters, as torch takes them.
        states: how moments are kept between steps; 'float32' is torch's AdamW to the bit.
        options: of torch's AdamW.
    """

    def __init__(self, groups: Iterable[Any], states: States = "float32", **options: Any) -> None:
        super().__init__(groups, **options)
        self.states = states

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; gradients of weights with short moments are gone afterwards."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and is_compact(parameter, self.states):
                    self._step_by_pieces(parameter, group)
                    parameter.grad = None
        return super().step(closure)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take a state, each moment in the type it has there; torch gives them all the type of their weights."""
        super().load_state_dict(state_dict)
        parameters = [p for group in self.param_groups for p in group["params"]]
        for i, slots in state_dict["state"].items():
            own = self.state[parameters[i]]
            own.update({name: own[name].to(given.dtype) for name, given in slots.items() if name != "step"})

    def start(self, parameter: Tensor) -> dict[str, Tensor]:
        """The moments of a parameter (r, ..., w) before its first step, by their names in its state; all 0.

        Those in 8 bits have their rows' largest numbers (r, ..., 1) beside them.
        """
        if not is_compact(parameter, self.states):
            return {name: torch.zeros_like(parameter) for name in MOMENTS}
        types = dict(zip(MOMENTS, TYPES[self.states], strict=True))
        moments = {name: torch.zeros_like(parameter, dtype=kind) for name, kind in types.items()}
        if self.states == "8bit":
            rows = parameter.detach().amax(-1, keepdim=True)
            # 32 bits, since gloo sends no whole numbers of 16.
            moments |= {f"{name}_top": torch.zeros_like(rows, dtype=torch.int32) for name in MOMENTS}
        return moments

    def _step_by_pieces(self, parameter: Tensor, group: dict[str, Any]) -> None:
        assert parameter.grad is not None
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state.update(self.start(parameter))
        weights, gradient = own_part(parameter), own_part(parameter.grad)
        (beta1, beta2), count = group["betas"], state["step"] + 1
        for rows in _pieces(weights):
            moments = [raised(state, name, rows) for name in MOMENTS]
            adamw(
                [weights[rows]], [gradient[rows]], [moments[0]], [moments[1]], [], [state["step"].clone()],
                fused=group["fused"], amsgrad=False, beta1=beta1, beta2=beta2, lr=group["lr"],
                weight_decay=group["weight_decay"], eps=group["eps"], maximize=False,
            )  # fmt: skip
            for name, moment in zip(MOMENTS, moments, strict=True):
                lower(state, name, rows, moment, count)
        state["step"] = count


def is_compact(parameter: Tensor, states: States) -> bool:
    """Whether the moments of a parameter take fewer bits."""
    matrix = parameter.ndim > 1 and parameter.shape[-1] >= NARROW
    return states != "float32" and matrix and parameter.dtype == torch.float32


def moment_bytes(parameters: Iterable[nn.Parameter], states: States) -> float:
    """Memory of the moments of all parameters that train."""
    each = {"float32": 8.0, "bfloat16": 4.0, "8bit": 2.0}
    trained = [p for p in parameters if p.requires_grad]
    tops = sum(8 * p.numel() / p.shape[-1] for p in trained if states == "8bit" and is_compact(p, states))
    return tops + sum(p.numel() * each[states if is_compact(p, states) else "float32"] for p in trained)


def raised(state: dict[str, Tensor], name: str, rows: slice | Tensor) -> Tensor:
    """Some rows of a moment in float32, a copy where it is kept in fewer bits."""
    kept = own_part(state[name])[rows]
    if kept.dtype not in HIGHEST:
        return kept.float()
    top = own_part(state[f"{name}_top"])[rows]
    steps = kept.int().abs_().add_(top - HIGHEST[kept.dtype]).clamp_min_(0)
    values = steps.bitwise_left_shift_(CUT[kept.dtype]).view(torch.float32)
    return values.mul_(kept.sign()) if kept.dtype == torch.int8 else values


def lower(state: dict[str, Tensor], name: str, rows: slice | Tensor, values: Tensor, count: Tensor) -> None:
    """Keep float32 values of some rows of a moment as it is kept, rounded as the step `count` does."""
    kept = own_part(state[name])
    if kept.dtype not in CUT:
        kept[rows] = values
        return
    cut = CUT[kept.dtype]
    owed = ((count.long() * GOLDEN & 0xFFFFFFFF) >> (32 - cut)).int()  # 1 - the bound, in units of the bits cut off
    bits = values.view(torch.int32)
    if kept.dtype == torch.bfloat16:
        kept[rows] = (bits + owed).bitwise_right_shift_(cut).to(torch.int16).view(torch.bfloat16)
        return
    steps = bits.bitwise_and(0x7FFFFFFF).add_(owed).bitwise_right_shift_(cut)  # eighths of an octave
    top = steps.amax(-1, keepdim=True)
    own_part(state[f"{name}_top"])[rows] = top
    codes = steps.sub_(top - HIGHEST[kept.dtype]).clamp_(min=0)
    kept[rows] = (codes.mul_(values.sign().int()) if kept.dtype == torch.int8 else codes).to(kept.dtype)


def _pieces(weights: Tensor) -> Iterator[slice]:
    """Slices of rows (r, ...) of about `PIECE` weights each."""
    size = max(1, PIECE // max(1, weights[:1].numel()))
    return (slice(i, i + size) for i in range(0, len(weights), size))
