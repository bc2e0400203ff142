"""A finished run behind HTTP: new nodes in, classes and probabilities out; `labeldeconv serve RUN`."""
