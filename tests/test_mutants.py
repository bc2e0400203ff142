"""The mutator of benchmarks/mutants.py: what it changes, and what it leaves alone."""

import ast

from benchmarks.mutants import Mutant, files_for, mutants_of

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
    assert files_for("gnns/gcn.py") == ["tests/gnns/test_gcn.py", "tests/gnns/test_gnns.py", "tests/test_paper.py"]
    assert files_for("labels/hops.py") == ["tests/labels/test_hops.py", "tests/test_paper.py"]
    assert files_for("propagation/kernel/csr.py")[0] == "tests/propagation/kernel/test_csr.py"
