"""The models: strict, frozen, documented."""

import pytest
from pydantic import ValidationError

from labeldeconv.settings.models import AdjacencyConfig, Config, GNNConfig, TrainConfig
from labeldeconv.settings.reading import all_settings


def test_frozen_and_strict():
    with pytest.raises(ValidationError):
        TrainConfig().lr = 1.0  # type: ignore[misc]
    for wrong in ({"epochs": "2"}, {"epochs": 0}, {"lr": -1.0}, {"lr": float("nan")}, {"unknown": 1}):
        with pytest.raises(ValidationError):
            TrainConfig(**wrong)


def test_every_setting_has_a_meaning():
    assert all(setting.meaning.endswith((".", ")")) for setting in all_settings()), [
        s.name for s in all_settings() if not s.meaning.endswith((".", ")"))
    ]


def test_two_adjacencies_with_defaults_of_their_own():
    labels, gnn = AdjacencyConfig(), GNNConfig().adjacency
    assert (labels.normalization, labels.self_loops) == ("row", False)
    assert (gnn.normalization, gnn.self_loops) == ("symmetric", True)


def test_toml_leaves_out_what_is_unset():
    assert "hops" not in Config().to_toml()
    assert "alpha = 1.0" in Config().to_toml()
