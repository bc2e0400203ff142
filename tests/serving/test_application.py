"""The application behind a real server: predictions, refusals, search, metrics, pages; nothing makes it fail."""

import gc
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files

import numpy as np
import pytest

from labeldeconv import Predictor, fit, planted
from labeldeconv.errors import ConfigError
from tests.serving.running import served

from labeldeconv.serving.application import PAGES, loaded  # isort: skip

TEXTS = ["river", "not piano drum but river " * 3, "", "quiet amber", "drum"]


@pytest.fixture(scope="module")
def predictor(ld_run):
    return loaded(ld_run)


@pytest.fixture(scope="module")
def server(predictor):
    with served(predictor, text=300, nodes=8, edges=16, body=20_000) as client:
        yield client


def test_what_is_loaded_is_not_looked_through_for_garbage(predictor):
    with served(predictor):
        assert gc.get_freeze_count() > 100_000  # objects of torch, transformers and the run
    assert gc.get_freeze_count() == 0


def test_a_prediction_is_the_predictors(server, predictor):
    nodes = [{"text": "river", "id": "a", "neighbors": [3, "5"]}, {"text": "drum", "id": "b"}, {"text": "quiet"}]
    reply = server.predict(nodes, [["b", "a"]], features=True)
    assert reply.status == 200, reply.body
    edges = [(3, "a"), (5, "a"), ("b", "a")]
    told = predictor.predict(["river", "drum", "quiet"], edges, ids=["a", "b", "new-2"])
    assert [node["by"] for node in reply.json["nodes"]] == told.by == ["gnn", "gnn", "psi"]
    assert [node["prediction"] for node in reply.json["nodes"]] == told.classes
    for node, probabilities, features in zip(reply.json["nodes"], told.probabilities, told.features, strict=True):
        np.testing.assert_allclose(node["probabilities"], probabilities, atol=1e-5)
        np.testing.assert_allclose(node["features"], features, atol=2e-3)
    assert server.predict(nodes, alone="gnn", mode="fast").json["nodes"][2]["by"] == "gnn"


def test_numbers_over_http(tmp_path):
    """A number where there is one target, its unit in /run, and the target's name in an explanation."""
    graph = planted(40, "regression", num_classes=4, num_targets=1).graph
    quick = {"encoder": "tiny", "gnn__epochs": 3, "gnn__hidden": 8, "encoder__max_tokens": 8, "train__epochs": 1}
    fit(graph, method="ld", gnn="gcn", out=tmp_path / "run", cache=tmp_path / "cache", **quick)
    own = loaded(tmp_path / "run")
    nodes = [{"text": "river", "neighbors": [3, 5]}]
    with served(own) as client:
        described, told = client.get("/run").json, client.predict(nodes).json
        why = client.ask("POST", "/explain", {"nodes": nodes, "of": "topic 0"}).json
        wrong = client.ask("POST", "/explain", {"nodes": nodes, "of": "topic 1"})
        schemas = client.get("/openapi.json").json["components"]["schemas"]
    train = graph.labels[graph.split.train, 0]
    assert described["targets"] == {"mean": [pytest.approx(train.mean())], "std": [pytest.approx(train.std())]}
    assert (described["task"], told["class_names"]) == ("regression", ["topic 0"])
    wanted = own.predict(["river"], [(3, "new-0"), (5, "new-0")]).numbers[0, 0]
    assert told["nodes"][0]["prediction"] == pytest.approx(wanted, rel=1e-5)
    assert (told["nodes"][0]["probability"], told["nodes"][0]["probabilities"]) == (None, [])
    assert why["of"] == "topic 0"
    assert why["logit"] == pytest.approx(wanted, rel=1e-5)
    assert (wrong.status, wrong.fields) == (422, ["of"])
    assert wrong.json["errors"][0]["message"].startswith("explain: no target 'topic 1'; ")
    assert set(schemas["TargetUnit"]["properties"]) == {"mean", "std"}


def test_an_explanation_is_the_predictors(server, predictor):
    nodes = [{"text": "river", "id": "a", "neighbors": [3, 5]}, {"text": "drum", "id": "b", "neighbors": ["a"]}]
    new = predictor.new_nodes(["river", "drum"], [(3, "a"), (5, "a"), ("a", "b")], ["a", "b"])
    for asked, node, of in (({}, "a", None), ({"node": "b", "of": "topic 2", "top": 1}, "b", "topic 2")):
        reply = server.ask("POST", "/explain", {"nodes": nodes, **asked})
        assert reply.status == 200, reply.body
        told = predictor.explain_nodes(node, new, of, asked.get("top", 10))
        assert (reply.json["node"], reply.json["of"], reply.json["by"]) == (told.node, told.of, "gnn")
        np.testing.assert_allclose(reply.json["by_hop"], told.by_hop, atol=1e-4)
        assert [near["id"] for near in reply.json["neighbours"]] == [near.id for near in told.neighbours]
    for wrong, field in (({"node": "c"}, "node"), ({"of": "nothing"}, "of"), ({"top": -1}, "top")):
        reply = server.ask("POST", "/explain", {"nodes": nodes, **wrong})
        assert (reply.status, reply.fields[0]) == (422, field), reply.body
    assert server.ask("POST", "/explain", {"nodes": [{"text": "x" * 301}]}).status == 413


