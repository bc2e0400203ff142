import numpy as np
import torch

from labeldeconv.config import EncoderConfig
from labeldeconv.encoders.text import load_text_encoder
from labeldeconv.encoders.tokens import TokenStore, write_tokens
from labeldeconv.texts import Texts

STRINGS = ["a graph", "", "label deconvolution " * 3, "ü"]


def test_store_equals_tokenizer(tmp_path):
    encoder = load_text_encoder(EncoderConfig(name="tiny"))
    write_tokens(encoder, Texts.from_strings(STRINGS), 20, tmp_path)
    store = TokenStore.open(tmp_path, encoder.pad_id)
    assert store.tokens.dtype == np.uint16
    rows = encoder.tokenize(STRINGS, 20)
    assert store.lengths.tolist() == [len(r) for r in rows]
    ids, mask = store.batch(np.array([2, 1, 3]))
    assert ids.shape == (3, 20)
    for row, m, node in zip(ids, mask, (2, 1, 3), strict=True):
        assert row[m.bool()].tolist() == rows[node]
        assert (row[~m.bool()] == encoder.pad_id).all()
    assert torch.equal(mask.sum(1), torch.tensor([20, 2, 4]))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["offsets.npy", "tokens.npy"]
