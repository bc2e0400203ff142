"""Every GNN of a recipe is the published one: forward and psi against formulas of the publications, written in numpy.

Nothing here calls the package's layers: weights are read by name and multiplied in float64 on dense matrices.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from labeldeconv.gnns.architecture import Architecture, gnn_options
from labeldeconv.gnns.base import GNNS
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import GNNConfig
from labeldeconv.settings.reading import load_config
from tests.samples import random_edges

n, d, c, hidden = 15, 6, 4, 12
RECIPES = Path(__file__).parents[2] / "recipes"
EDGES = random_edges(n, 30)
OWN = {
    "gcn, three layers": ("gcn", 3, {}),
    "gat, no edge features": ("gat", 2, {}),
    "revgat, four groups": ("revgat", 4, {"groups": 4, "attend_target": True, "norm": "layer"}),
    "gamlp as published": ("gamlp", 5, {"output_norm": "batch", "label_hops": 9}),
    "gamlp of the code of LD": ("gamlp", 5, {"head_norm": "layer", "output_norm": "layer", "label_hops": 9}),
    "gamlp with jk": ("gamlp", 2, {"attention": "jk"}),
    "gamlp without MLPs per hop": ("gamlp", 2, {"hop_layers": 0}),
    "sagn, deeper": ("sagn", 3, {"mlp_layers": 2, "label_hops": 2}),
}


def of_recipes():
    """Name, layers and options of the GNN of every recipe, each once."""
    found = {}
    for path in sorted(RECIPES.glob("*.toml")):
        gnn = load_config(path).gnn
        found.setdefault((gnn.name, gnn.layers, str(gnn.options)), (path.stem, (gnn.name, gnn.layers, gnn.options)))
    return dict(found.values())


VARIANTS = {**of_recipes(), **OWN}


class Reference:
    """A GNN's weights as numpy arrays, and the formulas of the publications over them, in eval mode."""

    def __init__(self, gnn, options):
        self.w = {name: t.detach().double().numpy() for name, t in gnn.state_dict().items()}
        self.options = {**gnn_options(type(gnn)), **options}

    def linear(self, name, x):
        out = x @ self.w[f"{name}.weight"].T
        return out + self.w[f"{name}.bias"] if f"{name}.bias" in self.w else out

    def norm(self, name, x):
        """BatchNorm by its moving averages, LayerNorm over the columns, or nothing, as the weights have it."""
        if f"{name}.weight" not in self.w:
            return x
        if f"{name}.running_mean" in self.w:
            mean, var = self.w[f"{name}.running_mean"], self.w[f"{name}.running_var"]
        else:
            mean, var = x.mean(1, keepdims=True), x.var(1, keepdims=True)
        return (x - mean) / np.sqrt(var + 1e-5) * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def prelu(self, name, x):
        return np.where(x > 0, x, self.w[f"{name}.weight"] * x)

    def count(self, name):
        """How many numbered parts a name has."""
        return len({key[len(name) + 1 :].split(".")[0] for key in self.w if key.startswith(f"{name}.")})

    def mlp(self, name, x):
        """Linear, norm, activation in every hidden layer, then linear."""
        layers = self.count(f"{name}.lins")
        for i in range(layers):
            x = self.linear(f"{name}.lins.{i}", x)
            if i < layers - 1:
                kind = "" if f"{name}.norms.{i}.weight" in self.w else ".module"
                x = self.norm(f"{name}.norms.{i}{kind}", x)
                x = self.prelu(f"{name}.act", x) if f"{name}.act.weight" in self.w else relu(x)
        return x

    def initial_residual(self, name, x):
        """GAMLP's MLP: h_0 = norm(x W) + x, h <- norm(((1 - a) g + a h_0) W) + g, g = PReLU(h)."""
        h = x
        for i in range(self.count(f"{name}.linears")):
            if i == 0:
                h = self.norm(f"{name}.norms.0", self.linear(f"{name}.linears.0", x))
                first = h = h + x if h.shape == x.shape else h
            else:
                g = self.prelu(f"{name}.activation", h)
                mixed = (1 - self.options["alpha"]) * g + self.options["alpha"] * first
                h = self.norm(f"{name}.norms.{i}", self.linear(f"{name}.linears.{i}", mixed)) + g
        return self.norm(f"{name}.output_norm", self.linear(f"{name}.output", self.prelu(f"{name}.activation", h)))

    def attention(self, name, h, pattern, edge_values, heads):
        """softmax over a row of leaky_relu(a_src W h_s + a_dst W h_t + a_edge e), times W h; NGNN; the residual.

        With symmetric_norm, W h_s is divided by the root of its degree, and the sum multiplied by that of the target.
        """
        z = (h @ self.w[f"{name}.lin.weight"].T).reshape(len(h), heads, -1)
        root = np.sqrt(pattern.sum(0) if self.options.get("symmetric_norm") else np.ones(len(h)))
        source = z / root[:, None, None]
        scores = np.broadcast_to((source * self.w[f"{name}.att_src"]).sum(-1)[None], (len(h), len(h), heads))
        if f"{name}.att_dst" in self.w:
            scores = scores + (z * self.w[f"{name}.att_dst"]).sum(-1)[:, None]
        if edge_values is not None:
            wide = (edge_values @ self.w[f"{name}.lin_edge.weight"].T).reshape(len(h), len(h), heads, -1)
            scores = scores + (wide * self.w[f"{name}.att_edge"]).sum(-1)
        scores = np.where(scores > 0, scores, 0.2 * scores)
        alpha = softmax(np.where(pattern[..., None], scores, -np.inf), 1)  # (target, source, head)
        out = np.einsum("tsh,shw->thw", alpha, source).reshape(len(h), -1) * root[:, None]
        for i in range(self.count(f"{name}.ngnn")):
            out = relu(self.linear(f"{name}.ngnn.{i}", out))
        return out + self.linear(f"{name}.skip", h)


