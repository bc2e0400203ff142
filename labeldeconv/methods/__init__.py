"""Training methods: each gives node features; the GNN on top is the same for all."""
