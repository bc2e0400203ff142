"""The mutator of benchmarks/mutants.py: what it changes, and what it leaves alone."""

import ast
import subprocess
import sys

import pytest

from benchmarks.mutants import ROOT, Mutant, Workshop, draw, equivalents, files_for, mutants_of, shares, untouched

PACKAGE = ROOT / "labeldeconv"

SOURCE = '''"""Module."""
import os
LIMIT = 3

def f(a: int, b: int = 2) -> bool:
    """Docstring 5."""
    logger.info("x", 7)
    if not a < b:
        raise ValueError(f"a {a + 1}")
    a += b * 2
    g(a)
    return a == b and True

@stage(version=1)
def h(x):
    return -x
'''


def changes(source: str) -> set[tuple[str, str]]:
    return {(m.before, m.after) for m in mutants_of(source)}


def test_every_kind_of_change():
    found = changes(SOURCE)
    assert found == {
        ("3", "4"),
        ("2", "3"),
        ("if not a < b:", "if not not a < b:"),
        ("not a < b", "a < b"),
        ("a < b", "a <= b"),
        ("raise ValueError(f'a {a + 1}')", "pass"),
        ("a += b * 2", "a -= b * 2"),
        ("a += b * 2", "pass"),
        ("b * 2", "b / 2"),
        ("g(a)", "pass"),
        ("return a == b and True", "return None"),
        ("a == b and True", "a == b or True"),
        ("a == b", "a != b"),
        ("True", "False"),
        ("return -x", "return None"),
        ("-x", "x"),
    }


def test_every_mutant_is_one_change_and_a_program():
    whole = ast.unparse(ast.parse(SOURCE)).splitlines()
    for mutant in mutants_of(SOURCE):
        lines = mutant.source.splitlines()
        ast.parse(mutant.source)
        assert sum(a != b for a, b in zip(whole, lines, strict=True)) == 1, mutant


def test_names_follow_the_module_and_the_change():
    names = [m.name for m in mutants_of(SOURCE)]
    assert len(set(names)) == len(names)
    a, b = mutants_of("x = 1", "m.py")[0], mutants_of("x = 1\ny = 0", "m.py")[0]
    assert (a.before, a.after, str(a)) == ("1", "2", "m.py:1: 1  ->  2")
    assert a.name != b.name
    assert isinstance(a, Mutant)


def test_files_for_a_module():
    suites = ["tests/gnns/test_gnns.py", "tests/gnns/test_published.py"]
    assert files_for("gnns/gcn.py") == ["tests/gnns/test_gcn.py", *suites, "tests/test_paper.py"]
    assert files_for("methods/glem.py")[:2] == ["tests/methods/test_glem.py", "tests/methods/test_inductive.py"]
    assert files_for("labels/hops.py") == ["tests/labels/test_hops.py", "tests/test_paper.py"]
    assert files_for("propagation/kernel/csr.py")[0] == "tests/propagation/kernel/test_csr.py"


def test_every_change_that_is_said_to_mean_nothing_is_still_there():
    """Rows of the list that no line answers to any more are to be taken out."""
    listed = equivalents()
    mutants = {m: mutants_of((PACKAGE / m).read_text(), m) for m in {same.module for same in listed}}
    stale = [same for same in listed if not any(same.covers(mutant) for mutant in mutants[same.module])]
    assert stale == []
    assert all(same.why for same in listed)
    drawn = draw(sorted(mutants), 0, None)
    assert not any(same.covers(mutant) for same in listed for mutant in drawn)


def test_rooms_take_turns_and_follow_the_seed():
    rooms = ["labels/pseudo.py", "labels/hops.py"]
    drawn = draw(rooms, 3, 4)
    assert [m.module for m in drawn] == rooms * 4
    assert drawn == draw(rooms, 3, 4)
    assert drawn != draw(rooms, 4, 4)
    assert drawn[::2] == draw(rooms[:1], 3, 4)  # the sample of a room does not depend on the others


def test_shares_of_rooms():
    rows = [("labels/a.py:1: 1  ->  2", None), ("labels/b.py:1: 1  ->  2", "tests/t.py::x"), ("gnns/c.py:2: 3", "t")]
    told = shares([{"mutant": mutant, "killer": killer} for mutant, killer in rows])
    assert told.splitlines() == [
        "gnns: 1 of 1 killed (100.0%)",
        "labels: 1 of 2 killed (50.0%)",
        "  survived labels/a.py:1: 1  ->  2",
    ]


@pytest.mark.parametrize(("inside", "allowed"), [(True, True), (False, False)])
@pytest.mark.parametrize("act", ["path.write_text('x')", "path.unlink()", "path.with_suffix('.d').mkdir()"])
def test_a_mutant_writes_in_its_copy_alone(tmp_path, inside, allowed, act):
    (tmp_path / "copy").mkdir()
    path = tmp_path / "copy" / "file" if inside else tmp_path / "file"
    path.write_text("before")
    script = f"""
from pathlib import Path
from benchmarks.mutants import Workshop
Workshop.confine(Path({str(tmp_path / "copy")!r}))
path = Path({str(path)!r})
assert path.read_text() == "before"
{act}
"""
    done = subprocess.run([sys.executable, "-B", "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode == 0) == allowed
    assert allowed or "outside of the copy" in done.stderr


def test_rooms_that_do_not_import_what_is_changed():
    foundation = ["errors", "progress", "registry", "stages", "settings"]
    assert untouched(["labels/hops.py", "propagation"]) == [*foundation, "graph"]
    assert untouched(["labels"]) == [*foundation, "graph", "propagation", "data", "encoders", "gnns"]
    assert untouched(["errors.py"]) == ["progress", "registry"]
    assert "training" in untouched(["methods"])


def test_tests_that_call_what_is_changed_are_chosen_the_quick_ones_first():
    """Line 5 of labels/hops.py begins a function; what another process calls counts for the module's own file."""
    rows = {
        "slow": (9.0, ["labels/hops.py:5"]),
        "quick": (1.0, ["labels/hops.py:5"]),
        "other": (2.0, ["labels/hops.py:9"]),
        "elsewhere": (0.5, ["gnns/gcn.py:5"]),
        "process": (3.0, ["*"]),
    }
    shop = object.__new__(Workshop)
    shop.unchanged = lambda file: {name: {"seconds": s, "calls": calls} for name, (s, calls) in rows.items()}
    own, suite = "tests/labels/test_hops.py", "tests/test_paper.py"

    def chosen(inside, file, compiled=False):
        mutant = Mutant("labels/hops.py", "", 6, "", "1", "2", 0, "next", inside, compiled)
        return shop.chosen(mutant, file)

    assert chosen(5, own) == (["quick", "process", "slow"], 13.0)
    assert chosen(5, suite) == (["quick", "slow"], 10.0)
    assert chosen(0, suite) == (["quick", "other", "slow"], 12.0)  # a class attribute or a constant
    assert chosen(7, suite) == ([], 0)
    assert chosen(5, own, compiled=True)[0] == ["elsewhere", "quick", "other", "process", "slow"]
