"""Contract suites for GNNs, encoders and methods: the built-in ones, and your own.

    from labeldeconv.testing import ENCODER_CHECKS, GNN_CHECKS, METHOD_CHECKS, check_encoder, check_gnn, check_method

    check_gnn(MyGNN)                                    # everything at once, or in pytest, one test per check:
    check_encoder(lambda: MyEncoder("folder"))
    check_method(my_method)

    @pytest.mark.parametrize("check", GNN_CHECKS, ids=lambda check: check.__name__)
    def test_my_gnn(check):
        check(MyGNN)

A GNN is given as its class, or as any function from (in_dim, out_dim) to a new one; an encoder as a function that makes
it; a method as its name, or as a function from `Run` to `Learned`. A broken promise is an AssertionError that says
which.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labeldeconv.data.sets.planted import planted
from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.tokens import Tokens
from labeldeconv.errors import DataError
from labeldeconv.gnns.base import GNN, Psi
from labeldeconv.graph.attributed import PARTS, AttributedGraph
from labeldeconv.methods.base import Learned, Run, method_named
from labeldeconv.propagation.adjacency import Adjacency, propagate
from labeldeconv.propagation.sampling import sample_rows
from labeldeconv.runs.asked import Parts, resolve, settings_from
from labeldeconv.runs.preparation import prepare
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.stage import Use, session

Factory = Callable[[int, int], GNN]
N, D, C, E = 14, 6, 4, 26  # nodes, features, classes, given edges of the graph the checks run on


def check_gnn(factory: Factory) -> None:
    """Run every check of a GNN."""
    for check in GNN_CHECKS:
        check(factory)


def check_shapes(factory: Factory) -> None:
    """`feed`, `hops`, forward (n, c) and psi (b, c), down to a batch of one node in training."""
    gnn = _make(factory)
    assert gnn.feed in ("graph", "rows"), f"feed 'graph' or 'rows' expected, got {gnn.feed!r}"
    assert isinstance(gnn.hops, int), f"hops: an int expected, got {gnn.hops!r}"
    assert gnn.hops >= 0, f"hops of at least 0 expected, got {gnn.hops}"
    out = logits(gnn, _features(), _edges())
    assert out.shape == (N, C), f"forward: ({N}, {C}) expected, got {tuple(out.shape)}"
    psi = Psi(gnn).train()
    for rows in (1, 4, N):
        out = psi(_features()[:rows])
        assert out.shape == (rows, C), f"psi: ({rows}, {C}) expected, got {tuple(out.shape)}"
        assert out.isfinite().all(), f"psi of {rows} rows in training is not finite"


def check_edges_matter(factory: Factory) -> None:
    """Another graph gives other logits, and psi needs none; with hops = 0, which says so, it gives the same."""
    gnn = _make(factory).eval()
    a, b = (logits(gnn, _features(), _edges(seed)) for seed in (0, 1))
    if gnn.hops == 0:
        assert torch.equal(a, b), "hops is 0, yet forward depends on the edges"
    else:
        assert not torch.allclose(a, b), "forward does not depend on the edges"


def check_psi(factory: Factory) -> None:
    """phi(I) psi(x) is forward where every node is its own and only neighbour, at any weights.

    Where there are modules per hop (`hop_parts`), all are made like that of hop 0 first. A psi of another kind is
    declared (`psi_differs`), and then is another.
    """
    gnn = _make(factory).eval()
    _stir(gnn)
    for part in gnn.hop_parts:
        part.load_state_dict(gnn.hop_parts[0].state_dict())
    with torch.no_grad():
        x = _features()
        alone, psi = logits(gnn, x, np.zeros((2, 0), dtype=np.int64)), gnn.phi_of_identity * gnn.psi(x)
    if gnn.psi_differs:
        assert not gnn.psi_exact, "psi_exact and psi_differs exclude each other"
        assert not torch.allclose(psi, alone), "psi_differs is declared, yet psi is forward without edges"
        return
    declared = gnn.psi_exact or bool(gnn.hop_parts) or type(gnn).psi is GNN.psi
    assert declared, "psi is its own and undeclared: psi_exact = True, hop_parts or psi_differs expected"
    _near(psi, alone, "psi differs from forward without edges")


def check_equivariance(factory: Factory) -> None:
    """Renumbering the nodes renumbers the logits."""
    gnn = _make(factory).eval()
    x, edges, order = _features(), _edges(), np.random.default_rng(3).permutation(N)
    there = np.argsort(order)
    a, b = logits(gnn, x[order], there[edges]), logits(gnn, x, edges)[order]
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4, msg=lambda m: f"not permutation-equivariant: {m}")


def check_gradients(factory: Factory) -> None:
    """Forward gives every trained parameter a gradient, and psi gives its features one."""
    gnn = _make(factory).train()
    torch.manual_seed(0)
    logits(gnn, _features(), _edges(), label_inputs=torch.rand(N, C)).pow(2).sum().backward()
    silent = [name for name, p in gnn.named_parameters() if p.requires_grad and p.grad is None]
    assert not silent, f"no gradient reaches {', '.join(silent)}"
    broken = [name for name, p in gnn.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    assert not broken, f"the gradient is not finite in {', '.join(broken)}"
    x = _features().requires_grad_()
    Psi(gnn)(x).pow(2).sum().backward()
    assert x.grad is not None, "psi passes no gradient back to the encoder"
    assert x.grad.abs().sum() > 0, "psi passes no gradient back to the encoder"


def check_determinism(factory: Factory) -> None:
    """The same seed gives the same weights and, in training, the same logits; eval has no randomness."""
    outs = []
    for _ in range(2):
        gnn = _make(factory).train()
        torch.manual_seed(1)
        outs.append(logits(gnn, _features(), _edges()))
    assert torch.equal(*outs), "two runs with one seed differ"
    gnn.eval()
    a, b = (logits(gnn, _features(), _edges()) for _ in range(2))
    assert torch.equal(a, b), "eval mode is random"


def check_bad_input(factory: Factory) -> None:
    """Features of a wrong width or type are answered with a DataError that names the GNN and what it expects."""
    gnn = _make(factory)
    name = type(gnn).__name__
    for wrong in (torch.zeros(N, D + 1), torch.zeros(N, D, dtype=torch.int64)):
        for run in (lambda x: logits(gnn, x, _edges()), lambda x: Psi(gnn)(x)):
            message = _refusal(run, wrong)
            assert message, f"{name}: features {tuple(wrong.shape)} {wrong.dtype} are taken without a word"
            assert name in message, f"the message does not name {name}: {message}"
            assert str(D) in message, f"the message does not name the expected width {D}: {message}"


def check_steps(factory: Factory) -> None:
    """`steps` are there where `stepwise` says so, and give in eval mode what forward does, on some rows too.

    A GNN fed by rows has none: its logits of a row depend on no other row.
    """
    gnn = _make(factory).eval()
    _stir(gnn)
    steps, name = gnn.steps(), type(gnn).__name__
    assert (steps is not None) == gnn.stepwise, (
        f"{name}: stepwise is {gnn.stepwise}, and steps() is {'missing' if steps is None else 'there'}"
    )
    x, adj, some = _features(), _adjacency(_edges(), gnn), np.array([3, 0, 9])
    with torch.no_grad():
        whole = logits(gnn, x, _edges())
        if gnn.feed == "rows":
            assert steps is None, f"{name}: fed by rows, which have no steps"
            rows = torch.stack(list(propagate(adj, x, gnn.hops)), dim=1)[some]  # (3, h, d)
            _near(gnn(rows), whole[some], "logits of a row depend on the other rows")
        elif steps is not None:
            h = x
            for i, step in enumerate(steps):
                sources, block = sample_rows(adj, some, None)
                part, h = step(h[sources], block), step(h, adj)
                assert h.shape[0] == N, f"step {i}: {N} rows expected, got {h.shape[0]}"
                _near(part, h[some], f"step {i} on some rows differs from the same rows of the whole")
            _near(h, whole, "steps differ from forward")


def check_phi_coefficients(factory: Factory) -> None:
    """Where there are `phi_coefficients` theta (h,), forward is sum_i theta_i A-hat^i psi(x)."""
    gnn = _make(factory).eval()
    _stir(gnn)
    theta = gnn.phi_coefficients
    if theta is None:
        return
    assert theta.shape == (gnn.hops + 1,), f"phi_coefficients: ({gnn.hops + 1},) expected, got {tuple(theta.shape)}"
    with torch.no_grad():
        x, edges = _features(), _edges()
        hops = propagate(_adjacency(edges, gnn), gnn.psi(x), gnn.hops)
        mixed = torch.stack([t * z for t, z in zip(theta, hops, strict=True)]).sum(0)
        _near(logits(gnn, x, edges), mixed, "phi_coefficients of psi differ from forward")


def check_output_bias(factory: Factory) -> None:
    """Where there is an `output_bias`, it is a parameter (c,) that adds to psi."""
    gnn = _make(factory).eval()
    bias, x = gnn.output_bias, _features()
    if bias is None:
        return
    assert bias.shape == (C,), f"output_bias: ({C},) expected, got {tuple(bias.shape)}"
    with torch.no_grad():
        before, shift = gnn.psi(x), torch.arange(C).float()
        bias += shift
        torch.testing.assert_close(gnn.psi(x), before + shift, msg=lambda m: f"output_bias does not add to psi: {m}")


def logits(gnn: GNN, x: Tensor, edges: np.ndarray, label_inputs: Tensor | None = None) -> Tensor:
    """Logits (n, c) of any GNN from features (n, d) and edges (2, e), fed as it wants."""
    adj = _adjacency(edges, gnn)
    if gnn.feed == "graph":
        return gnn(x, adj, label_inputs) if gnn.reads_labels and label_inputs is not None else gnn(x, adj)
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    rows = torch.stack(list(propagate(adj, wide, gnn.hops)), dim=1).to(x.dtype)  # (n, h, d)
    return gnn(rows, label_inputs) if gnn.label_hops and label_inputs is not None else gnn(rows)


def _refusal(run: Callable[[Tensor], Tensor], x: Tensor) -> str | None:
    """What a GNN says against its input; None where it takes it."""
    try:
        run(x)
    except DataError as error:
        return str(error)
    return None


def _near(found: Tensor, expected: Tensor, message: str) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4, msg=lambda m: f"{message}: {m}")


def _stir(gnn: GNN) -> None:
    """Move all weights from where they start, so that equal starts and zeros hide nothing."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in gnn.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator, dtype=weight.dtype), alpha=0.1)


