"""Each equation, proposition and worked example of the paper that the code rests on, by name."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from labeldeconv import fit
from labeldeconv.analysis.spectrum import spectrum
from labeldeconv.data.sets.planted import planted
from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.gnns.base import Psi
from labeldeconv.gnns.gcn import GCN
from labeldeconv.gnns.spectral import SpeGNN
from labeldeconv.graph.task import Task
from labeldeconv.labels.hops import hop_labels
from labeldeconv.labels.inverse import InverseLabels
from labeldeconv.propagation.adjacency import Adjacency, propagate
from labeldeconv.settings.models import AdjacencyConfig, EncoderConfig
from labeldeconv.training.encoder import Objective
from tests.analysis.closed_forms import cycle, path
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


def in_full_precision(adj: Adjacency) -> Adjacency:
    """The same A-hat with 1 / degree in float64, so that a loss of 0 is 0 to twelve digits."""
    degree = np.diff(adj.indptr).astype(np.float64)
    if adj.right is None:
        return replace(adj, left=1 / degree)
    return replace(adj, left=degree**-0.5, right=degree**-0.5)


def best_gamma(K: list[np.ndarray], attributes: np.ndarray) -> np.ndarray:
    """argmin over gamma (h,) of min_beta |X beta - Y(gamma)|^2 / |Y(gamma)|^2, in closed form.

    The division leaves out gamma = 0 and gammas that make a small Y(gamma), which every X fits.
    """
    project = attributes @ np.linalg.pinv(attributes)
    hops = np.stack([k.ravel() for k in K], axis=1)  # (n * c, h)
    beyond = np.stack([(k - project @ k).ravel() for k in K], axis=1)  # what X cannot express of each hop
    _, sizes, right = np.linalg.svd(hops, full_matrices=False)
    kept = sizes > 1e-12 * sizes[0]
    unit = right[kept].T / sizes[kept]  # (h, r): gammas with orthonormal Y(gamma)
    return unit @ np.linalg.svd(beyond @ unit)[2][-1]


def mix(gamma: np.ndarray, K: list[np.ndarray]) -> np.ndarray:
    """Y(gamma) = sum_i gamma_i K_i (n, c)."""
    return sum(g * k for g, k in zip(gamma, K, strict=True))


def gnn_loss(adj: Adjacency, features: np.ndarray, labels: np.ndarray, hops: int) -> float:
    """min over W_i of |sum_i A-hat^i F W_i - Y|^2 / |Y|^2: no phi(A-hat) F W of so many hops has less."""
    inputs = np.concatenate(list(propagate(adj, features, hops)), axis=1)
    error = inputs @ np.linalg.lstsq(inputs, labels, rcond=1e-10)[0] - labels
    return float(np.square(error).sum() / np.square(labels).sum())


def spectral_gnn(theta: np.ndarray, W: np.ndarray) -> SpeGNN:
    """phi(A-hat) F W in float64, with the given coefficients theta (h,) of phi and W (d, c)."""
    gnn = SpeGNN(*W.shape, layers=1, dropout=0.0, convolutions=len(theta) - 1, norm="none").double()
    with torch.no_grad():
        gnn.theta.copy_(torch.tensor(np.asarray(theta, dtype=np.float64)))
        gnn.mlp.lins[0].weight.copy_(torch.tensor(W.T))
        gnn.mlp.lins[0].bias.zero_()
    return gnn.eval()


PHIS = [(-1.2, 1.0), (0.6, 0.4), (0.2, 0.2, 0.6)]


class TestTheorem1:
    """thm:cayley. If labels are given by structure and attributes, Y = phi(A-hat) psi(F*) with an invertible phi
    (Assumption 1), then there is a beta_LD that minimises the loss of psi(F) against Y(gamma) over beta, gamma and psi,
    with which the GNN reaches a loss of 0.

    Here f and psi are linear: F = X beta with attributes X (n, 2 c + 1), of which psi(F*) is c columns. Both ranks are
    below n, so that neither the encoder nor the GNN can fit everything, and c is below 2 c + 1, so that the targets
    decide which features are learned. All targets have rank c, so none wins by more features.
    """

    n, c, hops = 60, 4, 24  # phi^-1 has degree 59; its coefficients fall off so fast that 24 hops are enough

    def setting(self, phi, seed=0):
        truth = planted(self.n, seed=seed, num_classes=self.c, phi=phi)
        adj = in_full_precision(Adjacency.from_edges(truth.graph.edges, self.n))
        X = truth.latent.astype(np.float64)  # (60, 9)
        Y = mix(phi, list(propagate(adj, X[:, : self.c], len(phi) - 1)))
        return adj, X, Y

    def learned(self, X, target):
        """F = X beta with beta fitted to the target (n, c)."""
        features = X @ np.linalg.lstsq(X, target, rcond=None)[0]
        assert np.linalg.matrix_rank(features) == self.c < np.linalg.matrix_rank(X) < self.n
        return features

    @pytest.mark.parametrize("phi", PHIS)
    @pytest.mark.parametrize("seed", range(2))
    def test_thm_cayley_ld_reaches_zero(self, phi, seed):
        adj, X, Y = self.setting(phi, seed)
        K = list(propagate(adj, Y, self.hops))
        features = self.learned(X, mix(best_gamma(K, X), K))
        assert gnn_loss(adj, features, Y, len(phi) - 1) < 1e-10
        W = np.linalg.lstsq(features, X[:, : self.c], rcond=None)[0]
        H = spectral_gnn(phi, W)(torch.tensor(features), adj).detach().numpy()  # phi(A-hat; theta*) psi(F; theta*)
        assert np.square(H - Y).sum() < 1e-10 * np.square(Y).sum()

    # Shares of |Y|^2 below which no GNN of this form gets; found: labels .010 to .031, uniform .012 to .049, else .25.
    @pytest.mark.parametrize("phi", PHIS)
    @pytest.mark.parametrize("seed", range(2))
    @pytest.mark.parametrize(
        ("other", "bound"), [("labels", 0.005), ("uniform gamma", 0.005), ("shuffled", 0.2), ("random", 0.2)]
    )
    def test_other_targets_do_not(self, phi, seed, other, bound):
        adj, X, Y = self.setting(phi, seed)
        K = list(propagate(adj, Y, self.hops))
        rng = np.random.default_rng(seed)
        target = {
            "labels": Y,
            "uniform gamma": np.mean(K[: len(phi) + 1], axis=0),
            "shuffled": rng.permutation(mix(best_gamma(K, X), K)),
            "random": rng.standard_normal(Y.shape),
        }[other]
        assert gnn_loss(adj, self.learned(X, target), Y, len(phi) - 1) > bound

    @pytest.mark.parametrize("phi", PHIS)
    def test_assumption_1_is_needed(self, phi):
        """The same labels on other nodes come from no phi and no attributes, and LD does not reach 0 either."""
        adj, X, Y = self.setting(phi)
        labels = np.random.default_rng(0).permutation(Y)
        K = list(propagate(adj, labels, self.hops))
        assert gnn_loss(adj, self.learned(X, mix(best_gamma(K, X), K)), labels, len(phi) - 1) > 0.2

    def test_label_only_target_cannot(self):
        """Topics 0, 1 meet topics 2, 3 equally often: their mean labels are equal, so X_GLEM tells them not apart."""
        topics = np.array([0, 2, 0, 3, 1, 2, 1, 3])
        adj = in_full_precision(Adjacency.from_edges(np.array([[0, 2, 4, 6], [1, 3, 5, 7]]), 8))
        attributes = np.eye(4)[topics]
        labels = adj @ attributes
        glem = attributes @ np.linalg.lstsq(attributes, labels, rcond=None)[0]
        assert gnn_loss(adj, glem, labels, hops=7) > 0.4
        K = list(propagate(adj, labels, 1))
        gamma = best_gamma(K, attributes)
        np.testing.assert_allclose(gamma / gamma.sum(), [0, 1], atol=1e-9)
        assert gnn_loss(adj, mix(gamma, K), labels, hops=1) < 1e-12


class TestHopHeads:
    """docs/hop-heads.md. The conditional mean is linear, E[sum_i gamma_i K_i | x] = sum_i gamma_i E[K_i | x], so
    features that hold every E[K_i | x] hold the inverse labels of every gamma; under Assumption 1 those of gamma* are
    psi*(F*).

    f and psi are linear, as for Theorem 1: F = X beta with attributes X (n, 24), of which psi(F*) is c = 4 columns. The
    inverse of phi has one hop, so that two heads of c columns are to hold what 24 columns could hide.
    """

    n, c, gamma = 60, 4, (1.7, -0.9)

    def setting(self, seed):
        rng = np.random.default_rng(seed)
        A = in_full_precision(Adjacency.from_edges(random_edges(self.n, 100, seed), self.n)).dense()
        X = rng.standard_normal((self.n, 24))
        phi = np.linalg.inv(self.gamma[0] * np.eye(self.n) + self.gamma[1] * A)
        return A, X, phi, phi @ X[:, : self.c], rng

    def heads(self, X, *targets):
        """E[K_i | x] side by side: what an encoder learns that is fitted to every target (n, c)."""
        return X @ np.linalg.lstsq(X, np.concatenate(targets, axis=1), rcond=None)[0]

    def loss(self, phi, features, Y):
        """min over W of |phi(A-hat) F W - Y|^2 / |Y|^2."""
        inputs = phi @ features
        return np.square(inputs @ np.linalg.lstsq(inputs, Y, rcond=None)[0] - Y).sum() / np.square(Y).sum()

    @pytest.mark.parametrize("seed", range(3))
    def test_the_mix_of_every_gamma_is_linear_in_the_heads(self, seed):
        A, X, _, Y, rng = self.setting(seed)
        K = [Y, A @ Y, A @ A @ Y]
        features = self.heads(X, *K)
        for gamma in rng.standard_normal((5, 3)):
            learned = self.heads(X, mix(gamma, K))  # what LD learns with this gamma
            np.testing.assert_allclose(features @ np.kron(gamma[:, None], np.eye(self.c)), learned, atol=1e-9)

    @pytest.mark.parametrize("seed", range(3))
    def test_the_gnn_reaches_zero_without_a_gamma(self, seed):
        A, X, phi, Y, _ = self.setting(seed)
        assert self.loss(phi, self.heads(X, Y, A @ Y), Y) < 1e-20

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("other", ["labels", "uniform gamma", "two hops", "shuffled", "random"])
    def test_other_targets_of_no_more_columns_do_not(self, seed, other):
        A, X, phi, Y, rng = self.setting(seed)
        K, order = [Y, A @ Y, A @ A @ Y], rng.permutation(self.n)
        targets = {
            "labels": (K[0],),
            "uniform gamma": (K[0] + K[1], K[0] + K[1] + K[2]),
            "two hops": (K[1], K[2]),  # heads without the node's own label
            "shuffled": (K[0][order], K[1][order]),
            "random": tuple(rng.standard_normal((2, self.n, self.c))),
        }[other]
        assert self.loss(phi, self.heads(X, *targets), Y) > 0.02


class TestLipschitzBound:
    """Section 3.1. If the GNN is invertible and L-Lipschitz continuous, |GNN(F1) - GNN(F2)| <= L |F1 - F2|, then
    |GNN(F) - Y| <= L |F - GNN^-1(Y)|: who brings F near the inverse labels brings the GNN's output near the labels.
    """

    n, c, phi = 12, 3, (-1.5, 0.7, 0.3)

    @pytest.fixture
    def setting(self):
        rng = np.random.default_rng(0)
        adj = in_full_precision(Adjacency.from_edges(random_edges(self.n, 20), self.n))
        W = rng.standard_normal((self.c, self.c))
        filtered = mix(self.phi, [np.linalg.matrix_power(adj.dense(), i) for i in range(3)])  # phi(A-hat) (n, n)
        gnn = spectral_gnn(self.phi, W)

        def forward(x):
            return gnn(torch.tensor(x), adj).detach().numpy()

        def inverse(y):
            return np.linalg.inv(filtered) @ y @ np.linalg.inv(W)

        return forward, inverse, filtered, W, rng

    def test_the_bound_holds_for_all_features_and_labels(self, setting):
        forward, inverse, filtered, W, rng = setting
        L = np.linalg.norm(filtered, 2) * np.linalg.norm(W, 2)
        for _ in range(200):
            F, Y = rng.standard_normal((2, self.n, self.c)) * rng.uniform(0.01, 10, (2, 1, 1))
            np.testing.assert_allclose(forward(inverse(Y)), Y, atol=1e-9)
            assert np.linalg.norm(forward(F) - Y) <= L * np.linalg.norm(F - inverse(Y)) * (1 + 1e-12)

    def test_no_smaller_constant_will_do(self, setting):
        """Both sides meet along the largest singular vectors; max |phi(lambda)| is less, as D^-1 A is not symmetric."""
        forward, inverse, filtered, W, rng = setting
        L = np.linalg.norm(filtered, 2) * np.linalg.norm(W, 2)
        Y = rng.standard_normal((self.n, self.c))
        worst = np.outer(np.linalg.svd(filtered)[2][0], np.linalg.svd(W)[0][:, 0])
        left, right = np.linalg.norm(forward(inverse(Y) + worst) - Y), np.linalg.norm(worst)
        assert left == pytest.approx(L * right)
        radius = abs(np.linalg.eigvals(filtered)).max() * np.linalg.norm(W, 2)
        assert left > 1.01 * radius * right

    def test_the_labels_themselves_give_no_such_bound(self, setting):
        """F = Y makes the label-only loss 0 and the GNN's error as large as the labels."""
        forward, inverse, _, _, rng = setting
        Y = rng.standard_normal((self.n, self.c))
        assert np.linalg.norm(forward(Y) - Y) > 0.5 * np.linalg.norm(Y)
        assert np.linalg.norm(forward(inverse(Y)) - Y) < 1e-9


