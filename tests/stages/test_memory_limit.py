"""max_memory: stages that need more are refused before they start, with what they need; smaller blocks, same bits."""

import re

import numpy as np
import pytest

from labeldeconv import fit
from labeldeconv.data.tables.folder import load_tables
from labeldeconv.errors import ConfigError, NotEnoughMemory
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.gnns.workload import sampled_mib
from labeldeconv.propagation import outofcore
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.settings.reading import load_config
from labeldeconv.stages import memory_limit
from labeldeconv.stages.memory import anonymous_memory_mib
from labeldeconv.stages.memory_limit import bytes_of, check_room, limited, room, spill_limit
from labeldeconv.training.gnn import gnn_bytes
from tests.hostile import refusal
from tests.samples import random_edges

pytestmark = pytest.mark.skipif(anonymous_memory_mib() is None, reason="this system does not tell what memory is used")
QUICK = {"encoder": "tiny", "encoder__max_tokens": 8, "train__epochs": 1, "gnn__epochs": 1, "gnn__hidden": 8}


@pytest.mark.parametrize(
    ("text", "size"), [("2GiB", 2 << 30), ("1.5 GB", 1_500_000_000), (" 800MiB ", 800 << 20), ("3MB", 3_000_000)]
)
def test_sizes_are_read(text, size):
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["2", "GiB", "-1GiB", "0GiB", "2 gib", "2TB", "1e3MB", ""])
def test_other_sizes_are_refused(text):
    with pytest.raises(ConfigError, match="max_memory: a number above 0 with one of MB, GB, MiB, GiB expected"):
        bytes_of(text)


def test_without_a_limit_nothing_is_refused():
    assert room() is None
    check_room("stage", 1e18, "nothing")
    with limited(None):
        assert room() is None


def test_room_is_what_is_left(monkeypatch):
    monkeypatch.setattr(memory_limit, "anonymous_memory_mib", lambda: 512.0)
    with limited("1GiB"):
        assert room() == (1 << 30) - (512 << 20) - memory_limit.SPARE
        check_room("stage", room(), "nothing")
        with pytest.raises(NotEnoughMemory) as told:
            check_room("stage", 2 << 30, "Set this")
    for words in ("stage: needs about 2.00 GiB", "576 MiB that are taken", "2.56 GiB in all", "max_memory is 1.00 GiB"):
        assert words in str(told.value)
    assert "Set this, or raise max_memory; finished stages are kept" in str(told.value)
    assert room() is None  # outside again
    with limited("100MiB"):
        assert room() == 0


def test_a_fit_that_needs_more_is_refused_and_goes_on_with_more(tmp_path):
    """It changes no key: what was finished under the limit is taken by the next run."""
    out = {"out": tmp_path / "run", "cache": tmp_path / "cache"}
    with pytest.raises(NotEnoughMemory, match=r"tokens: needs about .* max_memory is 1 MiB"):
        fit("planted:40", method="pne", max_memory="1MiB", **out, **QUICK)
    assert not (tmp_path / "run").exists()
    held = fit("planted:40", method="ld", max_memory="64GiB", **out, **QUICK)
    free = fit("planted:40", method="ld", **{**out, "out": tmp_path / "free"}, **QUICK)
    assert free.stages == held.stages
    assert set(free.cached) == set(free.stages)


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_the_command_line_takes_it(command):
    names = ["--method", "pne", "--gnn", "gcn"] if command == "fit" else ["--methods", "pne", "--gnns", "gcn"]
    words = [command, "planted:40", "--encoder", "tiny", *names, "--quiet", "--max-memory"]
    told = refusal(*words, "1MiB")
    assert re.search(r"needs about .* max_memory is 1 MiB\. lower encoder\.max_tokens", told)
    assert "MiB, GiB expected, got 'lots'" in refusal(*words, "lots")


@pytest.mark.parametrize("labels", ["soft", "whole", "both"])
@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_smaller_blocks_give_the_same_bytes(tmp_path, monkeypatch, dtype, labels):
    """Hops in one block, and in blocks of one line of columns, as a tight limit asks for."""
    n, d, hops = 60, 70, 3
    rng = np.random.default_rng(0)
    soft = rng.random((n, d)).astype(np.float32) ** 8
    soft /= soft.sum(1, keepdims=True)
    whole = np.eye(d, dtype=np.float32)[rng.integers(0, d, n)]
    Y = {"soft": soft, "whole": whole, "both": np.where(rng.random((n, 1)) < 0.5, soft, whole)}[labels]
    adj = Adjacency.from_edges(random_edges(n, 200), n)
    found = []
    for left in (None, 0):
        monkeypatch.setattr(outofcore, "room", lambda left=left: left)
        out, told = np.zeros((n, hops + 1, d), dtype), []
        outofcore.write_hops(adj, Y, hops, out, tmp_path, told.append)
        found.append((out, len(told)))
    assert found[1][1] > found[0][1] == hops + 1  # more blocks
    np.testing.assert_array_equal(found[0][0], found[1][0])


