"""Numbers and categories by hand."""

import numpy as np
import pytest
import torch

from labeldeconv.encoders.tokens import write_tokens
from labeldeconv.encoders.values import CategoryEncoder, NumberEncoder, number
from labeldeconv.errors import DataError
from labeldeconv.graph.texts import Texts
from labeldeconv.testing import encoded


@pytest.mark.parametrize("encoder", [NumberEncoder(), CategoryEncoder()])
def test_plain_values_alone(encoder, tmp_path):
    store = write_tokens(encoder.tokenizer_part, Texts.from_strings(["1", "", "2.5"]), 8, tmp_path)
    x = encoder(*store.batch(np.arange(3)))
    assert x.shape == (3, encoder.dim)
    assert not x[1].any()
    assert encoder(*store.batch(np.array([1]))).shape == (1, encoder.dim)
    encoder.save(tmp_path / "m")
    encoder.restore(tmp_path / "m")


def test_numbers_by_hand():
    """1.0 is 0x3f800000, little-endian; features are (sign(x) log(1 + |x|), 1), or zeros where missing."""
    encoder = NumberEncoder()
    assert encoder.tokenize(["1.0", " ", "-1"], 4) == [[0, 0, 0x80, 0x3F], [], [0, 0, 0x80, 0xBF]]
    x = encoded(encoder, ["1", "-3", "", "0"])
    np.testing.assert_allclose(x, [[np.log(2), 1], [-np.log(4), 1], [0, 0], [0, 1]], rtol=1e-6)


def test_equal_categories_have_one_vector_whatever_the_blanks():
    encoder = CategoryEncoder(dim=3, buckets=1000)
    x = encoded(encoder, ["acme", " acme ", "other", ""])
    assert torch.equal(x[0], x[1])
    assert not torch.equal(x[0], x[2])
    assert not x[3].any()
    (bucket,) = encoder.tokenize(["acme"], 4)[0]
    assert torch.equal(x[0], encoder.embedding.weight[bucket])
    assert 0 <= bucket < 1000


def test_tokenizers_of_different_sizes_differ():
    assert CategoryEncoder(buckets=100).tokenizer_key() != CategoryEncoder(buckets=200).tokenizer_key()
    assert CategoryEncoder().tokenizer_key() != NumberEncoder().tokenizer_key()


def test_loading_leaves_the_random_state_alone():
    before = torch.get_rng_state()
    CategoryEncoder()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("text", "what"), [("cheap", "a number"), ("nan", "a finite number"), ("1e39", "a finite number")]
)
def test_what_is_not_a_number(text, what):
    with pytest.raises(DataError, match=f"{what} expected, got '{text}'"):
        number(text)


def test_numbers():
    assert [number(text) for text in ("3e4", " -2.5 ", "0")] == [3e4, -2.5, 0.0]