def _make(factory: Factory) -> GNN:
    torch.manual_seed(0)
    return factory(D, C)


def _features() -> Tensor:
    return torch.randn(N, D, generator=torch.Generator().manual_seed(0))


def _edges(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, N, (2, E))


def _adjacency(edges: np.ndarray, gnn: GNN) -> Adjacency:
    adj = Adjacency.from_edges(edges, N, AdjacencyConfig())
    values = np.cos(np.outer(np.arange(edges.shape[1]), 1.0 + np.arange(gnn.edge_dim))).astype(np.float32)  # (e, k)
    return adj.with_edge_features(edges, values) if gnn.edge_dim else adj


GNN_CHECKS: list[Callable[[Factory], None]] = [
    check_shapes,
    check_edges_matter,
    check_psi,
    check_equivariance,
    check_gradients,
    check_determinism,
    check_bad_input,
    check_steps,
    check_phi_coefficients,
    check_output_bias,
]


Make = Callable[[], Encoder]
Attributes = Sequence[str] | None
SAMPLES = {
    "text": ["a graph", "label deconvolution of many words, and a few more", "büßt 日本"],
    "sequence": ["MKVLAAGW", "acd", "MJ*KLVINGSTREAM"],
}


def check_encoder(make: Make, attributes: Attributes = None) -> None:
    """Run every check of an encoder; `attributes` are some that it reads, needed unless it takes texts or sequences."""
    for check in ENCODER_CHECKS:
        check(make, attributes)


