"""The learning bias: the motivating example by hand, planted and homophilous graphs, and finished runs."""

import itertools
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from labeldeconv import load_config, open_data, planted
from labeldeconv.analysis.bias import _nonnegative, before_training, bias
from labeldeconv.errors import DataError
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.gnns.base import Psi
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.graph.texts import Texts
from labeldeconv.runs.asked import resolve
from labeldeconv.runs.directory import RunDirectory
from labeldeconv.settings.models import Config
from tests.samples import real_data

STRICT = {"gnn.layers": 1, "gnn.adjacency.self_loops": False, "gnn.adjacency.normalization": "row"}


def labelled(edges, labels, classes):
    n = len(labels)
    split, names = Split(np.zeros(n, dtype=np.int8)), [str(i) for i in range(classes)]
    return AttributedGraph(Texts.from_strings(["x"] * n), np.array(edges), np.array(labels), split, names)


def test_motivating_example():
    """sec:example: A Y against Y = A X. Centred, A-hat Y (the swap) leaves an error, A-hat (A-hat Y) = Y none."""
    graph = labelled([[0, 2], [1, 3]], [1, 0, 2, 1], 3)
    found = before_training(graph, load_config(None, STRICT))
    assert found.hops == 1
    assert found.residual_inverse == found.residual_free == pytest.approx(0.0, abs=1e-4)
    assert found.gamma == [0.0, 1.0]
    assert found.residual_labels > 0.9
    assert (found.homophily, found.conflict, found.isolated) == (0.0, 1.0, 0.0)
    assert found.removable == pytest.approx(1.0)


def test_equal_labels_everywhere_have_no_bias():
    """Two cliques, each of one class: phi is the identity on the labels."""
    cliques = np.concatenate([np.stack(np.triu_indices(5, 1)), 5 + np.stack(np.triu_indices(5, 1))], axis=1)
    found = before_training(labelled(cliques, [0] * 5 + [1] * 5, 2), Config())
    assert found.residual_labels == pytest.approx(0.0, abs=1e-6)
    assert (found.conflict, found.target_distance) == (0.0, pytest.approx(0.0, abs=1e-6))
    assert found.dependence == pytest.approx(1.0, abs=0.05)
    assert not found.can_help
    assert "not needed" in found.verdict


def test_labels_at_random_do_not_depend_on_the_graph():
    rng = np.random.default_rng(0)
    found = before_training(labelled(rng.integers(0, 600, (2, 1800)), rng.integers(0, 3, 600), 3), Config())
    assert abs(found.dependence) < 0.02
    assert not found.can_help
    assert "hardly depend" in found.verdict


def test_a_graph_without_edges():
    found = before_training(labelled(np.zeros((2, 0), dtype=int), [0, 1, 0, 1], 2), Config())
    assert (found.isolated, found.alone, found.residual_labels) == (1.0, 1.0, 0.0)
    assert found.homophily is None
    assert "not needed" in found.verdict


def test_planted_wants_ld():
    """Its labels are those of the neighbours' texts, so plain labels fail behind the convolution."""
    found = bias(planted(800, seed=0).graph, resolve(load_config(None, {"data": "planted"}))).before
    assert found.can_help
    assert found.residual_labels > 0.9
    assert found.residual_inverse < 0.5
    assert found.gamma[1] > 0.9
    assert found.dependence > 0.3


def test_only_train_labels_are_read():
    graph = planted(300, seed=0).graph
    other = graph.labels.copy()
    hidden = graph.split.roles != 0
    other[hidden] = np.random.default_rng(1).permutation(other[hidden])
    changed = AttributedGraph(graph.texts, graph.edges, other, graph.split, graph.class_names)
    assert before_training(graph, Config()) == before_training(changed, Config())
    assert before_training(graph, Config(), "labelled") != before_training(changed, Config(), "labelled")


def test_multilabel_with_missing_entries():
    graph = planted(200, "multilabel", seed=0).graph
    labels = graph.labels.copy()
    labels[::3, 0] = -1
    found = before_training(AttributedGraph(graph.texts, graph.edges, labels, graph.split, graph.class_names), Config())
    assert found.conflict is None
    assert 0 < found.residual_labels <= 1


def test_nonnegative_least_squares():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((50, 3)), rng.standard_normal(50)
    X[:, 2] = -y + 0.1 * X[:, 2]  # wants a negative weight
    found = _nonnegative(X.T @ X, X.T @ y, 3)
    assert (found >= 0).all()
    best = min(
        ((X @ np.array(w) - y) ** 2).sum()
        for w in np.stack(np.meshgrid(*[np.linspace(0, 1, 21)] * 3), -1).reshape(-1, 3)
    )
    assert ((X @ found - y) ** 2).sum() <= best + 1e-9


