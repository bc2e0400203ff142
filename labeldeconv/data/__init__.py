"""Where attributed graphs come from: own tables and the planted generator."""