def check_features(make: Make, attributes: Attributes = None) -> None:
    """Token ids below `vocab_size`, and finite features (b, dim) of any number of attributes."""
    encoder = make().eval()
    given = _attributes(encoder, attributes)
    top = max((token for row in encoder.tokenize(given, 64) for token in row), default=0)
    assert max(top, encoder.pad_id) < encoder.vocab_size, f"token {top}: vocab_size is {encoder.vocab_size}"
    for texts in (given, given[:1]):
        x = encoded(encoder, texts)
        assert x.shape == (len(texts), encoder.dim), f"({len(texts)}, {encoder.dim}) expected, got {tuple(x.shape)}"
        assert x.is_floating_point(), f"features of a floating type expected, got {x.dtype}"
        assert x.isfinite().all(), "features are not finite"


def check_padding(make: Make, attributes: Attributes = None) -> None:
    """A row of features depends neither on padding nor on the others of its batch, and tokens do not either."""
    encoder = make().eval()
    given = _attributes(encoder, attributes)
    x = encoded(encoder, given)
    _same(encoded(encoder, given, pad=5), x, "padding changes features")
    alone = torch.cat([encoded(encoder, [text]) for text in given])
    _same(alone, x, "features depend on the others of the batch")
    tokens = [encoder.tokenize([text], 64)[0] for text in given]
    assert encoder.tokenize(given, 64) == tokens, "tokens depend on the others of the batch"


