"""Architecture: which GNN before it is built; questions about it change nothing, and its key tells it apart."""

import pytest
import torch
from torch_geometric.nn import GraphSAGE

from labeldeconv.errors import ConfigError
from labeldeconv.gnns.architecture import Architecture, gnn_options
from labeldeconv.gnns.base import GNNS
from labeldeconv.gnns.gat import GAT
from labeldeconv.gnns.gcn import GCN
from labeldeconv.settings.models import GNNConfig


@pytest.mark.parametrize("kind", [None, GraphSAGE, GraphSAGE(6, 8, 2, 3)])
def test_questions_leave_the_random_state_alone(kind):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    architecture = Architecture.of(GNNConfig(hidden=8), kind)
    assert architecture.hops == 2
    assert architecture.edge_dim == 0
    assert architecture.sample is architecture.sample
    assert architecture.content_key
    assert torch.equal(torch.get_rng_state(), before)


def test_built_from_the_random_state_at_hand():
    architecture = Architecture.of(GNNConfig(name="gcn", hidden=8))
    torch.manual_seed(3)
    one = architecture.build(5, 2)
    torch.manual_seed(3)
    other = GCN(5, 2, layers=2, hidden=8, dropout=0.5)
    for (name, p), q in zip(one.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q), name
    assert not torch.equal(architecture.build(5, 2).convs[0].lin.weight, one.convs[0].lin.weight)


@pytest.mark.parametrize("name", GNNS)
def test_hops_are_those_of_the_gnn(name):
    assert Architecture.of(GNNConfig(name=name, layers=3, hidden=8)).hops == {"appnp": 5, "mlp": 0}.get(name, 3)


def test_options_are_passed_on():
    config = GNNConfig(name="gat", hidden=8, options={"heads": 2, "edge_dim": 3})
    architecture = Architecture.of(config)
    gnn = architecture.build(5, 2)
    assert isinstance(gnn, GAT)
    assert (gnn.convs[0].heads, gnn.edge_dim, architecture.edge_dim) == (2, 3, 3)


def test_unknown_options_are_named():
    with pytest.raises(ConfigError, match=r"gnn.options.head: gat has no such option; did you mean 'heads'"):
        Architecture.of(GNNConfig(name="gat", options={"head": 2}))
    with pytest.raises(ConfigError, match=r"gnn.options.layers: gcn has no such option"):
        Architecture.of(GNNConfig(options={"layers": 2}))


def test_options_of_a_class():
    assert gnn_options(GCN) == {"norm": "batch", "input_dropout": 0.0}
    assert gnn_options(GraphSAGE) == {}


@pytest.mark.parametrize(
    "changes", [{"layers": 3}, {"hidden": 9}, {"dropout": 0.4}, {"options": {"norm": "layer"}}, {"name": "spegcn"}]
)
def test_key_sees_all_that_makes_the_gnn(changes):
    base = Architecture.of(GNNConfig(hidden=8))
    assert base.content_key == Architecture.of(GNNConfig(hidden=8, epochs=3)).content_key
    assert base.content_key != Architecture.of(GNNConfig(**{"hidden": 8, **changes})).content_key


def test_a_new_default_is_noticed():
    class Newer(GCN):
        pass

    one, other = Architecture("gcn", GCN, {}, {"norm": "batch"}), Architecture("gcn", GCN, {}, {"norm": "layer"})
    assert one.content_key != other.content_key
    assert one.content_key != Architecture("gcn", Newer, {}, {"norm": "batch"}).content_key


def test_width_of_an_object():
    assert Architecture.of(GNNConfig(), GraphSAGE(6, 8, 2, 3)).in_dim == 6
    assert Architecture.of(GNNConfig(), GraphSAGE).in_dim is None
    with pytest.raises(ConfigError, match="gnn GraphSAGE: made for 6 features, and there are 7"):
        Architecture.of(GNNConfig(), GraphSAGE(6, 8, 2, 3)).build(7, 3)
