"""X_OGB: the features that came with the data."""

import numpy as np
import pytest

from labeldeconv import fit
from labeldeconv.errors import DataError

QUICK = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 5}


def test_given_takes_the_features_as_they_are(graph, tmp_path):
    result = fit(graph, method="given", out=tmp_path / "r", **QUICK)
    np.testing.assert_array_equal(result.features, graph.features)
    assert result.encoder_nodes == 0
    assert result.seconds.keys() == {"given", "gnn"}


def test_given_without_features(small_graph, tmp_path):
    with pytest.raises(DataError, match="has no features of its own"):
        fit(small_graph, method="given", out=tmp_path / "r", **QUICK)
