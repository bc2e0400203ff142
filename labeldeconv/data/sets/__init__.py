"""Public data sets by name or by their raw files: OGB, Debian, STRING, WordNet."""
