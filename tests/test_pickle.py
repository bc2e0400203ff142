"""Nothing is ever unpickled: arrays come from .npy without objects, weights from safetensors or `weights_only`."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOADERS = {"load": {"np": ("allow_pickle", False), "numpy": ("allow_pickle", False), "torch": ("weights_only", True)}}
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


def test_no_module_can_unpickle():
    found = {p: unsafe(p.read_text()) for p in sorted((ROOT / "labeldeconv").rglob("*.py"))}
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
