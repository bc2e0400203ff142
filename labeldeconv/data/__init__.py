"""Where attributed graphs come from: own tables, Python objects, public data sets, the planted generator."""
