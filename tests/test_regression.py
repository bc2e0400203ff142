"""Regression: labels that are numbers, through every method and GNN, in any unit, and without a look at test labels."""

import hashlib
import json
from dataclasses import replace

import duckdb
import numpy as np
import pytest
from safetensors.numpy import load_file
from sklearn.metrics import mean_absolute_error, r2_score

from labeldeconv import AttributedGraph, LabelDeconvolution, Predictor, Split, Texts, compare, fit, planted
from labeldeconv.analysis.advice import advise
from labeldeconv.analysis.bias import before_training
from labeldeconv.analysis.card import data_card
from labeldeconv.errors import ConfigError, DataError
from labeldeconv.gnns.base import GNNS
from labeldeconv.graph.task import Task
from labeldeconv.labels.gamma import choose_gamma
from labeldeconv.labels.hops import hop_labels, write_hop_labels
from labeldeconv.methods.base import METHODS
from labeldeconv.prediction.pushed import CARD
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.report.html import sections, write_report
from labeldeconv.report.source import open_source
from labeldeconv.report.tabs.scores import headline
from labeldeconv.runs.directory import RunDirectory
from labeldeconv.runs.ensemble import ensemble
from labeldeconv.runs.export import export_run
from labeldeconv.runs.verification import verify_run
from labeldeconv.serving.messages import PredictedNode, answered
from labeldeconv.settings.models import Config
from labeldeconv.sharing.repository import write_repository
from labeldeconv.stages.files import sealed
from labeldeconv.training import gnn as loop
from tests.samples import interrupt, random_edges

