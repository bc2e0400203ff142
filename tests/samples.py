"""Small inputs that many tests share."""

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import numpy as np
import pytest

from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.encoders.tokens import Tokens, write_tokens
from labeldeconv.graph.texts import Texts
from labeldeconv.settings.models import EncoderConfig

# Real graphs, which are no part of the project: beside it, or where LABELDECONV_TEST_DATA says.
REAL = Path(os.environ.get("LABELDECONV_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))


def real_data(name: str) -> Path:
    """The folder of a real data set; the test is skipped where it is absent."""
    if not (REAL / name).is_dir():
        pytest.skip(f"no {name} in {REAL}, which LABELDECONV_TEST_DATA may change")
    return REAL / name


def random_edges(n: int, e: int, seed: int = 0) -> np.ndarray:
    """(2, e) random edges, duplicates and self-loops included."""
    return np.random.default_rng(seed).integers(0, n, (2, e))


def write_parquet(path: Path, **columns: np.ndarray) -> Path:
    """A Parquet file of columns (n,), or (n, c) as lists."""
    held, select = dict[str, np.ndarray](), list[str]()
    for name, values in columns.items():
        if values.ndim == 2:
            parts = {f"{name}_{k}": np.ascontiguousarray(part) for k, part in enumerate(values.T)}
            held |= parts
            select.append(f"[{', '.join(parts)}] AS {name}")
        else:
            held[name] = np.ascontiguousarray(values)
            select.append(name)
    with duckdb.connect() as con:
        con.register("held", held)
        con.execute(f"COPY (SELECT {', '.join(select)} FROM held) TO '{path}' (FORMAT parquet)")
    return path


def letter_tokens(n: int, folder: Path, distinct: bool = False) -> Tokens:
    """Tokens of n short texts for the tiny encoder, written to a new folder.

    A text is one letter of three, repeated: 15 different ones, or all `distinct` with a number behind.
    """
    tokenizer = load_encoder(EncoderConfig(name="tiny")).tokenizer_part
    folder.mkdir()
    texts = ("abc"[i % 3] * (3 + i % 5) + (f"{i:02d}" if distinct else "") for i in range(n))
    return write_tokens(tokenizer, Texts.from_strings(texts), 32, folder)


def interrupt(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, *numbers: int) -> list[int]:
    """Let calls with these numbers of a module's function raise KeyboardInterrupt; gives the list that calls grow."""
    real, calls = getattr(module, name), list[int]()

    def killed(*args: Any) -> Any:
        calls.append(1)
        if len(calls) in numbers:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(module, name, killed)
    return calls
