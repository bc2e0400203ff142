"""planted: a seeded attributed graph that obeys Assumption 1 of the paper, with its true inverse labels.

Y = phi(A-hat) psi(F*): every node has latent features F*, its words are drawn from F*, and its label from Y, so the
label depends on attributes *and* structure. The defaults are the motivating example (sec:example) at any size:

- a node of topic z lives in a small community (z, q) whose neighbours are the nodes of a community (q, z);
- phi(A-hat) = A-hat - 1.2 I, so its label is q, what its neighbours are about and it is not;
- its text names z and denies another topic, the decoy of its community: "ship sail and not apple bread", or, as
  neighbouring communities are of two kinds, "not piano drum but river".

q is independent of z and of the decoy: a text says nothing about its own label, hence FNE and WO/LD learn nothing from
it. The labels one hop away (K_1) are z itself, and LD learns to read. The frozen encoder hardly tells what is denied.

    planted(10_000_000, "protein", seed=1).graph.save("graph")
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from labeldeconv.data.catalog import Request, dataset, is_count
from labeldeconv.data.findings import Loaded
from labeldeconv.data.sets.planted_texts import draw_texts, softmax
from labeldeconv.errors import ConfigError, DataError, nearest
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split

Flavour = Literal["multiclass", "multilabel", "protein", "regression"]

MARGIN = 4.0  # of the own topic, decoy and kind in F* over unit noise: psi gives the topic about 0.8 among 10
COMMUNITY = 6  # nodes, about: so small that a topic and a decoy do not give the label of a community away
HUBS = 1.5  # targets are drawn at rank u^1.5 of a community: degrees with a power-law tail of exponent 4
PHI: dict[Flavour, tuple[float, ...]] = {"regression": (0.0, 1.0)}  # A-hat - 1.2 I for the others
MOST_NODES = 100_000_000  # of which the edges alone take 4 GB
NUM_NODES = 3000  # where nobody says otherwise
# The labels are one strict convolution away from the texts, and the short texts are learned in two quick passes.
SUGGESTS: dict[str, Any] = {
    "train.lr": 1e-4,
    "train.epochs": 2,
    "train.gamma_lr": 1e-2,
    "gnn.layers": 1,
    "gnn.adjacency.normalization": "row",
    "gnn.adjacency.self_loops": False,
}


@dataclass(frozen=True, eq=False)
class Planted:
    """A planted graph and the truth behind it: soft_labels = phi(A-hat) inverse_labels.

    Args:
        graph: what a user would see.
        latent: F* (n, 2 c + 1) float32: scores of the topics, of the decoys, and of the kind (its sign).
        inverse_labels: psi(F*) (n, c) float32, the true inverse labels: softmax of the topics' scores.
        soft_labels: Y* (n, c) float32; the graph's labels are its argmax or, multi-label, its upper quantiles, or for
            a regression its columns themselves, in a unit of their own.
        phi: coefficients (t_0, t_1, ...) of phi(x) = sum_i t_i x^i.
    """

    graph: AttributedGraph
    latent: np.ndarray
    inverse_labels: np.ndarray
    soft_labels: np.ndarray
    phi: tuple[float, ...]


def planted(
    num_nodes: int = NUM_NODES,
    flavour: Flavour = "multiclass",
    seed: int = 0,
    *,
    num_classes: int = 10,
    mean_degree: float = 4.0,
    homophily: float = 0.0,
    random_edges: float = 0.1,
    phi: tuple[float, ...] | None = None,
    num_words: int = 7,
    decoy_words: float = 0.6,
    positives: float = 0.2,
    missing: float = 0.1,
    num_targets: int = 3,
    fractions: tuple[float, float] = (0.6, 0.2),
    num_features: int | None = None,
) -> Planted:
    """Generate a planted graph, in time and memory linear in nodes, edges and words.

    Args:
        num_nodes: n, from 4 to 10 million and beyond.
        flavour: 'multiclass' and 'multilabel' have English words; 'protein' is multi-label with residue sequences;
            'regression' has English words, and numbers as labels: 100 + 10 Y*, of the first `num_targets` topics.
        seed: everything random comes from it.
        num_classes: c, also the number of topics.
        mean_degree: twice the edges per node; from 2 on no node is isolated.
        homophily: share of the nodes whose edges lead into their own community instead of the partner's.
        random_edges: share of the edges that lead anywhere.
        phi: coefficients (t_0, t_1, ...) of the filter; no root in [-1, 1], the spectrum of D^-1 A, so invertible; None
            is A-hat - 1.2 I. That of a regression is free and A-hat unless given: an invertible one leaves more of a
            node's own topic in a number than of its neighbours', and then its text tells it without a graph.
        num_words: mean number of words (protein: motifs) per node; they vary by a half of it.
        decoy_words: share of the words that are denied.
        positives: share of positives per class (multi-label).
        missing: share of missing entries (multi-label).
        num_targets: columns of Y* that are labels (regression).
        fractions: shares of training and validation nodes; the others test.
        num_features: width of given features (X_OGB), a noisy random projection of F*; None gives none.
    """
    phi = PHI.get(flavour, (-1.2, 1.0)) if phi is None else phi
    _check(num_nodes, flavour, num_classes, phi)
    if not 1 <= num_targets <= num_classes:
        raise ConfigError(f"planted: num_targets between 1 and num_classes expected, got {num_targets}")
    shares = {
        "homophily": homophily,
        "random_edges": random_edges,
        "decoy_words": decoy_words,
    }
    _check_shares(**shares, positives=positives, missing=missing, fractions=sum(fractions))
    of_nodes, of_edges, of_texts, of_labels, of_features = np.random.default_rng(seed).spawn(5)
    kinds, topics, around, group = _communities(of_nodes, num_nodes, num_classes)  # (n,) each
    groups = int(group.max()) + 1
    own = ((topics * num_classes + around) * 2 + kinds) * groups + group
    partner = ((around * num_classes + topics) * 2 + (1 - kinds)) * groups + group
    decoys = of_nodes.integers(num_classes, size=2 * groups * num_classes**2, dtype=np.int32)[own]
    latent = _latent(of_nodes, kinds, topics, decoys, num_classes)  # (n, 2 c + 1)
    inverse_labels = psi(latent)  # (n, c)
    partner = np.where(of_edges.random(num_nodes, dtype=np.float32) < homophily, own, partner)
    edges = _edges(of_edges, own, partner, round(num_nodes * mean_degree / 2), random_edges)  # (2, e)
    soft_labels = _filter(edges, inverse_labels, phi)  # (n, c)
    labels, named = _labels(of_labels, soft_labels, flavour, positives, missing, num_targets)
    graph = AttributedGraph(
        texts=draw_texts(of_texts, latent, flavour == "protein", num_words, decoy_words),
        edges=edges,
        labels=labels,
        split=_split(of_labels, num_nodes, fractions),
        class_names=[f"topic {k}" for k in range(named)],
        features=None if num_features is None else _features(of_features, latent, num_features),
        attributes="sequence" if flavour == "protein" else "text",
        name=f"planted-{flavour}",
    )
    return Planted(graph, latent, inverse_labels, soft_labels, phi)


@dataclass(frozen=True)
class PlantedSource:
    """A planted graph as a data set."""

    num_nodes: int
    flavour: Flavour
    seed: int
    version: int = 2

    def load(self) -> Loaded:
        """Generate it."""
        return Loaded(planted(self.num_nodes, self.flavour, self.seed).graph, [])


@dataset(
    "planted-protein",
    "the same with 20-letter sequences and planted motifs",
    suggests=SUGGESTS,
    takes_argument=True,
)
@dataset(
    "planted-regression",
    "the same with numbers as labels, three targets per node",
    suggests=SUGGESTS,
    takes_argument=True,
)
@dataset(
    "planted-multilabel",
    "the same with multi-label targets and missing entries",
    suggests=SUGGESTS,
    takes_argument=True,
)
@dataset(
    "planted",
    "generated texts whose labels obey Assumption 1 (planted:N for N nodes)",
    suggests=SUGGESTS,
    takes_argument=True,
)
def planted_source(request: Request) -> PlantedSource:
    """planted:N has N nodes."""
    size = request.argument
    if size and not (is_count(size) and 4 <= int(size) <= MOST_NODES):
        raise DataError(f"data '{request.written}': a number of nodes, 4 to {MOST_NODES:,}, expected after the colon")
    if request.folder is not None:
        raise DataError(f"data '{request.written}': '{request.name}' is generated and takes no folder")
    flavours: dict[str, Flavour] = {
        "planted": "multiclass",
        "planted-multilabel": "multilabel",
        "planted-protein": "protein",
        "planted-regression": "regression",
    }
    return PlantedSource(int(size or NUM_NODES), flavours[request.name], request.seed)


def _check(num_nodes: int, flavour: str, num_classes: int, phi: tuple[float, ...]) -> None:
    if flavour not in get_args(Flavour):
        raise ConfigError(f"planted: flavour '{flavour}' is unknown; {nearest(flavour, get_args(Flavour))}")
    for name, value, least in (
        ("num_nodes", num_nodes, 4),
        ("num_classes", num_classes, 2),
    ):
        if value < least:
            raise ConfigError(f"planted: {name} of at least {least} expected, got {value}")
    if flavour == "regression" and any(phi):
        return
    roots = np.roots(phi[::-1])
    if not any(phi) or (np.isclose(roots.imag, 0) & (np.abs(roots.real) < 1 + 1e-9)).any():
        raise ConfigError(f"planted: phi without a root in [-1, 1] expected (A-hat must be undone), got {phi}")


def _check_shares(**shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise ConfigError(f"planted: {name} between 0 and 1 expected, got {share}")


def psi(latent: np.ndarray) -> np.ndarray:
    """Shares (n, c) of the topics by the softmax of their scores in F* (n, 2 c + 1); decoys and kind do not count."""
    return softmax(latent[:, : latent.shape[1] // 2])


def _filter(edges: np.ndarray, x: np.ndarray, phi: tuple[float, ...]) -> np.ndarray:
    """phi(A-hat) x for edges (2, e) and x (n, c)."""
    from labeldeconv.propagation.adjacency import Adjacency, propagate  # brings numba, which names need not wait for

    out = np.zeros_like(x)
    hops = propagate(Adjacency.from_edges(edges, len(x)), x, len(phi) - 1)
    for coefficient, hop in zip(phi, hops, strict=True):
        out += np.float32(coefficient) * hop
    return out


def _communities(rng: np.random.Generator, n: int, c: int) -> tuple[np.ndarray, ...]:
    """Kind, topic, the other topic that the neighbours shall have, and the number among such communities, (n,) each."""
    topics = rng.integers(c, size=n, dtype=np.int32)
    around = (topics + rng.integers(1, c, size=n, dtype=np.int32)) % c
    kinds = rng.integers(2, size=n, dtype=np.int32)
    groups = max(1, round(n / (2 * c * (c - 1) * COMMUNITY)))
    return kinds, topics, around, rng.integers(groups, size=n, dtype=np.int32)


def _latent(
    rng: np.random.Generator,
    kinds: np.ndarray,
    topics: np.ndarray,
    decoys: np.ndarray,
    c: int,
) -> np.ndarray:
    """F* (n, 2 c + 1): unit noise, and MARGIN more for the node's topic, decoy and kind (n,) (kind 0: less)."""
    latent = rng.standard_normal((len(topics), 2 * c + 1), dtype=np.float32)
    rows = np.arange(len(topics))
    latent[rows, topics] += MARGIN
    latent[rows, c + decoys] += MARGIN
    latent[:, 2 * c] += MARGIN * (2 * kinds - 1)
    return latent


