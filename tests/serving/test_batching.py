"""Requests that wait together: encoded together, predicted as if each were alone."""

import threading

import numpy as np
import pytest

from labeldeconv import Predictor
from labeldeconv.serving.batching import Batcher

TEXTS = ["river", "not piano drum but river " * 3, "", "quiet amber", "drum"]


@pytest.fixture(scope="module")
def predictor(ld_run):
    return Predictor.load(ld_run)


@pytest.fixture
def gathered(predictor, monkeypatch):
    """Submit requests so that all of them wait when the thread looks: what came of them, and the batches."""
    batches, batcher = [], None

    def go(requests, budget=10_000):
        nonlocal batcher
        ready, busy = threading.Event(), threading.Event()
        tokenize = predictor.encode.tokenize

        def held_back(texts):
            busy.set()
            ready.wait()
            return tokenize(texts)

        monkeypatch.setattr(predictor.encode, "tokenize", held_back)
        batcher = Batcher(predictor, budget, lambda *told: batches.append(told))
        first = batcher.submit(predictor.new_nodes(["first"]))
        busy.wait()
        futures = [batcher.submit(*request) for request in requests]
        ready.set()
        first.result(30)
        del batches[0]
        return [future.exception(30) or future.result() for future in futures], batches

    yield go
    batcher.close()


def test_a_batch_gives_what_each_request_gives_alone(predictor, gathered):
    """All have the same ids, and edges to the same node: who saw the others would have another degree there."""
    new = [predictor.new_nodes([text, "b"], [("new-0", 3), (5, "new-0"), ("new-1", "new-0")]) for text in TEXTS]
    modes = ["exact", "exact", "fast", "exact", "fast"]
    requests = [*zip(new, modes, ["psi"] * 5, strict=True), (predictor.new_nodes(["lone"]), "exact", "gnn")]
    told, batches = gathered(requests)
    assert [count for count, _ in batches] == [6]
    for (nodes, mode, alone), got in zip(requests, told, strict=True):
        wanted = predictor.predict_nodes(nodes, mode, alone)
        np.testing.assert_allclose(got.logits, wanted.logits, atol=2e-3)
        np.testing.assert_allclose(got.probabilities, wanted.probabilities, atol=1e-3)
        np.testing.assert_allclose(got.features, wanted.features, atol=2e-3)
        assert (got.ids, got.by, got.classes) == (wanted.ids, wanted.by, wanted.classes)
    assert np.abs(told[0].logits - told[1].logits).max() > 1e-2  # texts do matter


def test_the_budget_of_tokens_cuts_batches_in_the_order_of_arrival(predictor, gathered):
    new = [predictor.new_nodes([text]) for text in TEXTS]
    sizes = [len(predictor.encode.tokenize(nodes.texts)[0]) for nodes in new]
    told, batches = gathered([(nodes,) for nodes in new], budget=sizes[0] + sizes[1])
    assert batches[0] == (2, sizes[0] + sizes[1])
    assert sum(count for count, _ in batches) == 5
    assert all(tokens <= sizes[0] + sizes[1] for _, tokens in batches)
    assert [one.features.shape for one in told] == [(1, 32)] * 5
    assert len(batches) >= 2


def test_a_request_beyond_the_budget_goes_alone(predictor, gathered):
    _, batches = gathered([(predictor.new_nodes([text]),) for text in TEXTS[:3]], budget=1)
    assert [count for count, _ in batches] == [1, 1, 1]


@pytest.mark.parametrize("where", ["tokenize", "of_tokens"])
def test_who_makes_an_error_gets_it_alone(predictor, gathered, monkeypatch, where):
    real = getattr(predictor.encode, where)
    bad = "poison" if where == "tokenize" else predictor.encode.tokenize(["poison"])[0]

    def breaks(rows):
        if bad in rows:
            raise ValueError("poison")
        return real(rows)

    monkeypatch.setattr(predictor.encode, where, breaks)
    told, _ = gathered([(predictor.new_nodes([text]),) for text in ("river", "poison", "drum")])
    assert isinstance(told[1], ValueError)
    assert [one.by for one in (told[0], told[2])] == [["psi"], ["psi"]]


def test_closing_answers_what_was_taken_and_takes_no_more(predictor):
    batcher = Batcher(predictor, 1)
    futures = [batcher.submit(predictor.new_nodes([text])) for text in TEXTS]
    assert batcher.alive
    batcher.close()
    assert all(future.result(0).by == ["psi"] for future in futures)
    assert not batcher.alive
    with pytest.raises(RuntimeError, match="closed"):
        batcher.submit(predictor.new_nodes(["late"]))
