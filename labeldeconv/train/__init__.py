"""The training loops and what they are made of."""