class TestUniversality:
    """Appendix A.3. If L-hat = I - A-hat has no multiple eigenvalues and the features contain all its frequency
    components, then the spectral GNN phi(A-hat) F W can produce any one-dimensional prediction.

    The proof's construction: W* such that no component of U^T F W* is 0, and theta from the Vandermonde system
    sum_j lambda_i^j theta_j = (U^T Y)_i / (U^T F W*)_i.
    """

    symmetric = AdjacencyConfig(normalization="symmetric")

    def setting(self, edges_and_nodes):
        edges, n = edges_and_nodes
        adj = in_full_precision(Adjacency.from_edges(edges, n, self.symmetric))
        values, U = np.linalg.eigh(adj.dense())
        return adj, values, U

    def reached(self, adj, values, F, target):
        """Best prediction of phi(A-hat) F for features (n, 1), over phi of all degrees below n."""
        powers = np.concatenate(list(propagate(adj, F, len(F) - 1)), axis=1)  # (n, n)
        return powers @ np.linalg.lstsq(powers, target, rcond=1e-12)[0]

    @pytest.mark.parametrize("seed", range(5))
    def test_the_vandermonde_construction_reaches_any_target(self, seed):
        rng = np.random.default_rng(seed)
        adj, values, U = self.setting(path(9))
        F, target = rng.standard_normal((9, 2)), rng.standard_normal(9)
        found = spectrum(path(9), {"features": F})
        assert (found.multi_ratio, found.missing) == (0.0, {"features": 0})  # both conditions hold
        W = rng.standard_normal((2, 1))
        theta = np.linalg.solve(np.vander(values, increasing=True), (U.T @ target) / (U.T @ F @ W)[:, 0])
        H = spectral_gnn(theta, W)(torch.tensor(F), adj).detach().numpy()
        np.testing.assert_allclose(H[:, 0], target, atol=1e-8)
        wrong = spectral_gnn(theta + np.eye(9)[1], W)(torch.tensor(F), adj).detach().numpy()
        assert abs(wrong[:, 0] - target).max() > 0.1

    def test_a_double_eigenvalue_is_out_of_reach(self):
        """cos(2 pi k / n) comes twice on a cycle: phi treats both eigenvectors alike, their mixture stays that of F."""
        adj, values, U = self.setting(cycle(9))
        F = np.random.default_rng(0).standard_normal((9, 1))
        found = spectrum(cycle(9), {"features": F})
        assert (found.multi_ratio, found.missing) == (80.0, {"features": 0})  # only the first condition fails
        assert abs(np.linalg.det(np.vander(values))) < 1e-12
        pair = U[:, :2]  # of the lowest eigenvalue
        assert values[0] == pytest.approx(values[1])
        along = pair @ (pair.T @ F[:, 0])
        np.testing.assert_allclose(self.reached(adj, values, F, along), along, atol=1e-8)
        across = pair @ (np.array([[0, -1], [1, 0]]) @ pair.T @ F[:, 0])
        assert np.abs(self.reached(adj, values, F, across)).max() < 1e-8  # nothing of it

    def test_a_missing_frequency_is_out_of_reach(self):
        adj, values, U = self.setting(path(9))
        F = np.random.default_rng(0).standard_normal((9, 1))
        np.testing.assert_allclose(self.reached(adj, values, F, U[:, 3]), U[:, 3], atol=1e-6)
        F -= np.outer(U[:, 3], U[:, 3] @ F)
        found = spectrum(path(9), {"features": F})
        assert (found.multi_ratio, found.missing) == (0.0, {"features": 1})  # only the second condition fails
        assert np.abs(self.reached(adj, values, F, U[:, 3])).max() < 1e-8
        np.testing.assert_allclose(self.reached(adj, values, F, U[:, 4]), U[:, 4], atol=1e-6)


