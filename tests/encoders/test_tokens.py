"""Tokens: as the tokenizer gives them, shared by what does not change them, and in batches by budget."""

import numpy as np
import pytest
import torch

from labeldeconv.encoders import tokens as module
from labeldeconv.encoders.base import Tokenizer
from labeldeconv.encoders.pretrained import Pretrained, load_encoder
from labeldeconv.encoders.tokens import (
    Tokens,
    ahead,
    epoch_batches,
    equal_rows,
    first_of_equal_rows,
    length_batches,
    like_lengths,
    tokens,
    write_tokens,
)
from labeldeconv.encoders.values import NumberEncoder
from labeldeconv.graph.texts import Texts
from labeldeconv.settings.models import EncoderConfig

STRINGS = ["a graph", "", "label deconvolution " * 3, "ü"]


def test_store_equals_tokenizer(tmp_path):
    encoder = load_encoder(EncoderConfig(name="tiny"))
    store = write_tokens(encoder.tokenizer_part, Texts.from_strings(STRINGS), 20, tmp_path)
    assert store.ids.dtype == np.uint16
    rows = encoder.tokenize(STRINGS, 20)
    assert store.lengths.tolist() == [len(r) for r in rows]
    ids, mask = store.batch(np.array([2, 1, 3]))
    assert ids.shape == (3, 20)
    for row, m, node in zip(ids, mask, (2, 1, 3), strict=True):
        assert row[m.bool()].tolist() == rows[node]
        assert (row[~m.bool()] == encoder.pad_id).all()
    assert torch.equal(mask.sum(1), torch.tensor([20, 2, 4]))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ids.npy", "offsets.npy"]


def test_large_vocabularies_take_four_bytes(tmp_path):
    tokenizer = Tokenizer(lambda texts, most: [[70_000] for _ in texts], 0, 1 << 17, "k")
    store = write_tokens(tokenizer, Texts.from_strings(["a", "b"]), 20, tmp_path)
    assert (store.ids.dtype, store.ids.tolist()) == (np.uint32, [70_000, 70_000])


def test_no_tokens_at_all(tmp_path):
    store = write_tokens(NumberEncoder().tokenizer_part, Texts.from_strings(["", ""]), 20, tmp_path)
    ids, mask = store.batch(np.array([0, 1]))
    assert ids.tolist() == [[0], [0]]
    assert not mask.any()


def test_chunks_do_not_matter(tmp_path, monkeypatch):
    encoder, texts = load_encoder(EncoderConfig(name="tiny")), Texts.from_strings(STRINGS * 3)
    for name, chunk in (("a", 4096), ("b", 5)):
        monkeypatch.setattr(module, "CHUNK", chunk)
        (tmp_path / name).mkdir()
        write_tokens(encoder.tokenizer_part, texts, 20, tmp_path / name)
    for name in ("ids.npy", "offsets.npy"):
        np.testing.assert_array_equal(np.load(tmp_path / "a" / name), np.load(tmp_path / "b" / name))


def test_stage_is_keyed_by_texts_tokenizer_length_and_files():
    """Not by the encoder's weights: any number of its layers shares the tokens."""
    texts = Texts.from_strings(STRINGS)
    whole, cut = (Pretrained(EncoderConfig(name="tiny", layers=layers)).tokenizer for layers in (2, 1))
    made = tokens(texts, whole, 20)
    assert not made.made.cached
    assert tokens(texts, cut, 20).content_key == made.content_key
    assert tokens(texts, cut, 20).made.cached
    assert made.batch(np.array([0]))[0].tolist() == [
        load_encoder(EncoderConfig(name="tiny")).tokenize(STRINGS[:1], 20)[0]
    ]
    other = Texts.from_strings([*STRINGS[:-1], "u"])
    keys = [tokens.key(*given) for given in ((other, whole, 20), (texts, whole, 21), (texts, whole, 20, "files"))]
    assert len({made.content_key, *keys}) == 4


LENGTHS = np.random.default_rng(0).integers(3, 120, 5000)


def test_every_node_once_within_both_limits_and_little_padding():
    nodes = np.flatnonzero(LENGTHS % 3)
    batches = epoch_batches(LENGTHS, nodes, 32, 1024, seed=0, epoch=0)
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), nodes)
    padded = [len(b) * LENGTHS[b].max() for b in batches]
    assert max(padded) <= 1024
    assert max(map(len, batches)) <= 32
    assert 1 - LENGTHS[nodes].sum() / sum(padded) < 0.05


