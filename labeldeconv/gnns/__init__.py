"""Graph neural networks, each with its psi. GNNs never see labels."""