def mutual_information(a: np.ndarray, b: np.ndarray, given: np.ndarray) -> float:
    """I(a; b | given) in nats of whole numbers (m,) each, from their frequencies."""

    def entropy(*columns):
        _, counts = np.unique(np.stack(columns), axis=1, return_counts=True)
        return -(counts / len(a) * np.log(counts / len(a))).sum()

    return entropy(a, given) + entropy(b, given) - entropy(a, b, given) - entropy(given)


@pytest.fixture(scope="module")
def measured():
    """I(label of i; label of j | features) over the edges of planted less that of shuffled labels, by kind of label."""
    truth = planted(6000, seed=0, num_classes=4)
    K = hop_labels(truth.graph.edges, truth.soft_labels, hops=60)
    # 1 / (x - 1.2) = -sum_i x^i / 1.2^(i + 1), so these are gamma of phi^-1; the rest is 1.2^-61
    inverse = np.einsum("h,nhc->nc", -(1.2 ** -np.arange(1.0, 62.0)), K)
    np.testing.assert_allclose(inverse, truth.inverse_labels, atol=1e-4)
    source, target = truth.graph.edges
    topics = truth.latent[:, :4].argmax(1)
    given = topics[source] * 4 + topics[target]
    rng = np.random.default_rng(0)

    def over_chance(labels):
        clear = labels.max(1)
        words = 2 * labels.argmax(1) + (clear > np.median(clear))
        a, b = words[source], words[target]
        order, chance = np.argsort(given, kind="stable"), []
        for _ in range(10):
            shuffled = np.empty_like(b)
            shuffled[order] = b[np.lexsort((rng.random(len(b)), given))]
            chance.append(mutual_information(a, shuffled, given))
        return mutual_information(a, b, given) - np.mean(chance)

    targets = {"inverse": inverse, "true": truth.soft_labels, "uniform gamma": K[:, :3].mean(1)}
    return {name: over_chance(labels) for name, labels in targets.items()}


