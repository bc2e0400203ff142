"""The label branch of GAMLP and SAGN: + MLP(H_Y) on the logits, from train labels propagated over the graph.

Linear, BatchNorm, activation and dropout in every hidden layer: PReLU in GAMLP, ReLU in SAGN. PyG has none. The GNN
sees an input (b, c), never labels: `training/supervision.py` makes it. psi leaves it out (beta = 0 in Appendix A.2).
"""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import MLP


class LabelBranch(nn.Module):
    """Label inputs (b, c) to an addition to the logits (b, c).

    Args:
        num_classes: c.
        hidden: width.
        layers: of the MLP.
        dropout: between layers.
        input_dropout: on the label inputs.
        activation: 'relu' or 'prelu'.
    """

    def __init__(
        self,
        num_classes: int,
        hidden: int,
        layers: int,
        dropout: float,
        input_dropout: float,
        activation: Literal["relu", "prelu"] = "relu",
    ) -> None:
        super().__init__()
        widths = [num_classes, *[hidden] * (layers - 1), num_classes]
        learned = nn.PReLU() if activation == "prelu" and layers > 1 else "relu"
        self.mlp = MLP(widths, dropout=dropout, norm="batch_norm", act=learned)
        self.input_dropout = input_dropout

    def forward(self, label_inputs: Tensor) -> Tensor:
        """(b, c) to (b, c)."""
        return self.mlp(F.dropout(label_inputs, self.input_dropout, self.training))
