"""LabelDeconvolution, the estimator: fit, score, features of new texts, save and load; the GNN is a class of PyG.

The encoder is tiny and random so that the example runs anywhere in seconds: its scores are near chance, those of
encoder="minilm" are not. Run: python examples/estimator.py
"""

import tempfile
from pathlib import Path

from torch_geometric.nn import GraphSAGE

from labeldeconv import LabelDeconvolution, planted

graph = planted(400, seed=0).graph
quick = {"train.epochs": 1, "gnn.hidden": 32, "gnn.epochs": 30}  # any setting, by its dotted name

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    model = LabelDeconvolution(
        encoder="tiny", gnn=GraphSAGE, out=folder / "run", cache=folder / "cache", settings=quick
    )
    model.fit(graph)
    print(f"test accuracy {model.score(graph, 'test'):.3f}, gamma {[round(g, 3) for g in model.gamma_]}")

    new = model.transform(["ship sail and not apple bread", "not piano drum but river"])
    print(f"features of {new.shape[0]} new texts: {new.shape[1]} each")

    other = planted(300, seed=1).graph  # training has not seen it; it is encoded first
    print(f"accuracy on another graph {model.score(other, 'test'):.3f}")

    model.save(folder / "model")  # a run directory: result.json, features.npy, encoder/, ...
    again = LabelDeconvolution.load(folder / "model").set_params(gnn=GraphSAGE)  # a class is not kept, its weights are
    print(f"after loading: accuracy on the other graph {again.score(other, 'test'):.3f}")
