"""Features: F of all nodes (Algorithm 1, line 12) into a float16 memory map, resumable.

Attributes that several nodes share are encoded once, and those that the same weights have encoded before, for another
graph or for this one as it was, are not encoded again (training/reuse.py).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.lib.format import open_memmap
from torch import Tensor

from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.pretrained import Weights
from labeldeconv.encoders.tokens import Tokens, ahead, length_batches
from labeldeconv.encoders.trunk import TokenStates, split_for
from labeldeconv.progress import bar, logger
from labeldeconv.stages import ranks
from labeldeconv.stages.files import is_sealed, map_array, sealed, write_json
from labeldeconv.stages.keys import Idle
from labeldeconv.stages.memory_limit import check_room
from labeldeconv.stages.stage import Artefact, Folder, stage
from labeldeconv.training.finite import check_rows
from labeldeconv.training.reuse import Earlier, encoded_before
from labeldeconv.training.steps import encoder_autocast

CPU_TOKENS, GPU_TOKENS = 2048, 65536  # per batch; on a CPU activations should stay in the cache: 1.2 times 8192
BATCH_NODES = 1024
INFERENCE = 24  # vectors of a token's width alive at once in a layer: states, queries, keys, values, the wide layer
COPIED = 1 << 16  # nodes that get the features of an equal attribute at a time
SAVE_SECONDS = 20.0
ROUNDS = 32  # batches of every rank between two meetings: some seconds
ROWS = 1 << 14  # standardised at a time
Rows = Callable[[np.ndarray], np.ndarray]  # nodes (b,) to rows of a memory map
ADVICE = (
    "features are kept as float16, whose largest number is 65504; lower train.lr, set train.clip, or, if the "
    "pre-trained encoder gives them, set train.precision to float32 or take another encoder"
)


@dataclass(frozen=True, eq=False)
class Features(Artefact):
    """Features `values` (n, d) in node order.

    `encoder_nodes` counts the nodes whose attributes were encoded, `reused` those that an earlier result had.
    """

    values: np.ndarray
    encoder_nodes: int
    seconds: float
    reused: int = field(default=0, kw_only=True)


@stage(version=2, parallel=True)
def features(
    out: Folder,
    tokens: Tokens,
    encoder: Weights,
    precision: str,
    device: Annotated[torch.device, Idle] = torch.device("cpu"),
) -> Features:
    """Features of all nodes: X_PNE of the pre-trained encoder, or F of a trained one.

    From `TokenStates` in place of tokens the encoder's last layers go on; its first ones must be those that gave them.
    """
    start, loaded = time.perf_counter(), encoder.load()
    earlier: list[Earlier] = []
    # Tokens may name files whose content has changed; and states of a frozen trunk are rounded, as tokens are not.
    if ranks.leads() and not (loaded.opens_files or isinstance(tokens, TokenStates)):
        earlier = list(encoded_before(features, tokens, encoder=encoder, precision=precision))
    found = np.concatenate([np.empty(0, np.int64), *(each.nodes for each in earlier)])
    reused = int(np.isin(tokens.first, found).sum())
    if reused:
        total = f"{tokens.num_nodes:,}"
        logger.info("%s: %s of %s nodes have texts that were encoded before", out.label, f"{reused:,}", total)
    searched = time.perf_counter() - start
    model = split_for(loaded, tokens).to(device)
    check_pass_room(out.label, tokens, model.dim)
    seconds = searched + export_features(model, tokens, out, precision, earlier)
    if not ranks.leads():  # rank 0 may have sealed the stage by now
        return Features(np.empty((0, model.dim), np.float16), 0, seconds)
    values = np.load(out.path / "values.npy", mmap_mode="r", allow_pickle=False)
    return Features(values, tokens.num_nodes - reused, seconds, reused=reused)


def check_pass_room(label: str, tokens: Tokens, width: int) -> None:
    """Refuse a pass over all tokens that needs more memory than there is room for."""
    rows = 72 * tokens.num_nodes  # lengths, their order, and which attributes are equal (a sort of 64-bit hashes)
    batch = 4 * CPU_TOKENS * width * INFERENCE
    check_room(label, rows + batch, "take a smaller encoder (encoder.layers) or part of the graph (--max-nodes)")


@stage(version=1)
def given(out: Folder, values: np.ndarray) -> Features:
    """The features that came with the data, X_OGB."""
    check_rows(values, out.label, "features of the data", "mend them in the data")
    return Features(np.asarray(values), 0, 0.0)


@dataclass(frozen=True, eq=False)
class BothFeatures(Features):
    """Two kinds of features side by side, each column standardised by `mean` and `scale` (d + e,)."""

    mean: np.ndarray
    scale: np.ndarray


@stage(version=1)
def beside(out: Folder, X: Features, other: Features, nodes: np.ndarray | None = None) -> BothFeatures:
    """X (n, d) and other features (n, e) as one (n, d + e) float16, every column of mean 0 and variance 1.

    `nodes` (m,) are those whose mean and variance count; None: all.
    """
    parts = [np.asarray(part.values if nodes is None else part.values[nodes], dtype=np.float32) for part in (X, other)]
    mean = np.concatenate([part.mean(0) for part in parts])
    scale = np.maximum(np.concatenate([part.std(0) for part in parts]), 1e-6)
    n, d = X.values.shape
    values = map_array(out.path / "values.npy", (n, len(mean)), np.float16)
    for rows in (slice(lo, lo + ROWS) for lo in range(0, n, ROWS)):
        values[rows, :d] = (X.values[rows] - mean[:d]) / scale[:d]
        values[rows, d:] = (other.values[rows] - mean[d:]) / scale[d:]
    return BothFeatures(values, 0, 0.0, mean, scale)


def export_features(
    encoder: Encoder, tokens: Tokens, out: Folder, precision: str = "auto", earlier: Sequence[Earlier] = ()
) -> float:
    """Write values.npy (n, d) float16 into the folder, longest first; returns the seconds of all attempts.

    Rows of `earlier` features are copied, and only the other attributes are encoded.
    """
    n, first = tokens.num_nodes, tokens.first
    device = next(encoder.parameters()).device
    encoder.eval()
    computing = encoder_autocast(encoder, tokens, precision, training=False)

    def compute(*inputs: Tensor) -> Tensor:
        with computing:
            return encoder(*inputs)  # (b, d)

    def write(values: np.ndarray, ids: np.ndarray, part: Tensor) -> None:
        with np.errstate(over="ignore"):  # told below, with the nodes
            kept = part.float().cpu().numpy().astype(np.float16)
        check_rows(kept, out.label, "features", ADVICE, ids)
        values[ids] = kept

    there = np.zeros(n, bool)
    for found in earlier:
        there[found.nodes] = True
    ranks.add_up(torch.from_numpy(there.view(np.uint8)))  # rank 0 alone has searched
    missing = np.flatnonzero((first == np.arange(n)) & ~there)
    values, seconds = pass_over(tokens, out, "values", (n, encoder.dim), device, compute, write, nodes=missing)
    if not ranks.leads():
        return seconds
    for found in earlier:
        for part in (slice(lo, lo + COPIED) for lo in range(0, len(found.nodes), COPIED)):
            values[found.nodes[part]] = found.values[found.places[part]]
    again = np.flatnonzero(first != np.arange(n))
    for ids in (again[lo : lo + COPIED] for lo in range(0, len(again), COPIED)):
        values[ids] = values[first[ids]]
    values.flush()
    return seconds


def pass_over(
    tokens: Tokens,
    out: Folder,
    name: str,
    shape: tuple[int, int],
    device: torch.device,
    compute: Callable[..., Tensor],
    write: Callable[[np.ndarray, np.ndarray, Tensor], None],
    rows: Rows = lambda ids: ids,
    nodes: np.ndarray | None = None,
) -> tuple[Any, float]:
    """Send every distinct attribute through `compute`, longest first, into a float16 memory map; resumable.

    Ranks deal the batches out in turn, which are of like numbers of tokens. On one machine they write into one map; on
    several the others send their rows to rank 0, since a network file system may lose what two machines write into one
    page.

    Args:
        name: of the file, without .npy.
        shape: of the memory map.
        compute: inputs of the encoder to a tensor, without gradients.
        write: puts such a tensor, of the nodes `ids` (b,), into the memory map.
        rows: which rows of it are those of some nodes; their own numbers by default.
        nodes: (m,) of different attributes, instead of one node of every attribute.

    Returns:
        The memory map (of no rows for a rank on another machine than rank 0), and the seconds of all attempts.
    """
    most = CPU_TOKENS if device.type == "cpu" else GPU_TOKENS
    lengths = tokens.lengths
    nodes = np.flatnonzero(tokens.first == np.arange(len(lengths))) if nodes is None else nodes
    batches = length_batches(lengths, nodes, BATCH_NODES, most)
    path, progress = out.path / f"{name}.npy", out.path / "progress.json"
    parts, before = _written_parts(path, progress, shape, batches, rows) if ranks.leads() else ([], 0.0)
    done = parts[-1][0] if parts else 0
    several = ranks.world() > 1
    values: Any  # the memory map, or what takes its place
    if ranks.leads():
        values = open_memmap(path, mode="r+") if done else map_array(path, shape, np.float16)
        ranks.tell({"done": done})
    else:
        done = ranks.hear()["done"]
        values = open_memmap(path, mode="r+") if ranks.one_machine() else _Sent(shape[1])
    start = saved = time.perf_counter()

    def save(k: int) -> None:
        """Note that the first k batches are done."""
        nonlocal saved
        parts.append([k, _part_key(values, batches[parts[-1][0] if parts else 0 : k], rows)])
        saved = time.perf_counter()
        write_json(progress, sealed({"parts": parts, "seconds": before + saved - start}))

    turns = ROUNDS * ranks.world() if several else max(1, len(batches))
    with torch.inference_mode(), bar(out.label, sum(map(len, batches)), done=sum(map(len, batches[:done]))) as advance:
        for lo in range(done, len(batches), turns):
            hi = min(lo + turns, len(batches))
            own = _dealt(batches[lo:hi])
            for k, (ids, inputs) in enumerate(ahead(lambda ids: (ids, tokens.batch(ids)), own), start=lo + 1):
                write(values, ids, compute(*(x.to(device) for x in inputs)))
                if not several:
                    advance(len(ids), tokens=int(lengths[ids].sum()))
                    if time.perf_counter() - saved > SAVE_SECONDS:
                        values.flush()
                        save(k)
            if several:
                if not ranks.one_machine():
                    _bring_to_first(values, shape[1])
                values.flush()
                ranks.meet(f"the stage '{out.label}', batch {hi}")
                every = np.concatenate(batches[lo:hi])
                advance(len(every), tokens=int(lengths[every].sum()))
                if ranks.leads() and (time.perf_counter() - saved > SAVE_SECONDS):
                    save(hi)
    values.flush()
    seconds = before + time.perf_counter() - start
    return np.empty((0, shape[1]), np.float16) if isinstance(values, _Sent) else values, seconds


def _dealt(batches: list[np.ndarray]) -> list[np.ndarray]:
    """Those of the batches that are for this rank."""
    return batches[ranks.rank() if ranks.world() > 1 else 0 :: ranks.world()]


class _Sent:
    """Rows that a rank has written for rank 0, on another machine, until that gets them; used as its memory map."""

    def __init__(self, width: int) -> None:
        self.rows, self.values = [np.empty(0, np.int64)], [np.empty((0, width), np.float16)]

    def __setitem__(self, rows: np.ndarray, values: np.ndarray) -> None:
        self.rows.append(rows)
        self.values.append(values)

    def taken(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers (k,) and values (k, width) of the rows, which are forgotten."""
        told = np.concatenate(self.rows), np.concatenate(self.values)
        del self.rows[1:], self.values[1:]
        return told

    def flush(self) -> None:
        """Nothing is on its way to a disk."""


