"""The choice of gamma: against a dense reference, in bounded memory, what wins when, and what is never read."""

import tracemalloc
from dataclasses import dataclass, replace

import numpy as np
import pytest

from labeldeconv.data.sets.planted import planted
from labeldeconv.graph.split import Split
from labeldeconv.graph.task import Task
from labeldeconv.labels import gamma as module
from labeldeconv.labels.gamma import Candidate, Moments, candidates, choose_gamma, gamma, out_of_fold
from labeldeconv.labels.hops import hop_labels, hops
from labeldeconv.labels.pseudo import pseudo
from labeldeconv.propagation.adjacency import Adjacency, propagate
from labeldeconv.propagation.fixed_point import dequantize
from labeldeconv.settings.models import AdjacencyConfig

FOLDS, RIDGE = 5, 1e-2  # not the module's: what it has must be these


def test_candidates_include_wo_ld_and_the_papers_start():
    tried = [tuple(np.round(g, 3)) for g in candidates(3)]
    assert (1, 0, 0) in tried
    assert (0.333, 0.333, 0.333) in tried
    assert (0, 1, 0) in tried
    assert all(sum(g) == pytest.approx(1, abs=0.01) for g in tried)
    assert len(tried) == len(set(tried))
    assert [tuple(g) for g in candidates(1)] == [(1.0,)]
    third = 1 / 3
    mixed = [((1 - alpha) + alpha * third, alpha * third, alpha * third) for alpha in (0.2, 0.5)]
    every = [
        (third, third, third),
        (0.5, 0.5, 0),
        (1, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
        (0.5, 0, 0.5),
        (0, 0.5, 0.5),
        *mixed,
    ]
    np.testing.assert_allclose(candidates(3), every)


def dense_ridge(X, Y, queries):
    """scikit-learn's, all rows at once."""
    from sklearn.linear_model import Ridge

    centre, mean = X.mean(0, dtype=np.float64), Y.mean(0, dtype=np.float64)
    X = X - centre
    penalty = RIDGE * max(float(np.vdot(X, X)) / X.shape[1], 1e-12)
    model = Ridge(alpha=penalty, fit_intercept=False, solver="cholesky").fit(X, Y - mean)
    return (model.predict(queries - centre).reshape(len(queries), -1) + mean).astype(np.float32)


def dense_out_of_fold(X, Y, seed):
    fold = np.random.default_rng(seed).permutation(len(X)) % FOLDS
    out = np.empty((len(X), Y.shape[1]), dtype=np.float32)
    for k in range(FOLDS):
        inside = fold == k
        out[inside] = dense_ridge(X[~inside], Y[~inside], X[inside])
    return out


def dense_choice(features, K, adj, labels, split, task, seed=0):
    """The choice with everything in memory, by scikit-learn: what the streamed one must agree with."""
    n, h, c = K.shape
    predicted = dense_out_of_fold(np.asarray(features, np.float32), np.asarray(K).reshape(n, h * c), seed)
    filtered = [x.reshape(n, h, c) for x in propagate(adj, np.ascontiguousarray(predicted), h - 1)]

    def known(ids):
        targets = task.targets(labels[ids])
        some = ~np.isnan(targets).all(axis=1)
        return ids[some], targets[some]

    (train, targets), (val, truth) = known(split.train), known(split.val)
    targets = np.where(np.isnan(targets), np.nan_to_num(np.nanmean(targets, axis=0)), targets)

    def tried(mix):
        inputs = np.concatenate([np.einsum("h,nhc->nc", mix, x) for x in filtered], axis=1)
        answer = dense_ridge(inputs[train], targets, inputs[val])
        return np.nanmean((answer - truth) ** 2, axis=1), task.score(answer, labels[val])

    alone, _ = tried(np.eye(h)[0])
    found = []
    for mix in candidates(h):
        errors, score = tried(mix)
        better = alone - errors
        doubt = float(better.std() / np.sqrt(len(better)))
        found.append(Candidate(mix, score, float(errors.mean()), float(better.mean()), doubt))
    found.sort(key=lambda candidate: candidate.error)
    best = found[0]
    surely = best.lead > max(2.0 * best.doubt, 0.01 * float(alone.mean()))
    chosen = best if surely else next(candidate for candidate in found if candidate.gamma[0] == 1)
    return [chosen, *(candidate for candidate in found if candidate is not chosen)]


@pytest.mark.parametrize("kind", ["multiclass", "multilabel"])
@pytest.mark.parametrize("nodes", [120, 1500])
@pytest.mark.parametrize("noise", [0.1, 2.0])
@pytest.mark.parametrize("hops", [1, 3])
def test_it_is_the_choice_of_the_dense_reference(kind, nodes, noise, hops, monkeypatch):
    """All candidates, with their errors and leads; in blocks of 97 rows and of 16 columns."""
    monkeypatch.setattr(module, "ROWS", 97)
    monkeypatch.setattr(module, "COLUMN_BYTES", 1)
    truth = planted(nodes, kind, seed=0)
    graph, task = truth.graph, Task.of(truth.graph)
    rng = np.random.default_rng(0)
    features = (truth.inverse_labels + rng.normal(3, noise, truth.inverse_labels.shape)).astype(np.float16)
    K = hop_labels(graph.edges, np.nan_to_num(task.targets(graph.labels)), hops)
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes)
    found, expected = (
        choice(features, K, adj, graph.labels, graph.split, task) for choice in (choose_gamma, dense_choice)
    )
    np.testing.assert_array_equal(found[0].gamma, expected[0].gamma)
    for ours, reference in zip(
        *(sorted(tried, key=lambda c: tuple(c.gamma)) for tried in (found, expected)), strict=True
    ):
        np.testing.assert_array_equal(ours.gamma, reference.gamma)
        assert ours.error == pytest.approx(reference.error, rel=1e-5)
        assert ours.score == pytest.approx(reference.score, abs=1e-3)
        assert ours.lead == pytest.approx(reference.lead, abs=1e-6)
        assert ours.doubt == pytest.approx(reference.doubt, abs=1e-6)


