"""The three training loops (encoder, GNN, joint) as stages, and what they are made of."""
