"""ONNX files of encoders and GNNs compute what torch computes, for any batch and length, or are refused in words."""

import logging
import sys

import numpy as np
import pytest
import torch
from torch import nn

from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.errors import ConfigError, MissingExtra
from labeldeconv.gnns.gamlp import GAMLP
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.sharing.onnx_export import _encoder_file
from labeldeconv.sharing.onnx_files import OnnxModel, quantise, write_onnx

for package in ("onnx", "onnxruntime", "onnxscript"):
    pytest.importorskip(package, reason="comes with the extra onnx")


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", ["deberta-v2", "esm2"])  # BERT: tests/sharing/test_onnx_export.py
def test_an_encoder_in_onnx_runtime_is_torchs(name, family, tmp_path):
    """Exported with (3, 11) tokens; run with others, one token and padded rows included."""
    encoder = load_encoder(EncoderConfig(name=family(name), layers=1)).eval()
    _encoder_file(encoder, tmp_path / "encoder.onnx", 128, name)
    model = OnnxModel(tmp_path / "encoder.onnx")
    generator = torch.Generator().manual_seed(2)
    for b, t in [(1, 1), (1, 7), (5, 3), (2, 33), (3, 128)]:
        ids = torch.randint(0, encoder.vocab_size, (b, t), generator=generator)
        mask = (torch.arange(t) < torch.randint(1, t + 1, (b, 1), generator=generator)).long()
        with torch.inference_mode():
            wanted = encoder(ids, mask).numpy()
        np.testing.assert_allclose(model(ids, mask), wanted, atol=1e-5)


def test_a_gnn_fed_by_rows_with_a_label_branch(tmp_path):
    torch.manual_seed(0)
    gnn = GAMLP(6, 4, layers=2, hidden=8, label_hops=2).eval()
    names = {"hop_features": ["batch", 3, 6], "label_inputs": ["batch", 4]}
    model = write_onnx(gnn, [(random(3, 3, 6), random(3, 4))], names, "logits", tmp_path / "gnn.onnx", "GNN 'gamlp'")
    assert (model.inputs, model.outputs) == (names, {"logits": ["batch", 4]})
    for b in (1, 2, 50):
        x, labels = random(b, 3, 6), random(b, 4)
        with torch.inference_mode():
            np.testing.assert_allclose(model(x, labels), gnn(x, labels).numpy(), atol=1e-5)


class Counting(nn.Module):
    """Reads a number from its input, which no trace can follow."""

    def forward(self, x):
        return x * len(range(int(x.sum()))) if int(x.sum()) > 3 else x


class Differing(nn.Module):
    """Computes something else while it is traced."""

    def forward(self, x):
        return x + 1 if torch.compiler.is_exporting() else x


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Counting(), r"model 'own': torch cannot export it to ONNX: \w+: .*data-dependent"),
        (Differing(), r"model 'own': its ONNX file differs from torch by .* on inputs \(3, 2\)"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_words(module, message, tmp_path):
    level = logging.getLogger().level
    with pytest.raises(ConfigError, match=message) as refused:
        write_onnx(module, [(random(3, 2),)], {"x": ["batch", 2]}, "y", tmp_path / "x.onnx", "model 'own'")
    assert "\n" not in str(refused.value)
    assert logging.getLogger().level == level


def test_quantised_weights_are_smaller_and_near(tmp_path):
    """Two layers by hand. Signed weights gave a least cosine of 0.977 on a CPU without VNNI."""
    from onnx import TensorProto, helper, numpy_helper, save

    rng = np.random.default_rng(0)
    weights = [rng.uniform(-0.12, 0.12, shape).astype(np.float32) for shape in ((64, 256), (256, 64))]
    nodes = [("MatMul", ["x", "w0"], ["a"]), ("Relu", ["a"], ["b"]), ("MatMul", ["b", "w1"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "tokens", 64]) for name in "xy"]
    held = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    graph = helper.make_graph([helper.make_node(*node) for node in nodes], "two", ends[:1], ends[1:], held)
    opsets = [helper.make_opsetid("", 18)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "a.onnx")
    quantise(tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert (tmp_path / "b.onnx").stat().st_size < 0.4 * (tmp_path / "a.onnx").stat().st_size
    x = random(9, 2, 64)
    a, b = OnnxModel(tmp_path / "a.onnx")(x), OnnxModel(tmp_path / "b.onnx")(x)
    np.testing.assert_allclose(a, np.maximum(x.numpy() @ weights[0], 0) @ weights[1], atol=1e-4)
    cosine = (a * b).sum(2) / np.linalg.norm(a, axis=2) / np.linalg.norm(b, axis=2)
    assert 0.999 < cosine.min() < 1


def test_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MissingExtra, match=r"pip install 'labeldeconv\[onnx\]'"):
        write_onnx(nn.Identity(), [(random(3, 2),)], {"x": ["batch", 2]}, "y", tmp_path / "x.onnx", "x")
