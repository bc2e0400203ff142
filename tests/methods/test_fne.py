"""X_FNE: true labels of train nodes and nothing else, through a linear layer or psi of the GNN."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from labeldeconv import Cache, fit, planted, session
from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.errors import ConfigError
from labeldeconv.methods.fne import learn_true_labels, train_on_true_labels
from labeldeconv.runs.asked import resolve
from labeldeconv.runs.preparation import prepare
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.settings.reading import load_config

QUICK = {"encoder": "tiny", "train__epochs": 2, "gnn__epochs": 5}


def test_it_trains_on_train_nodes(graph, tmp_path):
    result = fit(graph, method="fne", out=tmp_path / "r", **QUICK)
    pne = fit(graph, method="pne", out=tmp_path / "p", **QUICK)
    assert result.encoder_nodes_by_stage["train"] == 2 * len(graph.split.train)
    assert not np.array_equal(result.features, pne.features)
    assert set(result.seconds) == {"tokens", "train", "features", "gnn"}


def test_the_head_is_one_linear_layer(graph, tmp_path):
    """As in the paper: features owe nothing to the GNN. The last loss is that of the layer, by torch alone."""
    quick = {**QUICK, "train__epochs": 1, "train__batch_nodes": 48, "train__precision": "float32"}
    gcn = fit(graph, method="fne", gnn="gcn", out=tmp_path / "gcn", **quick)
    gat = fit(graph, method="fne", gnn="gat", out=tmp_path / "gat", **quick)
    np.testing.assert_array_equal(gcn.features, gat.features)
    assert gcn.stages["train"] == gat.stages["train"]
    head = load_file(gcn.run / "psi.safetensors")
    assert {name: tuple(values.shape) for name, values in head.items()} == {"weight": (10, 32), "bias": (10,)}

    torch.manual_seed(0)  # one batch and one step from the start, whose loss is logged: the layer made anew gives it
    encoder = load_encoder(EncoderConfig(name="tiny"))
    layer = torch.nn.Linear(32, 10)
    texts = [encoder.tokenize([graph.texts[int(i)]], 256)[0] for i in graph.split.train]
    with torch.no_grad():
        X = torch.cat([encoder.eval()(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.long)) for ids in texts])
        loss = F.cross_entropy(layer(X), torch.from_numpy(graph.labels[graph.split.train]).long())
    assert float(loss) == pytest.approx(_first_loss(gcn), rel=0.05)  # the logged one has the encoder's own dropout


def _first_loss(result):
    import json

    return json.loads((result.run / "steps.jsonl").read_text().splitlines()[0])["loss"]


def test_psi_is_an_option(graph, tmp_path):
    gcn = fit(graph, method="fne", train__head="psi", out=tmp_path / "gcn", **QUICK)
    gat = fit(graph, method="fne", train__head="psi", gnn="gat", out=tmp_path / "gat", **QUICK)
    linear = fit(graph, method="fne", out=tmp_path / "linear", **QUICK)
    assert not np.array_equal(gcn.features, gat.features)
    assert not np.array_equal(gcn.features, linear.features)
    assert load_file(gcn.run / "psi.safetensors").keys() == load_file(gcn.run / "gnn.safetensors").keys()


def test_psi_can_start_from_the_first_gnn(graph, tmp_path):
    result = fit(graph, method="fne", train__head="psi", train__psi_init="gnn", out=tmp_path / "r", **QUICK)
    assert "first gnn" in result.seconds
    linear = fit(graph, method="fne", train__psi_init="gnn", out=tmp_path / "l", **QUICK)
    assert "first gnn" not in linear.seconds  # there is no psi to start


def test_the_last_gnn_starts_from_psi_and_never_from_a_linear_layer(graph, tmp_path):
    fresh, asked = (fit(graph, method="fne", gnn__init=i, out=tmp_path / i, **QUICK) for i in ("fresh", "psi"))
    np.testing.assert_array_equal(fresh.logits, asked.logits)
    psi = {"train__head": "psi", **QUICK}
    fresh, asked = (fit(graph, method="fne", gnn__init=i, out=tmp_path / f"p{i}", **psi) for i in ("fresh", "psi"))
    np.testing.assert_array_equal(fresh.features, asked.features)
    assert not np.array_equal(fresh.logits, asked.logits)


def test_a_linear_layer_of_rare_labels_starts_at_their_frequency(tmp_path):
    """A multi-label task: without a step (rate 0 of encoder, 1e-12 of the layer) the bias is the frequencies' logit."""
    graph = planted(80, "multilabel", seed=0, num_classes=4).graph
    still = {"train__lr": 0.0, "train__psi_lr": 1e-12}
    result = fit(graph, method="fne", out=tmp_path / "r", **still, **QUICK)
    labels = graph.labels[graph.split.train]
    share = ((labels == 1).sum(0) + 0.5) / ((labels >= 0).sum(0) + 1)
    bias = load_file(result.run / "psi.safetensors")["bias"].numpy()
    np.testing.assert_allclose(bias, np.log(share / (1 - share)), atol=1e-4)
    wo_ld = fit(graph, method="wo-ld", out=tmp_path / "w", **still, **QUICK)  # psi, whatever train.head says
    assert load_file(wo_ld.run / "psi.safetensors").keys() == load_file(wo_ld.run / "gnn.safetensors").keys()


def test_the_last_gnn_may_read_the_first_features_too(graph, tmp_path):
    """Two routes: the setting, or a GNN trained on the two kinds of features put side by side by hand."""
    settings = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 5}
    alone = fit(graph, method="fne", out=tmp_path / "a", **settings)
    both = fit(graph, method="fne", gnn__inputs="both", out=tmp_path / "b", **settings)
    pne = fit(graph, method="pne", gnn__inputs="both", out=tmp_path / "p", **settings)
    np.testing.assert_array_equal(both.features, alone.features)
    x = [(z - z.mean(0)) / z.std(0) for z in (np.asarray(r.features, np.float32) for r in (both, pne))]
    by_hand = replace(graph, features=np.concatenate(x, 1).astype(np.float16))
    given = fit(by_hand, method="given", out=tmp_path / "g", **settings)
    np.testing.assert_allclose(both.logits, given.logits, atol=2e-2)
    assert np.abs(both.logits - alone.logits).max() > 0.1
    with pytest.raises(ConfigError, match=r"gnn\.inputs 'both' with gnn\.init 'psi'"):
        fit(graph, method="fne", gnn__inputs="both", gnn__init="psi", out=tmp_path / "c", **settings)


def test_labels_are_not_smoothed_unless_asked(graph, tmp_path):
    """By keys, which tell targets and epochs apart."""
    run = prepare(resolve(load_config(None, {"encoder.name": "tiny", "train.epochs": 1, "gnn.epochs": 1})), graph)
    with session(Cache(tmp_path / "cache")):
        plain = train_on_true_labels(run)
        assert plain.content_key == train_on_true_labels(run, 0.0, 1).content_key
        assert plain.content_key == learn_true_labels(run).encoder.content_key
        assert plain.content_key != train_on_true_labels(run, 0.1).content_key
