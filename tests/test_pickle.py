"""Nothing is ever unpickled freely: arrays come from .npy without objects, weights from safetensors or `weights_only`.

One module reads the pickles that others publish, and only by an Unpickler whose `find_class` is its own."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOADERS = {"load": {"np": ("allow_pickle", False), "numpy": ("allow_pickle", False), "torch": ("weights_only", True)}}
RESTRICTED = "data/sets/pickled.py"  # may use the two names of pickle below, and nothing else of it
HARMLESS = {"Unpickler", "UnpicklingError"}
FORBIDDEN = {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal", "cloudpickle"}


def unsafe(source: str) -> list[str]:
    """Calls of a source that could unpickle something, by line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"{node.lineno}: {name}" for name in modules if name.partition(".")[0] in FORBIDDEN]
        if not isinstance(node, ast.Call):
            continue
        given = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
        if given.get("allow_pickle") or given.get("weights_only") is False:
            found.append(f"{node.lineno}: {ast.unparse(node)}")
        function = node.func
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            wanted = LOADERS.get(function.attr, {}).get(function.value.id)
            if wanted and given.get(wanted[0]) is not wanted[1]:
                found.append(f"{node.lineno}: {ast.unparse(node)} without {wanted[0]}={wanted[1]}")
    return found


def unsafe_restricted(source: str) -> list[str]:
    """What the one module that may use pickle does with it beside a subclass of Unpickler with its own find_class."""
    found = [line for line in unsafe(source) if not line.endswith(": pickle")]
    bases = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "pickle":
            found.append(f"{node.lineno}: {ast.unparse(node)}")
        if isinstance(node, ast.Import):
            found += [f"{node.lineno}: {ast.unparse(node)}" for a in node.names if a.name == "pickle" and a.asname]
        if isinstance(node, ast.ClassDef):
            bases |= {id(base) for base in node.bases}
            names = {held.name for held in node.body if isinstance(held, ast.FunctionDef)}
            if "pickle.Unpickler" in map(ast.unparse, node.bases) and "find_class" not in names:
                found.append(f"{node.lineno}: {node.name} without find_class")
        of_pickle = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pickle"
        if of_pickle and (node.attr not in HARMLESS or (node.attr == "Unpickler" and id(node) not in bases)):
            found.append(f"{node.lineno}: {ast.unparse(node)}")
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "super().find_class":
            found.append(f"{node.lineno}: {ast.unparse(node)}")
    return found


def test_no_module_can_unpickle():
    package = ROOT / "labeldeconv"
    check = {package / RESTRICTED: unsafe_restricted}
    found = {p: check.get(p, unsafe)(p.read_text()) for p in sorted(package.rglob("*.py"))}
    assert package / RESTRICTED in found
    assert {str(path): calls for path, calls in found.items() if calls} == {}
    assert len(found) > 100


def test_the_check_can_fail():
    assert unsafe("import pickle")
    assert unsafe("from joblib import load")
    assert unsafe("np.load(path)")
    assert unsafe("np.load(path, allow_pickle=True)")
    assert unsafe("torch.load(path)")
    assert unsafe("torch.load(path, weights_only=False)")
    assert not unsafe("np.load(path, allow_pickle=False); torch.load(path, weights_only=True)")


def test_the_check_of_the_restricted_module_can_fail():
    good = "import pickle\nclass A(pickle.Unpickler):\n    def find_class(self, module, name): return None\n"
    assert not unsafe_restricted(good)
    for bad in (
        "pickle.loads(b)", "pickle.Unpickler(file).load()", "from pickle import loads", "import pickle as p",
        "class B(pickle.Unpickler): pass", "load = pickle.load", "torch.load(path)", "import dill",
        "class C(pickle.Unpickler):\n    def find_class(self, m, n): return super().find_class(m, n)",
    ):  # fmt: skip
        assert unsafe_restricted(good + bad), bad