def _edges(
    rng: np.random.Generator,
    own: np.ndarray,
    partner: np.ndarray,
    num_edges: int,
    random_edges: float,
) -> np.ndarray:
    """Edges (2, e): every node once and then random ones as sources, targets by rank in the partner community.

    `own` and `partner` (n,) number communities; a share `random_edges` and edges to an empty community go anywhere.
    """
    n = len(own)
    more = rng.integers(n, size=max(0, num_edges - n), dtype=np.int32)
    source = np.concatenate([rng.permutation(n).astype(np.int32), more])[:num_edges]
    count = np.bincount(own, minlength=partner.max() + 1)
    # A radix sort, and linear, while communities are numbered in 16 bits (255 classes).
    members = np.argsort(own.astype(np.min_scalar_type(len(count))), kind="stable").astype(np.int32)
    wanted = partner[source]  # (e,)
    rank = (count[wanted] * rng.random(num_edges) ** HUBS).astype(np.int64) + (count.cumsum() - count)[wanted]
    anywhere = (rng.random(num_edges, dtype=np.float32) < random_edges) | (count[wanted] == 0)
    target = np.where(
        anywhere,
        rng.integers(n, size=num_edges, dtype=np.int32),
        members[np.minimum(rank, n - 1)],
    )
    kept = source != target
    return np.stack([source[kept], target[kept]])


