"""Nodes of a graph by id or by words of their texts: a walk over the texts' bytes, without an index.

Capital and small letters are one in ASCII only: bytes are compared, texts are decoded where the first word was found.
"""

from __future__ import annotations

import re

import numpy as np

from labeldeconv.graph.texts import Texts
from labeldeconv.prediction.numbering import Numbers

BLOCK = 1 << 18  # bytes between two moments at which other threads may run
SEARCHED = 1 << 27  # bytes of texts that one search reads at most: about a second
SHOWN = 280  # characters of a text


def find_nodes(known: Numbers, query: str, most: int) -> tuple[list[int], bool]:
    """At most `most` node numbers, and whether all texts were searched.

    The node whose id is the query comes first, then those with all of its words in their text, or in an id that is a
    text, in the order of the graph. An empty query finds the first nodes.
    """
    graph, words = known.graph, [word.lower() for word in query.split()][:8]
    exact = known.find(query.strip())
    found = [] if exact is None else [exact]
    if not words:
        return list(range(min(most, graph.num_nodes))), True
    complete = True
    for texts in [graph.ids, graph.texts] if isinstance(graph.ids, Texts) else [graph.texts]:
        some, whole = _with_words(texts, words, most)
        found += [node for node in some if node not in found]
        complete = complete and whole
    return found[:most], complete


def shown(text: str) -> str:
    """The beginning of a text."""
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}\u2026"


def _with_words(texts: Texts, words: list[str], most: int) -> tuple[list[int], bool]:
    """Numbers of texts that hold all words, and whether all were read."""
    found: list[int] = []
    if not len(texts.buffer):
        return found, True
    longest = max(words, key=len)
    pattern = re.compile(re.escape(longest.encode("utf-8", "replace")), re.IGNORECASE)
    buffer, offsets = memoryview(np.asarray(texts.buffer)), texts.offsets  # type: ignore[arg-type]
    first = 0
    while first < len(texts):
        if offsets[first] >= SEARCHED:
            return found, False
        last = min(len(texts), max(first + 1, int(np.searchsorted(offsets, offsets[first] + BLOCK))))
        place, end = int(offsets[first]), int(offsets[last])
        while (match := pattern.search(buffer, place, end)) is not None:
            node = int(np.searchsorted(offsets, match.start(), side="right")) - 1
            place = int(offsets[node + 1])
            if match.end() <= place and all(word in texts[node].lower() for word in words):
                found.append(node)
                if len(found) == most:
                    return found, True
        first = last
    return found, True
