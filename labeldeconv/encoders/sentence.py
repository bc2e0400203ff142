"""Folders of sentence-transformers: what `modules.json` says of pooling, dense layers, length and prompts, and back.

A folder with `modules.json` was trained with these, so that features without them are not what its authors meant.
Nothing in a folder is imported or unpickled: the known kinds of modules are built here, from JSON and safetensors.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from labeldeconv.encoders.readout import MODES, Dense, Readout
from labeldeconv.errors import ConfigError
from labeldeconv.stages.files import write_json

OURS = {theirs: mode for mode, theirs in MODES.items()}
LEGACY = {  # keys of older folders, in the order in which vectors are put side by side
    "pooling_mode_cls_token": "cls",  # nosec B105 (a way of pooling)
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid", "LeakyReLU", "ELU", "Mish", "Softplus")
BESIDE = "sentence_bert_config.json"  # beside the transformer's own config.json
PROMPTS = "config_sentence_transformers.json"
MODELS = "sentence_transformers.models"  # where every version of the library finds its modules


@dataclass(frozen=True, eq=False)
class Layout:
    """What a folder says besides the transformer's own files.

    Args:
        subfolder: of the transformer.
        modes: of pooling.
        steps: layers behind it, with their weights.
        normalize: whether a Normalize module ends it.
        prompts: texts to put before attributes, by name.
        default_prompt: the name of the one that is used where none is named.
        pools_prompt: whether the prompt's tokens are pooled too.
        lowers: whether texts are put into lower case.
    """

    subfolder: str = ""
    modes: tuple[str, ...] = ("mean",)
    steps: list[nn.Module] = field(default_factory=list)
    normalize: bool = False
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    pools_prompt: bool = True
    lowers: bool = False

    def prompt(self, asked: str | None) -> str:
        """The text before every attribute: `asked`, which may be a name of a prompt, or the folder's default."""
        if asked is None:
            asked = self.default_prompt or ""
        return self.prompts.get(asked, asked)


def plain_layout(pooling: str) -> Layout:
    """Of a model without `modules.json`: the pooling of the settings, or the mean."""
    return Layout(modes=("mean" if pooling == "auto" else pooling,))


class _Source:
    """The files of a folder or of a hub repository."""

    def __init__(self, source: str, revision: str | None) -> None:
        self.source, self.revision = source, revision

    def path(self, name: str) -> Path | None:
        """Where a file is, downloaded if need be; None where there is none."""
        from transformers.utils.hub import cached_file

        found = cached_file(
            self.source,
            name,
            revision=self.revision,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
            _raise_exceptions_for_gated_repo=False,
        )
        return None if found is None else Path(found)

    def json(self, name: str) -> Any:
        """A JSON file; {} where there is none."""
        path = self.path(name)
        if path is None:
            return {}
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ConfigError(f"{self.source}/{name}: JSON expected: {error}") from error


def read_layout(source: str, revision: str | None = None, pooling: str = "auto") -> Layout:
    """The layout of a folder or hub id; mean pooling alone where it has no `modules.json`.

    A `pooling` that is named stands in the place of all modules behind the transformer.
    """
    files = _Source(source, revision)
    modules = files.json("modules.json")
    settings = files.json(PROMPTS)
    if not modules:
        return plain_layout(pooling)
    if not isinstance(modules, list) or not all(isinstance(m, dict) and {"type", "path"} <= set(m) for m in modules):
        raise ConfigError(f"{source}/modules.json: a list of modules with 'type' and 'path' expected")
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    paths = [str(module["path"]) for module in modules]
    if kinds[0] != "Transformer":
        raise _refused(source, kinds[0])
    outside = [path for path in paths if Path(path).is_absolute() or ".." in Path(path).parts]
    if outside:
        raise ConfigError(f"{source}/modules.json: paths inside the folder expected, got {outside[0]!r}")
    lowers = bool(files.json(f"{paths[0]}/{BESIDE}" if paths[0] else BESIDE).get("do_lower_case"))
    found: dict[str, Any] = {"subfolder": paths[0], "lowers": lowers, "modes": plain_layout(pooling).modes}
    steps: list[nn.Module] = []
    for kind, path in list(zip(kinds, paths, strict=True))[1:] if pooling == "auto" else []:
        config = files.json(f"{path}/config.json")
        if kind == "Pooling":
            found["modes"] = _modes(f"{source}/{path}", config)
            found["pools_prompt"] = config.get("include_prompt", True)
        elif kind == "Normalize":
            found["normalize"] = True
        elif kind in ("Dense", "LayerNorm"):
            steps.append(_step(files, kind, path, config))
        elif kind != "Dropout":
            raise _refused(source, kind)
        if found.get("normalize") and kind in ("Dense", "LayerNorm"):
            raise ConfigError(f"{source}/modules.json: layers behind Normalize are not known; set encoder.pooling")
    prompts = {str(name): str(text) for name, text in (settings.get("prompts") or {}).items()}
    return Layout(**found, steps=steps, prompts=prompts, default_prompt=settings.get("default_prompt_name"))


def _refused(source: str, kind: str) -> ConfigError:
    return ConfigError(
        f"{source}/modules.json: Transformer, then Pooling, Dense, LayerNorm, Dropout, Normalize expected, got "
        f"'{kind}'; "
        'encoder.pooling = "mean" (or another way) takes the transformer alone'
    )