def _labels(
    rng: np.random.Generator, soft_labels: np.ndarray, flavour: Flavour, positives: float, missing: float, targets: int
) -> tuple[np.ndarray, int]:
    """Labels of a flavour from Y* (n, c), and how many classes or targets they have."""
    c = soft_labels.shape[1]
    if flavour == "multiclass":
        return soft_labels.argmax(1), c
    if flavour == "regression":
        return 100 + 10 * soft_labels[:, :targets].astype(np.float64), targets
    return _multi_hot(rng, soft_labels, positives, missing), c


def _multi_hot(rng: np.random.Generator, soft_labels: np.ndarray, positives: float, missing: float) -> np.ndarray:
    """Labels (n, c) int8: the upper `positives` of every class are 1, and -1 where missing."""
    labels = (soft_labels > np.quantile(soft_labels, 1 - positives, axis=0)).astype(np.int8)
    labels[rng.random(labels.shape, dtype=np.float32) < missing] = -1
    return labels


def _split(rng: np.random.Generator, n: int, fractions: tuple[float, float]) -> Split:
    """A random split; rounding leaves no part empty from 4 nodes on with the default fractions."""
    roles = np.full(n, 2, dtype=np.int8)
    train, val = (round(n * share) for share in (fractions[0], sum(fractions)))
    roles[:val] = 1
    roles[:train] = 0
    return Split(rng.permutation(roles))


def _features(rng: np.random.Generator, latent: np.ndarray, width: int) -> np.ndarray:
    """Given features (n, d): F* (n, 2 c + 1) through a random projection, with noise of the size of the signal's."""
    projection = rng.standard_normal((latent.shape[1], width), dtype=np.float32) / np.float32(MARGIN)
    features = rng.standard_normal((len(latent), width), dtype=np.float32)
    features += latent @ projection
    return features
