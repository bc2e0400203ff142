"""A device that is not the CPU, for machines that have no other: tensors that say 'meta' and yet hold numbers.

Inside `elsewhere()` whatever is sent to the device "meta", or made there, keeps its numbers, and operations that mix
devices fail as they do with a GPU. So code that moves tensors wrongly is found, and results can be compared.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("meta")
aten = torch.ops.aten
MOVES = {aten._to_copy.default, aten.copy_.default, aten.copy.default}  # may read one device and write another
LOOKUPS = {aten.index.Tensor, aten.index_put_.default, aten._index_put_impl_.default, aten.index_put.default}


class Elsewhere(Tensor):
    """A tensor on that device; `held` are its numbers."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "Elsewhere":
        made = Tensor._make_wrapper_subclass(
            cls, held.shape, held.stride(), held.storage_offset(), dtype=held.dtype, device=DEVICE
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})

    def tolist(self) -> Any:
        """Its numbers, as of a tensor on a GPU; numpy() fails, as there."""
        return self.held.tolist()

    def __repr__(self, **options: Any) -> str:
        return f"Elsewhere({self.held!r})"


class elsewhere(TorchDispatchMode):  # noqa: N801 (a context, as torch.no_grad)
    """Inside, the device exists."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """One operation of torch."""
    given = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
    there = [value for value in given if isinstance(value, Elsewhere)]
    if there and func not in MOVES:
        # numbers without a dimension may come from the CPU, and so may the places of a look-up in the other tensor
        free = tree_flatten(args[1:])[0] if func in LOOKUPS and isinstance(args[0], Elsewhere) else []
        for value in given:
            if not isinstance(value, Elsewhere) and value.ndim > 0 and not any(value is place for place in free):
                raise RuntimeError(f"{func}: all tensors on one device expected, found at least two")
    device = kwargs.get("device")
    to_there = torch.device(device).type == DEVICE.type if device is not None else bool(there)
    if func in (aten.copy_.default, aten.copy.default):
        to_there = isinstance(args[0], Elsewhere)
    if device is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    plain = tree_map(lambda value: value.held if isinstance(value, Elsewhere) else value, (args, kwargs))
    out = func(*plain[0], **plain[1])
    if not to_there:
        return out
    own = {id(value.held): value for value in there}  # in place: the same tensor comes back
    return tree_map(lambda value: own.get(id(value), Elsewhere(value)) if isinstance(value, Tensor) else value, out)
