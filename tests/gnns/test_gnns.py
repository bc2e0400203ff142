"""Every built-in GNN keeps the contract, with its options too."""

import inspect

import numpy as np
import pytest
import torch

from labeldeconv.errors import ConfigError
from labeldeconv.gnns.base import GNNS
from labeldeconv.testing import GNN_CHECKS, check_edges_matter, check_gnn, check_psi, check_steps, logits

d, c = 6, 4
VARIANTS = {
    **{name: {} for name in GNNS},
    "gat with edge features": {"edge_dim": 3, "ngnn": 2, "attend_target": False},
    "gat with layer norm": {"norm": "layer", "attention_dropout": 0.2},
    "revgat of four groups": {"groups": 4, "attend_target": True, "norm": "layer", "input_norm": False},
    "revgat of the leaderboard": {"symmetric_norm": True, "label_inputs": True, "feature_dropout": 0.4},
    "gamlp with jk": {"attention": "jk", "norm": "layer", "label_hops": 2},
    "gamlp without hop mlps": {"hop_layers": 0},
    "sagn with labels": {"label_hops": 3, "mlp_layers": 2},
    "spegnn of four hops": {"convolutions": 4, "norm": "none"},
    "sage with layer norm": {"norm": "layer", "input_dropout": 0.2},
    "appnp of three hops": {"convolutions": 3, "teleport": 0.4, "norm": "layer"},
    "mlp without norms": {"norm": "none", "input_dropout": 0.2},
}


def factory(variant):
    kind = GNNS[variant.split()[0]]
    return lambda d_in, d_out: kind(d_in, d_out, layers=3, hidden=8, dropout=0.5, **VARIANTS[variant])


@pytest.mark.parametrize("check", GNN_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("variant", VARIANTS)
def test_contract(variant, check):
    check(factory(variant))


@pytest.mark.parametrize("name", GNNS)
def test_hops_are_layers(name):
    """But for APPNP, whose layers are those of the MLP it propagates, and the MLP, which has no hop."""
    assert factory(name)(d, c).hops == {"appnp": 5, "mlp": 0}.get(name, 3)


def test_suite_finds_a_broken_promise():
    class Broken(GNNS["gcn"]):
        def psi(self, x):
            return 2 * super().psi(x)

    with pytest.raises(AssertionError, match="psi differs from forward"):
        check_psi(Broken)

    class Short(GNNS["gcn"]):
        def steps(self):
            return super().steps()[:1] * 1

        def forward(self, x, adj):
            for step in super().steps():
                x = step(x, adj)
            return x

    with pytest.raises(AssertionError, match="steps differ"):
        check_steps(lambda a, b: Short(a, b, hidden=b))
    check_gnn(GNNS["gcn"])

    class Peeking(GNNS["mlp"]):
        feed = "graph"

        def forward(self, x, adj):
            return self.psi(x) + adj.num_nodes + torch.from_numpy(np.diff(adj.indptr))[:, None]

    with pytest.raises(AssertionError, match="hops is 0, yet forward depends on the edges"):
        check_edges_matter(Peeking)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("revgat", {"layers": 1}, "RevGAT: layers of at least 2 expected, got 1"),
        ("revgat", {"groups": 3}, "RevGAT: groups from 2 that divide hidden 8 expected, got 3"),
        ("gamlp", {"attention": "all"}, "GAMLP: attention 'recursive' or 'jk' expected, got 'all'"),
        ("appnp", {"convolutions": 0}, "APPNP: convolutions of at least 1 expected, got 0"),
        ("appnp", {"teleport": 1.5}, "APPNP: teleport from 0 to 1 expected, got 1.5"),
        ("gcn", {"norm": "bach"}, "norm 'bach': unknown; did you mean 'batch'"),
    ],
)
def test_wrong_options_are_named(name, options, message):
    with pytest.raises(ConfigError, match=message):
        GNNS[name](d, c, **{"hidden": 8, **options})


def test_logits_of_rows_and_graph_agree_in_shape():
    x = torch.randn(14, d)
    for name in GNNS:
        assert logits(factory(name)(d, c).eval(), x, np.zeros((2, 0), int)).shape == (14, c)


