"""Checkpoints: model, optimiser and random state in one safetensors file, replaced atomically; resuming is exact."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn


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

    def save(self, state: dict[str, Any], extra: dict[str, Tensor] | None = None) -> None:
        """Write everything; `state` is JSON, `extra` holds tensors of the caller."""
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        for i, slots in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{i}.{k}": v for k, v in slots.items()}
        tensors |= {f"extra.{k}": v for k, v in (extra or {}).items()}
        tensors["random.cpu"] = torch.get_rng_state()
        if (random := self._random) is not None:
            tensors[f"random.{self._device.type}"] = random.get_rng_state()
        metadata = {"state": json.dumps({**state, "seconds": self.seconds})}
        temporary = self.path.with_suffix(".tmp")
        save_file(_unshared(tensors), temporary, metadata)
        temporary.replace(self.path)
        self._written = time.perf_counter()

    def load(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Restore model, optimiser and random state; returns state and extra, or None where there is no file."""
        if not self.path.exists():
            return None
        groups: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "extra": {}, "random": {}}
        with safe_open(self.path, framework="pt") as file:
            state = json.loads(file.metadata()["state"])
            for name in file.keys():  # noqa: SIM118 (safe_open is not a mapping)
                group, _, rest = name.partition(".")
                groups[group][rest] = file.get_tensor(name)
        self.model.load_state_dict(groups["model"])
        slots: dict[int, dict[str, Tensor]] = {}
        for name, tensor in groups["optimizer"].items():
            i, _, slot = name.partition(".")
            slots.setdefault(int(i), {})[slot] = tensor
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": slots})
        torch.set_rng_state(groups["random"]["cpu"])
        if (random := self._random) is not None and self._device.type in groups["random"]:
            random.set_rng_state(groups["random"][self._device.type])
        self._seconds_before = state["seconds"]
        return state, groups["extra"]


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