def test_requests_at_a_time_are_answered_as_alone(server, predictor):
    """Forty clients whose nodes have one id and one neighbor: nobody sees anybody."""
    alone = {text: predictor.predict([text], [(3, "x")], ids=["x"]).probabilities[0] for text in TEXTS}

    def one(i):
        text = TEXTS[i % len(TEXTS)]
        reply = server.predict([{"text": text, "id": "x", "neighbors": [3]}])
        assert reply.status == 200, reply.body
        np.testing.assert_allclose(reply.json["nodes"][0]["probabilities"], alone[text], atol=1e-3)

    before = metric(server, "labeldeconv_batches_total")
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(one, range(40)))
    assert metric(server, "labeldeconv_batches_total") - before < 40


def metric(server, name):
    return float(re.search(rf"^{re.escape(name)} (\S+)$", server.get("/metrics").body.decode(), re.M)[1])


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"", 422, "body"),
        (b"no json", 422, "body"),
        (b'{"nodes": [{"text": "a"', 422, "body"),
        (b"\xff\xfe", 422, "body"),
        (b'{"nodes": [{"text": "\\ud800"}]}', 422, "nodes[0].text"),
        (b"[" * 5000, 422, "body"),
        (b'{"nodes": [{"text": "a", "neighbors": [' + b"9" * 5000 + b"]}]}", 422, "body"),
        (b'{"nodes": [{"text": "a", "neighbors": [' + b"9" * 30 + b"]}]}", 422, "nodes[0].neighbors[0]"),
        (b'{"nodes": [{"text": "a"}], "edge_features": [[NaN]]}', 422, "edge_features[0][0]"),
        (b"[]", 422, "body"),
        (b"null", 422, "body"),
        (b'{"nodes": {}}', 422, "nodes"),
        (b'{"nodes": [{"text": null}]}', 422, "nodes[0].text"),
        (b'{"nodes": [{"text": "a", "id": ""}]}', 422, "nodes[0].id"),
        (b'{"nodes": [{"text": "a", "id": 3}]}', 422, "nodes[0].id"),
        (b'{"nodes": [{"text": "a", "neighbors": ["nobody"]}]}', 422, "nodes[0].neighbors[0]"),
        (b'{"nodes": [{"text": "a"}], "edges": [[1, 2]]}', 422, "edges[0]"),
        (b'{"nodes": [{"text": "a"}], "mode": "quick"}', 422, "mode"),
        (json.dumps({"nodes": [{"text": "x" * 301}]}).encode(), 413, "nodes[0].text"),
        (json.dumps({"nodes": [{"text": "x"}] * 9}).encode(), 413, "nodes"),
        (json.dumps({"nodes": [{"text": "x"}], "edges": [["new-0", 3]] * 17}).encode(), 413, "edges"),
        (b" " * 20_001, 413, "body"),
    ],
)
def test_bad_bodies_are_refused_with_the_field(server, body, status, field):
    reply = server.ask("POST", "/predict", body, {"Content-Type": "application/json"})
    assert (reply.status, reply.fields[0]) == (status, field), reply.body


def test_odd_but_good_requests(server):
    for node in ({"text": "\x00\x1b[31m\u202e"}, {"text": "🜚" * 100}, {"text": ""}, {"text": "a", "id": "ü\n"}):
        reply = server.predict([node])
        assert reply.status == 200, reply.body
    twice = [{"text": "a", "neighbors": [3, 3, "new-0"]}]
    assert server.predict(twice).status == 200


def test_other_paths_and_methods(server):
    assert server.get("/nothing").status == 404
    assert server.get("/predict").status == 405
    assert server.ask("DELETE", "/run").status == 405
    assert server.get("/../../etc/passwd").status == 404


def test_search(server, predictor):
    graph = predictor.run.graph
    word = graph.texts[7].split()[1]
    found = server.get(f"/nodes?q={word}&limit=50").json
    wanted = [str(i) for i in range(80) if word in graph.texts[i]]
    assert [node["id"] for node in found["nodes"]] == wanted[:50]
    assert found["nodes"][0]["text"] == graph.texts[int(wanted[0])]
    assert server.get("/nodes?q=42").json["nodes"][0]["id"] == "42"
    assert [node["id"] for node in server.get("/nodes?limit=3").json["nodes"]] == ["0", "1", "2"]
    assert server.get("/nodes?limit=0").fields == ["limit"]
    assert server.get(f"/nodes?q={'x' * 201}").fields == ["q"]


