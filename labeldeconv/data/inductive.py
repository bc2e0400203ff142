"""The inductive setting: training sees only the graph of the train nodes; the whole graph is for evaluation."""

from __future__ import annotations

from labeldeconv.graph import AttributedGraph


def training_view(graph: AttributedGraph) -> AttributedGraph:
    """The graph induced on the train nodes, in ascending order: no text, edge or label of another node is in it."""
    return graph.induced(graph.split.train, f"{graph.name}-train")