def test_nonnegative_least_squares_by_hand():
    """y = 3 x_0 - x_1 with x_0 x_1 = 0 keeps 3 for x_0; no hop that helps leaves 0; equal hops count once, the first.

    A Gram matrix of one hop is filled up with zeros.
    """
    assert _nonnegative(np.eye(2), np.array([3.0, -1.0]), 2) == pytest.approx([3.0, 0.0])
    assert _nonnegative(np.eye(2), np.array([-3.0, -1.0]), 2).tolist() == [0.0, 0.0]
    assert _nonnegative(np.zeros((2, 2)), np.zeros(2), 2).tolist() == [0.0, 0.0]
    assert _nonnegative(np.array([[2.0]]), np.array([3.0]), 3) == pytest.approx([1.5, 0.0, 0.0])
    for energy in (0.1, 7.3, 33.0):
        assert _nonnegative(np.full((4, 4), energy), np.full(4, energy), 4) == pytest.approx([1.0, 0, 0, 0])


@pytest.mark.parametrize("seed", range(20))
def test_nonnegative_least_squares_against_all_sets_of_hops(seed):
    """The least squares over every set of hops that need no sign; half of the time two hops are the same."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((40, 4)) + seed % 3, rng.standard_normal(40)
    if seed % 2:
        X[:, 3] = X[:, 1]
    best = y @ y
    for chosen in (list(c) for k in range(1, 5) for c in itertools.combinations(range(4), k)):
        weights = np.linalg.lstsq(X[:, chosen], y, rcond=None)[0]
        if (weights >= -1e-12).all():
            best = min(best, ((X[:, chosen] @ weights - y) ** 2).sum())
    found = _nonnegative(X.T @ X, X.T @ y, 4)
    assert (found >= 0).all()
    assert ((X @ found - y) ** 2).sum() == pytest.approx(best, rel=1e-9)


def test_too_few_labels():
    graph = labelled([[0], [1]], [0, 1], 2).with_split(Split(np.array([0, 1], dtype=np.int8)))
    with pytest.raises(DataError, match="at least 2 labelled nodes"):
        before_training(graph, Config())


def test_after_a_comparison(comparison):
    found = bias(comparison)
    runs = {r.run: r for r in found.after.runs}
    assert runs["pne-gcn-0"].psi_test is None
    assert runs["wo-ld-gcn-0"].target_distance is None
    assert 0 < runs["ld-gcn-0"].target_distance < 1
    for name in ("ld-gcn-0", "wo-ld-gcn-1"):
        run = RunDirectory.open(comparison / name)
        gnn = Architecture.of(run.config().gnn).build(run.features.shape[1], run.graph.num_classes)
        psi = Psi(gnn, run.config().train.psi_norm).eval()
        psi.gnn.load_state_dict(load_file(run.psi_weights))
        alone = psi(torch.tensor(np.array(run.features, dtype=np.float32))).argmax(1).numpy()
        assert runs[name].agreement == pytest.approx((alone == run.logits.argmax(1)).mean(), abs=1e-4)
        test = run.graph.split.test
        assert runs[name].psi_test == pytest.approx((alone == run.graph.labels)[test].mean())
    tests = {name: json.loads((comparison / name / "result.json").read_text())["test"] for name in runs}
    (difference,) = found.after.differences
    expected = np.mean([tests[f"ld-gcn-{s}"] - tests[f"wo-ld-gcn-{s}"] for s in (0, 1)])
    assert (difference.a, difference.b, difference.seeds) == ("ld", "wo-ld", 2)
    assert difference.points == pytest.approx(expected, abs=1e-6)
    assert "2 seeds" in found.after.verdict
    assert {row["part"] for row in found.rows()} == {"before", "run", "difference"}
    assert json.loads(json.dumps(found.to_dict()))["before"]["hops"] == 2


def test_after_one_run(ld_run):
    found = bias(ld_run).after
    assert found.differences == []
    assert "cannot be told" in found.verdict


@pytest.mark.parametrize("name", ["citeseer", "stacks"])
def test_real_citations(name):
    """Homophilous citations: smoothing cannot be undone with weights of one sign."""
    found = bias(open_data(str(real_data(name))).graph).before
    assert found.dependence > 0.3
    assert found.residual_free < found.residual_inverse == found.residual_labels
    assert not found.can_help
