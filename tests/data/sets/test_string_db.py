"""STRING: small files in its formats, and yeast with its known counts."""

import gzip

import numpy as np
import pytest

from labeldeconv.data.opening import open_data
from labeldeconv.data.sets.expected_files import MissingFiles
from labeldeconv.data.sets.string_db import load_string, string_files
from labeldeconv.errors import DataError
from tests.samples import real_data

N = 40
INFO = "#string_protein_id\tpreferred_name\tprotein_size\tannotation\n" + "".join(
    f"7.P{i}\tp{i}\t3\tsecret function {i}\n" for i in range(N)
)
LINKS = "protein1 protein2 combined_score\n7.P0 7.P1 500\n7.P1 7.P0 500\n7.P2 7.P3 399\n7.P4 7.P5 400\n"
FASTA = "".join(f">7.P{i}\nMKJ*\n" for i in range(N))
LABELS = "protein\tterm\n" + "".join(f"7.P{i}\tGO:1\n" for i in range(35)) + "7.P39\tGO:2\n7.X\tGO:1\n"


def write(folder, version="12.0", name_of_links="physical.links", **changed):
    texts = {"info": INFO, "links": LINKS, "sequences": FASTA, "labels": LABELS, **changed}
    names = {"info": "info.{}.txt.gz", "links": name_of_links + ".{}.txt.gz", "sequences": "sequences.{}.fa.gz"}
    for kind, name in names.items():
        path = folder / f"7.protein.{name.format('v' + version)}"
        path.write_bytes(gzip.compress(texts[kind].encode()))
    (folder / "labels.tsv").write_text(texts["labels"])
    return folder


@pytest.mark.parametrize(("version", "links"), [("11.5", "links"), ("12.0", "physical.links")])
def test_small(tmp_path, version, links):
    loaded = load_string(string_files(write(tmp_path, version, links), "7"), "7")
    graph = loaded.graph
    assert graph.num_nodes == N
    assert graph.edges.T.tolist() == [[0, 1], [4, 5]]
    np.testing.assert_allclose(graph.edge_features[:, 0], [0.5, 0.4])
    assert graph.texts[3] == "MKX"
    assert not any("secret" in text for text in graph.texts)
    assert graph.class_names == ["GO:1"]
    assert graph.labels[:, 0].tolist() == [1] * 35 + [-1] * 4 + [0]  # P39 has a term, though a rare one
    assert graph.attributes == "sequence"
    assert "labels.tsv: 1 labels belong to no protein of the info file: '7.X'" in loaded.warnings


def test_names(tmp_path):
    write(tmp_path)
    (tmp_path / "terms.tsv").write_text("term\taspect\tname\nGO:1\tC\tmembrane\n")
    for name in (f"string:7@{tmp_path}", str(tmp_path)):
        graph = open_data(name).graph
        assert graph.class_names == ["GO:1 membrane"]
    assert open_data(f"string:7:450@{tmp_path}").graph.num_edges == 1
    with pytest.raises(DataError, match=r"string:SPECIES:SCORE expected.*species in .*: 7"):
        open_data(f"string@{tmp_path}")
    with pytest.raises(MissingFiles, match=r"9.protein.info.v12.0.txt.gz \(or without .gz\): string_protein_id"):
        open_data(f"string:9@{tmp_path}")


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("info", INFO + "7.P0\tx\t1\ty\n", r"info.v12.0.txt.gz, line 42: '7.P0' was already on line 2"),
        ("info", INFO + "7.P99\tx\n", r"line 42: 4 columns expected, got 2"),
        ("info", "id\n", r"line 1: the header '#string_protein_id"),
        ("links", LINKS + "7.P1 7.P77 900\n", r"line 6: '7.P77' is not in the info file \(1 such links\)"),
        ("links", LINKS + "7.P1 7.P2\n", r"1 rows cannot be read"),
        ("links", LINKS + "7.P1 7.P2 high\n", r"1 rows cannot be read"),
        ("links", "a b c\n", r"line 1: the header 'protein1 protein2"),
        ("sequences", FASTA + ">7.P3\nMK\n", r"line 81: '7.P3' was already on line 7"),
        ("sequences", ">8.P0\nMK\n", r"no sequence of any protein of 7.protein.info.v12.0.txt.gz; wrong species"),
        ("labels", "protein\tterm\nP0\tGO:1\n", r"labels.tsv, line 2: no protein of the info file has a label"),
        ("labels", "protein\tterm\n7.P0\tGO:1\n", r"no term has 30 proteins"),
    ],
)
def test_bad_files(tmp_path, kind, text, message):
    with pytest.raises(DataError, match=message):
        load_string(string_files(write(tmp_path, **{kind: text}), "7"), "7")


def test_yeast():
    loaded = load_string(string_files(real_data("string_yeast"), "4932"), "4932")
    graph = loaded.graph
    assert (graph.num_nodes, graph.num_edges, graph.num_classes) == (6_600, 70_201, 203)
    assert int((graph.labels >= 0).any(1).sum()) == 5_483
    assert graph.class_names[0] == "GO:0000003 reproduction"
    assert loaded.warnings == []
