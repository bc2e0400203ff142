"""labeldeconv list, labeldeconv settings: what there is to choose from."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from labeldeconv.cli.terminal import AsJson, print_json, print_table, print_tree
from labeldeconv.errors import ConfigError, nearest

if TYPE_CHECKING:
    from labeldeconv.settings.reading import Setting


def list_names(as_json: AsJson = False) -> None:
    """Name the data, encoders, GNNs and methods there are."""
    from labeldeconv.data.catalog import DATASETS
    from labeldeconv.encoders.pretrained import ENCODERS
    from labeldeconv.gnns.architecture import gnn_options
    from labeldeconv.gnns.base import GNNS
    from labeldeconv.methods.base import METHODS

    if as_json:
        return print_json({"data": [*DATASETS], "encoders": [*ENCODERS], "gnns": [*GNNS], "methods": [*METHODS]})
    folder = "nodes.* and edges.* tables (parquet, csv, jsonl), raw files of the above, or a saved graph"
    print_tree("data", {**{name: data.summary for name, data in DATASETS.items()}, "FOLDER": folder})
    print_tree("encoders", {**ENCODERS, "ID or FOLDER": "any Hugging Face model with safetensors weights"})
    for name, kind in GNNS.items():
        print_tree(f"GNN {name}", {"": (kind.__doc__ or "").splitlines()[0], "options": gnn_options(kind)})
    print_tree("methods", {name: method.summary for name, method in METHODS.items()})


def list_settings(
    name: Annotated[str, typer.Argument(help="Only settings with this in their name, such as train or gnn.lr.")] = "",
    schema: Annotated[bool, typer.Option("--schema", help="The JSON schema of a settings file, for editors.")] = False,
    as_json: AsJson = False,
) -> None:
    """Name every setting with its default and its meaning."""
    from labeldeconv.settings.reading import all_settings, setting_names, settings_schema

    if schema:
        return print_json(settings_schema())
    found = [setting for setting in all_settings() if name in setting.name]
    if not found:
        raise ConfigError(f"settings: none has '{name}' in its name; {nearest(name, setting_names())}")
    if as_json:
        return print_json({"settings": [asdict(setting) for setting in found]})
    heads = ["name", "default", "meaning"]
    print_table("settings: --set NAME=VALUE, or TOML", heads, [_described(s) for s in found], left=3, folds=["meaning"])


def _described(setting: Setting) -> tuple[str, str, str]:
    default = "none" if setting.default is None else json.dumps(setting.default)
    choices = f" One of {', '.join(map(str, setting.choices))}." if setting.choices else ""
    return setting.name, default.strip('"'), f"{setting.meaning}{choices}"
