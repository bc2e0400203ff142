"""Every recipe loads, resolves all its names, and builds its GNN; the published cells are all there."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from labeldeconv.data.catalog import DATASETS
from labeldeconv.errors import ConfigError
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.methods.base import METHODS
from labeldeconv.runs.asked import resolve
from labeldeconv.runs.directory import RunDirectory
from labeldeconv.runs.fit import fit_config
from labeldeconv.settings.reading import load_config
from labeldeconv.stages.cache import Cache
from tests.recipe_miniature import family, write_data, write_encoders

ROOT = Path(__file__).parent.parent / "recipes"
RECIPES = sorted(ROOT.glob("*.toml"))
CLASSES = {"ogbn-arxiv": 40, "ogbn-products": 47, "ogbn-proteins": 112}


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_recipe_resolves(path):
    config = load_config(path)
    assert config.data in DATASETS
    assert config.method in METHODS
    gnn = Architecture.of(config.gnn).build(8, CLASSES[config.data])
    assert gnn.hops >= 1
    assert path.stem.startswith(config.data.removeprefix("ogbn-"))
    assert f"-{config.gnn.name}-{config.method}" in path.stem
    assert (config.setting == "inductive") == path.stem.endswith("inductive")
    assert path.read_text().startswith("# ")


@pytest.mark.parametrize("path", sorted((ROOT / "base").glob("*.toml")), ids=lambda p: p.stem)
def test_how_a_gnn_is_trained_does_not_rest_on_our_defaults(path):
    gnn = tomllib.loads(path.read_text())["gnn"]
    assert {"name", "layers", "hidden", "dropout", "lr", "schedule", "weight_decay", "epochs", "patience"} <= set(gnn)
    assert "output_bias" in gnn or "proteins" not in path.stem  # the only multi-label task


def test_every_cell_of_the_main_table_has_one():
    columns = {"given", "giant", "pne", "fne", "glem", "ld"}
    for pair in ("arxiv-gcn", "arxiv-revgat", "products-gamlp"):
        assert all((ROOT / f"{pair}-{method}.toml").exists() for method in columns), pair
    for pair, missing in (("products-sagn", {"glem"}), ("proteins-gat", {"glem", "giant"})):
        assert all((ROOT / f"{pair}-{method}.toml").exists() for method in columns - missing), pair
    assert (ROOT / "arxiv-gcn-joint-gas.toml").exists()
    assert (ROOT / "proteins-gat-joint-sage.toml").exists()


def test_authors_depart_from_the_paper_where_they_say():
    paper, authors = (load_config(ROOT / f"arxiv-revgat-ld{suffix}.toml") for suffix in ("", "-authors"))
    assert (paper.labels.pseudo_weight, authors.labels.pseudo_weight) == (None, 0.5)
    assert (paper.labels.adjacency.undirected, authors.labels.adjacency.undirected) == (True, False)
    assert authors.labels.alpha == paper.labels.alpha == 0.5  # inherited
    assert load_config(ROOT / "proteins-gat-ld-authors.toml").labels.hops == 12


def test_default_hops_are_the_gnns():
    config = load_config(ROOT / "products-gamlp-ld.toml")
    assert config.labels.hops is None
    assert Architecture.of(config.gnn).hops == 5


def test_extends_a_missing_file(tmp_path):
    (tmp_path / "a.toml").write_text('extends = "b.toml"\n')
    with pytest.raises(ConfigError, match=r"b\.toml: no such file"):
        load_config(tmp_path / "a.toml")


# Sizes of the miniature: two steps of every phase on twelve nodes. Everything else is the recipe's.
TWO_STEPS = {
    "encoder.max_tokens": 24, "train.batch_nodes": 6, "train.accumulate": 1, "train.epochs": 1, "gnn.epochs": 2,
    "gnn.hidden": 8, "gnn.warmup_epochs": 1, "gnn.eval_every": 1, "gnn.patience": 2, "gnn.batch_nodes": 6,
    "gnn.self_training.stages": 1, "gnn.consistency.warmup_epochs": 0, "labels.rounds": 1, "device": "cpu",
    "giant.coarsest": 1, "giant.cluster_size": 4, "joint.batch_nodes": 4, "joint.part_nodes": 2, "joint.epochs": 1,
}  # fmt: skip


@pytest.fixture(scope="session")
def miniature(tmp_path_factory):
    root = tmp_path_factory.mktemp("miniature")
    return write_data(root / "data"), write_encoders(root / "encoders"), root / "cache"


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_recipe_trains_in_miniature(path, miniature, tmp_path, monkeypatch):
    """Every recipe goes its whole way: raw OGB files in, encoder of its family, all phases, scores out."""
    data, encoders, cache = miniature
    monkeypatch.setenv("LABELDECONV_DATA", str(data))
    config = load_config(path)
    if config.method == "joint-gas":
        pytest.importorskip("pymetis", reason="needs the extra metis")
    small = {**TWO_STEPS, "encoder.name": str(encoders / family(config.encoder.name))}
    result = fit_config(load_config(config, small), out=tmp_path / "run", cache=Cache(cache))
    assert np.isfinite(result.features).all()
    assert np.isfinite(result.logits).all()
    steps = RunDirectory.open(result.run).steps()
    assert len(steps) >= 1 or config.method in ("pne", "given")


def published(stem: str) -> dict:
    """The published values of a recipe, by dotted names; those of a longer section overrule those of a shorter one."""
    table = tomllib.loads((Path(__file__).parent / "published_values.toml").read_text(encoding="utf-8"))
    held: dict = {}
    for name in sorted(table, key=len):
        if stem == name or stem.startswith(f"{name}-"):
            held |= table[name]
    return held


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_recipe_has_the_published_values(path):
    """Resolved settings, so that no default of ours stands where something was published."""
    config = resolve(load_config(path))
    wanted = published(path.stem)
    assert len(wanted) > 15
    for name, value in wanted.items():
        found = config.train.batch_nodes * config.train.accumulate if name == "batch" else setting(config, name)
        assert found == value, f"{path.stem}: {name}"


def setting(config, name: str):
    """The value of a dotted name."""
    value = config
    for part in name.split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    return value