def check_eval_mode(make: Make, attributes: Attributes = None) -> None:
    """In eval mode nothing is random, and two copies give the same features."""
    encoder, other = make().eval(), make().eval()
    given = _attributes(encoder, attributes)
    x = encoded(encoder, given)
    assert torch.equal(encoded(encoder, given), x), "eval mode is random"
    _same(encoded(other, given), x, "two copies give different features")


def check_empty(make: Make, attributes: Attributes = None) -> None:
    """An empty attribute has finite features, alone and beside others."""
    encoder = make().eval()
    given = _attributes(encoder, attributes)
    empty = json.dumps(dict.fromkeys(json.loads(given[0]), "")) if encoder.takes == "record" else ""
    for texts in ([empty], [*given, empty]):
        x = encoded(encoder, texts)
        assert x.shape == (len(texts), encoder.dim), f"({len(texts)}, {encoder.dim}) expected, got {tuple(x.shape)}"
        assert x.isfinite().all(), "features of an empty attribute are not finite"


def check_max_tokens(make: Make, attributes: Attributes = None) -> None:
    """No attribute has more than `max_tokens` tokens; in a record no column has. Names of files are never cut."""
    encoder = make()
    given = _attributes(encoder, attributes)
    if encoder.opens_files:
        return
    for most in (4, 6, 64):
        longest = max(map(len, encoder.tokenize(given, most)))
        allowed = len(json.loads(given[0])) * (most + 1) if encoder.takes == "record" else most
        assert longest <= allowed, f"max_tokens {most}: at most {allowed} tokens expected, got {longest}"


def check_saving(make: Make, attributes: Attributes = None) -> None:
    """What `save` writes, `restore` takes: the features of trained weights come back."""
    encoder = make().eval()
    given = _attributes(encoder, attributes)
    _shift(list(_trained(encoder)))
    with tempfile.TemporaryDirectory(prefix="labeldeconv-") as folder:
        encoder.save(Path(folder) / "encoder")
        fresh = make()
        fresh.restore(Path(folder) / "encoder")
        _same(encoded(fresh.eval(), given), encoded(encoder, given), "restored features differ from the saved ones")


