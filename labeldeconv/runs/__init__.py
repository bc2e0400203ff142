"""Whole runs: fit, compare and sweep; the run directory they leave; export."""