def _bring_to_first(values: np.ndarray | _Sent, width: int) -> None:
    """Put the rows of all other ranks into the memory map of rank 0."""
    told = (values if isinstance(values, _Sent) else _Sent(width)).taken()
    for_all = ([part, *[part[:0]] * (ranks.world() - 1)] for part in told)
    for rows, part in zip(*(ranks.swap(parts) for parts in for_all), strict=True):
        values[rows] = part  # none on other ranks


def _written_parts(
    path: Path, progress: Path, shape: tuple[int, int], batches: list[np.ndarray], rows: Rows
) -> tuple[list[list[Any]], float]:
    """What a killed attempt has written: [batches by then, hash of the rows since the part before], and its seconds.

    From the first part that is not as it was written all is made again, with a word.
    """
    if not (path.exists() and progress.exists()):
        return [], 0.0
    good: list[list[Any]] = []
    try:
        state = json.loads(progress.read_text(encoding="utf-8"))
        values = open_memmap(path, mode="r")
        if not is_sealed(state) or values.shape != shape or values.dtype != np.float16:
            raise ValueError("it is of something else")
        for part in state["parts"]:
            if _part_key(values, batches[good[-1][0] if good else 0 : part[0]], rows) != part[1]:
                logger.warning("%s has another content than when it was written; a part of it is made again", path)
                break
            good.append(part)
        return good, state["seconds"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as why:
        logger.warning("%s is broken (%s); it is made again", path, why)
        return [], 0.0


def _part_key(values: np.ndarray, batches: list[np.ndarray], rows: Rows) -> str:
    """Hash of the rows of some batches."""
    digest = hashlib.blake2b(digest_size=12)
    for ids in batches:
        digest.update(np.ascontiguousarray(values[rows(ids)]).view(np.uint8).data)
    return digest.hexdigest()
