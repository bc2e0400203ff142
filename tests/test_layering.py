"""Imports go strictly down, as docs/design.md says."""

import ast
from pathlib import Path

import labeldeconv

ROOT = Path(labeldeconv.__file__).parent
# From top to bottom; a module imports only from its own or a lower layer, and siblings below `methods` keep apart.
LAYERS = [
    ["__main__"],
    ["cli"],
    ["cli_analyze", "cli_list"],
    ["terminal", "report"],
    ["analysis", "testing"],
    ["comparison"],
    ["pipeline"],
    ["names"],
    ["methods"],
    ["stages"],
    ["job"],
    ["train"],
    ["data", "encoders", "labels", "gnns"],
    ["task", "outofcore"],
    ["adjacency"],
    ["graph", "edge_features"],
    ["gather", "csr"],
    ["record", "progress", "metrics", "evaluate", "split", "texts", "threads", "clock"],
    ["settings"],
    ["config"],
    ["errors"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imports(path: Path) -> set[str]:
    """First parts of the labeldeconv modules that a file imports at any depth."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("labeldeconv"):
            rest = (node.module or "").split(".")[1:]
            found |= {rest[0]} if rest else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("labeldeconv.")}
    return found


def test_every_module_has_a_layer():
    names = {p.relative_to(ROOT).parts[0].removesuffix(".py") for p in ROOT.rglob("*.py")} - {"__init__"}
    assert names <= set(LEVEL)


def test_imports_point_down():
    wrong = []
    for path in ROOT.rglob("*.py"):
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        others = imports(path) - {own, "__version__"}
        wrong += [f"{path} imports {o}" for o in others if o not in LEVEL or LEVEL[o] <= LEVEL[own]]
    assert not wrong


def test_every_module_says_what_it_is():
    silent = [p for p in ROOT.rglob("*.py") if not ast.get_docstring(ast.parse(p.read_text()))]
    assert not silent


def test_public_names_load():
    for name in labeldeconv.__all__:
        assert getattr(labeldeconv, name).__module__.startswith("labeldeconv")
