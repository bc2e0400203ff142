"""Checkpoints: model, optimiser and random state in one safetensors file, replaced atomically; resuming is exact.

A checkpoint knows its own checksum and those of the files that go with it, as far as they were written by then. One
that was changed or cut off is never trained on: the stage starts again, with a word.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from labeldeconv.progress import logger
from labeldeconv.stages import ranks
from labeldeconv.stages.files import BLOCK, flush
from labeldeconv.training.sharding import gathered, is_shard, part_like

Groups = dict[str, dict[str, Tensor]]


class Damaged(Exception):
    """A checkpoint that cannot be used; the message says why."""


class Checkpoint:
    """The checkpoint of one training run, written at most every `minutes` (0: whenever asked)."""

    def __init__(self, path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, minutes: float) -> None:
        self.path = path
        self.model = model
        self.optimizer = optimizer
        self.minutes = minutes
        self._started = self._written = time.perf_counter()
        self._seconds_before = 0.0

    @property
    def seconds(self) -> float:
        """Time spent on this run by all its attempts."""
        return self._seconds_before + time.perf_counter() - self._started

    @property
    def _device(self) -> torch.device:
        """Where the model is."""
        return next((p.device for p in self.model.parameters()), torch.device("cpu"))

    @property
    def _random(self) -> Any:
        """What has the random state of an accelerator that the model is on; None on a CPU."""
        if self._device.type == "cpu":
            return None
        module = getattr(torch, self._device.type, None)
        return module if hasattr(module, "get_rng_state") else None

    @property
    def due(self) -> bool:
        """Whether it is time to write."""
        return time.perf_counter() - self._written >= 60 * self.minutes

    def fingerprint(self, state: Mapping[str, Any]) -> str:
        """A hash of the weights as they are and of a state, by which ranks find that they start alike.

        Shards differ from rank to rank: they are of weights that were compared, or of one file with a checksum.
        """
        held = {name: tensor for name, tensor in self.model.state_dict().items() if not is_shard(tensor)}
        return _digest(json.dumps(state), _unshared(held))

    def save(self, state: dict[str, Any], extra: dict[str, Tensor] | None = None, files: Sequence[Path] = ()) -> None:
        """Write everything; `state` is JSON, `extra` holds tensors of the caller, `files` go with the checkpoint.

        Rank 0 calls it, or all ranks do, where they hold shards of the model: rank 0 writes what they put together.
        """
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        for i, slots in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{i}.{k}": v for k, v in slots.items()}
        tensors |= {f"extra.{k}": v for k, v in (extra or {}).items()}
        if any(map(is_shard, tensors.values())):
            tensors = gathered(tensors)
        self._written = time.perf_counter()
        if not ranks.leads():
            return
        tensors["random.cpu"] = torch.get_rng_state()
        if (random := self._random) is not None:
            tensors[f"random.{self._device.type}"] = random.get_rng_state()
        for path in files:
            flush(path)
        beside = {path.name: [size := path.stat().st_size, _checksum(path, size)] for path in files}
        known = json.dumps({**state, "seconds": self.seconds, "files": beside})
        held = _unshared(tensors)
        temporary = self.path.with_suffix(".tmp")
        save_file(held, temporary, {"state": known, "checksum": _digest(known, held)})
        flush(temporary)
        temporary.replace(self.path)
        self._written = time.perf_counter()

    def load(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Restore model, optimiser and random state; returns state and extra.

        None where there is no file, or, with a word, where it or a file that goes with it is damaged.
        """
        if not self.path.exists():
            return None
        try:
            state, groups = self._read()
        except (Damaged, SafetensorError, OSError, ValueError, KeyError) as why:
            logger.warning("%s is broken (%s); this stage starts again", self.path, why)
            return None
        own = self.model.state_dict()
        self.model.load_state_dict({k: part_like(own[k], v) if k in own else v for k, v in groups["model"].items()})
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        slots: dict[int, dict[str, Tensor]] = {}
        for name, tensor in groups["optimizer"].items():
            i, _, slot = name.partition(".")
            like = parameters[int(i)] if int(i) < len(parameters) and tensor.ndim else tensor  # steps are counts
            slots.setdefault(int(i), {})[slot] = part_like(like, tensor)
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": slots})
        torch.set_rng_state(groups["random"]["cpu"])
        if (random := self._random) is not None and self._device.type in groups["random"]:
            random.set_rng_state(groups["random"][self._device.type])
        self._seconds_before = state.pop("seconds")
        return state, groups["extra"]

    def _read(self) -> tuple[dict[str, Any], Groups]:
        """State and tensors of the file, all of it as it was written; else `Damaged`."""
        groups: Groups = {"model": {}, "optimizer": {}, "extra": {}, "random": {}}
        tensors: dict[str, Tensor] = {}
        with safe_open(self.path, framework="pt") as file:
            metadata = file.metadata() or {}
            for name in file.keys():  # noqa: SIM118 (safe_open is not a mapping)
                tensors[name] = file.get_tensor(name)
        if metadata["checksum"] != _digest(metadata["state"], tensors):
            raise Damaged("it has another content than when it was written")
        state = json.loads(metadata["state"])
        for name, (size, checksum) in state.pop("files").items():
            if _checksum(self.path.with_name(name), size) != checksum:
                raise Damaged(f"{name} has another content than when it was written")
        for name, tensor in tensors.items():
            group, _, rest = name.partition(".")
            groups[group][rest] = tensor
        return state, groups


def _digest(state: str, tensors: Mapping[str, Tensor]) -> str:
    """Checksum of a checkpoint's state and of its tensors: names, types, shapes and bytes.

    SHA-256 has instructions of its own on most processors: 1.5 GB a second, three times as fast as BLAKE2.
    """
    digest = hashlib.sha256(state.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _checksum(path: Path, size: int) -> str:
    """Hash of the first `size` bytes of a file."""
    digest = hashlib.blake2b(digest_size=12)
    with path.open("rb") as file:
        while size > 0 and (block := file.read(min(size, BLOCK))):
            digest.update(block)
            size -= len(block)
    return digest.hexdigest()


def _unshared(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors on the CPU. safetensors refuses those that share memory (tied weights): later ones are cloned."""
    seen: set[int] = set()
    out = {}
    for name, given in tensors.items():
        tensor = given.detach().cpu()
        shared = tensor.numel() > 0 and tensor.data_ptr() in seen
        seen.add(tensor.data_ptr())
        out[name] = tensor.clone() if shared else tensor.contiguous()
    return out