def relu(x):
    return np.maximum(x, 0)


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def gcn(r, x, adj, edge_values):
    layers = r.count("convs")
    for i in range(layers):
        x = adj @ (x @ r.w[f"convs.{i}.lin.weight"].T) + r.w[f"convs.{i}.bias"]
        x = relu(r.norm(f"norms.{i}", x)) if i < layers - 1 else x
    return x


def gat(r, x, adj, edge_values):
    """relu(x W), then per layer the convolution plus the layer before, BatchNorm and ReLU; last a linear map."""
    h, before = relu(r.linear("input", x)), 0
    for i in range(r.count("convs")):
        values = None if not r.options["edge_dim"] else relu(r.linear(f"edge_inputs.{i}", edge_values))
        before = r.attention(f"convs.{i}", h, adj > 0, values, r.options["heads"]) + before
        h = relu(r.norm(f"norms.{i}", before))
    return r.linear("output", h)


def revgat(r, x, adj, edge_values, labels=None):
    if r.options["label_inputs"]:
        x = np.concatenate([x, np.zeros((len(x), c)) if labels is None else labels], 1)
    heads, groups = r.options["heads"], r.options["groups"]
    h = r.attention("input", r.norm("input_norm", x), adj > 0, None, heads)
    for b in range(r.count("blocks")):
        parts = np.split(h, groups, 1)
        last = sum(parts[1:])
        for j in range(groups):
            inner = relu(r.norm(f"blocks.{b}.convs.{j}.norm", last))
            last = parts[j] = parts[j] + r.attention(f"blocks.{b}.convs.{j}.conv", inner, adj > 0, None, heads)
        h = np.concatenate(parts, 1)
    return r.attention("output", relu(r.norm("norm", h)), adj > 0, None, 1)


def gamlp(r, hops, labels):
    """Attention over hops, each scored against the mean of those before it or, jk, against an MLP of all."""
    z = [r.mlp(f"hop_mlps.{i}", hop) if r.options["hop_layers"] else hop for i, hop in enumerate(hops)]
    scores = []
    for i in range(len(z)):
        if r.options["attention"] == "jk":
            against = r.prelu("activation", r.initial_residual("reference", np.concatenate(z, 1)))
        else:
            theta = softmax(np.concatenate(scores, 1), 1) if i else None
            against = sum(theta[:, j : j + 1] * z[j] for j in range(i)) if i else z[0]
        score = r.linear("attend", np.concatenate([against, z[i]], 1))
        scores.append(np.where(score > 0, score, 0.2 * score))
    theta = softmax(np.concatenate(scores, 1), 1)
    mixed = sum(theta[:, i : i + 1] * z_i for i, z_i in enumerate(z)) + r.linear("residual", hops[0])
    out = r.initial_residual("head", r.prelu("activation", mixed))
    return out if labels is None else out + r.mlp("labels.mlp", labels)