def test_health_ready_run_and_metrics(server):
    assert server.get("/health").json == {"status": "ok"}
    assert server.get("/ready").json == {"status": "ready"}
    run = server.get("/run").json
    assert (run["method"], run["gnn"], run["nodes"], run["limits"]["text"]) == ("ld", "gcn", 80, 300)
    reply = server.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    before = metric(server, 'labeldeconv_nodes_total{by="psi"}')
    server.predict([{"text": "a"}, {"text": "b"}])
    assert metric(server, 'labeldeconv_nodes_total{by="psi"}') == before + 2


def test_the_interface_is_described(server):
    api = server.get("/openapi.json").json
    assert {"/predict", "/explain", "/nodes", "/run", "/health", "/ready", "/metrics"} == set(api["paths"])
    assert "neighbors" in api["components"]["schemas"]["NewNode"]["properties"]
    example = api["components"]["schemas"]["Asked"]["examples"][0]
    assert server.predict(**example).status == 200


def test_pages_are_the_packages_files_and_load_nothing_from_elsewhere(server):
    for path, (name, kind) in PAGES.items():
        reply = server.get(path)
        assert (reply.status, reply.headers["content-type"]) == (200, kind)
        place = files("labeldeconv.theme") if "theme" in name else files("labeldeconv.serving") / "page"
        assert reply.body == (place / name).read_bytes()
        text = reply.body.decode()
        assert not re.search(
            r"https?://|innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|style=|onclick", text
        )


def test_a_token(predictor):
    with served(predictor, token="a long and secret token") as client:
        assert client.predict([{"text": "a"}]).status == 200
        client.token = "a long and secret tokem"
        assert client.predict([{"text": "a"}]).status == 401
        assert client.get("/metrics").status == 401
        client.token = None
        assert client.get("/openapi.json").status == 401
        assert {client.get(path).status for path in ("/health", "/ready", "/", "/page.js", "/theme.css")} == {200}


@pytest.fixture
def slow(predictor, monkeypatch):
    """Predictions that wait until they may go on."""
    go, real = threading.Event(), predictor.predict_apart

    def held_back(*asked):
        go.wait(30)
        return real(*asked)

    monkeypatch.setattr(predictor, "predict_apart", held_back)
    yield go
    go.set()


def eventually(condition):
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came")


def test_too_many_at_a_time_are_told_to_come_again(predictor, slow):
    with served(predictor, concurrent=3) as client, ThreadPoolExecutor(3) as pool:
        taken = [pool.submit(client.predict, [{"text": "a"}]) for _ in range(3)]
        eventually(lambda: metric(client, "labeldeconv_in_flight") == 3)
        refused = client.predict([{"text": "a"}])
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert client.get("/health").status == 200
        assert client.get("/ready").status == 503
        slow.set()
        assert [future.result().status for future in taken] == [200] * 3
        assert client.predict([{"text": "a"}]).status == 200


def test_shutting_down_answers_what_was_taken(predictor, slow):
    with served(predictor) as client, ThreadPoolExecutor(3) as pool:
        taken = [pool.submit(client.predict, [{"text": "a"}]) for _ in range(3)]
        eventually(lambda: metric(client, "labeldeconv_in_flight") == 3)
        client.server.should_exit = True  # as SIGTERM does
        eventually(lambda: refuses(client))
        slow.set()
        assert [future.result().status for future in taken] == [200] * 3


def refuses(client):
    try:
        client.get("/health")
    except OSError:
        return True
    return False


def test_an_error_of_ours_is_a_500_without_its_words(predictor, monkeypatch, caplog):
    def broken(*_):
        raise ZeroDivisionError("inner words")

    with served(predictor) as client:
        monkeypatch.setattr(predictor, "predict_apart", broken)
        reply = client.predict([{"text": "a"}])
        assert reply.status == 500
        assert b"inner words" not in reply.body
        assert "its log says more" in reply.json["errors"][0]["message"]
        eventually(lambda: "inner words" in caplog.text)
        monkeypatch.undo()
        assert client.predict([{"text": "a"}]).status == 200


def test_an_encoder_that_opens_files_is_not_served(ld_run, monkeypatch):
    """Or clients could read the server's files."""
    encoder = type(Predictor.load(ld_run).encode.encoder)
    monkeypatch.setattr(encoder, "files_key", lambda self, texts: "key")
    with pytest.raises(ConfigError, match="opens the files that attributes name"):
        loaded(ld_run)
