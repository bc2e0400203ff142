"""A-hat and propagate, the one graph convolution, and what mini-batches take of it. `kernel` is sealed: see there."""
