import numpy as np
import pytest

from labeldeconv.config import EncoderConfig
from labeldeconv.encoders.text import load_text_encoder
from labeldeconv.encoders.tokens import TokenStore, write_tokens
from labeldeconv.texts import Texts
from labeldeconv.train import features


@pytest.fixture
def parts(tmp_path):
    encoder = load_text_encoder(EncoderConfig(name="tiny"))
    write_tokens(encoder, Texts.from_strings("x" * (1 + i % 17) for i in range(50)), 32, tmp_path)
    return encoder, TokenStore.open(tmp_path, encoder.pad_id)


def test_resumed_equals_straight(parts, tmp_path, monkeypatch):
    encoder, store = parts
    monkeypatch.setattr(features, "BATCH_NODES", 7)
    monkeypatch.setattr(features, "SAVE_SECONDS", -1.0)
    for name in "ab":
        (tmp_path / name).mkdir()
    features.export_features(encoder, store, tmp_path / "a")
    calls = []

    class Dying(type(encoder)):
        def forward(self, input_ids, attention_mask):
            calls.append(1)
            if len(calls) == 4:
                raise KeyboardInterrupt
            return super().forward(input_ids, attention_mask)

    normal = encoder.__class__
    encoder.__class__ = Dying
    with pytest.raises(KeyboardInterrupt):
        features.export_features(encoder, store, tmp_path / "b")
    encoder.__class__ = normal
    features.export_features(encoder, store, tmp_path / "b")
    a, b = (np.load(tmp_path / name / "features.npy") for name in "ab")
    assert a.dtype == np.float16
    assert a.shape == (50, 32)
    np.testing.assert_array_equal(a, b)
    assert np.abs(a).sum(1).min() > 0
