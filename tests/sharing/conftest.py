"""Exports to ONNX share the table of operators that torch makes anew for each: a third of a small export."""

from functools import cache

import pytest


@pytest.fixture(autouse=True, scope="package")
def _one_table_of_operators():
    patch = pytest.MonkeyPatch()
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(cache(ONNXRegistry.from_torchlib)))
    except (
        ImportError,
        AttributeError,
    ):  # another torch, or no onnxscript
        pass
    yield
    patch.undo()
