"""Images: opened when a batch needs them, known to keys by their content and by how they are processed."""

import json
import shutil

import pytest
import torch

from labeldeconv.encoders.image import ImageEncoder, load_image_encoder, open_image
from labeldeconv.encoders.pretrained import Pretrained
from labeldeconv.errors import ConfigError, DataError
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.testing import ENCODER_CHECKS, encoded

Image = pytest.importorskip("PIL.Image", reason="needs the extra images")


@pytest.fixture(scope="module")
def encoder(vit):
    return load_image_encoder(EncoderConfig(name=str(vit))).eval()


def test_features_are_the_pooled_output(encoder, photos):
    x = encoded(encoder, [str(photos / "red.png"), "", str(photos / "blue.png")])
    assert x.shape == (3, 16)
    assert not x[1].any()
    pixels = encoder.processor(images=[open_image(photos / "red.png")], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        torch.testing.assert_close(x[:1], encoder.model(pixel_values=pixels).pooler_output, atol=1e-5, rtol=1e-5)


def test_tokens_are_the_bytes_of_the_path(encoder):
    assert encoder.tokenize([" a/ü.png ", ""], 4) == [list("a/ü.png".encode()), []]


@pytest.mark.parametrize("check", ENCODER_CHECKS, ids=lambda check: check.__name__)
def test_contract(vit, photos, check):
    given = [str(photos / "red.png"), str(photos / "blue.png")]
    check(lambda: load_image_encoder(EncoderConfig(name=str(vit))), given)


def test_files_key_follows_content(encoder, tmp_path):
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    for path in paths:
        Image.new("RGB", (8, 8), (255, 0, 0)).save(path)
    texts = [str(path) for path in paths]
    before = encoder.files_key(texts)
    assert before == encoder.files_key([f" {text} " for text in texts])
    Image.new("RGB", (8, 8), (255, 0, 1)).save(paths[0])
    assert encoder.files_key(texts) != before
    assert encoder.files_key([*texts, str(tmp_path / "none.png")]) != encoder.files_key(texts)
    assert encoder.opens_files


@pytest.mark.parametrize(
    ("file", "name", "value"),
    [("preprocessor_config.json", "image_mean", [0.1, 0.2, 0.3]), ("config.json", "hidden_act", "relu")],
)
def test_weights_key_notices_the_processor_and_the_settings(vit, tmp_path, file, name, value):
    folder = tmp_path / "vit"
    shutil.copytree(vit, folder)
    before = load_image_encoder(EncoderConfig(name=str(folder))).weights_key()
    assert before == load_image_encoder(EncoderConfig(name=str(vit))).weights_key()
    held = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**held, name: value}))
    assert load_image_encoder(EncoderConfig(name=str(folder))).weights_key() != before


def test_what_cannot_be_opened_is_named(photos, tmp_path, vit):
    (tmp_path / "broken.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match=r"broken\.png: cannot be opened as an image"):
        open_image(tmp_path / "broken.png")
    with pytest.raises(ConfigError, match=r"encoder.name 'image:.*none': opens neither as folder nor as hub id"):
        load_image_encoder(EncoderConfig(name=str(tmp_path / "none")))
    with pytest.raises(ConfigError, match=r"encoder.lora_rank: not for image columns"):
        load_image_encoder(EncoderConfig(name=str(vit), lora_rank=2))


def test_as_an_object(encoder, photos):
    """An encoder that was made by hand is asked for its files too."""
    assert isinstance(encoder, ImageEncoder)
    given = Pretrained(EncoderConfig(name="photos"), encoder)
    texts = [str(photos / "red.png")]
    assert given.files_key(texts) == encoder.files_key(texts) is not None
