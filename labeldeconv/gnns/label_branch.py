"""The label branch of GAMLP and SAGN: + MLP(H_Y) on the logits, from train labels propagated over the graph.

PyG has none. The GNN sees an input (b, c), never labels: `training/supervision.py` makes it. psi leaves it out
(beta = 0 in Appendix A.2).
"""

from __future__ import annotations

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
    """

    def __init__(self, num_classes: int, hidden: int, layers: int, dropout: float, input_dropout: float) -> None:
        super().__init__()
        widths = [num_classes, *[hidden] * (layers - 1), num_classes]
        self.mlp = MLP(widths, dropout=dropout, norm="batch_norm")
        self.input_dropout = input_dropout

    def forward(self, label_inputs: Tensor) -> Tensor:
        """(b, c) to (b, c)."""
        return self.mlp(F.dropout(label_inputs, self.input_dropout, self.training))
