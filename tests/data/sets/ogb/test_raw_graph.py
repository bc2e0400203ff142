"""OGB graphs: small data sets in exactly OGB's formats, and files that are wrong told with the line."""

import numpy as np
import pytest

from labeldeconv.data.sets.ogb.layout import ARXIV, PROTEINS
from labeldeconv.data.sets.ogb.raw_graph import incident_means
from labeldeconv.errors import DataError

from .ogb_writing import N, arxiv, load, proteins, put


def test_arxiv(tmp_path):
    folder = arxiv(tmp_path)
    loaded = load(ARXIV, folder)
    graph = loaded.graph
    assert graph.texts[7] == 'Title: title "7 Abstract: abstract, 7'
    assert graph.texts[4] == ""
    assert list(graph.ids) == [str(100 + i) for i in range(N)]
    assert graph.edges.tolist() == [list(range(N)), [*range(1, N), 0]]
    assert graph.class_names[3] == "cs 3"
    assert graph.features.shape == (N, 128)
    assert graph.features[4, 0] == 0.5
    assert graph.split.roles.tolist() == [0] * 6 + [1] * 3 + [2] * 3
    assert loaded.warnings == [
        "titleabs.tsv.gz: 1 of 12 nodes have no attribute; paper id '104'",
        "titleabs.tsv.gz: 3 of 14 rows belong to no node and are left out",
    ]


@pytest.mark.parametrize("version", ["11.0", "11.5", "12.0"])
def test_proteins(tmp_path, version):
    loaded = load(PROTEINS, proteins(tmp_path, version))
    graph = loaded.graph
    assert graph.attributes == "sequence"
    assert graph.texts[2] == "MKXAA"
    assert graph.texts[5] == ""
    assert graph.labels.shape == (N, 112)
    assert graph.edge_features.shape == (N, 8)
    np.testing.assert_allclose(graph.edge_features[3], 0.003 + np.arange(8), rtol=1e-6)
    assert f"protein.sequences.v{version}.fa.gz: 11 sequences hold 'J', read as 'X'" in loaded.warnings
    assert "1 of 12 nodes have no attribute; protein id '4932.Y5'" in loaded.warnings[-1]


def test_class_names_that_cannot_be_read_only_warn(tmp_path):
    folder = proteins(tmp_path)
    put(folder, "mapping/labelidx2GO.csv", "label idx,GO,aspect\n0,GO:1,P\n")
    loaded = load(PROTEINS, folder)
    assert loaded.graph.class_names[:2] == ["0", "1"]
    assert "classes have numbers instead of names" in loaded.warnings[-1]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("raw/edge.csv", "0,1\n1,12\n", r"edge.csv.gz, line 2: node numbers 0..11 expected as target, got 12"),
        ("raw/edge.csv", "0,1\n1\n", r"1 rows cannot be read"),
        ("raw/node-label.csv", "0\n" * 11 + "40\n", r"line 12: labels 0..39 expected, got 40"),
        ("raw/node-feat.csv", "0.5\n", r"cannot be read"),
        ("split/time/test.csv", "9\n99\n", r"test.csv.gz, line 2: node numbers 0..11 expected, got 99"),
        ("split/time/train.csv", "", r"train.csv.gz: train nodes expected, got none"),
        ("split/time/test.csv", "0\n", r"1 nodes of 'test' are in another part too"),
        ("mapping/nodeidx2paperid.csv", "idx,id\n", r"line 1: the header 'node idx,paper id' expected"),
        (
            "mapping/nodeidx2paperid.csv",
            "node idx,paper id\n" + "3,100\n" * 12,
            r"each of the node numbers 0..11 is expected once",
        ),
        ("titleabs.tsv", "1\ta\tb\n", r"none of the 12 nodes has its paper id there, such as '100'"),
        ("titleabs.tsv", "100\ta\n", r"1 rows cannot be read"),
    ],
)
def test_bad_files(tmp_path, name, text, message):
    folder = arxiv(tmp_path)
    put(folder, name, text)
    with pytest.raises(DataError, match=message):
        load(ARXIV, folder)


def test_proteins_have_the_mean_of_their_edge_features(tmp_path):
    """OGB's own X of ogbn-proteins; the miniature is a ring whose edge i has 0.001 i + k, so a node has two edges."""
    graph = load(PROTEINS, proteins(tmp_path)).graph
    edge = np.array([[0.001 * i + k for k in range(8)] for i in range(N)])
    expected = (edge + np.roll(edge, 1, axis=0)) / 2
    np.testing.assert_allclose(graph.features, expected, rtol=1e-6)


def test_nodes_without_edges_have_zeros():
    found = incident_means(np.array([[0, 0], [1, 2]]), np.array([[1.0], [3.0]]), 4)
    np.testing.assert_array_equal(found, [[2.0], [1.0], [3.0], [0.0]])
