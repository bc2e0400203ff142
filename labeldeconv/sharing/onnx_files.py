"""Modules of torch as ONNX files, compared with torch before they are kept: the one file that knows ONNX.

`torch.onnx.export(dynamo=True)` traces a module with a free batch size, and a free length where it reads tokens. What
it cannot trace, or what computes something else in ONNX Runtime, is refused in words.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labeldeconv.errors import ConfigError, MissingExtra

TOLERANCE = 1e-3  # largest distance from torch, relative to the largest output; float32 sums differ by about 1e-6
Shape = list[str | int]


def require_onnx() -> None:
    """Refuse to begin where the extra 'onnx' is not installed."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise MissingExtra("export --onnx", "onnx") from None


class OnnxModel:
    """An ONNX file open in ONNX Runtime on the CPU: arrays by input name in, one array out."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors alone
        options.intra_op_num_threads = torch.get_num_threads()
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._names = [one.name for one in self._session.get_inputs()]

    def __call__(self, *inputs: Tensor | np.ndarray) -> np.ndarray:
        """The output for inputs in the order of the file."""
        given = {name: np.asarray(x) for name, x in zip(self._names, inputs, strict=True)}
        return self._session.run(None, given)[0]

    @property
    def outputs(self) -> dict[str, Shape]:
        """Shapes of the outputs by name; a free size is a word."""
        return {one.name: list(one.shape) for one in self._session.get_outputs()}

    @property
    def inputs(self) -> dict[str, Shape]:
        """Shapes of the inputs by name; a free size is a word."""
        return {one.name: list(one.shape) for one in self._session.get_inputs()}


def write_onnx(
    module: nn.Module,
    samples: Sequence[tuple[Tensor, ...]],
    inputs: Mapping[str, Sequence[str | int]],
    output: str,
    path: Path,
    what: str,
) -> OnnxModel:
    """Write a module in eval mode as one ONNX file and compare both on all samples.

    Args:
        module: one output (b, .), a row of which depends on its own row of the inputs alone.
        samples: inputs of several shapes; the first one is traced, and no free size of it is 1.
        inputs: names of the inputs with their shapes, in which a word is a size that is free.
        output: the name of the output.
        path: the file.
        what: the module in messages: "encoder 'tiny'".
    """
    require_onnx()
    sizes = {word: torch.export.Dim(word) for shape in inputs.values() for word in shape if isinstance(word, str)}
    free = tuple({k: sizes[word] for k, word in enumerate(s) if isinstance(word, str)} for s in inputs.values())
    try:
        with torch.no_grad(), _quiet():
            program: Any = torch.onnx.export(
                module.eval(),
                tuple(samples[0]),
                input_names=list(inputs),
                output_names=[output],
                dynamic_shapes=free,
                dynamo=True,
                verbose=False,
            )
            program.save(str(path))
    except Exception as error:  # of torch.export, of its decompositions or of onnxscript: there is no common base
        raise ConfigError(f"{what}: torch cannot export it to ONNX: {_reason(error)}") from error
    model = OnnxModel(path)
    for sample in samples:
        _compare(module, model, sample, what)
    return model


def _compare(module: nn.Module, model: OnnxModel, sample: tuple[Tensor, ...], what: str) -> None:
    """Refuse an ONNX file that gives something else than torch for a sample."""
    shape = tuple(sample[0].shape)
    with torch.no_grad():
        wanted = module(*sample).float().numpy()
    try:
        got = model(*sample)
    except Exception as error:  # of ONNX Runtime, whose errors have no public base
        raise ConfigError(f"{what}: ONNX Runtime fails on inputs {shape}: {_reason(error)}") from error
    scale = max(1.0, float(np.abs(wanted).max(initial=0.0)))
    distance = float(np.abs(got - wanted).max(initial=0.0)) / scale
    if got.shape != wanted.shape or not distance <= TOLERANCE:
        raise ConfigError(f"{what}: its ONNX file differs from torch by {distance:.2g} on inputs {shape}")


def quantise(path: Path, out: Path) -> None:
    """Write `path` with weights of matrix products in 8 bits (dynamic quantisation of ONNX Runtime)."""
    require_onnx()
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _quiet():
        # Linear layers over (b, t, d) are MatMul; word vectors stay, of which 8 bits would save disk alone.
        # Unsigned, a scale per column: MiniLM's mean cosine is 0.993 so, 0.984 with one per matrix, and 0.963 with
        # signed weights, the default, which may saturate on a CPU without VNNI (docs/log.md).
        options: dict[str, Any] = {"weight_type": QuantType.QUInt8, "per_channel": True}
        quantize_dynamic(path, out, op_types_to_quantize=["MatMul"], **options)


def _reason(error: BaseException) -> str:
    """The last line that says anything, of the innermost error: exporters wrap theirs in advice to their authors."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporters' notes on what they skip."""
    loggers = [logging.getLogger(name) for name in ("torch", "onnxscript", "onnx_ir", None)]
    levels = [one.level for one in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one in loggers:
            one.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for one, level in zip(loggers, levels, strict=True):
                one.setLevel(level)
