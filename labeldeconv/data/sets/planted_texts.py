"""Texts and protein sequences of `planted`: words drawn from a node's latent features F*."""

from __future__ import annotations

import numpy as np

from labeldeconv.graph.texts import Texts

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
BLOCK = 1 << 14  # nodes whose words are drawn at once: some 100 MB, whatever n is
MARKERS = ("and", "not", "but")


def draw_texts(
    rng: np.random.Generator,
    latent: np.ndarray,
    protein: bool,
    num_words: int,
    decoy_words: float,
) -> Texts:
    """Texts from F* (n, 2 c + 1): words of the topic and denied words of the decoy, in the order of the kind."""
    words = _motifs(rng) if protein else [f" {word}" for word in (*WORDS.split(), *MARKERS)]
    table = _table(words)  # (v, l); the last three are the markers
    c = latent.shape[1] // 2
    per_topic = max(1, (len(table) - len(MARKERS)) // (2 * c))  # words per topic and kind; shared if too few
    buffers, lengths = [], []
    for start in range(0, len(latent), BLOCK):
        block = latent[start : start + BLOCK]
        kind = block[:, -1] > 0
        total = rng.integers(
            max(2, num_words // 2),
            num_words + (num_words + 1) // 2 + 1,
            size=len(block),
        )
        denied = np.clip(np.round(decoy_words * total).astype(np.int64), 0, total - 1)
        roles = _roles(kind, total - denied, denied)  # (w,) 0 topic, 1 decoy, 2.. markers
        owner = np.repeat(np.arange(len(block)), total + 2)
        shares = np.stack([softmax(block[:, :c]), softmax(block[:, c : 2 * c])]).cumsum(2)[:, :, :-1]  # (2, b, c - 1)
        drawn = (rng.random((len(roles), 1), dtype=np.float32) > shares[np.minimum(roles, 1), owner]).sum(1)
        word = ((2 * drawn + kind[owner]) * per_topic + rng.integers(per_topic, size=len(roles))) % (len(table) - 3)
        letters = table[np.where(roles < 2, word, len(table) - 5 + roles)]  # (w, l), zero beyond the word's end
        first = np.cumsum(total + 2) - (total + 2)
        if not protein:
            letters[first, 0] = 0  # no space before the first word
        lengths.append(np.add.reduceat((letters > 0).sum(1), first))
        buffers.append(letters[letters > 0])
    return Texts(np.concatenate(buffers), np.concatenate([[0], *lengths]).cumsum())


def _roles(kind: np.ndarray, named: np.ndarray, denied: np.ndarray) -> np.ndarray:
    """What every word is (w,): topic and not decoy for kind 0, not decoy but topic for kind 1 (MARKERS from 2 on)."""
    size = named + denied + 2
    place = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
    kind, named, denied = (np.repeat(x, size) for x in (kind, named, denied))
    plain = np.select([place < named, place == named, place == named + 1], [0, 2, 3], 1)
    turned = np.select([place == 0, place <= denied, place == denied + 1], [3, 1, 4], 0)
    return np.where(kind, turned, plain)


def _table(words: list[str]) -> np.ndarray:
    """Words as rows of bytes (v, l) uint8, padded with zeros."""
    packed = np.array(words, dtype=np.bytes_)
    return packed.view(np.uint8).reshape(len(words), -1)


def _motifs(rng: np.random.Generator) -> list[str]:
    """As many random motifs of 4 to 8 residues as there are words and markers."""
    count = len(WORDS.split()) + len(MARKERS)
    return ["".join(rng.choice(list(RESIDUES), size=k)) for k in rng.integers(4, 9, size=count)]


def softmax(scores: np.ndarray) -> np.ndarray:
    """Shares (n, c) of scores (n, c)."""
    out = scores - scores.max(1, keepdims=True)
    np.exp(out, out=out)
    out /= out.sum(1, keepdims=True)
    return out


# Common words, each a single token of bert-base-uncased, theme by theme; a topic is a run of them, half for each kind.
WORDS = """
bear bee bird cat cattle cow deer dog duck eagle fish fox frog goat horse lion monkey mouse owl pig rabbit sheep snake
tiger wolf wing tail nest
apple bacon bean beer bread butter cake coffee corn cream egg fruit grain honey juice lemon meat milk onion orange
pepper potato rice salt soup sugar tea wine
ankle arm back blood bone brain chest chin ear elbow eye face finger foot hair hand heart knee leg lip lung mouth muscle
neck nose skin tongue tooth
bath bed bench bowl box carpet chair couch curtain desk door floor fork kitchen lamp mirror oven pan plate roof room
spoon stove table wall window yard cup
badge bag belt boot cap cloth coat collar cotton dress glove hat jacket leather mask needle pocket ring shirt shoe silk
wool crown pearl color blue green black
air autumn cloud cold dawn day dust earth fog heat ice light moon month night rain sky snow spring star storm summer sun
winter wind hour april shadow
beach canal cave coast desert field forest hill island lake land mountain mud ocean river rock sand sea soil stone
valley water wave grass tree leaf root flower
boat bridge bus cabin car cart coach deck engine harbor lane map motor pilot plane rail road sail ship station street
ticket train truck wagon wheel tent crew
aunt baby boss boy bride brother captain chief child cousin daughter doctor father friend girl guest judge king knight
lady lawyer prince queen sister soldier uncle family poet
actor album art band bell book camera choir dance drama drum film guitar horn letter movie museum music page paint paper
pen piano picture poem radio song violin
blade brass brick cable chain coal copper diamond gold gun hammer hook iron key knife lock metal nail oil pipe rope
silver steel wire timber clay glass brush
army award bank battle camp castle church city club court factory farm festival flag hotel market money office palace
park school shop tower town village war border coin
"""
