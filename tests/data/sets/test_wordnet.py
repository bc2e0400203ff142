"""WordNet database files: small ones in their format, and the real ones where Debian's package is installed."""

import pytest

from labeldeconv.data.opening import open_data
from labeldeconv.data.sets.wordnet import FOLDER, load_wordnet, wordnet_files
from labeldeconv.errors import DataError

LICENCE = "  1 This software and database is being provided to you, the LICENSEE  \n"
NOUNS = (
    "00001740 03 n 01 entity 0 001 ~ 00002137 n 0000 | that which is perceived to exist  \n"
    "00002137 03 n 02 abstraction 0 abstract_entity 0 002 @ 00001740 n 0000 + 00001740 v 0101 | a general concept\n"
)
VERBS = '00001740 29 v 01 breathe 0 001 @ 00002137 n 0000 02 + 02 00 + 08 00 | draw air into the lungs; "I breathe"\n'
ADJECTIVES = (
    "00001740 00 a 01 able 0 001 & 00002098 s 0000 | having the means  \n00002098 00 s 01 fit 0 000 | in shape\n"
)
ADVERBS = "00001837 02 r 0a " + "a 0 " * 10 + "000 | in the christian era\n"


def write(folder, **changed):
    texts = {"noun": NOUNS, "verb": VERBS, "adj": ADJECTIVES, "adv": ADVERBS, **changed}
    for part, text in texts.items():
        (folder / f"data.{part}").write_text(LICENCE + text)
    return folder


def test_small_files(tmp_path):
    loaded = load_wordnet(wordnet_files(write(tmp_path)))
    graph = loaded.graph
    assert list(graph.ids) == ["n00001740", "n00002137", "v00001740", "a00001740", "a00002098", "r00001837"]
    assert graph.texts[0] == "that which is perceived to exist"
    assert graph.texts[2] == 'draw air into the lungs; "I breathe"'
    assert graph.edges.T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1], [3, 4]]
    assert [graph.class_names[k] for k in graph.labels] == ["noun.Tops"] * 2 + ["verb.body"] + ["adj.all"] * 2 + [
        "adv.all"
    ]
    assert loaded.warnings == []


def test_pointer_to_nowhere_warns(tmp_path):
    write(tmp_path, adv="00001837 02 r 01 ad 0 001 \\ 99999999 a 0101 | x\n")
    (told,) = load_wordnet(wordnet_files(tmp_path)).warnings
    assert told == "1 pointers lead to no synset, first in data.adv, line 2: 'a99999999'"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("00001837 02 r 01 ad 0 002 \\ 00001740 a 0101 | x\n", r"data.adv, line 2: not a synset line"),
        ("00001837 02 r 01 ad 0 000 no gloss\n", r"line 2: not a synset line"),
        ("a b c\n", r"line 2: not a synset line"),
        (ADVERBS + ADVERBS, r"line 3: synset r00001837 was there before"),
    ],
)
def test_bad_lines(tmp_path, line, message):
    write(tmp_path, adv=line)
    with pytest.raises(DataError, match=message):
        load_wordnet(wordnet_files(tmp_path))


def test_absent(tmp_path):
    with pytest.raises(DataError, match=r"no data.noun, data.verb, data.adj, data.adv in .*wordnet-base"):
        wordnet_files(tmp_path)


@pytest.mark.skipif(not (FOLDER / "data.noun").exists(), reason="needs Debian's package wordnet-base")
def test_real_wordnet():
    graph = load_wordnet(wordnet_files(FOLDER)).graph
    assert graph.num_nodes == 117_659
    assert graph.num_classes == 45
    assert graph.num_edges > 350_000


def test_by_name(tmp_path):
    write(tmp_path)
    for name in (f"wordnet@{tmp_path}", str(tmp_path)):
        assert open_data(name).graph.num_nodes == 6