class TestIndependence:
    """The last appendix. If the features of nodes are independent and Assumption 1 holds, the deconvolved labels of two
    nodes are independent given their features: Pr(Y^_i, Y^_j | F_i, F_j) = Pr(Y^_i | F_i, F_j) Pr(Y^_j | F_i, F_j).

    Measured over the edges of planted. A label is its largest class and whether that is clearer than the median, and
    the features are the topics of both ends, so that Y^ still varies where features are given. A finite sample of
    independent labels has some mutual information too; shuffles among pairs of equal features tell how much.
    """

    def test_inverse_labels_of_neighbours_are_independent_given_the_features(self, measured):
        assert abs(measured["inverse"]) < 0.002

    @pytest.mark.parametrize("other", ["true", "uniform gamma"])
    def test_other_labels_of_neighbours_are_not(self, measured, other):
        """Neighbours share neighbours, or the accident of a random edge."""
        assert measured[other] > 0.04

    def test_the_measure_itself(self):
        """Two fair coins have I = 0, a coin and itself log 2, and nothing is left where the coin is given."""
        coin, other = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
        nothing = np.zeros(4, dtype=int)
        assert mutual_information(coin, other, nothing) == pytest.approx(0.0)
        assert mutual_information(coin, coin, nothing) == pytest.approx(np.log(2))
        assert mutual_information(coin, coin, coin) == pytest.approx(0.0)


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
