"""Texts that were tokenised before are found by content, and their tokens are those of a fresh result."""

import json
import logging
from dataclasses import replace

import numpy as np
import pytest

from labeldeconv.encoders import known_tokens
from labeldeconv.encoders import tokens as module
from labeldeconv.encoders.known_tokens import text_hashes
from labeldeconv.encoders.pretrained import Pretrained
from labeldeconv.encoders.tokens import tokens
from labeldeconv.graph.texts import Texts
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.stage import session

OLD = [f"amber river {i} " * (i % 4) for i in range(40)]  # every fourth text is empty
NEW = ["a new text", *OLD[20:], "another one", *OLD[:5], "a new text"]
TOKENIZER = Pretrained(EncoderConfig(name="tiny")).tokenizer


def tokenised(strings, root, asked=None, most=16, files=None):
    """Tokens in a cache; `asked` gets the texts that the tokenizer is given."""

    def tokenize(texts, number):
        (asked if asked is not None else []).extend(texts)
        return TOKENIZER.tokenize(texts, number)

    with session(Cache(root)):
        return tokens(Texts.from_strings(strings), replace(TOKENIZER, tokenize=tokenize), most, files)


@pytest.mark.parametrize("chunk", [4096, 7])
def test_only_new_texts_are_tokenised_and_the_stage_is_a_fresh_one(tmp_path, monkeypatch, caplog, chunk):
    monkeypatch.setattr(module, "CHUNK", chunk)
    monkeypatch.setattr(known_tokens, "CHUNK", chunk)
    tokenised(OLD, tmp_path / "a")
    with caplog.at_level(logging.INFO, logger="labeldeconv"):
        again = tokenised(NEW, tmp_path / "a", asked := [])
    assert asked == ["a new text", "another one", "a new text"]
    assert f"tokens: {len(NEW) - 3} of {len(NEW)} texts were tokenised before" in caplog.messages
    fresh = tokenised(NEW, tmp_path / "b")
    manifests = [json.loads((each.made.path / "stage.json").read_text()) for each in (again, fresh)]
    same = ("arguments", "arrays", "files", "key", "values", "version")
    assert [manifests[0][name] for name in same] == [manifests[1][name] for name in same]
    rows = TOKENIZER.tokenize(NEW, 16)
    assert [again.ids[a:b].tolist() for a, b in zip(again.offsets, again.offsets[1:], strict=False)] == rows


def test_several_earlier_results_together(tmp_path, monkeypatch):
    tokenised(OLD[:20], tmp_path)
    tokenised(OLD[20:], tmp_path)
    tokenised([*OLD, "x"], tmp_path, asked := [])
    assert asked == ["x"]
    monkeypatch.setattr(known_tokens, "MOST", 1)
    tokenised(["unrelated"], tmp_path)
    tokenised([*OLD, "y"], tmp_path, asked := [])
    assert len(asked) == 41  # the one used last has none of them


def test_other_cuts_files_and_results_without_hashes_are_not_taken(tmp_path, monkeypatch):
    with monkeypatch.context() as older:
        older.setattr(module, "replace", lambda made, **_: made)
        assert tokenised(OLD, tmp_path).text_hashes is None
    tokenised(OLD, tmp_path, most=8)
    tokenised(OLD, tmp_path, files="hash of files")
    tokenised(NEW, tmp_path, asked := [])
    assert len(asked) == len(NEW)
    tokenised(OLD, tmp_path, asked := [], files="hash of others")
    assert len(asked) == len(OLD)


def test_hashes_are_of_content(monkeypatch):
    hashes = text_hashes(Texts.from_strings(["ab", "", "ba", "ab"]))
    assert hashes.shape == (4, 2)
    np.testing.assert_array_equal(hashes[0], hashes[3])
    assert len(np.unique(hashes, axis=0)) == 3
    monkeypatch.setattr(known_tokens, "CHUNK", 3)
    np.testing.assert_array_equal(text_hashes(Texts.from_strings(["ab", "", "ba", "ab"])), hashes)
    assert text_hashes(Texts.from_strings([])).shape == (0, 2)


def test_texts_of_one_half_of_a_hash_are_told_apart(tmp_path, monkeypatch):
    """Were the first 64 bits of two texts equal, the second ones decide."""
    real = known_tokens.text_hashes
    monkeypatch.setattr(module, "text_hashes", lambda texts: real(texts) * np.array([0, 1], np.uint64))
    tokenised(["amber"], tmp_path)
    rows = tokenised(["river", "amber"], tmp_path, asked := [])
    assert asked == ["river"]
    assert [rows.ids[: rows.offsets[1]].tolist()] == TOKENIZER.tokenize(["river"], 16)
