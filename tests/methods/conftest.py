"""A graph with features of its own, and quick settings, for every method."""

import pytest

from labeldeconv import AttributedGraph, planted


@pytest.fixture
def graph() -> AttributedGraph:
    return planted(80, seed=0, num_features=6).graph
