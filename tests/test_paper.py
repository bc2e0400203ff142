"""Each equation, proposition and worked example of the paper that the code rests on, by name."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from labeldeconv import fit
from labeldeconv.data.sets.planted import planted
from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.gnns.base import Psi
from labeldeconv.gnns.gcn import GCN
from labeldeconv.graph.task import Task
from labeldeconv.labels.hops import hop_labels
from labeldeconv.labels.inverse import InverseLabels
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import AdjacencyConfig, EncoderConfig
from labeldeconv.training.encoder import Objective
from tests.samples import random_edges

# Section 4.1: G = ({1,2,3,4}, {(1,2),(2,1),(3,4),(4,3)}), X = (e1, e2, e2, e3), Y = (e2, e1, e3, e2).
EDGES = np.array([[0, 1, 2, 3], [1, 0, 3, 2]])
X = np.eye(3)[[0, 1, 1, 2]]
Y = np.eye(3)[[1, 0, 2, 1]]


def accuracy(prediction: np.ndarray) -> float:
    """Share of rows whose largest entry is the label alone; a tie is wrong."""
    best = prediction >= prediction.max(1, keepdims=True) - 1e-6
    return float(((best.argmax(1) == Y.argmax(1)) & (best.sum(1) == 1)).mean())


class TestMotivatingExample:
    """Section 4.1 and Appendix B.2."""

    A = Adjacency.from_edges(EDGES, 4).dense()

    def test_labels_are_convolved_attributes(self):
        np.testing.assert_array_equal(self.A @ X, Y)

    def test_glem_learns_the_papers_beta_and_scores_nothing(self):
        beta = np.linalg.lstsq(X, Y, rcond=None)[0]
        np.testing.assert_allclose(beta, [[0, 1, 0], [0.5, 0, 0.5], [0, 1, 0]], atol=1e-12)
        features = X @ beta
        np.testing.assert_allclose(features, [[0, 1, 0], [0.5, 0, 0.5], [0.5, 0, 0.5], [0, 1, 0]], atol=1e-12)
        prediction = self.A @ features
        np.testing.assert_allclose(prediction, [[0.5, 0, 0.5], [0, 1, 0], [0, 1, 0], [0.5, 0, 0.5]], atol=1e-12)
        assert accuracy(prediction) == 0.0

    def test_ld_learns_gamma_0_1_and_scores_everything(self):
        targets = InverseLabels(hop_labels(EDGES, Y, hops=1))
        beta = torch.zeros(3, 3, requires_grad=True)
        optimizer = torch.optim.Adam([{"params": [beta]}, {"params": targets.parameters()}], lr=0.05)
        ids, x = np.arange(4), torch.tensor(X, dtype=torch.float32)
        for _ in range(1500):
            optimizer.zero_grad()
            F.mse_loss(x @ beta, targets(ids)).backward()
            optimizer.step()
        np.testing.assert_allclose(targets.gamma.detach(), [0, 1], atol=0.01)
        np.testing.assert_allclose(beta.detach(), np.eye(3), atol=0.02)
        assert accuracy(self.A @ X @ beta.detach().numpy()) == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_proposition_1_inverse_is_a_polynomial(seed):
    """phi(A-hat)^-1 = sum_{i < |V|} gamma_i A-hat^i."""
    rng = np.random.default_rng(seed)
    n = 7
    A = Adjacency.from_edges(random_edges(n, 10, seed), n).dense()
    phi = sum(t * np.linalg.matrix_power(A, i) for i, t in enumerate(rng.uniform(0.2, 1, 3)))
    inverse = np.linalg.inv(phi)
    powers = np.stack([np.linalg.matrix_power(A, i).ravel() for i in range(n)], axis=1)  # (n * n, n)
    gamma, *_ = np.linalg.lstsq(powers, inverse.ravel(), rcond=None)
    np.testing.assert_allclose(powers @ gamma, inverse.ravel(), atol=1e-6 * np.abs(inverse).max())


def deconvolve(A: np.ndarray, attributes: np.ndarray, labels: np.ndarray, hops: int) -> np.ndarray:
    """F_LD = X beta at argmin_{beta, gamma} |X beta - sum_i gamma_i A^i Y|^2 with sum gamma = 1, in closed form."""
    K = [np.linalg.matrix_power(A, i) @ labels for i in range(hops + 1)]
    project = attributes @ np.linalg.pinv(attributes)
    residuals = np.stack([(k - project @ k).ravel() for k in K], axis=1)  # what X cannot express of each hop
    _, _, right = np.linalg.svd(residuals, full_matrices=True)
    gamma = right[-1] / right[-1].sum()
    return project @ sum(g * k for g, k in zip(gamma, K, strict=True))


def gnn_loss(A: np.ndarray, features: np.ndarray, labels: np.ndarray, hops: int) -> float:
    """min over W_i of the mean squared error of sum_i A^i F W_i: at least as good as any spectral GNN on F."""
    inputs = np.concatenate([np.linalg.matrix_power(A, i) @ features for i in range(hops + 1)], axis=1)
    return float(np.mean((inputs @ np.linalg.lstsq(inputs, labels, rcond=1e-10)[0] - labels) ** 2))


class TestTheorem1:
    """With invertible phi, F_LD lets the GNN reach zero loss; the label-only target need not."""

    @pytest.mark.parametrize("phi", [(-1.2, 1.0), (0.6, 0.4), (0.2, 0.2, 0.6)])
    def test_ld_reaches_zero_on_planted(self, phi):
        truth = planted(60, seed=1, num_classes=4, phi=phi)
        A = Adjacency.from_edges(truth.graph.edges, 60).dense()
        attributes = np.eye(4)[truth.inverse_labels.argmax(1)]  # what the texts say; shared by many nodes
        labels = sum(t * np.linalg.matrix_power(A, i) for i, t in enumerate(phi)) @ attributes
        # phi^-1 is a polynomial of degree 59; a Chebyshev-fast decay makes 24 hops numerically enough.
        features = deconvolve(A, attributes, labels, hops=24)
        assert gnn_loss(A, features, labels, hops=len(phi) - 1) < 1e-6

    def test_label_only_target_cannot(self):
        """Topics 0, 1 meet topics 2, 3 equally often: their mean labels are equal, so X_GLEM tells them not apart."""
        topics = np.array([0, 2, 0, 3, 1, 2, 1, 3])
        edges = np.array([[0, 2, 4, 6], [1, 3, 5, 7]])
        A, attributes = Adjacency.from_edges(edges, 8).dense(), np.eye(4)[topics]
        labels = A @ attributes
        glem = attributes @ np.linalg.lstsq(attributes, labels, rcond=None)[0]
        assert gnn_loss(A, glem, labels, hops=7) > 0.05
        assert gnn_loss(A, deconvolve(A, attributes, labels, hops=1), labels, hops=1) < 1e-12


class TestInverseLabels:
    """eqn:inv_label, its mini-batch form and eqn:implementation against dense one-liners."""

    n, c, hops = 30, 4, 3

    @pytest.fixture
    def labels(self):
        return np.random.default_rng(0).dirichlet(np.ones(self.c), self.n).astype(np.float32)

    def dense(self, labels, config=None):
        A = Adjacency.from_edges(random_edges(self.n, 60), self.n, config).dense()
        return np.stack([np.linalg.matrix_power(A, i) @ labels for i in range(self.hops + 1)], axis=1)

    def targets(self, labels, alpha=1.0, task=None):
        module = InverseLabels(hop_labels(random_edges(self.n, 60), labels, self.hops), alpha, task)
        torch.nn.init.normal_(module.gamma_logits)
        return module

    def test_uniform_start(self, labels):
        module = InverseLabels(hop_labels(random_edges(self.n, 60), labels, self.hops))
        np.testing.assert_allclose(module.gamma.detach(), np.full(4, 0.25))

    def test_equation_inv_label(self, labels):
        module = self.targets(labels)
        expected = np.einsum("h,nhc->nc", module.gamma.detach().numpy(), self.dense(labels))
        np.testing.assert_allclose(module(np.arange(self.n)).detach(), expected, atol=1e-6)

    def test_mini_batches_equal_the_whole(self, labels):
        module = self.targets(labels, alpha=0.7)
        order = np.random.default_rng(1).permutation(self.n)
        parts = torch.cat([module(ids) for ids in np.array_split(order, 4)])
        assert torch.equal(parts, module(order))

    def test_multiclass_normalize_divides_by_the_row_sum(self, labels):
        K = self.dense(labels, AdjacencyConfig(normalization="symmetric")).astype(np.float32)
        module = InverseLabels(K, alpha=0.4)
        mixed = K.mean(1)
        expected = 0.6 * labels + 0.4 * mixed / mixed.sum(1, keepdims=True)
        np.testing.assert_allclose(module(np.arange(self.n)).detach(), expected, atol=1e-6)

    def test_multilabel_normalize_clamps(self):
        K = np.random.default_rng(0).uniform(-1, 3, (5, 2, 3)).astype(np.float32)
        module = InverseLabels(K, alpha=0.5, task=Task("multilabel", 3))
        expected = 0.5 * K[:, 0] + 0.5 * np.clip(K.mean(1), 0, 1)
        np.testing.assert_allclose(module(np.arange(5)).detach(), expected, atol=1e-6)

    @pytest.mark.parametrize("kind", ["multiclass", "multilabel"])
    def test_implementation_loss_and_objective(self, labels, kind):
        task = Task(kind, self.c)
        torch.manual_seed(0)
        encoder, gnn = load_encoder(EncoderConfig(name="tiny")), GCN(32, self.c, hidden=8, norm="layer")
        objective = Objective(encoder, Psi(gnn), self.targets(labels, 0.5, task), task).eval()
        ids, tokens, mask = np.array([3, 1, 7]), torch.randint(5, 200, (3, 6)), torch.ones(3, 6, dtype=torch.long)
        logits = gnn.psi(encoder(tokens, mask))
        target = objective.targets(ids)
        if kind == "multiclass":
            expected = F.cross_entropy(logits, target)
        else:
            expected = F.binary_cross_entropy_with_logits(logits, target)
        torch.testing.assert_close(objective(ids, tokens, mask), expected)

    def test_gradient_reaches_gamma(self, labels):
        module = self.targets(labels)
        F.cross_entropy(torch.randn(5, self.c), module(np.arange(5))).backward()
        assert module.gamma_logits.grad.abs().min() > 0


def test_wo_ld_is_ld_with_alpha_0_to_the_bit(tmp_path):
    common = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 5}
    a = fit("planted:80", method="wo-ld", out=tmp_path / "a", cache=tmp_path / "c1", **common)
    b = fit("planted:80", method="ld", labels__alpha=0.0, out=tmp_path / "b", cache=tmp_path / "c2", **common)
    assert np.array_equal(a.features, b.features)
    assert np.array_equal(a.logits, b.logits)
    targets = InverseLabels(np.load(a.run / "hop_labels.npy"), alpha=0.0)
    np.testing.assert_allclose(targets(np.arange(80)).detach(), np.load(a.run / "pseudo_labels.npy"), atol=1e-5)
