"""AttributedGraph and its parts: texts, split, task."""
