"""Predictions for nodes that a run has never seen, with or without edges."""
