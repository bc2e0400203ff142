"""planted: a seeded attributed graph that obeys Assumption 1 of the paper, with its true inverse labels.

Y = phi(A-hat) psi(F*): every node has latent features F*, its words are drawn from the topic mixture psi(F*), and its
label from Y, so it depends on attributes *and* structure. The defaults are the motivating example (sec:example) at any
size: topics lie on two sides, edges cross from side to side, and phi(A-hat) = A-hat - 1.2 I names a node after what
its neighbours are about and it is not. Within a side all topics then meet the same labels: a text says nothing about
its own label, while the labels one hop away (K_1) name its topic.

    planted(10_000_000, "protein", seed=1).graph.save("graph")
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from labeldeconv.adjacency import Adjacency, propagate
from labeldeconv.errors import ConfigError, nearest
from labeldeconv.graph import AttributedGraph, Split, Texts

Flavour = Literal["multiclass", "multilabel", "protein"]

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
BLOCK = 1 << 14  # nodes whose words are drawn at once: some 100 MB, whatever n is
MARGIN = 4.0  # F* of the own topic above unit noise: psi gives it about 0.8 among 10 topics
HUBS = 1.5  # targets are drawn at rank u^1.5: degrees have a power-law tail of exponent 1 + 1 / (1 - 1/1.5) = 4


@dataclass(frozen=True, eq=False)
class Planted:
    """A planted graph and the truth behind it: soft_labels = phi(A-hat) inverse_labels.

    Args:
        graph: what a user would see.
        latent: F* (n, c) float32.
        inverse_labels: psi(F*) = softmax(F*) (n, c) float32, the true inverse labels.
        soft_labels: Y* (n, c) float32; the graph's labels are its argmax or, multi-label, its upper quantiles.
        phi: coefficients (t_0, t_1, ...) of phi(x) = sum_i t_i x^i.
    """

    graph: AttributedGraph
    latent: np.ndarray
    inverse_labels: np.ndarray
    soft_labels: np.ndarray
    phi: tuple[float, ...]


def planted(
    num_nodes: int = 2000,
    flavour: Flavour = "multiclass",
    seed: int = 0,
    *,
    num_classes: int = 10,
    mean_degree: float = 3.0,
    homophily: float = 0.0,
    phi: tuple[float, ...] = (-1.2, 1.0),
    num_words: int = 16,
    noise_words: float = 0.5,
    positives: float = 0.2,
    missing: float = 0.1,
    fractions: tuple[float, float] = (0.6, 0.2),
    num_features: int | None = None,
) -> Planted:
    """Generate a planted graph, in time and memory linear in nodes, edges and words.

    Args:
        num_nodes: n, from 4 to 10 million and beyond.
        flavour: 'multiclass' and 'multilabel' have English words; 'protein' is multi-label with residue sequences.
        seed: everything random comes from it.
        num_classes: c, also the number of topics.
        mean_degree: twice the edges per node; from 2 on no node is isolated.
        homophily: share of the edges that stay on one side; 0 is the motivating example, 0.5 is blind to topics.
        phi: coefficients (t_0, t_1, ...) of the filter; no root in [-1, 1], the spectrum of D^-1 A, so invertible.
        num_words: mean number of words (protein: motifs and fillers) per node; they vary by a half of it.
        noise_words: share of words that belong to no topic.
        positives: share of positives per class (multi-label).
        missing: share of missing entries (multi-label).
        fractions: shares of training and validation nodes; the others test.
        num_features: width of given features (X_OGB), a noisy random projection of F*; None gives none.
    """
    _check(num_nodes, flavour, num_classes, phi)
    of_topics, of_edges, of_texts, of_labels, of_features = np.random.default_rng(seed).spawn(5)
    sides, pairs = _sides(of_topics, num_nodes, homophily)  # (n,), (2, n // 2)
    topics = 2 * of_topics.integers((num_classes - sides + 1) // 2) + sides  # (n,) even ones on side 0
    latent = of_topics.standard_normal((num_nodes, num_classes), dtype=np.float32)  # (n, c)
    latent[np.arange(num_nodes), topics] += MARGIN
    inverse_labels = _softmax(latent)  # (n, c)
    edges = _edges(of_edges, sides, pairs, mean_degree, homophily)  # (2, e)
    soft_labels = _filter(Adjacency.from_edges(edges, num_nodes), inverse_labels, phi)  # (n, c)
    multiclass = flavour == "multiclass"
    graph = AttributedGraph(
        texts=_texts(of_texts, inverse_labels, flavour == "protein", num_words, noise_words),
        edges=edges,
        labels=soft_labels.argmax(1) if multiclass else _multi_hot(of_labels, soft_labels, positives, missing),
        split=_split(of_labels, num_nodes, fractions),
        class_names=[f"topic {k}" for k in range(num_classes)],
        features=None if num_features is None else _features(of_features, latent, num_features),
        attributes="sequence" if flavour == "protein" else "text",
        name=f"planted-{flavour}",
    )
    return Planted(graph, latent, inverse_labels, soft_labels, phi)


def _check(num_nodes: int, flavour: str, num_classes: int, phi: tuple[float, ...]) -> None:
    if flavour not in get_args(Flavour):
        raise ConfigError(f"planted: flavour '{flavour}' is unknown; {nearest(flavour, get_args(Flavour))}")
    for name, value, least in (("num_nodes", num_nodes, 4), ("num_classes", num_classes, 2)):
        if value < least:
            raise ConfigError(f"planted: {name} of at least {least} expected, got {value}")
    roots = np.roots(phi[::-1])
    if not any(phi) or (np.isclose(roots.imag, 0) & (np.abs(roots.real) < 1 + 1e-9)).any():
        raise ConfigError(f"planted: phi without a root in [-1, 1] expected (A-hat must be undone), got {phi}")


def _softmax(x: np.ndarray) -> np.ndarray:
    """psi: rows of x (n, c) to probabilities (n, c)."""
    out = np.exp(x - x.max(1, keepdims=True))
    out /= out.sum(1, keepdims=True)
    return out


def _filter(adj: Adjacency, x: np.ndarray, phi: tuple[float, ...]) -> np.ndarray:
    """phi(A-hat) x for x (n, c)."""
    out = np.zeros_like(x)
    for coefficient, hop in zip(phi, propagate(adj, x, len(phi) - 1), strict=True):
        out += np.float32(coefficient) * hop
    return out


def _sides(rng: np.random.Generator, n: int, homophily: float) -> tuple[np.ndarray, np.ndarray]:
    """Sides (n,) of the nodes, and a perfect matching (2, n // 2) across them but for a share `homophily`."""
    order = rng.permutation(n).astype(np.int32)
    pairs = order[: n - n % 2].reshape(2, -1)
    sides = rng.integers(2, size=n, dtype=np.int8)
    sides[pairs[1]] = sides[pairs[0]] ^ (rng.random(n // 2, dtype=np.float32) >= homophily)
    return sides, pairs


def _edges(
    rng: np.random.Generator, sides: np.ndarray, pairs: np.ndarray, mean_degree: float, homophily: float
) -> np.ndarray:
    """Edges (2, e): the matching, then random sources with targets by rank on the wanted side (n,)."""
    n = len(sides)
    e = max(0, round(n * mean_degree / 2) - n // 2)
    source = rng.integers(n, size=e, dtype=np.int32)
    side = sides[source] ^ (rng.random(e, dtype=np.float32) >= homophily)  # (e,) the target's
    members = np.argsort(sides, kind="stable").astype(np.int32)  # radix sort: linear
    count = np.bincount(sides, minlength=2)
    side = np.where(count[side] > 0, side, 1 - side)
    rank = (count[side] * rng.random(e) ** HUBS).astype(np.int32)
    target = members[np.where(side == 0, 0, count[0]) + rank]
    kept = source != target
    return np.concatenate([pairs, np.stack([source[kept], target[kept]])], axis=1)


def _texts(rng: np.random.Generator, mixture: np.ndarray, protein: bool, num_words: int, noise_words: float) -> Texts:
    """n texts: each word's topic is drawn from the node's mixture (n, c), the word from that topic's words."""
    table = _table(_motifs(rng) if protein else [f" {word}" for word in WORDS.split()])  # (v, l)
    order = rng.permutation(len(table))
    neutral, topical = np.split(order, [len(order) // 4])
    per_topic = max(1, len(topical) // mixture.shape[1])  # more topics than words share them
    buffers, lengths = [], []
    for start in range(0, len(mixture), BLOCK):
        cumulative = mixture[start : start + BLOCK].cumsum(1)
        counts = rng.integers(max(1, num_words // 2), num_words + (num_words + 1) // 2 + 1, size=len(cumulative))
        first = np.cumsum(counts) - counts
        w = int(counts.sum())
        chance = rng.random((w, 1), dtype=np.float32)
        topic = (chance > np.repeat(cumulative[:, :-1], counts, axis=0)).sum(1)  # (w,)
        noise = rng.random(w, dtype=np.float32) < noise_words
        word = topical[(topic * per_topic + rng.integers(per_topic, size=w)) % len(topical)]
        word = np.where(noise, neutral[rng.integers(len(neutral), size=w)], word)
        letters = table[word]  # (w, l), zero beyond the word's end
        if protein:  # fillers are fresh random residues
            letters[noise] = np.where(letters[noise] > 0, _residues(rng, (int(noise.sum()), table.shape[1])), 0)
        else:
            letters[first, 0] = 0  # no space before the first word
        lengths.append(np.add.reduceat((letters > 0).sum(1), first))
        buffers.append(letters[letters > 0])
    return Texts(np.concatenate(buffers), np.concatenate([[0], *lengths]).cumsum())


def _table(words: list[str]) -> np.ndarray:
    """Words as rows of bytes (v, l) uint8, padded with zeros."""
    packed = np.array(words, dtype=np.bytes_)
    return packed.view(np.uint8).reshape(len(words), -1)


def _motifs(rng: np.random.Generator) -> list[str]:
    """As many random motifs of 4 to 8 residues as there are words."""
    return ["".join(rng.choice(list(RESIDUES), size=k)) for k in rng.integers(4, 9, size=len(WORDS.split()))]


def _residues(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Random residues, uint8."""
    return np.frombuffer(RESIDUES.encode(), np.uint8)[rng.integers(len(RESIDUES), size=shape)]


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
    """Given features (n, d): F* (n, c) through a random projection, with noise of the size of the signal's."""
    projection = rng.standard_normal((latent.shape[1], width), dtype=np.float32) / np.float32(MARGIN)
    features = rng.standard_normal((len(latent), width), dtype=np.float32)
    features += latent @ projection
    return features


# Common words, each a single token of bert-base-uncased; the seed says which topic has which.
WORDS = """
able acid actor age air album angle animal ankle apple april arch area arm army art atom aunt autumn award baby
back bacon badge bag ball band bank bar base bath battle beach bean bear bed bee beer bell belt bench bird birth
black blade blood blue board boat body bomb bone book boot border boss bottle bowl box boy brain branch brass
bread brick bride bridge brother brown brush bus butter cabin cable cake call camera camp canal candle cap captain
car card carpet cart case castle cat cattle cave chain chair chalk charm chart chest chief child chin choir church
circle city clay clock cloth cloud club coach coal coast coat coffee coin cold collar color copper coral corn
cotton couch court cousin cow cream crew cross crowd crown crystal cup curtain dance date daughter dawn day deck
deer desert desk diamond dinner dirt doctor dog doll dollar door dragon drama dream dress drink drum duck dust
eagle ear earth east edge egg elbow engine event eye face factory fair family farm father fence festival field
film finger fire fish flag flame floor flower fog food foot forest fork fox frame friend frog fruit game garden
gas gate ghost giant girl glass glove goat gold golf grain grass grave green guard guest guitar gun hair hall
hammer hand harbor hat heart heat hill hole holiday honey hook horn horse hotel hour house ice ink iron island
jacket job judge juice jury key king kitchen knee knife knight lady lake lamp land lane lawyer leaf leather leg
lemon letter lift light lion lip lock log lunch lung map march market mask meal meat metal milk mine mirror money
monkey month moon motor mountain mouse mouth movie mud muscle museum music nail neck needle nest night noise north
nose ocean office oil onion orange oven owl page paint pair palace pan paper park pearl pen pepper phone piano
picture pig pilot pine pipe plane plant plate pocket poem poet pool potato prince queen rabbit radio rail rain
rice ring river road rock roof room root rope rose sail salt sand school sea seat seed shadow sheep shell ship
shirt shoe shop silk silver sister skin sky snake snow soap soil soldier song soup spoon spring square star
station steam steel stone storm stove street sugar summer sun table tail tea tent test ticket tiger timber tongue
tooth tower town toy train tree truck uncle valley village violin wagon wall war watch water wave wheel whip wind
window wine wing winter wire wolf wood wool yard
"""