def check_weights_key(make: Make, attributes: Attributes = None) -> None:
    """Two copies have one `weights_key`, use does not change it, and another weight does."""
    encoder, other = make(), make()
    key = encoder.weights_key()
    assert other.weights_key() == key, "weights_key: two copies differ"
    encoded(encoder.eval(), _attributes(encoder, attributes))
    assert encoder.weights_key() == key, "weights_key changes with use"
    weights = list(_trained(encoder))
    for weight in [weights[i] for i in sorted({0, len(weights) // 2, len(weights) - 1}) if weights]:
        before = encoder.weights_key()
        _shift([weight])
        assert encoder.weights_key() != before, "weights_key does not notice that a weight changes"


def check_tokenizer_key(make: Make, attributes: Attributes = None) -> None:
    """Two copies have one `tokenizer_key`, and neither weights nor use change it."""
    encoder = make()
    key = encoder.tokenizer_key()
    assert make().tokenizer_key() == key, "tokenizer_key: two copies differ"
    encoder.tokenize(_attributes(encoder, attributes), 5)
    assert encoder.tokenizer_key() == key, "tokenizer_key changes with use"
    _shift(list(encoder.parameters()))
    assert encoder.tokenizer_key() == key, "tokenizer_key depends on the weights"


def check_training(make: Make, attributes: Attributes = None) -> None:
    """Where there are weights to train, gradients reach them, and are finite."""
    encoder = make().train()
    weights = list(_trained(encoder))
    if not weights:
        return
    torch.manual_seed(0)
    encoder(*_batch(encoder, _attributes(encoder, attributes))).pow(2).sum().backward()
    grads = [weight.grad for weight in weights if weight.grad is not None]
    assert all(grad.isfinite().all() for grad in grads), "a gradient is not finite"
    assert any(grad.abs().sum() > 0 for grad in grads), "no gradient reaches the weights"


def encoded(encoder: Encoder, texts: Sequence[str], max_tokens: int = 64, pad: int = 0) -> Tensor:
    """Features (b, d) of attributes, as inference makes them; `pad` adds so much padding to every row."""
    with torch.no_grad():
        return encoder(*_batch(encoder, texts, max_tokens, pad))


def _batch(encoder: Encoder, texts: Sequence[str], max_tokens: int = 64, pad: int = 0) -> tuple[Tensor, Tensor]:
    """Tokens and mask (b, t), padded as in training."""
    rows = encoder.tokenize(texts, max_tokens)
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    flat = np.array([token for row in rows for token in row], dtype=np.int64)
    input_ids, mask = Tokens(flat, offsets, encoder.pad_id).batch(np.arange(len(rows)))
    return nn.functional.pad(input_ids, (0, pad), value=encoder.pad_id), nn.functional.pad(mask, (0, pad))


def _attributes(encoder: Encoder, attributes: Attributes) -> list[str]:
    if attributes is None:
        assert encoder.takes in SAMPLES, f"pass some attributes: the suite has none of the kind '{encoder.takes}'"
        return SAMPLES[encoder.takes]
    return list(attributes)


def _trained(encoder: Encoder) -> Iterator[nn.Parameter]:
    return (weight for weight in encoder.parameters() if weight.requires_grad)


def _shift(weights: list[nn.Parameter]) -> None:
    """Other weights, near the old ones, the same every time."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in weights:
            weight.add_(0.02 * torch.randn(weight.shape, generator=generator).to(weight))


def _same(found: Tensor, expected: Tensor, message: str) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4, msg=lambda m: f"{message}: {m}")


ENCODER_CHECKS: list[Callable[[Make, Attributes], None]] = [
    check_features,
    check_padding,
    check_eval_mode,
    check_empty,
    check_max_tokens,
    check_saving,
    check_weights_key,
    check_tokenizer_key,
    check_training,
]

Learn = str | Callable[[Run], Learned]
QUICK: dict[str, Any] = {  # settings of the runs: seconds on a small graph
    "encoder.max_tokens": 16, "train.epochs": 1, "gnn.hidden": 8, "gnn.layers": 2, "gnn.epochs": 5,
    "giant.coarsest": 2, "giant.cluster_size": 10, "giant.step": 1, "joint.epochs": 1, "joint.batch_nodes": 16,
}  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """One run of a method: what it was given and gave, features (n, d) and logits (n, c), and the stages it used."""

    run: Run
    learned: Learned
    features: np.ndarray
    logits: np.ndarray
    used: list[Use]


def check_method(method: Learn, graph: AttributedGraph | None = None) -> None:
    """Run every check of a method, on a graph of your own or on a planted one of 40 nodes, with the tiny encoder."""
    for check in METHOD_CHECKS:
        check(method, graph)


def check_learned(method: Learn, graph: AttributedGraph | None = None) -> None:
    """`Learned` with finite features (n, d) and logits (n, c); an encoder in it is the one that made the features."""
    with _cache() as cache:
        trial = tried(method, graph, cache)
        n, c = trial.run.whole.num_nodes, trial.run.whole.num_classes
        assert trial.features.ndim == 2, f"features ({n}, d) expected, got {trial.features.shape}"
        assert len(trial.features) == n, f"features ({n}, d) expected, got {trial.features.shape}"
        assert trial.logits.shape == (n, c), f"logits ({n}, {c}) expected, got {trial.logits.shape}"
        for what, values in (("features", trial.features), ("logits", trial.logits)):
            assert np.isfinite(values).all(), f"{what} are not finite"
        if trial.learned.encoder is not None:
            with session(cache):
                again = trial.run.features(trial.learned.encoder).values
            same = again.shape == trial.features.shape and np.allclose(again, trial.features, atol=1e-3)
            assert same, "the encoder in Learned is not the one that made the features"


def check_test_labels(method: Learn, graph: AttributedGraph | None = None) -> None:
    """Labels of test nodes change no byte of features and logits."""
    graph = graph or _small_graph()
    labels, test = graph.labels.copy(), graph.split.test
    labels[test] = (labels[test] + 1) % max(graph.num_classes if labels.ndim == 1 else 2, 2)
    with _cache() as one, _cache() as two:
        _equal(tried(method, graph, one), tried(method, replace(graph, labels=labels), two), "test labels change")


def check_repeats(method: Learn, graph: AttributedGraph | None = None) -> None:
    """Two runs with one seed are equal to the bit; in a cache that holds the first, the second computes nothing."""
    graph = graph or _small_graph()
    with _cache() as one, _cache() as two:
        first = tried(method, graph, one)
        _equal(first, tried(method, graph, two), "two runs with one seed differ in")
        recalled = tried(method, graph, one)
        _equal(first, recalled, "a run from the cache differs in")
        anew = [use.label for use in recalled.used if not use.artefact.made.cached]
        assert not anew, f"computed again although nothing changed: {', '.join(anew)}"


def check_leaves_alone(method: Learn, graph: AttributedGraph | None = None) -> None:
    """Neither graph nor settings are changed, and all stages are kept in the cache of the session."""
    graph = graph or _small_graph()
    before = {part: _content(graph, part) for part in PARTS}
    with _cache() as cache:
        trial = tried(method, graph, cache)
        outside = [use.label for use in trial.used if not use.artefact.made.path.is_relative_to(cache.root)]
        assert trial.used, "no stage was used: features and GNN come from stages, which are kept and keyed"
        assert not outside, f"kept outside the session's cache: {', '.join(outside)}"
    changed = [part for part in PARTS if _content(graph, part) != before[part]]
    assert not changed, f"the graph was changed: {', '.join(changed)}"
    assert trial.run.settings == _settings(method, graph), "the settings were changed"


def tried(method: Learn, graph: AttributedGraph | None, cache: Cache) -> Trial:
    """Run a method with quick settings in a session with this cache."""
    graph = graph or _small_graph()
    found = method_named(method)
    run = prepare(_settings(method, graph), graph)
    with session(cache) as account:
        found.needs(run)
        learned = found.learn(run)
    assert isinstance(learned, Learned), f"Learned expected, got {type(learned).__name__}"
    return Trial(run, learned, np.array(learned.features.values), np.array(learned.gnn.logits), account.used)


def _settings(method: Learn, graph: AttributedGraph) -> Any:
    config = settings_from(graph, method_named(method).name, "tiny", "gcn", 0, None, QUICK)
    return resolve(config, Parts(graph))


def _small_graph() -> AttributedGraph:
    return planted(40, seed=0, num_classes=4, num_features=6).graph


@contextmanager
def _cache() -> Iterator[Cache]:
    with tempfile.TemporaryDirectory(prefix="labeldeconv-") as folder:
        yield Cache(Path(folder))


def _content(graph: AttributedGraph, part: str) -> Any:
    """The key of a part, computed anew."""
    return replace(graph).key_of(part)


def _equal(one: Trial, other: Trial, message: str) -> None:
    for what in ("features", "logits"):
        assert np.array_equal(getattr(one, what), getattr(other, what)), f"{message} {what}"


METHOD_CHECKS: list[Callable[[Learn, AttributedGraph | None], None]] = [
    check_learned,
    check_test_labels,
    check_repeats,
    check_leaves_alone,
]
