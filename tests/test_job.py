"""Job.new_gnn: where a GNN's outputs start."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from labeldeconv import load_config
from labeldeconv.names import GNNS, open_data
from labeldeconv.pipeline import make_job
from labeldeconv.record import Cache


def job_on(data, **settings):
    config = load_config(None, {"data": data, "encoder.name": "tiny", "gnn.hidden": 8, **settings})
    return make_job(config, open_data(data, 0, Cache()).graph, Cache())


@pytest.mark.parametrize("name", sorted(GNNS))
def test_outputs_start_at_the_frequency_of_train_labels(name):
    job = job_on("planted-multilabel:60", **{"gnn.name": name, "gnn.layers": 3})
    labels = job.graph.labels.copy()
    labels[:, 0] = 0  # never among the train nodes, always among the test nodes
    labels[job.graph.split.test, 0] = 1
    job.graph = replace(job.graph, labels=labels)
    bias = job.new_gnn(5).output_bias
    train = job.graph.labels[job.graph.split.train]
    expected = ((train > 0).sum(0) + 0.5) / ((train >= 0).sum(0) + 1)
    np.testing.assert_allclose(bias.detach().sigmoid(), expected, rtol=1e-5)
    assert bias.requires_grad


@pytest.mark.parametrize(
    ("data", "settings"), [("planted-multilabel:60", {"gnn.output_bias": "fresh"}), ("planted:60", {})]
)
def test_other_outputs_start_as_the_layer_does(data, settings):
    job = job_on(data, **settings)
    torch.manual_seed(0)
    ours = job.new_gnn(5).output_bias
    torch.manual_seed(0)
    assert torch.equal(ours, job.build_gnn(5).output_bias)
