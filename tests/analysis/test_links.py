"""Links of a finished run: scores against a plain calculation, what the features have seen, where files go."""

import json

import numpy as np
import pytest

from labeldeconv.analysis.links import predict_links, seen_by
from labeldeconv.errors import ConfigError, DataError
from labeldeconv.graph.link_split import split_edges
from labeldeconv.runs.directory import RunDirectory
from labeldeconv.runs.verification import verify_run


def test_scores_of_dot_and_cosine(ld_run, tmp_path):
    found = predict_links(ld_run, tmp_path / "out", epochs=2, negatives=60)
    run = RunDirectory.open(ld_run)
    split = split_edges(run.graph.edges, run.graph.num_nodes, 0, 60)
    x = np.asarray(run.features, dtype=np.float32)
    for name, z in {"dot": x, "cosine": x / np.linalg.norm(x, axis=1, keepdims=True)}.items():
        ranks = []
        for u, v, wrong in zip(*split.test, split.test_negatives, strict=True):
            true, others = z[u] @ z[v], z[wrong] @ z[u]
            ranks.append(1 + ((others > true).sum() + (others >= true).sum()) / 2)
        assert found.heads[name]["test"]["mrr"] == pytest.approx(np.mean(1 / np.array(ranks)), rel=0.02)
    assert json.loads((tmp_path / "out" / "links.json").read_text()) == found.to_dict()
    assert found.edges == {role: getattr(split, role).shape[1] for role in ("train", "val", "test")}
    assert verify_run(ld_run).problems == []  # nothing was put into the run


def test_what_the_features_have_seen(comparison):
    told = {m: seen_by(RunDirectory.open(comparison / f"{m}-gcn-0")) for m in ("pne", "ld")}
    assert told["pne"] == "texts alone"
    assert "validation and test edges included" in told["ld"]
    run = RunDirectory.open(comparison / "pne-gcn-0")
    run.settings["encoder"]["adapt"] = "giant"
    assert "all edges" in seen_by(run)


def test_what_is_refused(ld_run, tmp_path):
    with pytest.raises(DataError, match="a run or a comparison is there"):
        predict_links(ld_run, ld_run / "links")
    with pytest.raises(ConfigError, match="uniform or hard expected"):
        predict_links(ld_run, drawn="easy")
