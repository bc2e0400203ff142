"""Settings in: TOML files, other configs, dotted names, and what others suggest; every error is told at once."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from labeldeconv.errors import ConfigError, nearest
from labeldeconv.settings.models import Config, Settings

MOST_EXTENDS = 20  # files of settings over each other
MOST_VALUES = 1000  # of one varied setting


def load_config(base: Path | Config | None = None, overrides: Mapping[str, Any] | None = None) -> Config:
    """Settings from a TOML file or another `Config`, then `overrides` with dotted names ('train.lr'); None unsets.

    Only what was said is set in the result; `with_suggestions` fills in what a data set or a GNN suggests.
    """
    values = base.model_dump(exclude_unset=True) if isinstance(base, Config) else _read_toml(base) if base else {}
    for name, value in (overrides or {}).items():
        group, last = _group_of(values, name)
        if value is None:
            group.pop(last, None)
        else:
            group[last] = value
    return parse_config(values, str(base) if isinstance(base, Path) else "settings")


def with_suggestions(config: Config, suggestions: Mapping[str, Any]) -> Config:
    """The settings with suggested values, by dotted names, wherever the user has said nothing."""
    values = config.model_dump(exclude_unset=True)
    for name, value in suggestions.items():
        group, last = _group_of(values, name)
        group.setdefault(last, value)
    return parse_config(values)


def said(config: Config, name: str) -> bool:
    """Whether the user has set the setting of a dotted name."""
    *parents, last = name.split(".")
    model: Settings = config
    for parent in parents:
        if parent not in model.model_fields_set:
            return False
        model = getattr(model, parent)
    return last in model.model_fields_set


def _group_of(values: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """The group of settings that a dotted name belongs to, made where it is missing, and the last part of the name."""
    *parents, last = name.split(".")
    for i, parent in enumerate(parents):
        if ".".join(parents[: i + 1]) in _leaves():
            raise ConfigError(f"{name}: '{parent}' is a setting, not a group of settings")
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise ConfigError(f"{name}: '{parent}' is a group of settings, got {values!r}")
    return values, last


def _read_toml(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A TOML file; `extends = "other.toml"` takes the settings of another one, beside it, first."""
    if any(path.absolute() == other.absolute() for other in above) or len(above) > MOST_EXTENDS:
        raise ConfigError(f"{above[0]}: extends leads back to {path}, so that no settings come first")
    values = read_toml(path)
    base = values.pop("extends", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise ConfigError(f"{path}: extends: the name of a TOML file expected, got {base!r}")
    return _merged(_read_toml(Path(os.path.normpath(path.parent / base)), (*above, path)), values)


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file; a `ConfigError` where it cannot be read."""
    try:
        if path.exists() and not path.is_file() and path.parts[:2] != ("/", "dev"):  # a FIFO would wait for ever
            raise ConfigError(f"{path}: a TOML file expected, and this is {'a folder' if path.is_dir() else 'no file'}")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # TOML, UTF-8, numbers of too many digits, a NUL in the name
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def _merged(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """`base` with `values` over it, group by group."""
    out = dict(base)
    for name, value in values.items():
        inner = out.get(name)
        out[name] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return out


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
    except (ValueError, RecursionError):  # no TOML, or a number of too many digits
        return name.strip(), text


def label_settings(alpha: float | str | None, hops: int | str | None) -> dict[str, Any]:
    """alpha and N as settings; 'auto' for either lets gamma, which covers both, be chosen; None says nothing."""
    out: dict[str, Any] = {"labels.gamma": "auto"} if "auto" in (alpha, hops) else {}
    given = {"labels.alpha": alpha, "labels.hops": hops}
    return out | dict(parse_set(f"{name}={value}") for name, value in given.items() if value not in (None, "auto"))


SHORT_NAMES = {"hops": "labels.hops", "alpha": "labels.alpha", "encoder": "encoder.name", "gnn": "gnn.name"}


def parse_vary(text: str) -> tuple[str, list[Any]]:
    """'hops=0..8' or 'alpha=0,0.5,1' to a setting's dotted name and its values."""
    name, sign, values = text.partition("=")
    if not sign or not values:
        raise ConfigError(f"--vary {text}: KEY=VALUES expected, such as hops=0..8 or alpha=0,0.5,1")
    name = SHORT_NAMES.get(name.strip(), name.strip())
    low, dots, high = values.partition("..")
    if dots and re.fullmatch(r"\s*[0-9]{1,9}\s*", low) and re.fullmatch(r"\s*[0-9]{1,9}\s*", high):
        if not 0 <= int(high) - int(low) < MOST_VALUES:
            raise ConfigError(f"--vary {text}: LOW..HIGH of 1 to {MOST_VALUES} values expected, such as hops=0..8")
        return name, list(range(int(low), int(high) + 1))
    if not name or not all(value.strip() for value in values.split(",")):
        raise ConfigError(f"--vary {text}: KEY=VALUES expected, such as hops=0..8 or alpha=0,0.5,1")
    return name, [parse_set(f"{name}={value}")[1] for value in values.split(",")]


@dataclass(frozen=True)
class Setting:
    """One setting: dotted name, default (None: unset), the values it takes where they are few, and its meaning."""

    name: str
    default: Any
    choices: list[Any] | None
    meaning: str


def all_settings(model: type[Settings] = Config, prefix: str = "") -> Iterator[Setting]:
    """Every setting there is."""
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Settings):
            yield from all_settings(info.annotation, f"{prefix}{name}.")
        else:
            kinds = [info.annotation, *get_args(info.annotation)]
            choices = [value for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)]
            default = info.get_default(call_default_factory=True)
            yield Setting(f"{prefix}{name}", default, choices or None, " ".join((info.description or "").split()))


def setting_names() -> list[str]:
    """All dotted names of settings."""
    return [setting.name for setting in all_settings()]


@cache
def _leaves() -> frozenset[str]:
    """Settings that hold a value; `gnn.options` is a group of its own names."""
    return frozenset(setting_names()) - {"gnn.options"}


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
        names = setting_names()
        parent = name.rpartition(".")[0]
        siblings = [n for n in names if n.rpartition(".")[0] == parent] or names
        return f"{name}: unknown setting; {nearest(name, siblings)}"
    return f"{name}: {error['msg'][0].lower() + error['msg'][1:]}, got {error['input']!r}"


def settings_schema() -> dict[str, Any]:
    """The JSON schema of a settings file in TOML: what editors complete and check; `extends` names another file."""
    schema = Config.model_json_schema()
    extends = {"type": "string", "description": "A settings file beside this one, whose settings come first."}
    schema["properties"] = {"extends": extends, **schema["properties"]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
