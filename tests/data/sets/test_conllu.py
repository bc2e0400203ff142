"""Treebanks as word graphs: words, edges of text and tree, labels, and what is wrong with a file."""

import gzip

import numpy as np
import pytest

from labeldeconv.data.opening import open_data
from labeldeconv.data.sets.conllu import load_treebank, treebank_files
from labeldeconv.errors import DataError
from tests.samples import real_data


def rows(*words):
    return "".join(f"{i}\t{form}\t_\t_\t_\t_\t{head}\t{rel}\t_\t_\n" for i, form, head, rel in words)


FIRST = (
    "# text = don't go\n1-2\tdon't"
    + "\t_" * 8
    + "\n"
    + rows(("1", "do", 3, "aux"), ("2", "n't", 3, "advmod:neg"), ("3", "go", 0, "root"))
)
SECOND = "# sent_id = 2\n" + rows(("1", "She", 2, "nsubj"), ("2", "went", 0, "root")) + "2.1\twent" + "\t_" * 8 + "\n"


def test_words_edges_and_labels(tmp_path):
    (tmp_path / "a.conllu").write_text(FIRST + "\n" + SECOND)  # no empty line at the end
    loaded = open_data(str(tmp_path / "a.conllu"))
    graph = loaded.graph
    assert list(graph.texts) == ["do", "n't", "go", "She", "went"]
    # 0-1, 1-2, 2-3, 3-4 follow each other; the tree has 2-0, 2-1 and 4-3, of which 1-2 and 3-4 are there already.
    assert set(map(tuple, graph.edges.T.tolist())) == {(0, 1), (1, 2), (2, 3), (3, 4), (0, 2)}
    assert graph.class_names == ["advmod", "aux", "nsubj", "root"]
    assert [graph.class_names[k] for k in graph.labels] == ["aux", "advmod", "root", "nsubj", "root"]
    assert loaded.warnings == ["1 empty nodes are left out", "1 multi-word tokens are left out"]
    assert graph.name == "a"


def test_rare_relations_are_other_and_files_do_not_touch(tmp_path):
    many = [(str(i + 1), f"w{i}", i, f"r{i % 17:02d}") for i in range(34)]
    (tmp_path / "b.conllu.gz").write_bytes(gzip.compress((rows(*many, ("35", "x", 1, "rare"))).encode()))
    (tmp_path / "a.conllu").write_text(rows(("1", "alone", 0, "root")))
    graph = open_data(f"conllu@{tmp_path}").graph
    assert graph.class_names[:2] == ["r00", "r01"]
    assert len(graph.class_names) == 18
    assert graph.class_names[-1] == "other"
    assert [graph.class_names[k] for k in graph.labels[[0, -1]]] == ["other", "other"]
    assert 0 not in graph.edges  # the word of the other file
    assert graph.edges.max() == 35


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\tword\n", r"a.conllu, line 1: 10 columns separated by tabs expected, got 2"),
        (rows(("1", "a", 5, "x")), r"a.conllu, sentence from line 1: word 1 has head 5, which is not in it"),
        (rows(("one", "a", 0, "x")), r"line 1: column ID: a number expected, got 'one'"),
        (rows(("1", "a", "x", "x")), r"line 1: column HEAD: a number expected, got 'x'"),
        ("# only\n\n" + rows(("1", "a", 0, "_")), r"line 3: column DEPREL is empty"),
        ("# nothing\n", r"no words in a.conllu"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path, text, message):
    (tmp_path / "a.conllu").write_text(text)
    with pytest.raises(DataError, match=message):
        load_treebank(treebank_files(tmp_path))


def test_a_folder_without_treebanks(tmp_path):
    with pytest.raises(DataError, match=r"\*\.conllu or \*\.conllu\.gz expected"):
        open_data(f"conllu@{tmp_path}")
    with pytest.raises(DataError, match="the path of a"):
        open_data("conllu")


def test_english_ewt_is_the_word_graph_that_is_known():
    graph = open_data(str(real_data("ud_english_ewt"))).graph
    assert (graph.num_nodes, graph.edges.shape[1], graph.num_classes) == (25_147, 38_932, 18)
    same = graph.labels[graph.edges[0]] == graph.labels[graph.edges[1]]
    assert np.round(same.mean(), 2) == 0.04


def test_numbers_that_no_sentence_has_are_refused(tmp_path):
    """The defect: Python turns no text of more than 4,300 digits into a number, and that was a traceback."""
    for number, head in (("9" * 5000, "0"), ("1", "9" * 5000)):
        (tmp_path / "a.conllu").write_text(rows((number, "word", head, "root")))
        with pytest.raises(DataError, match="a number expected, got '9999"):
            open_data(str(tmp_path / "a.conllu"))
