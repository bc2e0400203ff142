"""Keys of stages, derived from what a stage is given: nobody writes one by hand.

A key is the hash of the stage's name and version and of the token of every argument. Artefacts of other stages stand
for themselves by their own key, and with it by the versions of all stages they came from; arrays and graphs by their
content; settings by their values. Three annotations narrow an argument:

    graph: Annotated[AttributedGraph, Reads("edges", "num_nodes")]     the stage gets these attributes and no others
    device: Annotated[torch.device, Idle]                              changes where, not what: not in the key
    loss: Annotated[str, Younger] = "mse"                              in the key only where it is not the default

A field of a dataclass with metadata {"idle": True} is left out too. So a key holds exactly what the stage can read.
Settings marked UNKEYED in their model change no result and no key; those marked YOUNGER are treated as such arguments.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel

BLOCK = 1 << 26  # bytes of an array hashed at a time


class Reads:
    """Annotation of a stage's argument: the attributes that the stage reads, dotted for groups of settings."""

    def __init__(self, *names: str) -> None:
        self.names = names


class Idle:
    """Annotation of a stage's argument that cannot change the result, such as the device."""


class Younger:
    """Annotation of an argument that a stage got later than others: at its default it is not in the key.

    So what was computed before there was such an argument is still found.
    """


class Reading:
    """An argument as a stage sees it: the declared attributes and nothing else. Remembers what was read.

    Groups of settings inside it are seen through a `Reading` too; `reads` has dotted names.
    """

    def __init__(self, whole: Any, names: Sequence[str] | None, reads: set[str], prefix: str = "") -> None:
        self.__dict__.update(_whole=whole, _names=names, _reads=reads, _prefix=prefix)

    def __getattr__(self, name: str) -> Any:
        if self._names is not None and name not in self._names:
            kind = type(self._whole).__name__
            raise AttributeError(f"this stage reads {', '.join(self._names)} of {kind}, not '{name}': add it to Reads")
        value = getattr(self._whole, name)
        if isinstance(value, BaseModel):
            return Reading(value, None, self._reads, f"{self._prefix}{name}.")
        if not callable(value):
            self._reads.add(self._prefix + name)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a stage changes nothing that it was given")


def digest(value: Any) -> str:
    """Stable hash of JSON-able values."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def array_key(*arrays: np.ndarray) -> str:
    """Hash of types, shapes and contents, read in blocks so that a memory map is never held whole."""
    whole = hashlib.blake2b(digest_size=12)
    for array in arrays:
        whole.update(f"{array.dtype.str}{array.shape}".encode())
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for start in range(0, len(flat), BLOCK):
            whole.update(flat[start : start + BLOCK].data)
    return whole.hexdigest()


def token(value: Any) -> Any:
    """What stands for a value in a key, as JSON can hold it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "content_key"):  # artefacts, graphs, encoders: things that know their content
        return {"content": value.content_key}
    if isinstance(value, np.ndarray):
        return {"array": array_key(value)}
    if isinstance(value, list | tuple):
        return [token(v) for v in value]
    if isinstance(value, dict):
        return {str(k): token(v) for k, v in value.items()}
    if isinstance(value, Reading):
        return reading_token(value)
    if isinstance(value, BaseModel):
        return {name: token(getattr(value, name)) for name in type(value).model_fields if is_keyed(value, name)}
    if isinstance(value, type):
        return code_key(value)
    if is_dataclass(value):
        held = {f.name: token(getattr(value, f.name)) for f in fields(value) if not f.metadata.get("idle")}
        return {"type": code_key(type(value)), **held}
    raise TypeError(f"a stage's argument of type {type(value).__name__} has no key: give it a content_key")


def reading_token(reading: Reading) -> Any:
    """The token of the declared attributes; a graph knows the keys of its parts, so that nothing is hashed twice."""
    whole, names = reading._whole, reading._names
    if names is None:
        return token(whole)
    if isinstance(whole, BaseModel):
        names = [name for name in names if is_keyed(whole, name)]
    key_of = getattr(whole, "key_of", None)
    return {name: key_of(name) if key_of else token(getattr(whole, name)) for name in names}


def is_keyed(settings: BaseModel, name: str) -> bool:
    """Whether a field of settings is in keys: it can change a result, and is no younger one that has its default."""
    info = type(settings).model_fields[name]
    marks = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    return not marks.get("unkeyed") and not (marks.get("younger") and getattr(settings, name) == info.default)


def code_key(kind: type) -> str:
    """A class by its name; one from outside this package also by its module's source, since it has no version here."""
    name = f"{kind.__module__}:{kind.__qualname__}"
    if kind.__module__.partition(".")[0] == __name__.partition(".")[0]:
        return name
    try:
        source = inspect.getsource(sys.modules[kind.__module__])
    except (OSError, TypeError, KeyError):
        return name
    return f"{name}@{hashlib.blake2b(source.encode(), digest_size=8).hexdigest()}"