def sagn(r, hops, labels):
    z = [r.mlp(f"mlps.{i}", hop) for i, hop in enumerate(hops)]
    scores = np.concatenate([r.linear("attend_self", z[0]) + r.linear("attend_hop", z_i) for z_i in z], 1)
    theta = softmax(np.where(scores > 0, scores, 0.2 * scores), 1)
    mixed = sum(theta[:, i : i + 1] * z_i for i, z_i in enumerate(z)) + r.linear("residual", hops[0])
    out = r.mlp("head", relu(r.norm("norm", mixed)))
    return out if labels is None else out + r.mlp("labels.mlp", labels)


FORMULAS = {"gcn": gcn, "gat": gat, "revgat": revgat, "gamlp": gamlp, "sagn": sagn}


def built(variant):
    """The GNN of a variant in eval mode, every weight and moving average away from its start."""
    name, layers, options = VARIANTS[variant]
    torch.manual_seed(0)
    gnn = Architecture.of(GNNConfig(name=name, layers=layers, hidden=hidden, options=options)).build(d, c).eval()
    with torch.no_grad():
        for key, t in gnn.state_dict().items():
            if t.is_floating_point():
                t += 0.2 * torch.rand_like(t) if "running_var" in key else 0.2 * torch.randn_like(t)
    return gnn.double(), Reference(gnn, options)


@pytest.mark.parametrize("variant", VARIANTS)
def test_forward_is_the_published_formula(variant):
    gnn, reference = built(variant)
    rng = np.random.default_rng(0)
    x, labels, formula = rng.normal(size=(n, d)), rng.random((n, c)), FORMULAS[VARIANTS[variant][0]]
    adj = Adjacency.from_edges(EDGES, n)
    with torch.no_grad():
        if gnn.feed == "graph":
            width = gnn.edge_dim or 1
            adj = adj.with_edge_features(EDGES, rng.normal(size=(EDGES.shape[1], width)).astype(np.float32))
            device = torch.device("cpu")
            dense = np.zeros((n, n, width))
            dense[tuple(adj.edge_index(device).flip(0).numpy())] = adj.edge_values(device).numpy()
            given, more = ((torch.from_numpy(labels),), (labels,)) if gnn.reads_labels else ((), ())
            found = gnn(torch.from_numpy(x), adj, *given)
            expected = formula(reference, x, adj.dense(), dense, *more)
        else:
            hops = [np.linalg.matrix_power(adj.dense(), i) @ x for i in range(gnn.hops + 1)]
            rows = torch.from_numpy(np.stack(hops, 1))
            given = labels if gnn.label_hops else None
            found = gnn(rows, torch.from_numpy(given)) if gnn.label_hops else gnn(rows)
            expected = formula(reference, hops, given)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_psi_is_the_published_formula_with_the_identity(variant):
    """A = I for graphs; for rows hop 0 alone (MLP_0 and the head), without the label branch (beta = 0)."""
    gnn, reference = built(variant)
    x, name = np.random.default_rng(1).normal(size=(n, d)), VARIANTS[variant][0]
    if gnn.feed == "graph":
        expected = FORMULAS[name](reference, x, np.eye(n), np.zeros((n, n, gnn.edge_dim or 1)))
    elif VARIANTS[variant][2].get("attention") == "jk":  # its reference wants all hops, though one alone has weight 1
        z = reference.mlp("hop_mlps.0", x) + reference.linear("residual", x)
        expected = reference.initial_residual("head", reference.prelu("activation", z))
    else:
        expected = FORMULAS[name](reference, [x], None)
    with torch.no_grad():
        np.testing.assert_allclose(gnn.psi(torch.from_numpy(x)).numpy(), expected, atol=1e-6, rtol=1e-6)


def test_recipes_name_five_gnns():
    assert {name for name, _, _ in of_recipes().values()} == {"gcn", "revgat", "gamlp", "sagn", "gat"} <= set(GNNS)