def test_the_formula_of_a_hat_is_what_building_it_takes():
    """Entries of 12 bytes at the peak, 4 afterwards."""
    edges = random_edges(1000, 20_000)
    config = AdjacencyConfig(undirected=True, self_loops=True)
    adj = Adjacency.from_edges(edges, 1000, config)
    factors = sum(part.nbytes for part in (adj.left, adj.right) if part is not None)
    held = adj.indices.nbytes + adj.indptr.nbytes + factors
    assert 0.9 * Adjacency.held_bytes(1000, 20_000, config) < held <= Adjacency.held_bytes(1000, 20_000, config)
    assert Adjacency.building_bytes(1000, 20_000, config) == 12 * (2 * 20_000 + 1000) + 32 * 1000
    one_way = AdjacencyConfig(undirected=False, self_loops=False)
    assert Adjacency.building_bytes(1000, 20_000, one_way) == 12 * 20_000 + 32 * 1000


def test_the_whole_graph_needs_more_than_samples_and_rows(small_graph):
    """Products' shape: a GCN on all of it is beyond 4 GiB, SAGN's rows and sampled neighbours are not."""

    class Products:
        num_nodes, num_classes, edges = 2_449_029, 47, np.broadcast_to(np.int64(0), (2, 61_859_140))

    def needs(name, **sets):
        config = load_config(None, {"gnn.name": name, "gnn.hidden": 64, "gnn.batch_rows": 20_000, **sets}).gnn
        return gnn_bytes(Architecture.of(config).build(32, 47), Products, config) / 2**30

    assert needs("gcn", **{"gnn.hidden": 256}) > 8
    assert needs("sagn") < 3.4
    assert needs("gcn", **{"gnn.batching": "neighbors"}) < 3.4


@pytest.fixture(scope="module")
def cache_of_ld(tmp_path_factory):
    """A cache in which LD with two layers and a given gamma has run: what other methods need before their own stage."""
    folder = tmp_path_factory.mktemp("cache")
    fit("planted:60", method="ld", out=folder / "run", cache=folder / "cache", encoder__layers=2, **QUICK)
    return folder


@pytest.mark.parametrize(
    ("label", "settings"),
    [
        ("train", {"method": "joint-sage"}),
        ("train", {"method": "joint-gas"}),
        ("tree", {"method": "giant"}),
        ("gamma", {"method": "ld", "labels__gamma": "auto"}),
        ("trunk", {"method": "ld", "encoder__train_layers": 1}),
        ("gnn", {"method": "pne", "gnn__batching": "neighbors"}),
        ("gnn", {"method": "pne", "gnn__batching": "clusters"}),
    ],
)
def test_every_stage_that_grows_with_the_graph_tells_what_it_needs(cache_of_ld, label, settings):
    """Stages that are in the cache are not built, so that the first new one is refused."""
    if settings.get("gnn__batching") == "clusters" or settings["method"] == "joint-gas":
        pytest.importorskip("pymetis")
    given = {**QUICK, "encoder__layers": 2, "max_memory": "1MiB", **settings}
    with pytest.raises(NotEnoughMemory, match=rf"^{label}.*: needs about .* max_memory is 1 MiB"):
        fit("planted:60", out=cache_of_ld / "other", cache=cache_of_ld / "cache", **given)


def test_tables_are_refused_before_their_arrays_are_fetched(tmp_path):
    (tmp_path / "nodes.csv").write_text("id,text,label\n" + "".join(f"{i},word {i},{i % 2}\n" for i in range(20)))
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    with limited("1MiB"), pytest.raises(NotEnoughMemory, match=r"reading tables: needs about .* max_memory is 1 MiB"):
        load_tables(tmp_path)
    assert load_tables(tmp_path).graph.num_nodes == 20


def test_engines_that_spill_get_half_of_what_is_left(monkeypatch):
    assert spill_limit() == "2000MB"
    for used, told in ((500.0, "246MB"), (800.0, "89MB"), (1000.0, "64MB")):
        monkeypatch.setattr(memory_limit, "anonymous_memory_mib", lambda used=used: used)
        with limited("1035MiB"):
            assert spill_limit() == told


def test_samples_need_more_with_their_batches_and_never_more_than_all_nodes():
    gnn = Architecture.of(load_config(None, {"gnn.name": "gcn"}).gnn).build(32, 8)
    small, large = (sampled_mib(gnn, 10**6, batch, [5, 5]) for batch in (100, 200))
    assert large == pytest.approx(2 * small)
    assert sampled_mib(gnn, 10**6, 100, [10, 10]) > 2 * small
    assert sampled_mib(gnn, 1000, 10**6, [5, 5]) == sampled_mib(gnn, 1000, 1000, [5, 5])
    attention = Architecture.of(load_config(None, {"gnn.name": "gat"}).gnn).build(32, 8)
    assert sampled_mib(attention, 10**6, 100, [10, 10]) > 2 * sampled_mib(gnn, 10**6, 100, [10, 10])
