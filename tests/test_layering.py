"""The house: imports go strictly down, at most ten layers, rooms keep apart, every module has its test."""

import ast
import sys
import threading
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch

import labeldeconv

ROOT = Path(labeldeconv.__file__).parent
TESTS = Path(__file__).parent
# From top to bottom; a room imports only from lower layers. Rooms of one layer never import each other.
LAYERS = [
    ["cli"],
    ["report", "estimator", "serving", "sharing"],
    ["analysis", "prediction", "testing"],
    ["runs"],
    ["methods"],
    ["training"],
    ["data", "encoders", "gnns", "labels"],
    ["graph", "propagation", "lake"],
    ["stages", "settings"],
    ["errors", "progress", "registry", "sql", "theme"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
# Modules without a test file of their own, and why.
UNTESTED = {
    "__main__": "tests/cli/test_app.py runs it",
}


def modules():
    return [p for p in ROOT.rglob("*.py") if "__pycache__" not in p.parts]


def imports(path: Path) -> set[str]:
    """Dotted labeldeconv modules that a file imports at any depth, without the package's name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("labeldeconv"):
            rest = (node.module or "").partition(".")[2]
            found |= {rest} if rest else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.partition(".")[2] for a in node.names if a.name.startswith("labeldeconv.")}
    return found - {""}


def room(path: Path) -> str:
    name = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return "cli" if name == "__main__" else name


def test_every_module_has_a_layer():
    assert {room(p) for p in modules()} - {"__init__"} == set(LEVEL)
    assert len(LAYERS) <= 10


def test_imports_point_down():
    wrong = []
    for path in modules():
        own = room(path)
        if own == "__init__":
            continue
        others = {name.partition(".")[0] for name in imports(path)} - {own, "__version__"}
        allowed_errors = {"errors"} if own == "registry" else set()
        wrong += [f"{path} imports {o}" for o in others - allowed_errors if o not in LEVEL or LEVEL[o] <= LEVEL[own]]
    assert not wrong


def test_the_kernel_is_sealed():
    wrong = [
        f"{path} imports {name}"
        for path in modules()
        for name in imports(path)
        if name.startswith("propagation.kernel") and room(path) != "propagation"
    ]
    assert not wrong


def test_no_two_modules_of_one_name():
    names = Counter(p.stem for p in modules() if p.stem not in ("__init__", "base"))  # base: the contract of its room
    assert [name for name, count in names.items() if count > 1] == []


def test_no_two_classes_of_one_name():
    names = Counter(
        node.name
        for path in modules()
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith(("_", "Has"))
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_every_module_says_what_it_is():
    silent = [p for p in modules() if not ast.get_docstring(ast.parse(p.read_text()))]
    assert not silent


def test_every_module_has_its_test_file():
    missing = []
    for path in modules():
        inside = path.relative_to(ROOT).with_suffix("")
        name = ".".join(inside.parts)
        if path.stem == "__init__" or name in UNTESTED:
            continue
        if not (TESTS / inside.parent / f"test_{inside.name}.py").exists():
            missing.append(name)
    assert missing == [], "; ".join(missing)


def test_every_test_file_mirrors_a_module():
    """Beside those of a whole room or of the project: they are named after what they prove."""
    whole = {
        "test_paper", "test_layering", "test_recipes", "test_examples", "test_design", "test_methods", "test_gnns",
        "test_inductive", "test_stale", "test_every_setting", "test_browser", "test_ogb", "test_published",
        "test_mutants", "test_hostile", "test_pickle", "test_fuzz_data", "test_fuzz_runs", "test_fuzz_settings",
        "test_wheel", "test_trust", "test_numbers", "test_malicious", "test_dockerfile", "test_image",
        "test_site", "test_blocks", "test_notebooks", "test_cluster_files", "test_regression",
        "test_compare_benchmarks", "test_benchmarks", "test_evidence", "test_torchrun", "test_machines",
    }  # fmt: skip
    strange = []
    for path in TESTS.rglob("test_*.py"):
        inside = path.relative_to(TESTS)
        module = ROOT / inside.parent / f"{path.stem.removeprefix('test_')}.py"
        if path.stem not in whole and not module.exists():
            strange.append(str(inside))
    assert not strange


def test_public_names_load():
    for name in labeldeconv.__all__:
        assert getattr(labeldeconv, name).__module__.startswith("labeldeconv")


def test_a_mini_batch_crosses_at_most_eight_files(tmp_path):
    """Node ids to tokens, encoder, psi, targets, loss and gradients: the files of ours that run in one step."""
    from labeldeconv import InverseLabels, Task
    from labeldeconv.encoders.pretrained import load_encoder
    from labeldeconv.gnns.base import Psi
    from labeldeconv.gnns.gcn import GCN
    from labeldeconv.settings.models import EncoderConfig, TrainConfig
    from labeldeconv.training.encoder import Objective, _prepare, _step, make_optimizer
    from tests.samples import letter_tokens

    tokens = letter_tokens(8, tmp_path / "tokens")
    encoder = load_encoder(EncoderConfig(name="tiny"))
    targets = InverseLabels(np.full((8, 2, 3), 1 / 3, np.float32))
    objective = Objective(encoder, Psi(GCN(encoder.dim, 3)), targets, Task("multiclass", 3))
    optimizer = make_optimizer(objective, TrainConfig())
    seen = set()

    def watch(frame, event, arg):
        seen.add(frame.f_code.co_filename)

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        _step(objective, optimizer, _prepare(tokens, [np.arange(8)]), 1.0, nullcontext(), torch.device("cpu"))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    ours = sorted(str(Path(name).relative_to(ROOT)) for name in seen if name.startswith(str(ROOT)))
    assert "labels/inverse.py" in ours
    assert len(ours) <= 8, "; ".join(ours)
