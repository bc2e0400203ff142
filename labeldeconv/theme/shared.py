"""What the report and the service's page share: colours, type, the switch between light and dark, elements.

They are files: theme.css and theme.js.
"""

from importlib.resources import files


def theme(name: str) -> str:
    """The text of theme.css or theme.js."""
    return (files("labeldeconv.theme") / name).read_text(encoding="utf-8")
