import numpy as np

from labeldeconv.analysis.similarity import similarity
from labeldeconv.report.source import open_source
from labeldeconv.report.tabs import learning_targets as module
from labeldeconv.report.tabs.learning_targets import labels
from tests.report.run_writing import ring, write_comparison, write_run

WORDS = ["apple bread", "ship sail", "piano drum"]


def wordy(n=60):
    return ring(n, texts=[f"{WORDS[i % 3]} {'red' if i % 2 else 'blue'}" for i in range(n)])


def test_heat_maps_are_the_analysis(tmp_path):
    source = open_source(write_comparison(tmp_path, wordy(), methods=("pne", "ld")))
    maps = {b.title: b.variants[0][1] for b in labels(source).blocks if b.kind == "figure"}
    assert list(maps) == list(module.TITLES.values())
    found = similarity(tmp_path)
    assert maps["Text similarity"]["values"] == found.text
    assert maps["Similarity of inverse labels"]["values"] == found.inverse
    assert maps["Text similarity"]["rows"] == ["1a", "1b", "2a", "2b", "3a", "3b"]
    assert np.allclose(np.diag(maps["Similarity of true labels"]["values"]), 1)


def test_without_inverse_labels_only_the_bias_is_told(tmp_path):
    write_run(tmp_path, wordy(), "pne")
    kinds = [b.kind for b in labels(open_source(tmp_path)).blocks]
    assert kinds == ["text", "facts"]


def test_huge_texts_are_left_to_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_TEXT", 10)
    write_run(tmp_path, wordy(), "ld")
    block = labels(open_source(tmp_path)).blocks[-1]
    assert "labeldeconv analyze similarity" in block.text


def test_texts_without_a_common_word_leave_the_figure_out(tmp_path):
    write_run(tmp_path, ring(texts=[f"word{i}" for i in range(60)]), "ld")
    assert [b.kind for b in labels(open_source(tmp_path)).blocks] == ["text", "facts"]