def _modes(place: str, config: dict[str, Any]) -> tuple[str, ...]:
    """Our names of the ways of pooling that a Pooling module's settings name."""
    named = config.get("pooling_mode")
    if named is None:
        named = [mode for key, mode in LEGACY.items() if config.get(key)] or ["mean"]
    named = [named] if isinstance(named, str) else list(named)
    unknown = [mode for mode in named if mode not in OURS]
    if unknown:
        raise ConfigError(f"{place}/config.json: pooling_mode of {', '.join(OURS)} expected, got {unknown[0]!r}")
    return tuple(OURS[mode] for mode in named)


def _step(files: _Source, kind: str, path: str, config: dict[str, Any]) -> nn.Module:
    """A Dense or LayerNorm module with its weights."""
    from safetensors.torch import load_file

    place = f"{files.source}/{path}"
    weights = files.path(f"{path}/model.safetensors")
    if weights is None:
        raise ConfigError(f"{place}: model.safetensors expected; weights in other files are not read")
    if kind == "Dense":
        activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
        name = activation.rpartition(".")[2]
        if not activation.startswith("torch.nn.") or name not in ACTIVATIONS:
            raise ConfigError(f"{place}/config.json: activation_function of {', '.join(ACTIVATIONS)} in torch.nn "
                              f"expected, got {activation!r}")  # fmt: skip
        step: nn.Module = Dense(
            config["in_features"],
            config["out_features"],
            config.get("bias", True),
            getattr(nn, name)(),
            config.get("use_residual", False),
        )
    else:
        step = nn.LayerNorm(config["dimension"])
    _load(step, {name.removeprefix("norm."): w.float() for name, w in load_file(weights).items()}, place)
    return step


def _load(step: nn.Module, weights: dict[str, Any], place: str) -> None:
    try:
        step.load_state_dict(weights)
    except RuntimeError as error:
        raise ConfigError(f"{place}/model.safetensors: {str(error).splitlines()[-1].strip()}") from error


def layout_of(model: Any, pooling: str = "auto") -> Layout:
    """The layout of an object of sentence-transformers: its modules behind the transformer write themselves down."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        rows = []
        for number, module in enumerate(model):
            path = "" if number == 0 else f"{number}_{type(module).__name__}"
            rows.append({"idx": number, "name": str(number), "path": path, "type": type(module).__name__})
            if number:
                (folder / path).mkdir()
                module.save(str(folder / path))
        prompts = {"prompts": model.prompts, "default_prompt_name": model.default_prompt_name}
        write_json(folder / "modules.json", rows)
        write_json(folder / PROMPTS, prompts)
        return read_layout(scratch, pooling=pooling)


def write_layout(folder: Path, readout: Readout, prompt: str, longest: int, lowers: bool) -> None:
    """Write all that `read_layout` reads, around the transformer that is in `folder` already."""
    from safetensors.torch import save_file

    modules: list[tuple[str, dict[str, Any], nn.Module | None]] = [
        ("Pooling", {"word_embedding_dimension": readout.width, **_pooling_keys(readout)}, None)
    ]
    for step in readout.steps:
        if isinstance(step, Dense):
            kind, config = "Dense", _dense_keys(step)
        else:
            kind, config = "LayerNorm", {"dimension": step.normalized_shape[0]}  # type: ignore[index]
        modules.append((kind, config, step))
    if readout.normalize:
        modules.append(("Normalize", {}, None))
    rows = [{"idx": 0, "name": "0", "path": "", "type": f"{MODELS}.Transformer"}]
    for number, (kind, config, layer) in enumerate(modules, 1):
        path = f"{number}_{kind}"
        rows.append({"idx": number, "name": str(number), "path": path, "type": f"{MODELS}.{kind}"})
        (folder / path).mkdir(exist_ok=True)
        write_json(folder / path / "config.json", config)
        if layer is not None:
            prefix = "norm." if kind == "LayerNorm" else ""
            weights = {prefix + name: w.detach().cpu().contiguous() for name, w in layer.state_dict().items()}
            save_file(weights, folder / path / "model.safetensors")
    write_json(folder / "modules.json", rows)
    write_json(folder / BESIDE, {"max_seq_length": longest, "do_lower_case": lowers})
    write_json(folder / PROMPTS, prompts_of(prompt))


def prompts_of(prompt: str) -> dict[str, Any]:
    """The settings under which sentence-transformers puts a prompt before every text."""
    return {"prompts": {"node": prompt}, "default_prompt_name": "node"} if prompt else {}


def restore_steps(folder: Path, steps: Sequence[nn.Module]) -> None:
    """Take the weights of the layers behind the pooling that `write_layout` wrote."""
    for step, written in zip(steps, read_layout(str(folder)).steps, strict=True):
        step.load_state_dict(written.state_dict())


def _pooling_keys(readout: Readout) -> dict[str, Any]:
    """The settings of a Pooling module, in the form that all versions of the library read."""
    named = [MODES[mode] for mode in readout.modes]
    keys: dict[str, Any] = {key: mode in named for key, mode in LEGACY.items()}
    if [mode for mode in LEGACY.values() if mode in named] != named:  # an order that older versions do not know
        keys = {"pooling_mode": named}
    return {**keys, "include_prompt": not readout.skip}


def _dense_keys(step: Dense) -> dict[str, Any]:
    activation = type(step.activation)
    return {
        "in_features": step.linear.in_features,
        "out_features": step.linear.out_features,
        "bias": step.linear.bias is not None,
        "activation_function": f"{activation.__module__}.{activation.__name__}",
        **({"use_residual": True} if step.adds else {}),
    }
