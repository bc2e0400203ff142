"""Files of torch and pickle that others publish, opened without running anything that is in them.

    fields_of(open_torch(Path("cora.pt")))        # {'x': tensor, 'edge_index': tensor, 'raw_texts': [...], ...}

A pickle names functions and classes to call. Here every name of PyG and numpy leads to a stand-in that holds what it is
given and does nothing; tensors are rebuilt by `torch.load(weights_only=True)`; every other name is refused, and told,
before anything of it is imported. Files of DGL are told apart by their first bytes.
"""

from __future__ import annotations

import io
import mmap
import pickle  # nosec B403 (an Unpickler that finds stand-ins alone, below)
import pickletools  # nosec B403 (reads operations and carries out none)
import re
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from labeldeconv.errors import DataError

DGL = bytes.fromhex("3fa1b446")  # what dgl.save_graphs writes first
NUMBERS = re.compile(r"[biuf][1248]|U\d{1,6}")  # dtypes whose bytes are taken as they are; arrays of objects are lists
ROUND = (
    "where you trust it, load it in Python and keep the graph: "
    "AttributedGraph.from_pyg(data, texts=data.raw_texts).save(FOLDER)"
)
_opening = threading.Lock()  # torch's list of allowed names is one for the process


class HeldObject:
    """An object of a file, such as PyG's Data: its state, and none of its code."""

    state: Any = None

    def __new__(cls, *given: Any) -> HeldObject:
        """Whatever the constructor is given is left out."""
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        self.state = state


class HeldType:
    """A dtype of a file: its code, such as 'f4', and its byte order."""

    code, order = "", "|"

    def __init__(self, code: Any = "", *more: Any) -> None:
        self.code = str(code)

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, tuple) and len(state) > 1 and state[1] in ("<", ">", "|", "="):
            self.order = state[1]

    def dtype(self) -> np.dtype:
        """The same for numpy; numbers and texts only."""
        if not NUMBERS.fullmatch(self.code):
            raise ValueError(f"numbers, texts or objects expected, got dtype '{self.code[:40]}'")
        return np.dtype(f"{self.order}{self.code}")


