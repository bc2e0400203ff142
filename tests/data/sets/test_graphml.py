"""GraphML: nodes, attributes, defaults and edges, as NetworkX writes them, and entities are refused."""

import gzip
import time

import networkx as nx
import pytest

from labeldeconv.data.opening import open_data
from labeldeconv.errors import DataError

HEAD = '<?xml version="1.0"?>\n'
KEYS = '<key id="t" for="node" attr.name="text" attr.type="string"/><key id="l" for="node" attr.name="label"/>'


def ring(n=8):
    graph = nx.cycle_graph(n)
    for i in graph:
        graph.nodes[i].update(text=f"text <{i}> & é", label="ab"[i % 2], split=("train", "val", "test")[i % 3])
        graph.edges[i, (i + 1) % n]["weight"] = 0.5
    return graph


def test_what_networkx_writes(tmp_path):
    path = tmp_path / "ring.graphml"
    nx.write_graphml(ring(), path)
    for place in (path, tmp_path, f"graphml@{tmp_path}"):
        loaded = open_data(str(place))
        graph = loaded.graph
        assert graph.texts[3] == "text <3> & é"
        assert (graph.name, graph.class_names, graph.num_edges) == ("ring", ["a", "b"], 8)
        assert graph.split.val.tolist() == [1, 4, 7]
        assert loaded.warnings[0] == "ring.graphml: read as text = text, label = label, split = split"
    packed = tmp_path / "packed.graphml.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert open_data(str(packed)).graph.name == "packed"


def test_prefixes_defaults_and_other_data(tmp_path):
    nodes = "".join(
        f'<g:node id="n{i}"><g:data key="t">a<x/>{i}</g:data>'
        + ('<g:data key="l">b</g:data>' if i % 2 else "")
        + '<g:port><g:data key="l">port</g:data></g:port></g:node>'
        for i in range(6)
    )
    keys = KEYS.replace("<key", "<g:key").replace(
        'attr.name="label"/>', 'attr.name="label"><g:default>a</g:default></g:key>'
    )
    edge = '<g:edge source="n0" target="n5"><g:data key="w">1</g:data></g:edge>'
    inner = f'<g:graph edgedefault="directed"><g:data key="q">x</g:data>{nodes}{edge}</g:graph>'
    content = f'<g:graphml xmlns:g="x">{keys}{inner}</g:graphml>'
    (tmp_path / "a.graphml").write_text(HEAD + content)
    graph = open_data(str(tmp_path / "a.graphml")).graph
    assert [graph.class_names[k] for k in graph.labels] == ["a", "b"] * 3
    assert graph.texts[1] == "a1"
    assert graph.edges.tolist() == [[0], [5]]


BOMB = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10 if i else "lol"}">' for i in range(12))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"<!DOCTYPE g [{BOMB}]>\n<graphml>&a11;</graphml>", r"line 2: a document type or entity, which is refused"),
        ('<!DOCTYPE g SYSTEM "file:///etc/passwd"><graphml/>', r"a document type or entity, which is refused"),
        ("<html/>", r"a.graphml, line 2: the element graphml expected, got html"),
        ("<graphml>", r"a.graphml, line 2: not XML: no element found"),
        ("<graphml>&x;</graphml>", r"not XML: undefined entity"),
        (f"<graphml>{KEYS}<graph><node/></graph></graphml>", r"element node: an attribute 'id' expected"),
        (
            f"<graphml>{KEYS}<graph><edge source='a'/></graph></graphml>",
            r"element edge: an attribute 'target' expected",
        ),
        ("<graphml><graph><node id='a'><data key='z'>1</data></node></graph></graphml>", r"data of key 'z', which no"),
        ("<graphml><graph><node id='a'><graph/></node></graph></graphml>", r"graphs inside of nodes and hyperedges"),
        ("<graphml><graph/></graphml>", r"a.graphml: no nodes in it"),
        (
            f"<graphml>{KEYS}<graph><node id='a'><data key='t'>x</data><data key='l'>y</data></node>\n"
            "<edge source='a' target='b'/></graph></graphml>",
            r"a.graphml, column 'target': 1 of 1 edges name a node unknown to a.graphml: line 3 \('b'\)",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path, content, message):
    (tmp_path / "a.graphml").write_text(HEAD + content)
    start = time.process_time()
    with pytest.raises(DataError, match=message):
        open_data(str(tmp_path / "a.graphml"))
    assert time.process_time() - start < 5


def test_a_broken_gz_and_no_file(tmp_path):
    (tmp_path / "a.graphml.gz").write_bytes(gzip.compress(b"<graphml>" + b" " * 9999)[:-9])
    with pytest.raises(DataError, match="truncated or broken"):
        open_data(str(tmp_path / "a.graphml.gz"))
    with pytest.raises(DataError, match=r"the path of one .graphml file"):
        open_data("graphml")