SHARED = {"layers": 2, "hidden": 256, "dropout": 0.5}
# As the authors of each have it where that does not depend on the graph; docs/gnns.md says what was measured.
DEFAULTS = {
    "gcn": {**SHARED, "norm": "batch", "input_dropout": 0.0},
    "gat": {
        **SHARED, "heads": 3, "input_dropout": 0.1, "attention_dropout": 0.0, "edge_dropout": 0.1,
        "attend_target": True, "edge_dim": 0, "edge_hidden": 16, "ngnn": 0, "norm": "batch",
    },
    "revgat": {
        "layers": 3, "hidden": 256, "dropout": 0.75, "heads": 3, "groups": 2, "input_dropout": 0.25,
        "attention_dropout": 0.0, "edge_dropout": 0.3, "attend_target": False, "input_norm": True, "norm": "batch",
        "feature_dropout": 0.0, "label_inputs": False, "symmetric_norm": False,
    },
    "gamlp": {
        **SHARED, "attention": "recursive", "input_dropout": 0.2, "attention_dropout": 0.5, "hop_layers": 2,
        "jk_layers": 4, "mlp_layers": 4, "alpha": 0.5, "norm": "batch", "head_norm": "batch", "output_norm": "none",
        "label_hops": 0, "label_layers": 4, "label_dropout": 0.0,
    },
    "sagn": {
        **SHARED, "input_dropout": 0.2, "attention_dropout": 0.0, "mlp_layers": 1, "label_hops": 0, "label_layers": 4,
        "label_dropout": 0.5,
    },
    "sage": {**SHARED, "norm": "batch", "input_dropout": 0.0},
    "appnp": {**SHARED, "convolutions": 5, "teleport": 0.4, "norm": "batch"},
    "mlp": {**SHARED, "norm": "batch", "input_dropout": 0.3},
    "spegcn": {**SHARED, "convolutions": 0, "norm": "batch"},
    "spegnn": {**SHARED, "convolutions": 0, "norm": "batch"},
}  # fmt: skip


@pytest.mark.parametrize("name", GNNS)
def test_defaults(name):
    """A changed default changes results of all who did not set it: it is changed here too, or it was not meant."""
    parameters = inspect.signature(GNNS[name]).parameters.values()
    assert {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY} == DEFAULTS[name]
    GNNS[name](d, c)  # and they fit together


@pytest.mark.parametrize(("name", "options", "message"), [
    ("gat", {"ngnn": -1}, "GAT: ngnn of at least 0 expected, got -1"),
    ("gamlp", {"label_hops": -1}, "GAMLP: label_hops of at least 0 expected, got -1"),
    ("sagn", {"label_hops": -1}, "SAGN: label_hops of at least 0 expected, got -1"),
    ("spegcn", {"convolutions": -1}, "SpeGCN: convolutions of at least 0 expected, got -1"),
    ("spegnn", {"convolutions": -1}, "SpeGNN: convolutions of at least 0 expected, got -1"),
    ("revgat", {"groups": 1}, "RevGAT: groups from 2 that divide hidden 8 expected, got 1"),
])  # fmt: skip
def test_numbers_below_their_least_are_named(name, options, message):
    with pytest.raises(ConfigError, match=message):
        GNNS[name](d, c, hidden=8, **options)
    GNNS[name](d, c, hidden=8, **{option: value + 1 for option, value in options.items()})


@pytest.mark.parametrize(("name", "stepwise", "psi_exact"), [
    ("gcn", True, True), ("gat", True, True), ("revgat", True, True), ("gamlp", False, False), ("sagn", False, False),
    ("spegcn", True, True), ("spegnn", True, True), ("gamlp without hop mlps", False, True),
])  # fmt: skip
def test_what_each_promises_of_steps_and_psi(name, stepwise, psi_exact):
    """The contract suite checks what is promised, so that a promise taken back would go unnoticed."""
    gnn = factory(name)(d, c)
    assert (gnn.stepwise, gnn.steps() is not None, gnn.psi_exact) == (stepwise, stepwise, psi_exact)
