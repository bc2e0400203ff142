"""An encoder cut into shards (FSDP2, `train.parallel = "fsdp"`): every rank keeps its part of each weight.

torch gathers the weights of one layer at a time before they are used, forward and backward, and scatters the sums of
their gradients, so that a rank holds its share of weights, gradients and AdamW's moments, and one whole layer beside.
psi, gamma' and GIANT's head, which come behind the features of all ranks (training/global_batch.py), stay whole on
every rank. Sums are those of whole encoders but for the order of additions, and files hold whole tensors: a checkpoint
or an encoder written this way is what one process writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from labeldeconv.encoders.base import Encoder, state_key
from labeldeconv.encoders.image import ImageEncoder
from labeldeconv.errors import ConfigError
from labeldeconv.stages import ranks
from labeldeconv.stages.memory import return_large_blocks


def cut(encoder: Encoder, device: torch.device, label: str) -> None:
    """Cut an encoder, whole and alike on all ranks, into shards on the device, in place; its layers one by one."""
    if wrong := sorted({str(p.dtype) for p in encoder.parameters() if not p.is_floating_point()}):
        raise ConfigError(
            f"train.parallel 'fsdp': weights in {', '.join(wrong)} (encoder.weights '4bit') cannot be cut; "
            "encoder.weights 'bfloat16' or 'float32' expected, or train.parallel 'ddp'"
        )
    if any(isinstance(part, ImageEncoder) for part in encoder.modules()):
        raise ConfigError(
            "train.parallel 'fsdp': an encoder of images does not run on a rank whose nodes have none, and the others "
            "would wait for it; train.parallel 'ddp' expected"
        )
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    ranks.agree(label, {"weights before they are cut": state_key(encoder)})
    return_large_blocks()
    mesh = init_device_mesh(device.type, (ranks.world(),))
    encoder.register_forward_hook(lambda _encoder, _inputs, out: out.clone())  # torch warns of views as outputs
    for part in [*_layers(encoder), encoder]:
        made: Any = fully_shard(part, mesh=mesh)
        made.set_gradient_divide_factor(1.0)  # sums: the loss is the mean over the batch of all ranks already
        made.set_force_sum_reduction_for_comms(True)  # gloo has no other


def is_shard(tensor: Tensor) -> bool:
    """Whether a tensor is a rank's part of a larger one."""
    return hasattr(tensor, "full_tensor")


def own_part(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor: its shard, or all of a whole one."""
    return tensor.to_local() if is_shard(tensor) else tensor  # type: ignore[attr-defined]


def whole(tensor: Tensor) -> Tensor:
    """The whole of a tensor, which all ranks ask for at a time where they hold shards of it."""
    if not is_shard(tensor):
        return tensor
    with ranks.exchanging():
        return tensor.full_tensor()  # type: ignore[attr-defined]


def part_like(like: Tensor, given: Tensor) -> Tensor:
    """What this rank holds of a whole tensor, cut as `like` is; the tensor itself where `like` is whole."""
    if not is_shard(like):
        return given
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = like.device_mesh, like.placements  # type: ignore[attr-defined]
    return distribute_tensor(given.to(own_part(like).device), mesh, placements, src_data_rank=None)


def gathered(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Whole tensors by name on rank 0, in the memory of the CPU; nothing on others, which hold one at a time."""
    held = {}
    for name, tensor in tensors.items():
        every = whole(tensor)
        if ranks.leads():
            held[name] = every.detach().cpu()
    return held


def whole_encoder(encoder: Encoder, load: Callable[[], Encoder]) -> Encoder:
    """An encoder without shards: on rank 0 a new one, by `load`, with the weights of all; the same one elsewhere."""
    weights = gathered(encoder.state_dict())
    if not ranks.leads():
        return encoder
    made = load()
    made.load_state_dict(weights)
    return made


def clip_shards(parameters: Iterable[nn.Parameter], most: float) -> None:
    """`torch.nn.utils.clip_grad_norm_` where some gradients are shards, which add to the norm on their rank alone."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    shards = [own_part(g) for g in gradients if is_shard(g)]
    wholes = [g for g in gradients if not is_shard(g)]
    norm = torch.stack([part.float().norm() for part in shards]).square().sum()
    ranks.add_up(norm)
    norm = (norm + sum(part.float().norm().square() for part in wholes)).sqrt()
    scale = (most / (norm + 1e-6)).clamp(max=1.0)  # torch's own 1e-6
    for part in [*shards, *wholes]:
        part.mul_(scale.to(part.dtype))


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of a model: what the outermost lists of modules hold, where it has weights.

    A list of encoders, one for each column, has their layers.
    """
    for child in module.children():
        if not isinstance(child, nn.ModuleList) or any(isinstance(part, Encoder) for part in child):
            yield from _layers(child)
        else:
            yield from (layer for layer in child if next(layer.parameters(), None) is not None)