def test_pure_function_of_seed_and_epoch():
    a, b, other = (epoch_batches(LENGTHS, np.arange(5000), 32, 4096, 7, epoch) for epoch in (1, 1, 2))
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    assert not np.array_equal(a[0], other[0])


def test_long_text_alone():
    lengths = np.array([10, 900, 10])
    batches = length_batches(lengths, np.arange(3), 8, 100)
    assert [b.tolist() for b in batches] == [[1], [0, 2]]


def test_batches_are_cut_where_that_saves_padding():
    """30, 30, 4, 4, 3: a cut before the first 4 saves 78 tokens, one before the 3 only one more."""
    lengths, batch = np.array([4, 30, 3, 30, 4]), np.array([1, 3, 0, 4, 2])
    parts = lambda least: [part.tolist() for part in like_lengths(lengths, batch, least)]  # noqa: E731
    assert parts(78) == [[1, 3, 0, 4, 2]]
    assert parts(77) == parts(1) == [[1, 3], [0, 4, 2]]
    assert parts(0) == [[1, 3], [0, 4], [2]]
    assert [part.tolist() for part in like_lengths(lengths, batch[:0], 0)] == [[]]
    ordered = np.argsort(-LENGTHS, kind="stable")[:500]
    found = like_lengths(LENGTHS, ordered, 32)
    np.testing.assert_array_equal(np.concatenate(found), ordered)
    padded = sum(len(part) * LENGTHS[part].max() for part in found)
    assert LENGTHS[ordered].sum() <= padded < 500 * LENGTHS[ordered].max() - 32 * (len(found) - 1)


def test_ahead_keeps_order_prepares_early_and_passes_errors_on():
    made = []

    def prepare(k):
        made.append(k)
        return 10 // k

    used = ahead(prepare, [1, 2, 0, 5])
    assert next(used) == 10
    assert next(used) == 5
    with pytest.raises(ZeroDivisionError):
        next(used)
    assert made[:3] == [1, 2, 0]
    assert list(ahead(prepare, [])) == []


def rows_of(rows):
    """Rows of token ids as a flat array and offsets."""
    return np.array([t for row in rows for t in row], np.uint16), np.cumsum([0, *map(len, rows)])


@pytest.mark.parametrize("block", [1, 3, 1 << 12])
def test_the_first_of_equal_rows_is_found(block, monkeypatch):
    monkeypatch.setattr(module, "ROWS", block)
    rng = np.random.default_rng(0)
    rows = [tuple(rng.integers(0, 3, rng.integers(0, 4))) for _ in range(200)]  # empty rows too, many equal
    known = {}
    expected = [known.setdefault(row, i) for i, row in enumerate(rows)]
    assert first_of_equal_rows(*rows_of(rows)).tolist() == expected


def test_rows_of_one_hash_are_not_taken_for_equal(monkeypatch):
    monkeypatch.setattr(module, "_row_hashes", lambda flat, offsets: np.zeros(len(offsets) - 1, np.uint64))
    rows = [[1, 2], [1, 3], [1, 2], [1], [5, 6]]
    assert first_of_equal_rows(*rows_of(rows)).tolist() == [0, 1, 0, 3, 4]


def test_order_and_place_count_for_equality():
    assert first_of_equal_rows(*rows_of([[1, 2], [2, 1], [1, 2, 0], [0, 1, 2]])).tolist() == [0, 1, 2, 3]


def test_distinct_attributes_of_some_nodes():
    store = Tokens(*rows_of([[7], [8, 8], [7], [9], [8, 8]]), pad_id=0)
    nodes = np.array([4, 2, 3, 0])
    distinct, same = store.distinct(nodes)
    assert [store.ids[store.offsets[i]] for i in distinct[same]] == [8, 7, 9, 7]
    assert len(distinct) == 3
    alone = np.array([3, 1, 0])
    assert store.distinct(alone)[0] is alone
    assert store.distinct(alone)[1] is None


def test_rows_of_other_tokens_are_found():
    def store(*rows):
        flat = np.array([x for row in rows for x in row], dtype=np.uint16)
        return Tokens(flat, np.array([0, *np.cumsum([len(row) for row in rows])], dtype=np.int64), 0)

    others = store([1, 2], [3], [], [2, 1], [3])
    own = store([3], [9], [2, 1], [1, 2], [1, 2, 3], [])
    assert equal_rows(own, np.arange(6), others).tolist() == [1, -1, 3, 0, -1, 2]
    assert equal_rows(own, np.array([3, 1]), others).tolist() == [0, -1]
    assert equal_rows(own, np.arange(6), store()).tolist() == [-1] * 6
