"""Node-link JSON: what NetworkX writes, by file and folder, and what is wrong with a file."""

import gzip
import json

import networkx as nx
import pytest

from labeldeconv.data.opening import open_data
from labeldeconv.errors import DataError

from .test_graphml import ring

NODES = [{"id": i, "text": f"t{i}", "label": "ab"[i % 2]} for i in range(6)]


@pytest.mark.parametrize("name", ["links", "edges"])
def test_what_networkx_writes(tmp_path, name):
    held = nx.node_link_data(ring(), edges=name)
    path = tmp_path / "ring.json"
    path.write_text(json.dumps(held))
    for place in (path, tmp_path, f"node-link@{tmp_path}"):
        loaded = open_data(str(place))
        assert (loaded.graph.name, loaded.graph.num_edges) == ("ring", 8)
        assert loaded.graph.split.val.tolist() == [1, 4, 7]
        assert loaded.warnings[0] == "ring.json: read as text = text, label = label, split = split"
    packed = tmp_path / "packed.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert open_data(str(packed)).graph.texts[0] == "text <0> & é"


def test_ids_of_every_kind_and_several_labels(tmp_path):
    ids = ["a", 7, 1.5, [0, 1], "b", "c"]
    nodes = [
        {**node, "id": i, "label": ["x", "y"][: 1 + k % 2]} for k, (i, node) in enumerate(zip(ids, NODES, strict=True))
    ]
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"nodes": nodes, "links": [{"source": [0, 1], "target": 7}]}))
    graph = open_data(str(path)).graph
    assert list(graph.ids) == ["a", "7", "1.5", "[0, 1]", "b", "c"]
    assert graph.edges.tolist() == [[3], [1]]
    assert graph.labels[:2].tolist() == [[1, 0], [1, 1]]


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ('{"nodes": [', r"a.json: not valid JSON"),
        ({"nodes": [1], "links": []}, r"a.json, nodes\[0\]: a JSON object expected, got 1"),
        ({"nodes": NODES}, r"a.json: a list 'links' or 'edges' expected, got nodes"),
        ({"nodes": NODES, "links": {}}, r"a.json: a list 'links' expected, got dict"),
        ({"nodes": [{"text": "x"}], "links": []}, r"a.json, nodes\[0\]: a field 'id' with a number or text expected"),
        ({"nodes": NODES, "links": [{"source": 1}]}, r"a.json, links\[0\]: a field 'target' .* expected, got None"),
        ({"nodes": NODES, "links": [{"source": 1, "target": 99}]}, r"unknown to a.json: links\[0\] \('99'\)"),
        ({"nodes": [*NODES, NODES[0]], "links": []}, r"'0' 2 times \(nodes\[0\], nodes\[6\]\)"),
        ({"nodes": [{"id": 1, "text": "\ud800"}], "links": []}, r"a.json, nodes\[0\]: a text that is no UTF-8"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, held, message):
    (tmp_path / "a.json").write_text(held if isinstance(held, str) else json.dumps(held))
    with pytest.raises(DataError, match=message):
        open_data(str(tmp_path / "a.json"))


def test_other_json_is_not_taken_for_it(tmp_path):
    (tmp_path / "a.json").write_text('[{"nodes": 1}]')
    with pytest.raises(DataError, match="no such folder, and not a name"):
        open_data(str(tmp_path / "a.json"))
    with pytest.raises(DataError, match=r"one node-link .json file"):
        open_data("node-link")
