"""The report: one HTML file from a run directory or a comparison. A leaf: only the command line imports it."""
