"""CSR, gather and threads: the machine room under `Adjacency`. Nothing outside `propagation` imports it."""
