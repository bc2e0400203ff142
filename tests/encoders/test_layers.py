"""The first layers of a transformer."""

import pytest
import torch

from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.errors import ConfigError
from labeldeconv.settings.models import EncoderConfig
from tests.encoders.families import FAMILIES, PROTEINS, SEQUENCES, encode

TEXTS = ["a graph", "label deconvolution", "büßt 日本"]


def test_too_many_layers():
    with pytest.raises(ConfigError, match=r"encoder.layers: at most 2"):
        load_encoder(EncoderConfig(name="tiny", layers=3))


def test_minilm_first_layers(minilm):
    short = load_encoder(EncoderConfig(name="minilm", layers=3))
    assert sum(p.numel() for p in short.parameters()) < sum(p.numel() for p in minilm.parameters())
    assert encode(short, TEXTS).shape == (3, 384)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_first_layers_compute_as_in_the_whole_model(name, family):
    """The first layer of one gives what the first of two does; ESM-C divides by a function of their number."""
    given = []
    for layers in (None, 1):
        encoder = load_encoder(EncoderConfig(name=family(name), layers=layers))
        of_all = next(m for m in encoder.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == (layers or 2))
        of_all[0].register_forward_hook(lambda layer, inputs, out: given.append(out[0] if type(out) is tuple else out))
        encode(encoder, SEQUENCES if name in PROTEINS else TEXTS)
    torch.testing.assert_close(given[0], given[1], atol=1e-5, rtol=1e-4)
