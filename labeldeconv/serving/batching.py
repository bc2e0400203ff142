"""Requests that wait together go through the encoder together, up to a budget of tokens.

One thread computes. While it works on a batch, requests gather; then it takes as many of them, in the order of their
arrival, as the budget holds, and never waits for more: a lone request is not delayed. The nodes of every request join a
copy of the graph of its own (propagation/grown.py), so that no request sees another one's nodes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import numpy as np

from labeldeconv.prediction.explanation import Explanation
from labeldeconv.prediction.logits import Mode
from labeldeconv.prediction.numbering import NewNodes
from labeldeconv.prediction.predictor import Alone, Predicted, Predictor


@dataclass(eq=False)
class Waiting:
    """A request that waits for its turn; `tokens` are those of its texts, once they are known."""

    new: NewNodes
    mode: Mode
    alone: Alone
    future: Future[Predicted] = field(default_factory=Future)
    tokens: list[list[int]] | None = None

    @property
    def size(self) -> int:
        """Its tokens."""
        return sum(map(len, self.tokens or []))


class Batcher:
    """The one thread that predicts.

    Args:
        predictor: of the run.
        batch_tokens: the budget; a request with more goes alone.
        note: hears the requests and tokens of every batch.
    """

    def __init__(self, predictor: Predictor, batch_tokens: int, note: Callable[[int, int], None] | None = None) -> None:
        self.predictor, self.batch_tokens, self._note = predictor, batch_tokens, note
        self._waiting: deque[Waiting] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._computing = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="predict", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether requests are taken and answered."""
        return self._thread.is_alive() and not self._closing

    def submit(self, new: NewNodes, mode: Mode = "exact", alone: Alone = "psi") -> Future[Predicted]:
        """Take a request; its future holds the prediction, or the error that this request alone has made."""
        asked = Waiting(new, mode, alone)
        with self._changed:
            if self._closing:
                raise RuntimeError("the batcher is closed")
            self._waiting.append(asked)
            self._changed.notify()
        return asked.future

    def explain(self, node: str, new: NewNodes, of: str | None, top: int, alone: Alone) -> Explanation:
        """Explain a node of `new` in the caller's thread, between two batches."""
        with self._computing:
            return self.predictor.explain_nodes(node, new, of, top, alone)

    def close(self) -> None:
        """Answer all that was taken, then end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if not self._waiting:
                    return
                arrived = [asked for asked in self._waiting if asked.tokens is None]
            with self._computing:
                self._tokenize(arrived)
                batch = self._taken()
                if batch and self._note is not None:
                    self._note(len(batch), sum(asked.size for asked in batch))
                self._answer(batch)

    def _tokenize(self, arrived: Sequence[Waiting]) -> None:
        """Count the tokens of new arrivals, all of them in one call; given features have none."""
        texts = [text for asked in arrived for text in asked.new.texts or []]
        try:
            rows = self.predictor.encode.tokenize(texts) if texts else []
        except Exception as error:
            if len(arrived) == 1:
                return self._refuse(arrived[0], error)
            for asked in arrived:  # one of them is to blame
                self._tokenize([asked])
            return None
        start = 0
        for asked in arrived:
            count = len(asked.new.texts or [])
            asked.tokens = rows[start : start + count]
            start += count

    def _refuse(self, asked: Waiting, error: Exception) -> None:
        with self._changed:
            self._waiting.remove(asked)
        asked.future.set_exception(error)

    def _taken(self) -> list[Waiting]:
        """The first requests within the budget, the very first even beyond it; only those whose tokens are counted."""
        with self._changed:
            batch: list[Waiting] = []
            tokens = 0
            while self._waiting and self._waiting[0].tokens is not None:
                tokens += self._waiting[0].size
                if batch and tokens > self.batch_tokens:
                    break
                batch.append(self._waiting.popleft())
            return batch

    def _answer(self, batch: Sequence[Waiting]) -> None:
        """Encode the texts of all, then predict each; who makes an error gets it, and nobody else."""
        asked_texts = [asked for asked in batch if asked.new.texts is not None]
        encoded: dict[int, NewNodes] = {}
        if len(asked_texts) > 1:
            try:
                X = self.predictor.encode.of_tokens([row for asked in asked_texts for row in asked.tokens or []])
                ends = np.cumsum([len(asked.new) for asked in asked_texts])[:-1]
                for asked, part in zip(asked_texts, np.split(X, ends), strict=True):
                    encoded[id(asked)] = replace(asked.new, features=part)
            except Exception:  # one of them is to blame: each goes alone below
                encoded = {}
        for mode, alone in {(asked.mode, asked.alone): None for asked in batch}:
            alike = [asked for asked in batch if (asked.mode, asked.alone) == (mode, alone)]
            self._predict([(asked, encoded.get(id(asked), asked.new)) for asked in alike], mode, alone)

    def _predict(self, asked: Sequence[tuple[Waiting, NewNodes]], mode: Mode, alone: Alone) -> None:
        """Predict requests together; where that fails, each alone."""
        try:
            told = self.predictor.predict_apart([new for _, new in asked], mode, alone)
        except Exception as error:
            if len(asked) == 1:
                return asked[0][0].future.set_exception(error)
            for one in asked:
                self._predict([one], mode, alone)
            return None
        for (waiting, _), found in zip(asked, told, strict=True):
            waiting.future.set_result(found)