def test_no_row_is_predicted_by_a_model_that_saw_it(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ROWS", 7)
    rng = np.random.default_rng(1)
    X, K = rng.normal(size=(60, 4)).astype(np.float32), rng.random((60, 3, 7)).astype(np.float32)
    made = out_of_fold(X, K, 5, tmp_path)
    found = np.concatenate(list(made.parts), axis=1)[:, :21]
    np.testing.assert_allclose(found, dense_out_of_fold(X, K.reshape(60, 21), 5), atol=1e-5)
    assert made.parts.shape == (1, 60, 32)  # 21 columns, in whole lines of the cache and no more
    assert not list(tmp_path.iterdir())  # what lies on disk has no name


def memory_of_a_choice(n, folder, d=32, h=5, c=9):
    """Peak of what numpy holds while gamma is chosen on n nodes of which 8% are train nodes, as in ogbn-products."""
    rng = np.random.default_rng(0)
    X = np.lib.format.open_memmap(folder / f"X{n}.npy", "w+", np.float16, (n, d))
    K = np.lib.format.open_memmap(folder / f"K{n}.npy", "w+", np.uint16, (n, h, c))
    for lo in range(0, n, 10_000):
        X[lo : lo + 10_000] = rng.standard_normal(d)
        K[lo : lo + 10_000] = rng.integers(0, 65535, (h, c))
    adj = Adjacency.from_edges(rng.integers(0, n, (2, n)), n)
    labels = rng.integers(0, c, n)
    roles = np.full(n, 2)
    roles[: n * 8 // 100], roles[n * 8 // 100 : n // 10] = 0, 1
    tracemalloc.start()
    try:
        choose_gamma(X, K, adj, labels, Split(roles), Task("multiclass", c), folder=folder)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_at_the_size_of_ogbn_products(tmp_path, monkeypatch):
    """Growth per node, measured to 80,000 nodes, times 2.45 million, and the sums for d = 768, N = 5: under 1 GiB."""
    monkeypatch.setattr(module, "COLUMN_BYTES", 1)  # as for millions of nodes: the narrowest blocks of columns
    few, many = 20_000, 80_000
    small, large = (memory_of_a_choice(n, tmp_path) for n in (few, many))
    per_node = (large - small) / (many - few)
    assert per_node < 240  # 3 * 64 for columns in the graph, 17 for folds, and the answers of validation nodes
    d, width, tried = 768, 6 * 47, len(candidates(6))
    sums = 8 * (FOLDS + 2) * d * (d + width) + 8 * tried * width * (width + 47)
    rows = module.ROWS * (8 * 2 * d + 4 * 8 * width + 2 * 4 * 6 * width)  # a block of X, K and the filtered ones
    assert large + per_node * (2_450_000 - many) + sums + rows < 1 << 30


@pytest.mark.parametrize(("n", "d", "m"), [(80, 5, 3), (80, 5, 1), (12, 30, 4)])  # the last has fewer rows than columns
def test_ridge_of_sums_is_that_of_rows(n, d, m):
    """(X^T X + penalty I) W = X^T Y of the centred X and Y, whatever the blocks, the shift and what was taken away."""
    rng = np.random.default_rng(0)
    X, queries, others = (rng.standard_normal((rows, d)).astype(np.float32) + 3 for rows in (n, 7, 9))
    Y = rng.standard_normal((n, m)).astype(np.float32) - 1
    sums, seen, unseen = (Moments.zero(d, m, np.full(d, 2.5)) for _ in range(3))
    for lo in range(0, n, 5):
        seen.add(X[lo : lo + 5], Y[lo : lo + 5])
    unseen.add(others, np.ones((9, m)))
    sums = seen.plus(unseen).plus(unseen, -1)
    assert sums.count == n
    found = sums.ridge()(queries)
    assert (found.shape, found.dtype) == ((7, m), np.float32)
    np.testing.assert_allclose(found, dense_ridge(X, Y, queries), atol=1e-5)


def ridge(x, y, queries):
    """By `Moments`, from all rows at once."""
    sums = Moments.zero(x.shape[1], y.shape[1])
    sums.add(x, y)
    return sums.ridge()(queries)


def test_ridge_by_hand():
    """x = -1, 1 and y = 0, 4: slope 4 / (2 + 0.02) around (0, 2); a constant x tells nothing but the mean."""
    x, y = np.array([[-1.0], [1.0]], dtype=np.float32), np.array([[0.0], [4.0]], dtype=np.float32)
    assert ridge(x, y, np.array([[3.0]]))[0, 0] == pytest.approx(2 + 3 * 4 / 2.02)
    assert ridge(np.ones_like(x), y, np.array([[1.0]]))[0, 0] == pytest.approx(2.0)
    assert ridge(x / 1000, y, np.array([[0.003]]))[0, 0] == pytest.approx(2 + 3 * 4 / 2.02)  # whatever the unit of x
    assert Moments.zero(1, 1).ridge()(np.array([[5.0]])).tolist() == [[0.0]]  # no rows: nothing known


def choose(truth, features, hops=2):
    graph, task = truth.graph, Task.of(truth.graph)
    K = hop_labels(graph.edges, np.nan_to_num(task.targets(graph.labels)), hops)
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes)
    return choose_gamma(features, K, adj, graph.labels, graph.split, task)


def test_the_motivating_structure_asks_for_hop_one():
    """On planted, texts say nothing about their own label but name the labels one hop away."""
    truth = planted(1500, seed=0)
    noise = np.random.default_rng(0).normal(0, 0.1, truth.inverse_labels.shape)
    best, *others = choose(truth, truth.inverse_labels + noise)
    assert best.gamma[1] >= 0.5
    alone = next(o for o in [best, *others] if o.gamma[0] == 1)
    assert best.lead == pytest.approx(alone.error - best.error)
    assert (alone.lead, alone.doubt) == (0, 0)
    assert best.lead > 2 * best.doubt > 0
    assert best.error < 0.8 * alone.error


def test_labels_of_the_text_alone_ask_for_no_hops():
    """Random edges and labels that only the text decides: Y itself is at least as good as anything."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 600)
    features = np.eye(4)[labels] + rng.normal(0, 0.3, (600, 4))
    edges = rng.integers(0, 600, (2, 2400))
    K = hop_labels(edges, np.eye(4, dtype=np.float32)[labels], 2)
    split = Split.stratified(labels, seed=0)
    found = choose_gamma(features, K, Adjacency.from_edges(edges, 600), labels, split, Task("multiclass", 4))
    assert found[0].gamma[0] == 1
    assert found[0].score > 0.95
    assert len(found) == len(candidates(3))


def test_test_labels_are_never_read():
    truth = planted(300, seed=0)
    a = choose(truth, truth.inverse_labels)
    labels = truth.graph.labels.copy()
    labels[truth.graph.split.test] = 0
    graph, task = truth.graph, Task.of(truth.graph)
    K = hop_labels(graph.edges, task.targets(graph.labels), 2)
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes)
    b = choose_gamma(truth.inverse_labels, K, adj, labels, graph.split, task)
    assert [c.score for c in a] == [c.score for c in b]


def test_multilabel_runs():
    truth = planted(300, "multilabel", seed=0)
    assert choose(truth, truth.inverse_labels)[0].score > 0.5


def test_a_lead_within_its_doubt_does_not_choose():
    """A handful of validation nodes cannot tell: what leads there stands second, with its lead and its doubt."""
    truth = planted(400, seed=0)
    graph = truth.graph
    few = graph.split.roles.copy()
    few[graph.split.val[4:]] = 2
    noise = np.random.default_rng(0).normal(0, 2.0, truth.inverse_labels.shape)
    K = hop_labels(graph.edges, Task.of(graph).targets(graph.labels), 2)
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes)
    first, second, *_ = choose_gamma(truth.inverse_labels + noise, K, adj, graph.labels, Split(few), Task.of(graph))
    assert first.gamma[0] == 1
    assert second.error < first.error
    assert 0 < second.lead <= 2 * second.doubt


def test_nodes_without_a_label_do_not_count():
    truth = planted(300, seed=0)
    graph, task = truth.graph, Task.of(truth.graph)
    K = hop_labels(graph.edges, task.targets(graph.labels), 2)
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes)
    labels, roles = graph.labels.copy(), graph.split.roles.copy()
    for role, ids in enumerate((graph.split.test[:20], graph.split.test[20:40])):
        labels[ids], roles[ids] = -1, role
    plain = choose_gamma(truth.inverse_labels, K, adj, graph.labels, graph.split, task)
    more = choose_gamma(truth.inverse_labels, K, adj, labels, Split(roles), task)
    assert [(c.error, c.doubt) for c in plain] == [(c.error, c.doubt) for c in more]


@dataclass
class Values:
    """Features as a stage takes them: with a key."""

    values: np.ndarray
    content_key: str


def test_stage_equals_the_function_and_reads_no_test_label():
    truth = planted(200, seed=0)
    graph = truth.graph
    predicted = PredictedLogits(np.log(truth.inverse_labels + 1e-3), "first")
    X, adjacency = Values(truth.inverse_labels, "x"), AdjacencyConfig()
    K = hops(pseudo(predicted, graph), graph, adjacency, 2)
    chosen = gamma(K, X, graph, adjacency)
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes, adjacency)
    found = choose_gamma(X.values, dequantize(K.values), adj, graph.labels, graph.split, Task.of(graph))
    assert chosen.gamma == found[0].gamma.tolist()
    assert [c["error"] for c in chosen.candidates] == [c.error for c in found]
    labels = graph.labels.copy()
    labels[graph.split.test] = 0
    assert gamma.key(K, X, graph, adjacency) == gamma.key(K, X, replace(graph, labels=labels), adjacency)
    labels[graph.split.val] = 0
    assert gamma.key(K, X, graph, adjacency) != gamma.key(K, X, replace(graph, labels=labels), adjacency)


@dataclass
class PredictedLogits:
    """Predictions as a stage takes them."""

    logits: np.ndarray
    content_key: str


def test_every_row_of_a_map_is_given_back(tmp_path, monkeypatch):
    """Rows of X are read twice, those of K once; what is written or filtered is given back where it was."""
    monkeypatch.setattr(module, "ROWS", 7)
    given: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    monkeypatch.setattr(module, "release", lambda x, lo, hi: given.setdefault(x.shape, []).append((lo, hi)))
    rng = np.random.default_rng(1)
    X, K = rng.normal(size=(20, 4)).astype(np.float32), rng.random((20, 3, 7)).astype(np.float32)
    made = out_of_fold(X, K, 5, tmp_path)
    blocks = [(0, 7), (7, 14), (14, 20)]
    assert given == {(20, 4): blocks * 2, (20, 3, 7): blocks, (20, 32): blocks}
    given.clear()
    nodes = np.array([3, 1, 19, 4, 5, 6, 7, 8])
    filtered = module.Filtered.of(Adjacency.identity(20), made, nodes, 3, 7, tmp_path)
    assert given == {(8, 32): [(0, 7), (7, 8)] * 3, (20, 32): [(0, 20)]}
    given.clear()
    rows = filtered.rows(2, 5)
    assert given == {(8, 32): [(2, 5)] * 3}
    whole = np.concatenate(list(made.parts), axis=1)[:, :21].reshape(20, 3, 7)
    np.testing.assert_allclose(rows, np.repeat(whole[nodes[2:5], None], 3, axis=1), atol=1e-7)  # A-hat is I