QUICK = {
    "encoder": "tiny", "encoder__max_tokens": 8, "train__epochs": 1, "gnn__epochs": 3, "gnn__hidden": 8,
    "giant__coarsest": 2, "giant__cluster_size": 10, "joint__epochs": 1, "joint__batch_nodes": 16, "glem__rounds": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def graph():
    return planted(40, "regression", num_classes=4, num_targets=2, num_features=6).graph


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def run(graph, cache, out, **words):
    if words.get("method") == "joint-gas":
        pytest.importorskip("pymetis", reason="needs the extra metis")
    return fit(graph, out=out, cache=cache, **{**QUICK, **words})


def check_scores(result, graph):
    """The scores are scikit-learn's, of predictions in the unit of the labels."""
    test = graph.split.test
    truth, predicted = graph.labels[test], result.values[test]
    assert result.metrics["test"]["r2"] == pytest.approx(r2_score(truth, predicted), rel=1e-9)
    assert result.metrics["test"]["mae"] == pytest.approx(mean_absolute_error(truth, predicted), rel=1e-9)
    assert 50 < predicted.mean() < 150  # labels are about 100
    assert result.calibration is None


@pytest.mark.parametrize("setting", ["transductive", "inductive"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_numbers(method, setting, graph, cache, tmp_path):
    result = run(graph, cache, tmp_path / "run", method=method, gnn="gcn", setting=setting)
    assert (result.metric, result.higher_is_better) == ("R2", True)
    check_scores(result, graph)


@pytest.mark.parametrize("gnn", GNNS)
def test_every_gnn_learns_numbers(gnn, graph, cache, tmp_path):
    check_scores(run(graph, cache, tmp_path / "run", method="pne", gnn=gnn), graph)


def test_a_gnn_that_reads_labels_reads_numbers(graph, cache, tmp_path):
    options = {"label_inputs": True, "heads": 1}
    check_scores(run(graph, cache, tmp_path / "run", method="pne", gnn="revgat", gnn__options=options), graph)


def test_the_race_and_the_epochs_go_by_the_lower_error(graph, cache, tmp_path):
    words = {"method": "pne", "gnn": "auto", "gnn__candidates": ["gcn", "mlp", "sage"], "metric": "mae"}
    result = run(graph, cache, tmp_path / "run", **words, gnn__epochs=8)
    assert (result.metric, result.higher_is_better, result.val) == ("MAE", False, result.metrics["val"]["mae"])
    scores = {c["name"]: c["score"] for c in result.race["candidates"]}
    assert scores[result.race["chosen"]] == min(scores.values())
    rows = RunDirectory.open(result.run).epochs()
    assert result.val == pytest.approx(min(row["val"] for row in rows))


def test_auto_knows_that_a_lower_error_leads(graph, cache, tmp_path):
    result = run(graph, cache, tmp_path / "run", method="auto", gnn="gcn", metric="rmse")
    heads = next(tried["val"] for tried in result.tried if tried["method"] == "ld-heads")
    for tried in result.tried[:3]:
        (lead, *_) = tried["leads"].values()
        assert lead["lead"] == pytest.approx(heads - tried["val"], rel=1e-4)


def test_hop_labels_are_a_dense_power_and_linear():
    """K_i = A-hat^i Y in floats; constants pass a row-normalised A-hat, so K of 2 Y + 3 is 2 K + 3."""
    n, edges = 60, random_edges(60, 240)
    Y = np.random.default_rng(0).normal(5, 40, (n, 2)).astype(np.float32)
    A = np.zeros((n, n))
    A[edges[0], edges[1]] = A[edges[1], edges[0]] = 1
    np.fill_diagonal(A, 0)
    A[A.sum(1) == 0] = np.eye(n)[A.sum(1) == 0]
    A /= A.sum(1, keepdims=True)
    K = hop_labels(edges, Y, 3)
    for i in range(4):
        np.testing.assert_allclose(K[:, i], np.linalg.matrix_power(A, i) @ Y, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(hop_labels(edges, 2 * Y + 3, 3), 2 * K + 3, rtol=1e-4, atol=1e-4)


def test_hop_labels_of_numbers_are_kept_as_floats(graph, cache, tmp_path):
    """Fixed point holds shares in [0, 1] only; the run has K_0 = Y in standard units, exact on train nodes."""
    result = run(graph, cache, tmp_path / "run", method="ld", gnn="gcn")
    directory, train = RunDirectory.open(result.run), graph.split.train
    K = directory.hop_labels
    assert (K.dtype, directory.result["settings"]["labels"]["store"]) == (np.float32, "uint16")
    np.testing.assert_array_equal(K[train, 0], Task.of(graph).targets(graph.labels[train]))
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes)
    np.testing.assert_allclose(K, write_hop_labels(adj, np.array(K[:, 0]), 2, tmp_path / "K.npy", "float32"), atol=1e-6)
    assert K.min() < 0


def test_another_unit_of_the_labels_changes_nothing_but_the_unit(graph, tmp_path):
    """Labels 2 Y + 3: targets, weights and R2 are the same, errors and predictions are in the new unit."""
    other = replace(graph, labels=2 * graph.labels + 3)
    one, two = (
        run(g, tmp_path / n, tmp_path / f"run{n}", method="ld", gnn="gcn") for g, n in ((graph, "1"), (other, "2"))
    )
    np.testing.assert_allclose(two.values, 2 * one.values + 3, rtol=1e-5)
    assert two.test == pytest.approx(one.test, abs=1e-4)
    assert two.metrics["test"]["mae"] == pytest.approx(2 * one.metrics["test"]["mae"], rel=1e-4)


@pytest.mark.parametrize("method", ["ld", "ld-heads", "fne", "glem", "auto"])
def test_test_labels_change_nothing_but_the_test_score(method, graph, tmp_path):
    labels = graph.labels.copy()
    labels[graph.split.test] += 500
    found = []
    for name, one in (("plain", graph), ("changed", replace(graph, labels=labels))):
        result = run(one, tmp_path / f"cache-{name}", tmp_path / name, method=method, gnn="gcn")
        files = sorted(p for p in result.run.rglob("*") if p.is_file() and p.name not in ("result.json", "labels.npy"))
        hashes = {str(p.relative_to(result.run)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
        told = json.loads((result.run / "result.json").read_text())
        found.append((hashes, told["val"], told["metrics"]["val"], told["targets"], told["gamma"], told["tried"]))
        check_scores(result, one)
    assert found[0] == found[1]


def test_missing_numbers_are_learned_around_and_predicted(graph, cache, tmp_path):
    labels = graph.labels.copy()
    labels[graph.split.train[::2], 0] = labels[graph.split.test[0]] = np.nan
    result = run(replace(graph, labels=labels), cache, tmp_path / "run", method="ld-heads", gnn="gcn")
    assert np.isfinite(result.values).all()
    assert np.isfinite([result.val, result.test, *result.metrics["test"].values()]).all()


def test_inverse_labels_recover_what_plain_labels_miss():
    """The number of a node is what its neighbours are about: its own text tells K_1 and not Y.

    The closed form of gamma sees it: from features that hold the topics, the mix of hop labels leaves much less error.
    """
    data = planted(2000, "regression", num_targets=3)
    g, topics = data.graph, data.inverse_labels
    task = Task.of(g)
    K = hop_labels(g.edges, task.targets(g.labels), 1)
    best, *others = choose_gamma(topics, K, Adjacency.from_edges(g.edges, 2000), g.known_labels, g.split, task)
    plain = next(c for c in others if c.gamma[0] == 1)
    assert best.gamma[1] >= 0.5
    assert (best.score > 0.9, plain.score < 0.7) == (True, True), (best, plain)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"class_weights": "balanced"}, "class_weights: the labels are numbers"),
        ({"metric": "accuracy"}, "metric 'accuracy': the labels are numbers; one of r2, mae, rmse expected"),
        ({"method": "glem", "glem__label_smoothing": 0.1}, "glem.label_smoothing: the labels are numbers"),
        ({"method": "glem", "glem__confident": 0.5}, "glem.confident: the labels are numbers"),
        ({"gnn__self_training__stages": 2}, "gnn.self_training: confident predictions are defined for multi-class"),
        ({"gnn__consistency__weight": 1.0}, "gnn.consistency: confident predictions are defined for multi-class"),
    ],
)
def test_what_means_nothing_for_numbers_is_refused(words, message, graph, cache, tmp_path):
    with pytest.raises(ConfigError, match=message):
        run(graph, cache, tmp_path / "run", **{"method": "pne", "gnn": "gcn", **words})


def test_a_loss_of_numbers_is_refused_for_classes(cache, tmp_path):
    with pytest.raises(ConfigError, match="regression_loss 'huber': the labels are classes"):
        run(planted(40).graph, cache, tmp_path / "run", method="pne", gnn="gcn", regression_loss="huber")


def test_huber_minds_an_outlier_less(graph, tmp_path):
    labels = graph.labels.copy()
    labels[graph.split.train[0]] += 1000
    bent = replace(graph, labels=labels)
    words = {"method": "given", "gnn": "mlp", "gnn__epochs": 60, "metric": "mae"}
    errors = [run(bent, tmp_path / "c", tmp_path / n, regression_loss=n, **words).test for n in ("mse", "huber")]
    assert errors[1] < errors[0]


def make(labels, names=("price",)):
    n = len(labels)
    texts = Texts.from_strings(f"text {i}" for i in range(n))
    edges = np.stack([np.arange(n), np.roll(np.arange(n), 1)])
    return AttributedGraph(texts, edges, labels, Split(np.resize([0, 0, 1, 2], n).astype(np.int8)), list(names))


def test_floats_are_numbers_and_saved_as_such(tmp_path):
    labels = np.array([1.5, -2.0, np.nan, 4.0, 1e-3, 7.0, 8.0, 9.0])
    graph = make(labels)
    assert (graph.task, graph.labels.shape, graph.labels.dtype) == ("regression", (8, 1), np.float64)
    np.testing.assert_array_equal(graph.train_labels[:, 0], np.where(graph.split.roles == 0, labels, np.nan))
    np.testing.assert_array_equal(graph.known_labels[:, 0], np.where(graph.split.roles < 2, labels, np.nan))
    again = AttributedGraph.load(graph.save(tmp_path / "saved"))
    assert again.content_key == graph.content_key
    assert (Split.stratified(graph.labels, 0).roles >= 0).tolist() == (~np.isnan(labels)).tolist()


def test_train_nodes_without_any_number_are_refused():
    with pytest.raises(DataError, match="1 train nodes have no label: node 0"):
        make(np.array([np.nan, 1.0, 2.0, 3.0]))


def test_pyg_gives_numbers_where_they_are_asked_for():
    data = planted(30, "regression", num_targets=1).graph.to_pyg()
    texts = [f"text {i}" for i in range(30)]
    graph = AttributedGraph.from_pyg(data, texts, ["price"], task="regression")
    assert (graph.task, graph.labels.shape) == ("regression", (30, 1))
    np.testing.assert_allclose(graph.labels, data.y.numpy())
    with pytest.raises(DataError, match=r"whole numbers expected, got 30 others.*task='regression' takes numbers"):
        AttributedGraph.from_pyg(data, texts)


@pytest.fixture(scope="module")
def finished(graph, cache, tmp_path_factory):
    """A run of LD on two targets."""
    return run(graph, cache, tmp_path_factory.mktemp("runs") / "ld", method="ld", gnn="gcn")


def test_new_nodes_get_numbers_in_the_unit_of_the_labels(finished, graph, tmp_path):
    """A copy of an old node with its edges is predicted as a pass of the GNN over the grown graph would."""
    predictor = Predictor.load(finished.run)
    told = predictor.predict([graph.texts[0], "nothing known"], edges=[("new-0", "1"), ("new-0", "2")])
    assert (told.by, told.probabilities.shape, told.numbers.shape) == (["gnn", "psi"], (2, 0), (2, 2))
    assert 50 < told.numbers.mean() < 150
    assert told.classes == told.numbers.tolist()
    unit = finished.targets
    np.testing.assert_allclose(told.numbers, told.logits * np.array(unit["std"]) + np.array(unit["mean"]))
    rows = duckdb.sql(f"FROM '{told.save(tmp_path / 'told.csv', features=False)}'").fetchnumpy()
    assert list(rows) == ["id", "prediction_topic 0", "prediction_topic 1", "by"]
    np.testing.assert_allclose(rows["prediction_topic 1"], told.numbers[:, 1])
    answer = json.loads(answered(told, features=False))
    assert answer["nodes"][0]["prediction"] == told.classes[0]
    assert (answer["nodes"][0]["probability"], answer["nodes"][0]["probabilities"]) == (None, [])
    PredictedNode.model_validate(answer["nodes"][1])


def test_an_explanation_of_a_number_adds_up_in_its_unit(finished, graph):
    told = Predictor.load(finished.run).explain("3", of="topic 1")
    number = finished.values[3, 1]
    assert told.logit == pytest.approx(number, rel=1e-5)
    parts = told.own + told.others + told.gap + sum(n.contribution for n in told.neighbours)
    assert parts == pytest.approx(number - told.baseline, abs=1e-3)
    assert told.neighbours[0].label == pytest.approx(graph.labels[int(told.neighbours[0].id)].tolist())
    assert Predictor.load(finished.run).explain("3").of == "topic 0"


def test_exports_hold_numbers(finished, tmp_path):
    table = duckdb.sql(f"FROM '{export_run(finished.run, tmp_path / 'out.parquet')}'").fetchnumpy()
    assert list(table) == ["id", "features", "prediction_topic 0", "prediction_topic 1"]
    np.testing.assert_allclose(table["prediction_topic 0"], finished.values[:, 0])
    export_run(finished.run, tmp_path / "out.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "out.predictions.npy"), finished.values)
    assert (tmp_path / "out.targets.txt").read_text() == "topic 0\ntopic 1\n"
    assert not (tmp_path / "out.logits.npy").exists()
    held = load_file(export_run(finished.run, tmp_path / "out.safetensors"))
    np.testing.assert_array_equal(held["predictions"], finished.values)


def test_scores_are_verified_and_runs_averaged(finished, graph, cache, tmp_path):
    assert not verify_run(finished.run).problems
    other = run(graph, cache, tmp_path / "pne", method="pne", gnn="gcn")
    for metric in ("r2", "mae"):
        runs = [run(graph, cache, tmp_path / f"{m}{metric}", method=m, gnn="gcn", metric=metric) for m in ("ld", "pne")]
        found = ensemble([r.run for r in runs], tmp_path / f"together {metric}")
        sign = 1 if metric == "r2" else -1
        assert sign * found.val >= max(sign * r.val for r in runs) - 1e-6
        assert sign * found.best.val == pytest.approx(max(sign * r.val for r in runs), rel=1e-5)
        mean = sum(m.weight * r.values for m in found.members for r in runs if str(r.run) == m.run)
        test = graph.split.test
        of = {"r2": r2_score, "mae": mean_absolute_error}[metric]
        assert found.test == pytest.approx(of(graph.labels[test], mean[test]), rel=1e-5)
    with pytest.raises(DataError, match="judged by MAE"):
        ensemble([other.run, runs[0].run])


def test_the_estimator_predicts_numbers(finished, graph):
    model = LabelDeconvolution.load(finished.run)
    np.testing.assert_array_equal(model.predict(), finished.values)
    assert model.score() == pytest.approx(finished.test)
    assert model.predict(texts=["one"]).shape == (1, 2)
    with pytest.raises(ConfigError, match="predict_proba: the labels are numbers"):
        model.predict_proba()


def test_a_pushed_model_knows_the_unit(finished, tmp_path):
    pytest.importorskip("huggingface_hub")
    folder = write_repository(finished.run, tmp_path / "pushed")
    model, own = LabelDeconvolution.from_pretrained(folder), Predictor.load(finished.run)
    np.testing.assert_allclose(model.predict(texts=["a text"]), own.predict(["a text"]).numbers, rtol=1e-5)
    card = (folder / "README.md").read_text()
    assert "| MAE | " in card
    assert "node-regression" in card
    held = json.loads((folder / CARD).read_text())
    held["targets"]["std"] = [1.0]
    (folder / CARD).write_text(json.dumps(sealed({k: v for k, v in held.items() if k != "checksum"})))
    with pytest.raises(DataError, match="wrong; not written by"):
        LabelDeconvolution.from_pretrained(folder)


def test_a_comparison_shows_numbers_as_they_are(graph, cache, tmp_path):
    words = {**QUICK, "seeds": 2, "metric": "mae", "out": tmp_path / "t", "cache": cache}
    table = compare(graph, methods=["pne", "fne"], gnns=["gcn"], **words)
    assert (table.metric, table.higher_is_better) == ("MAE", False)
    cells = table.cells(table.rows[0])
    assert cells[3] == f"{table.rows[0].test.mean:.4g} ± {table.rows[0].test.std:.4g}"


def test_a_killed_fit_goes_on_and_gives_the_same(graph, tmp_path, monkeypatch):
    words = {"method": "pne", "gnn": "gcn", "gnn__checkpoint_minutes": 0.0, "metric": "mae"}
    straight = run(graph, tmp_path / "a", tmp_path / "straight", **words)
    with monkeypatch.context() as patch:
        interrupt(patch, loop, "_epoch", 3)
        with pytest.raises(KeyboardInterrupt):
            run(graph, tmp_path / "b", tmp_path / "resumed", **words)
    resumed = run(graph, tmp_path / "b", tmp_path / "resumed", **words)
    np.testing.assert_array_equal(resumed.logits, straight.logits)


def test_inspect_says_what_is_there(graph):
    card = data_card(graph)
    assert (card["task"], card["targets"], card["labelled"], card["homophily"]) == ("regression", 2, 40, None)
    assert before_training(graph, Config()).conflict is None
    assert all("class" not in advice.finding for advice in advise(graph, Config()))


def test_the_report_shows_numbers_and_no_classes(graph, cache, tmp_path):
    """Scores as they are, the lowest error in bold, predicted against true in place of a confusion matrix, nodes."""
    words = {**QUICK, "seeds": 2, "metric": "mae", "out": tmp_path / "t", "cache": cache}
    table = compare(graph, methods=["pne", "wo-ld", "ld"], gnns=["gcn"], **words)
    source = open_source(table.run)
    found = {section.key: section for section in sections(source)}
    explorer = found["nodes"].blocks[0].data
    assert (explorer["task"], explorer["classes"], explorer["slices"][-1]) == (
        "regression",
        graph.class_names,
        "inverse",
    )
    assert all(node["y"] == pytest.approx(graph.labels[i], abs=0.051) for i, node in enumerate(explorer["nodes"]))
    assert any("e" in node for node in explorer["nodes"])
    told = headline(source)
    ld = next(row for row in table.rows if row.method == "ld")
    assert told.startswith(f"LD reaches {ld.test.mean:.4g} test MAE with gcn")
    assert "Lower is better." in told
    methods = next(block for block in found["overview"].blocks if getattr(block, "title", "") == "Methods")
    strong = [row[0].text for row in methods.rows if row[3].strong]
    assert strong == [min(table.rows, key=lambda row: row.test.mean).method]
    chart, by_target, *_ = found["predictions"].blocks
    spec = dict(chart.variants)["ld"]
    test = graph.split.test
    truth = [point[0] for point in spec["series"][0]["points"]]
    np.testing.assert_allclose(truth, graph.labels[test, 0], rtol=1e-4)
    assert by_target.rows[0][1].text == "topic 0"
    runs = source.entries[0].runs
    errors = [mean_absolute_error(graph.labels[test, 0], r.task.values(r.logits)[test, 0]) for r in runs]
    assert by_target.rows[0][3].text == f"{np.mean(errors):.4g}"
    targets = next(block for block in found["data"].blocks if getattr(block, "title", "") == "Targets")
    assert [cell.text for cell in targets.rows[1]][:3] == ["topic 1", "40", f"{graph.labels[:, 1].mean():.4g}"]
    assert write_report(table.run).bytes > 10_000
