"""Names in a chart or a table: cut at a length that fits, and the signs for nothing, ranges and gamma."""

from __future__ import annotations

LONGEST = 28
NOTHING = TO = "\u2013"  # en dash
GAMMA = "\u03b3"


def shortened(name: str, longest: int = LONGEST) -> str:
    """A name of at most `longest` characters; a cut one ends in an ellipsis."""
    name = " ".join(name.split())
    return name if len(name) <= longest else name[: longest - 1] + "…"
