"""Texts: strings in one buffer, cut out, packed anew, hashed and written to files."""

import tracemalloc

import numpy as np
import pytest

from labeldeconv.graph.texts import Texts

STRINGS = ["", "plain", "büßt 日本", "a" * 1000]


def test_round_trip():
    texts = Texts.from_strings(STRINGS)
    assert list(texts) == STRINGS
    assert texts[-1] == STRINGS[-1]
    assert texts[1:3] == STRINGS[1:3]
    assert texts.take(np.array([2, 0])) == [STRINGS[2], ""]
    assert list(texts.lengths()) == [0, 5, 13, 1000]


def test_out_of_range():
    with pytest.raises(IndexError, match="text 4 of 4"):
        Texts.from_strings(STRINGS)[4]


def test_selected_texts_are_those_that_were_taken():
    texts = Texts.from_strings(STRINGS)
    ids = np.array([2, 2, 0, 1])
    assert list(texts.select(ids)) == texts.take(ids)
    assert list(texts.select(np.array([], int))) == []


def test_key_follows_content():
    """The same letters cut at another place are other texts."""
    assert Texts.from_strings(["ab", "c"]).content_key == Texts.from_strings(["ab", "c"]).content_key
    assert Texts.from_strings(["ab", "c"]).content_key != Texts.from_strings(["a", "bc"]).content_key
    assert Texts.from_strings(["ab", "c"]).content_key != Texts.from_strings(["ab", "d"]).content_key


@pytest.mark.parametrize("strings", [STRINGS, ["", ""], []])
def test_files(strings, tmp_path):
    texts = Texts.from_strings(strings)
    texts.save(tmp_path, "text")
    loaded = Texts.load(tmp_path, "text")
    assert list(loaded) == strings
    assert loaded.content_key == texts.content_key
    assert sorted(p.name for p in tmp_path.iterdir()) == ["text_offsets.npy", "texts.bin"]


def test_offsets_without_any_number_are_no_texts():
    """Found by fuzzing: a file of no offsets made a length of -1."""
    assert len(Texts(np.empty(0, np.uint8), np.empty(0, np.int64))) == 0


def test_selecting_takes_little_more_memory_than_what_is_selected():
    """An index per byte took sixteen times the texts: a graph of 3 GB of texts could not be split."""
    texts = Texts.from_strings(["x" * 20_000] * 200)
    ids = np.concatenate([np.arange(0, 100), np.arange(199, 100, -3)])
    tracemalloc.start()
    chosen = texts.select(ids)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.2 * chosen.buffer.nbytes
    assert chosen.take(np.arange(len(chosen))) == texts.take(ids)
