"""docs/design.md is true: its rooms exist, and every "how to add" block runs and is short."""

import re
from pathlib import Path

import numpy as np
import pytest

import labeldeconv
from labeldeconv import fit, open_data
from labeldeconv.data.catalog import DATASETS
from labeldeconv.encoders.pretrained import _OWN, ENCODERS
from labeldeconv.gnns.base import GNNS
from labeldeconv.methods.base import METHODS

TEXT = (Path(__file__).parent.parent / "docs" / "design.md").read_text(encoding="utf-8")
ROOT = Path(labeldeconv.__file__).parent
BLOCKS = dict(
    re.findall(r"\*\*(A GNN|An encoder|A method|A data set|A stage)\*\*.*?```python\n(.*?)```", TEXT, re.DOTALL)
)
QUICK = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 2}


def run(name: str) -> dict:
    space: dict = {"__name__": "design"}
    exec(compile(BLOCKS[name], "docs/design.md", "exec"), space)
    return space


@pytest.fixture(autouse=True)
def _clean():
    yield
    for registry, name in ((GNNS, "sgc"), (METHODS, "half"), (DATASETS, "ring")):
        registry._members.pop(name, None)
    _OWN.pop("letters", None)
    ENCODERS.pop("letters", None)


def test_blocks_are_short():
    assert set(BLOCKS) == {"A GNN", "An encoder", "A method", "A data set", "A stage"}
    for name, code in BLOCKS.items():
        lines = [line for line in code.splitlines() if line.strip() and not line.startswith(("import", "from"))]
        assert len(lines) < 20, name


def test_a_gnn(tmp_path):
    from labeldeconv.testing import check_gnn

    check_gnn(run("A GNN")["SGC"])
    assert len(fit("planted:40", method="ld", gnn="sgc", gnn__layers=2, out=tmp_path / "r", **QUICK).gamma) == 3


def test_an_encoder(tmp_path):
    from labeldeconv.settings.models import EncoderConfig
    from labeldeconv.testing import check_encoder

    made = run("An encoder")["Letters"]
    check_encoder(lambda: made(EncoderConfig(name="letters")))
    assert fit("planted:40", **{**QUICK, "encoder": "letters"}, out=tmp_path / "r").features.shape == (40, 8)


def test_a_method(tmp_path):
    run("A method")
    result = fit("planted:40", method="half", out=tmp_path / "r", **QUICK)
    assert result.encoder_nodes_by_stage["train"] == 12


def test_a_data_set(tmp_path):
    run("A data set")
    assert open_data("ring:9").graph.num_nodes == 9
    assert fit("ring", method="pne", out=tmp_path / "r", **QUICK).logits.shape == (30, 3)


def test_a_stage(small_graph):
    degrees = run("A stage")["degrees"]
    made = degrees(small_graph, True)
    np.testing.assert_array_equal(made.values, [1, 2, 2, 2, 1, 0])
    assert made.largest == 2
    assert degrees(small_graph, True).made.cached
    assert not degrees(small_graph, False).made.cached


def test_rooms_and_modules_that_are_named_exist():
    for path in re.findall(r"(?<![\w/])((?:[a-z_]+/)+[a-z_0-9]+\.py)", TEXT):
        assert (ROOT / path).exists() or (ROOT.parent / path).exists(), path
    for room, modules in re.findall(r"^\| `(\w+)/` \| (.*) \|$", TEXT, re.MULTILINE):
        assert (ROOT / room).is_dir()
        functions = {"stage", "propagate", "session", "open_data"}
        for name in set(re.findall(r"`([a-z_]+)/?`", modules)) - functions:
            assert (ROOT / room / f"{name}.py").exists() or (ROOT / room / name).is_dir(), f"{room}/{name}"
