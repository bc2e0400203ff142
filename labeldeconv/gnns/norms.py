"""Normalisation between layers, and what BatchNorm becomes in psi, where the encoder's batches have 4 to 12 nodes.

'batch' takes the statistics of the batch, as the authors do with 9 nodes; 'running' moving averages of them, without a
gradient; 'layer' replaces BatchNorm by LayerNorm, which knows no batch.

Measured, test accuracy of LD with GCN and 2 layers of MiniLM on an earlier planted graph of 1,200 nodes, means of four
seeds (standard error about 2 points), batches of 4 / 9 / 32 nodes: 'batch' 42.3 / 44.8 / 45.7, 'layer' 47.3 / 45.6 /
40.5; 'running' did not learn (13). SAGN and 3 layers of MiniLM on planted (3,000 nodes, batches of 9, 1 seed): 'batch'
90.0, 'layer' 91.3. So 'batch' is the default, for the default batches of 32; take 'layer' for batches of about 4.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import MLP

from labeldeconv.errors import ConfigError, nearest

PsiNorm = Literal["batch", "running", "layer"]
NormName = Literal["batch", "layer", "none"]


def make_norm(kind: str, width: int) -> nn.Module:
    """The normalisation of a GNN layer by its name."""
    if kind not in get_args(NormName):
        raise ConfigError(f"norm '{kind}': unknown; {nearest(kind, get_args(NormName))}")
    return {"batch": SmallBatchNorm, "layer": nn.LayerNorm, "none": nn.Identity}[kind](width)


def mlp_norm(kind: str) -> dict[str, Any]:
    """The same for PyG's MLP, as its keywords; its LayerNorm would otherwise mix nodes."""
    make_norm(kind, 1)
    if kind == "layer":
        return {"norm": "layer_norm", "norm_kwargs": {"mode": "node"}}
    return {"norm": "batch_norm" if kind == "batch" else None}


def make_mlp(in_dim: int, out_dim: int, layers: int, hidden: int, dropout: float, norm: str) -> MLP:
    """PyG's MLP of `layers` linear maps over (b, d), with that normalisation between them."""
    return MLP([in_dim, *[hidden] * (layers - 1), out_dim], dropout=dropout, **mlp_norm(norm))


class SmallBatchNorm(nn.BatchNorm1d):
    """BatchNorm of small batches: a batch of one is normalised by the moving averages instead of failing."""

    def forward(self, x: Tensor) -> Tensor:
        """(b, d) to (b, d)."""
        if self.training and len(x) == 1:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        return super().forward(x)


class RunningNorm(nn.BatchNorm1d):
    """BatchNorm by moving averages in training too: a row does not depend on its batch, but for their slow drift."""

    def forward(self, x: Tensor) -> Tensor:
        """(b, d) to (b, d)."""
        assert self.running_mean is not None
        assert self.running_var is not None
        if self.training:
            with torch.no_grad():  # around the moving mean: unbiased for a batch of one too
                momentum = self.momentum or 0.1
                rows = x.detach().float()
                self.running_var.lerp_((rows - self.running_mean).square().mean(0), momentum)
                self.running_mean.lerp_(rows.mean(0), momentum)
        mean, var = self.running_mean.clone(), self.running_var.clone()  # later batches change them in place
        return F.batch_norm(x, mean, var, self.weight, self.bias, False, 0.0, self.eps)


def replace_batch_norms(module: nn.Module, kind: PsiNorm) -> None:
    """Replace every BatchNorm1d inside `module` in place; scale and shift are kept."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.BatchNorm1d):
                setattr(parent, name, _replacement(child, kind))


def _replacement(old: nn.BatchNorm1d, kind: PsiNorm) -> nn.Module:
    make = {"batch": SmallBatchNorm, "running": RunningNorm, "layer": nn.LayerNorm}[kind]
    new = make(old.num_features, eps=old.eps).to(old.weight)
    new.load_state_dict(old.state_dict() if kind != "layer" else {"weight": old.weight, "bias": old.bias})
    return new
