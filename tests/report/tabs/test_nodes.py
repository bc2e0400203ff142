import numpy as np
import pytest

from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.report.source import open_source
from labeldeconv.report.tabs import nodes as explorer
from labeldeconv.report.tabs.nodes import nodes
from tests.report.run_writing import ring, write_comparison, write_run


def data(source, **bounds):
    adj = Adjacency.from_edges(source.graph.edges, source.graph.num_nodes)
    (block,) = nodes(source, adj, **bounds).blocks
    return block.data, block.note


def test_small_graphs_are_whole(tmp_path):
    found, note = data(open_source(write_comparison(tmp_path, ring(), seeds=2)))
    assert note == "All 60 nodes."
    node = found["nodes"][0]
    assert (node["id"], node["t"], node["cut"]) == ("0", "node number 0 of the ring", 0)
    assert set(node["n"]) == {1, 59, 7}
    assert node["o"] == []
    assert found["entries"][1] == {"name": "ld", "color": 0, "seeds": 2}


def test_bars_are_hop_labels_and_their_mix(tmp_path):
    source = open_source(write_comparison(tmp_path, ring()))
    found, _ = data(source)
    assert found["slices"] == ["true", "K0 pseudo", "K1", "inverse"]
    K = source.entries[1].runs[0].hop_labels
    for node in (0, 17):
        classes, values = found["nodes"][node]["b"]
        for k, row in zip(classes, values, strict=True):
            inverse = 0.3 * K[node, 0, k] + 0.7 * K[node, 1, k]
            want = [float(source.graph.labels[node] == k), K[node, 0, k], K[node, 1, k], inverse]
            assert row == pytest.approx([100 * v for v in want], abs=0.51)


def test_fixed_point_hop_labels_are_read(tmp_path):
    write_run(tmp_path, ring())
    want, _ = data(open_source(tmp_path))
    write_run(tmp_path, ring(), fixed_point=True)
    assert open_source(tmp_path).runs[0].hop_labels.dtype == np.uint16
    got, _ = data(open_source(tmp_path))
    assert np.allclose(
        [v for n in got["nodes"] for row in n["b"][1] for v in row],
        [v for n in want["nodes"] for row in n["b"][1] for v in row],
        atol=1,
    )


def test_predictions_count_seeds_that_are_right(tmp_path):
    source = open_source(write_comparison(tmp_path, ring(), seeds=3))
    found, _ = data(source)
    runs = source.entries[0].runs
    for node in range(60):
        best = [int(r.logits[node].argmax()) for r in runs]
        assert found["nodes"][node]["p"][0][0] == best[0]
        assert found["nodes"][node]["p"][0][2] == sum(b == source.graph.labels[node] for b in best)


def test_large_graphs_are_sampled_and_say_so(tmp_path):
    source = open_source(write_comparison(tmp_path, ring(400)))
    found, note = data(source, most=100)
    assert len(found["nodes"]) == 100
    assert note.startswith("100 of 400 nodes: ")
    assert "on which methods disagree" in note
    ids = [int(node["id"]) for node in found["nodes"]]
    assert len(set(ids)) == 100
    for node in found["nodes"]:  # links lead to true neighbours
        near = {int(found["nodes"][j]["id"]) for j in node["n"]} | {int(i) for i, _ in node["o"]}
        assert near <= {(int(node["id"]) + d) % 400 for d in (-7, -1, 1, 7)}
    assert any(node["o"] for node in found["nodes"])


def test_bytes_are_bounded(tmp_path):
    source = open_source(write_comparison(tmp_path, ring(400)))
    found, note = data(source, most_bytes=20_000)
    assert 20 < len(found["nodes"]) < 200
    assert len(explorer.embedded(found["nodes"]).encode()) <= 20_100
    assert note.startswith(f"{len(found['nodes'])} of 400 nodes")


def test_long_texts_are_cut_between_characters(tmp_path):
    texts = ["ü" * 500_000, *["short"] * 59]
    write_run(tmp_path, ring(texts=texts))
    found, note = data(open_source(tmp_path))
    assert found["nodes"][0]["t"] == "ü" * explorer.TEXT
    assert found["nodes"][0]["cut"] == 1_000_000
    assert f"cut at {explorer.TEXT} characters" in note


def test_multilabel_with_missing_labels(tmp_path):
    source = open_source(write_comparison(tmp_path, ring(multilabel=True)))
    found, _ = data(source)
    assert found["nodes"][0]["y"] is None
    assert found["nodes"][5]["y"] == np.flatnonzero(source.graph.labels[5] > 0).tolist()
    label, value = found["nodes"][5]["p"][0][0]
    assert label == int(source.entries[0].runs[0].logits[5].argmax())
    assert value == pytest.approx(100 / (1 + np.exp(-source.entries[0].runs[0].logits[5].max())), abs=0.5)


def test_inductive_labels_are_unknown_elsewhere(tmp_path):
    graph = ring()
    write_run(tmp_path, graph, setting="inductive")
    found, _ = data(open_source(tmp_path))
    test, train = (int(graph.split.ids(role)[0]) for role in ("test", "train"))
    assert all(row[1] is None for row in found["nodes"][test]["b"][1])
    assert all(row[1] is not None for row in found["nodes"][train]["b"][1])
