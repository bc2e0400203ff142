"""Registries: things by name, each registered in its own file, so that adding one touches one file.

A registry finds its built-in members by importing every module of its package on first use. Others come from the user's
modules: registered there by the same decorator, or named as 'package.module:Name'.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from labeldeconv.errors import ConfigError, nearest

T = TypeVar("T")
_trusted: ContextVar[bool] = ContextVar("trusted", default=False)


@contextmanager
def trusting(asked: bool = True) -> Iterator[None]:
    """Inside, modules that a run directory names may be imported: its writer is trusted."""
    before = _trusted.set(asked)
    try:
        yield
    finally:
        _trusted.reset(before)


def imports_trusted() -> bool:
    """Whether modules that a run directory names may be imported; not unless the user says so."""
    return _trusted.get()


class Registry(Mapping[str, T], Generic[T]):
    """Members by name, in the order of `first`, then of registration.

    Args:
        what: what a member is, for messages; also the setting that names one.
        package: whose modules register the built-in members.
        first: names that come first, in this order.
    """

    def __init__(self, what: str, package: str, first: tuple[str, ...] = ()) -> None:
        self.what, self.package, self.first = what, package, first
        self._members: dict[str, T] = {}
        self._loaded = False

    def add(self, name: str, member: T) -> None:
        """Register a member; the last one of a name counts, so that a notebook cell can be run again."""
        self._members[name] = member

    def named(self, name: str) -> T:
        """The member of a name, or what 'package.module:Name' imports; an error with the nearest name otherwise."""
        if name in self:
            return self[name]
        if ":" in name:
            found = imported(self.what, name)
            return self._members.get(name, found)
        raise ConfigError(f"{self.what} '{name}': unknown; {nearest(name, self)}; or package.module:Name")

    def _load(self) -> dict[str, T]:
        if not self._loaded:
            self._loaded = True
            package = importlib.import_module(self.package)
            for module in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{self.package}.{module.name}")
            order = {name: i for i, name in enumerate(self.first)}
            self._members = dict(sorted(self._members.items(), key=lambda item: order.get(item[0], len(order))))
        return self._members

    def __getitem__(self, name: str) -> T:
        return self._load()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._load())

    def __len__(self) -> int:
        return len(self._load())


def imported(setting: str, path: str) -> Any:
    """What 'package.module:Name' names; a ConfigError that names the setting where it cannot be imported."""
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may fail in any way, sys.exit() included
        why = (str(error) or "").splitlines()[:1] or [""]
        kind = "" if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: "
        raise ConfigError(f"{setting} '{path}': cannot be imported: {kind}{why[0]}") from error
