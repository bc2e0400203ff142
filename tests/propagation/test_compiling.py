"""All kernels that a fit needs are listed and compiled ahead; a fit after that compiles none."""

import importlib
import json
import os
import pkgutil
import subprocess
import sys

import pytest
from numba.core.registry import CPUDispatcher

from labeldeconv import propagation
from labeldeconv.propagation.compiling import NOTE, listed

CALLED_BY_OTHERS = {"_mixed", "_read", "_stamp", "row_key", "hash_of", "_of_input"}

FITS = """
import sys
from dataclasses import replace

import numpy as np

from labeldeconv import fit, planted
from labeldeconv.propagation.compiling import listed

graph = planted(600, seed=0, num_features=8).graph
values = replace(graph, edge_features=np.random.default_rng(0).random((graph.edges.shape[1], 3)))
quick = {"encoder": "tiny", "train__epochs": 1, "gnn__epochs": 2, "method": "ld", "gnn__hidden": 128}
known, asked = list(listed()), {}
before = {id(kernel): (kernel, set(kernel.signatures)) for kernel, _ in known}
for gnn in ("gcn", "sage", "gat", "revgat", "sagn"):
    fit(graph, out=f"{sys.argv[1]}/{gnn}", gnn=gnn, **quick)
more = {"gnn__batching": "neighbors", "gnn__batch_nodes": 64}
fit(graph, out=f"{sys.argv[1]}/near", gnn="sage", setting="inductive", labels__store="float32", **more, **quick)
fit(values, out=f"{sys.argv[1]}/values", gnn="gat", gnn__options={"edge_dim": 3}, **more, **quick)
for kernel, _ in before.values():
    for types in kernel.signatures:
        if (kernel, types) not in known:
            print("not listed:", kernel.__name__, types)
print("compiled", sum(sum(kernel.stats.cache_misses.values()) for kernel, _ in before.values()))
print("loaded", sum(sum(kernel.stats.cache_hits.values()) for kernel, _ in before.values()))
"""


def run(*words, **environment):
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_kernel_is_listed():
    names = [found.name for found in pkgutil.walk_packages(propagation.__path__, "labeldeconv.propagation.")]
    modules = [importlib.import_module(name) for name in names]
    there = {v.__name__ for module in modules for v in vars(module).values() if isinstance(v, CPUDispatcher)}
    pairs = list(listed())
    assert {kernel.__name__ for kernel, _ in pairs} == there - CALLED_BY_OTHERS
    assert len(set(pairs)) == len(pairs)


@pytest.mark.thorough
def test_after_it_a_fresh_process_compiles_nothing(tmp_path):
    places = {"NUMBA_CACHE_DIR": str(tmp_path / "numba"), "LABELDECONV_CACHE": str(tmp_path / "cache")}
    command = ("-m", "labeldeconv", "doctor", "--compile", "--json")
    first = json.loads(run(*command, **places))
    assert first["compiled"] == first["kernels"] > 90
    assert all(folder.startswith(places["NUMBA_CACHE_DIR"]) for folder in first["folders"])
    assert "all" in run(*command[:-1], **places)
    told = run("-c", FITS, str(tmp_path), **places).splitlines()
    assert told[0] == "compiled 0", told
    assert int(told[1].removeprefix("loaded ")) > 15


def test_what_fits_ask_for_is_listed(tmp_path):
    told = run("-c", FITS, str(tmp_path), LABELDECONV_CACHE=str(tmp_path / "cache")).splitlines()
    assert [line for line in told if line.startswith("not listed")] == []
    assert told[-1].startswith("loaded ")


TWO = """
import itertools, json, sys
from dataclasses import asdict

from labeldeconv.propagation import compiling

listed = compiling.listed
compiling.listed = lambda: itertools.islice(listed(), 2)
print(json.dumps({**asdict(compiling.compile_kernels()), "loaded": "torch" in sys.modules or "numba" in sys.modules}))
"""


def test_a_note_makes_the_next_call_short_until_something_changes(tmp_path):
    places = {"NUMBA_CACHE_DIR": str(tmp_path / "numba"), "LABELDECONV_CACHE": str(tmp_path / "cache")}

    def again():
        told = json.loads(run("-c", TWO, **places))
        assert told["kernels"] == 2
        return told["compiled"], told["loaded"]

    assert again() == (2, True)
    assert again() == (0, False)
    note = tmp_path / "cache" / NOTE
    known = json.loads(note.read_text())
    for damaged in ("[]", "not JSON", json.dumps({**known, "key": "of other sources"})):
        note.write_text(damaged)
        assert again() == (0, True)
        assert json.loads(note.read_text()) == known
    next((tmp_path / "numba").rglob("*.nbi")).unlink()
    assert again() == (1, True)
    assert again() == (0, False)
