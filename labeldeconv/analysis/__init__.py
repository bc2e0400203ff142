"""What can be said about data and runs, as functions that return plain values."""
