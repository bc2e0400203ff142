"""The contract's own code: keys of weights and of tokenizers, and what an encoder says by default."""

import pytest
import torch
from torch import nn

from labeldeconv.encoders.base import Encoder, Tokenizer, state_key


class Fixed(Encoder):
    """The smallest encoder: a number per text."""

    dim, pad_id, vocab_size = 1, 0, 300

    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([scale]))

    def forward(self, input_ids, attention_mask):
        return input_ids.float().sum(1, keepdim=True) * self.scale

    def tokenize(self, texts, max_tokens):
        return [list(text.encode())[:max_tokens] for text in texts]

    def save(self, folder): ...

    def restore(self, folder): ...


class Shifted(Fixed):
    def tokenize(self, texts, max_tokens):
        return [[token + 1 for token in row] for row in super().tokenize(texts, max_tokens)]


def test_weights_and_classes_tell_encoders_apart():
    assert Fixed().weights_key() == Fixed().weights_key()
    assert Fixed().weights_key() != Fixed(2.0).weights_key()
    assert Fixed().weights_key() != Shifted().weights_key()


def test_tokenizers_are_told_apart_by_what_they_do():
    assert Fixed().tokenizer_key() == Fixed(2.0).tokenizer_key()
    assert Fixed().tokenizer_key() != Shifted().tokenizer_key()
    larger = Fixed()
    larger.vocab_size = 301
    assert larger.tokenizer_key() != Fixed().tokenizer_key()
    padded = Fixed()
    padded.pad_id = 7
    assert padded.tokenizer_key() != Fixed().tokenizer_key()


def test_tokenizer_part():
    part = Fixed().tokenizer_part
    assert isinstance(part, Tokenizer)
    assert (part.pad_id, part.vocab_size, part.content_key) == (0, 300, Fixed().tokenizer_key())
    assert part.tokenize(["ab"], 1) == [[97]]


def test_files_and_checkpointing_unless_an_encoder_says_otherwise():
    class Opening(Fixed):
        def files_key(self, texts):
            return "files"

    assert Fixed().files_key(["a"]) is None
    assert (Fixed().opens_files, Opening().opens_files) == (False, True)
    with pytest.raises(NotImplementedError, match="Fixed has no gradient checkpointing"):
        Fixed().enable_gradient_checkpointing()


def holding(**tensors):
    module = nn.Module()
    for name, tensor in tensors.items():
        module.register_buffer(name, tensor)
    return module


@pytest.mark.parametrize(
    "other",
    [
        {"a": torch.tensor([1.0, 3.0])},
        {"b": torch.tensor([1.0, 2.0])},
        {"a": torch.tensor([1.0, 2.0], dtype=torch.float64)},
        {"a": torch.tensor([[1.0, 2.0]])},
        {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor(0)},
        {"a": torch.tensor([1.0, 2.0]).bfloat16()},
    ],
)
def test_state_key_sees_names_types_shapes_and_values(other):
    base = holding(a=torch.tensor([1.0, 2.0]))
    assert state_key(base) == state_key(holding(a=torch.tensor([1.0, 9.0, 2.0])[::2]))  # memory does not matter
    assert state_key(base) != state_key(holding(**other))


def test_state_key_without_some_names():
    one, two = (holding(a=torch.zeros(2), lora_b=torch.full((2,), k)) for k in (1.0, 2.0))
    assert state_key(one) != state_key(two)
    assert state_key(one, without="lora_") == state_key(two, without="lora_") == state_key(holding(a=torch.zeros(2)))