class HeldArray:
    """An array of a file; numpy's own code sees only bytes, a shape and a dtype that was looked at."""

    state: Any = None

    def __init__(self, *given: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def value(self) -> Any:
        """The array; one of objects is a list."""
        _, shape, kind, fortran, held = self.state
        if isinstance(held, list):
            return [plain(item) for item in held]
        return np.frombuffer(held, dtype=kind.dtype()).reshape(tuple(shape), order="F" if fortran else "C")


def held_array(held: Any = b"", kind: Any = None, shape: Any = (), order: Any = "C") -> HeldArray:
    """An array as pickle's fifth protocol writes it."""
    array = HeldArray()
    array.state = (1, shape, kind, order == "F", held)
    return array


def held_number(kind: Any = None, held: Any = b"", *more: Any) -> Any:
    """A number of numpy."""
    return held_array(held, kind).value().item()


STAND_INS: dict[str, Callable[..., Any]] = {
    "torch_geometric.data.data.Data": HeldObject,
    "torch_geometric.data.data.DataEdgeAttr": HeldObject,
    "torch_geometric.data.data.DataTensorAttr": HeldObject,
    "torch_geometric.data.storage.GlobalStorage": HeldObject,
    "numpy.ndarray": HeldObject,
    "numpy.dtype": HeldType,
    **{f"numpy.{core}.multiarray._reconstruct": HeldArray for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray.scalar": held_number for core in ("core", "_core")},
    **{f"numpy.{core}.numeric._frombuffer": held_array for core in ("core", "_core")},
}


def open_torch(path: Path) -> Any:
    """What `torch.save` wrote: lists, dictionaries, tensors, and stand-ins that `plain` and `fields_of` read."""
    import torch

    with path.open("rb") as file:
        if file.read(4) == DGL:
            told = "DGL's binary format, which only DGL reads; the texts and edges are in the .csv beside it: open that"
            raise DataError(f"{path}: {told}, or the folder")
    with _only_stand_ins(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch speaks of pickle's protocols; what matters is an error below
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise DataError(_refusal(path, error)) from None


def open_pickle(path: Path) -> Any:
    """What `pickle.dump` wrote, as `open_torch` gives it."""
    try:
        _check_memo(path)
        with path.open("rb") as file:
            return _Unpickler(file).load()
    except Exception as error:
        raise DataError(_refusal(path, error)) from None


def fields_of(held: Any, path: Path) -> dict[str, Any]:
    """Plain values by field: of PyG's `Data`, of the first thing that an InMemoryDataset keeps, or of a dictionary."""
    if isinstance(held, tuple | list) and held and isinstance(held[0], HeldObject | dict):
        held = held[0]
    for name in ("", "_store", "_mapping"):  # PyG 1 keeps the fields in the object, PyG 2 in the mapping of its store
        if isinstance(held, dict) and name in held:
            held = held[name]
        if isinstance(held, HeldObject):
            held = held.state
    if not isinstance(held, dict):
        raise DataError(f"{path}: PyG's Data, or a dictionary, expected, got {type(held).__name__}")
    return {str(name): plain_field(value, path, str(name)) for name, value in held.items()}


def plain_field(value: Any, path: Path, name: str) -> Any:
    """`plain`, with an error that names the field."""
    try:
        return plain(value)
    except Exception as error:
        raise DataError(f"{path}, field '{name}': cannot be read: {error}") from None


def plain(value: Any) -> Any:
    """Tensors and held arrays as numpy arrays; lists likewise, everything else as it is."""
    import torch

    if isinstance(value, HeldArray):
        return value.value()
    if isinstance(value, torch.Tensor):
        dense = value.detach().to_dense() if value.layout != torch.strided else value.detach()
        return dense.float().numpy() if dense.dtype in (torch.bfloat16, torch.float16) else dense.numpy()
    if isinstance(value, list | tuple) and any(isinstance(item, HeldArray | torch.Tensor) for item in value):
        return [plain(item) for item in value]
    return value


@contextmanager
def _only_stand_ins() -> Iterator[None]:
    """Inside, `weights_only` knows torch's own names and the stand-ins, and nothing that others have allowed."""
    from torch.serialization import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals

    with _opening:
        before = get_safe_globals()
        clear_safe_globals()
        try:
            with safe_globals([(stand_in, name) for name, stand_in in STAND_INS.items()]):
                yield
        finally:
            add_safe_globals(before)


def _refusal(path: Path, error: Exception) -> str:
    """What a file would have called, or why it cannot be read."""
    import torch

    names = list(getattr(error, "names", []))
    if not names and (named := re.search(r"GLOBAL (\S+)", str(error))):
        try:
            names = sorted(torch.serialization.get_unsafe_globals_in_checkpoint(str(path)))
        except Exception:  # a file of an older torch, which that function does not read
            names = [named[1]]
    if not names:
        why = str(error).partition("WeightsUnpickler error: ")[2] or str(error)  # torch's advice before it is not ours
        first = (why.splitlines() or [type(error).__name__])[0].partition("Weights only load failed")[
            0
        ] or "no torch file"
        return f"{path}: not a file of torch or pickle that can be read ({first[:200]}); download it again"
    told = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"{path}: refused, nothing of it was run: it names {told}, which no graph needs; {ROUND}"


class _Unpickler(pickle.Unpickler):
    """Knows the stand-ins and what rebuilds tensors; every other name ends it."""

    def find_class(self, module: str, name: str) -> Any:
        import torch

        known = {
            **STAND_INS,
            "collections.OrderedDict": OrderedDict,
            "_codecs.encode": _latin,
            "torch.storage._load_from_bytes": _storage,
            "torch._utils._rebuild_tensor_v2": torch._utils._rebuild_tensor_v2,
        }
        if f"{module}.{name}" not in known:
            raise _Unknown([f"{module}.{name}"])
        return known[f"{module}.{name}"]


def _check_memo(path: Path) -> None:
    """Objects are noted under numbers, and Python's unpickler takes memory for all numbers up to the largest one."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
        for operation, number, _ in pickletools.genops(held):  # type: ignore[arg-type]  # a map reads like a file
            if operation.name.endswith("PUT") and int(number or 0) > len(held):
                raise pickle.UnpicklingError(f"object number {number} in a file of {len(held)} bytes")


class _Unknown(pickle.UnpicklingError):
    def __init__(self, names: list[str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


def _latin(text: str, encoding: str = "latin1") -> bytes:
    """Bytes as pickle's second protocol writes them."""
    return text.encode("latin1")


def _storage(held: bytes) -> Any:
    """The numbers of a tensor: a file of torch inside of the pickle."""
    import torch

    with _only_stand_ins():
        return torch.load(io.BytesIO(held), map_location="cpu", weights_only=True)
