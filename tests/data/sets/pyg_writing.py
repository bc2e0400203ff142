"""Small graphs in the layouts of public text-attributed graphs that are kept as PyG's Data, and malicious ones."""

import os

import torch
from torch_geometric.data import Data

N = 12
TEXTS = [f"paper {i} é" for i in range(N)]
NAMES = ["theory", "genetic", "neural"]


def masks(splits=None):
    """Train, val and test masks (n,), or (n, splits) whose parts move on by one node from split to split."""
    roles = torch.arange(N) % 4
    one = [roles < 2, roles == 2, roles == 3]
    if splits is None:
        return one
    return [torch.stack([side.roll(s) for s in range(splits)], dim=1) for side in one]


def cora(**changed) -> Data:
    """Data of a ring of n nodes, as GLBench has it; None takes a field away."""
    i = torch.arange(N)
    train, val, test = masks()
    fields = {
        "x": torch.arange(2 * N).reshape(N, 2).float(),
        "edge_index": torch.stack([i, (i + 1) % N]),
        "y": i % 3,
        "raw_texts": TEXTS,
        "label_name": NAMES,
        "train_mask": train,
        "val_mask": val,
        "test_mask": test,
    }
    return Data(**{name: value for name, value in {**fields, **changed}.items() if value is not None})


class Malicious:
    """Unpickled by others, it makes a file."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)
