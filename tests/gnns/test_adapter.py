"""Any PyG module is a GNN: psi is the module on self-loops, hops are its convolutions, and keys tell them apart."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import GAT, GCN, GIN, GATConv, GCNConv, GraphSAGE, SAGEConv

from labeldeconv.errors import ConfigError
from labeldeconv.gnns import gcn as own
from labeldeconv.gnns.adapter import PyGModule, adapted, maker_key, module_key
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.settings.models import GNNConfig
from labeldeconv.testing import GNN_CHECKS, check_gnn

n, d, c = 11, 6, 4
COMMON = {"layers": 3, "hidden": 8, "dropout": 0.5}


class Net(nn.Module):
    """What a user of PyG writes."""

    def __init__(self, in_channels, out_channels, width=8, drop=0.5):
        super().__init__()
        self.in_channels, self.drop = in_channels, drop
        self.first, self.norm = SAGEConv(in_channels, width), nn.BatchNorm1d(width)
        self.last = GATConv(width, out_channels, heads=1)

    def forward(self, x, edge_index):
        h = self.norm(self.first(x, edge_index)).relu()
        return self.last(nn.functional.dropout(h, self.drop, self.training), edge_index)


KINDS = {
    "GCN": GCN,
    "GraphSAGE": GraphSAGE,
    "GAT": GAT,
    "GIN with BatchNorm": partial(GIN, norm="batch_norm"),
    "one convolution": GCNConv,
    "own class": Net,
    "object": Net(d, c),
    "object of PyG": GraphSAGE(d, 8, 2, c),
    "function": lambda i, o: GCN(i, 8, 2, o),
}


def build(name):
    return Architecture.of(GNNConfig(layers=3, hidden=8), KINDS[name]).build(d, c)


@pytest.mark.parametrize("check", GNN_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", KINDS)
def test_contract(name, check):
    check(Architecture.of(GNNConfig(layers=3, hidden=8), KINDS[name]).build)


@pytest.mark.parametrize("name", KINDS)
def test_psi_is_the_module_on_self_loops_alone(name):
    gnn, x = build(name).eval(), torch.randn(n, d)
    loops = torch.arange(n).repeat(2, 1)
    torch.testing.assert_close(gnn.psi(x), gnn.module(x, loops))
    other = torch.stack([torch.arange(n), torch.arange(n).roll(1)])
    assert not torch.allclose(gnn.psi(x), gnn.module(x, other))


@pytest.mark.parametrize(
    ("name", "hops"),
    [
        ("GCN", 3),
        ("GraphSAGE", 3),
        ("GAT", 3),
        ("one convolution", 1),
        ("own class", 2),
        ("object", 2),
        ("function", 2),
    ],
)
def test_hops_are_convolutions(name, hops):
    assert build(name).hops == hops
    assert Architecture.of(GNNConfig(layers=3, hidden=8), KINDS[name]).hops == hops


def test_constructors_get_the_settings_in_their_own_words():
    made = adapted(GraphSAGE, d, c, COMMON, {}).module
    assert (made.in_channels, made.hidden_channels, made.num_layers, made.out_channels) == (d, 8, 3, c)
    assert made.dropout.p == 0.5
    assert adapted(GAT, d, c, COMMON, {"heads": 2}).module.convs[0].heads == 2
    bare = adapted(lambda a, b: GCNConv(a, b), d, c, COMMON, {}).module
    assert (bare.in_channels, bare.out_channels) == (d, c)


def test_a_gnn_of_ours_is_left_as_it_is():
    assert isinstance(adapted(lambda a, b: own.GCN(a, b), d, c, COMMON, {}), own.GCN)
    kept = adapted(own.GCN(d, c), d, c, COMMON, {})
    assert isinstance(kept, own.GCN)
    check_gnn(lambda a, b: adapted(own.GCN(a, b), a, b, COMMON, {}))


@pytest.mark.parametrize("name", ["object", "object of PyG"])
def test_an_object_is_copied_and_its_weights_drawn_anew(name):
    given = KINDS[name]
    before = {k: v.clone() for k, v in given.state_dict().items()}
    torch.manual_seed(0)
    one = build(name)
    torch.manual_seed(0)
    same = build(name)
    other = build(name)
    states = [gnn.module.state_dict() for gnn in (one, same, other)]
    assert all(torch.equal(v, states[1][k]) for k, v in states[0].items())
    drawn = [k for k, v in states[0].items() if v.is_floating_point() and v.std() > 0]
    assert drawn
    assert all(not torch.equal(states[0][k], states[2][k]) for k in drawn)
    assert all(torch.equal(v, before[k]) for k, v in given.state_dict().items())
    assert one.module is not given


def test_an_object_that_is_one_convolution_draws_its_own_parameters_anew():
    """The attention vectors of GATConv are parameters of the module itself, not of a part of it."""
    conv = GATConv(d, c)
    one, other = (adapted(conv, d, c, COMMON, {}).module for _ in range(2))
    assert not torch.equal(one.att_src, conv.att_src)
    assert not torch.equal(one.att_src, other.att_src)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (GCN(d, 8, 2, c), GCN(d, 9, 2, c)),  # their reprs are equal
        (GCN(d, 8, 2, c), GCN(d, 8, 2, c, dropout=0.3)),
        (GCN(d, 8, 2, c), GCN(d, 8, 3, c)),
        (GCN(d, 8, 2, c), GCN(d, 8, 2, c, act="elu")),
        (GCN(d, 8, 2, c), GraphSAGE(d, 8, 2, c)),
        (GAT(d, 8, 2, c), GAT(d, 8, 2, c, heads=2)),
        (Net(d, c), Net(d, c, drop=0.1)),  # an attribute that only forward reads
        (partial(GAT, heads=2), partial(GAT, heads=4)),
        (lambda i, o: GCN(i, 8, 2, o), lambda i, o: GCN(i, 9, 2, o)),
        (GCN, GraphSAGE),
    ],
)
def test_keys_tell_architectures_apart(one, other):
    assert maker_key(one) != maker_key(other)
    config = GNNConfig()
    assert Architecture.of(config, one).content_key != Architecture.of(config, other).content_key


def test_keys_of_functions_see_what_they_hold():
    def making(width):
        return lambda i, o: GCN(i, width, 2, o)

    assert maker_key(making(8)) == maker_key(making(8))
    assert maker_key(making(8)) != maker_key(making(9))


def test_weights_that_are_drawn_anew_are_in_no_key_and_those_that_stay_are():
    assert module_key(Net(d, c)) == module_key(Net(d, c))
    assert module_key(GraphSAGE(d, 8, 2, c)) == module_key(GraphSAGE(d, 8, 2, c))
    assert module_key(GraphSAGE(-1, 8, 2, c)) == module_key(GraphSAGE(-1, 8, 2, c))  # weights that are not there yet

    class Scaled(Net):
        def __init__(self, scale):
            super().__init__(d, c)
            self.scale = nn.Parameter(torch.tensor(scale))

    assert module_key(Scaled(1.0)) == module_key(Scaled(1.0))
    assert module_key(Scaled(1.0)) != module_key(Scaled(2.0))


def test_keys_see_shapes_that_no_attribute_tells():
    class Bare(Net):
        def __init__(self, width):
            super().__init__(d, c)
            self.weight = nn.Parameter(torch.empty(width))

        def reset_parameters(self):
            nn.init.ones_(self.weight)

    assert module_key(Bare(2)) == module_key(Bare(2))
    assert module_key(Bare(2)) != module_key(Bare(3))


def test_something_else_is_named():
    with pytest.raises(ConfigError, match="gnn: a name, a class or a module expected, got int"):
        adapted(3, d, c, COMMON, {})
    with pytest.raises(ConfigError, match="gnn _a_dict: a torch module expected, got dict"):
        adapted(_a_dict, d, c, COMMON, {})


def test_it_is_a_gnn_fed_by_the_graph():
    gnn = build("object")
    assert isinstance(gnn, PyGModule)
    assert (gnn.feed, gnn.psi_exact, gnn.steps()) == ("graph", True, None)


def _a_dict(in_dim, out_dim):
    return {}


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_arrays_that_a_maker_holds_are_in_its_key(kind):
    """As an argument, and as an attribute of an object."""
    keys = [maker_key(partial(GraphSAGE, kind(values))) for values in ([1.0, 2.0], [1.0, 3.0], [1.0, 2.0])]
    assert keys[0] == keys[2] != keys[1]
    parts = [nn.Identity() for _ in range(3)]
    for part, values in zip(parts, ([1.0], [2.0], [1.0]), strict=True):
        part.held = kind(values)
    keys = [module_key(part) for part in parts]
    assert keys[0] == keys[2] != keys[1]
