import pytest

from labeldeconv.analysis.plan import GIB, PlanInputs, advice, described, evaluate, plan
from labeldeconv.errors import ConfigError
from labeldeconv.lake.node_blocks import blocks_for
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import AdjacencyConfig


def values(**inputs):
    return {line.name: line.value for line in plan(PlanInputs(**{"n": 1e9, "e": 1e10, "c": 172, **inputs}))}


def test_a_billion_nodes():
    """By hand: 2e10 entries of 692 bytes in 256 MiB are 51,559 blocks, where nearly every entry is a sum of its own."""
    found = values(gpus=64)
    assert found["P"] == 51_559
    assert found["M"] == pytest.approx(1e9 * 51_559 * (1 - (1 - 1 / 51_559) ** 20), rel=1e-6)
    assert found["sums"] == pytest.approx(found["M"] * 692)
    assert found["shuffle"] == pytest.approx(found["M"] * 692 + 1e9 * 712 + 8 * 2e10 + 24e9)
    assert found["K"] == 4e9 * 172 * 3
    assert found["forward"] == pytest.approx(2 * 10.6e6 * 128 * 1e9 / (312e12 * 0.3) / 3600)
    assert found["encoder_hours"] == pytest.approx(11 * found["forward"] / 64)
    assert found["cost"] == pytest.approx(22 * found["forward"] + found["hops_hours"] * 256 * 0.04)


def test_it_counts_as_the_code_does():
    found = values(n=1000, e=5000, c=10, block=2**16, executors=1, cores=2)
    assert found["P"] == blocks_for(10_000, 10, 2, 2**16)
    assert found["local_memory"] == Adjacency.building_bytes(1000, 5000, AdjacencyConfig())


def test_few_blocks_send_few_sums():
    """With one block a target gets one sum, whatever its degree; with many, one for every neighbour."""
    dense = {"n": 1e6, "e": 5e8, "executors": 1, "block": 1e15}
    assert values(**dense, cores=2)["M"] == pytest.approx(2e6, rel=1e-3)
    assert values(**dense, cores=1e6)["M"] == pytest.approx(1e9, rel=1e-2)


def test_which_engine():
    def told(memory, **inputs):
        asked = PlanInputs(**{"n": 1e8, "e": 1e9, "c": 50, **inputs})
        return advice(asked, plan(asked), memory * GIB)

    assert told(64).startswith("local: A-hat takes 25.3 GiB of the 64")
    assert told(16).startswith("spark: A-hat takes 25.3 GiB")
    assert told(4).startswith("spark, with fewer cores per executor")
    assert told(1e6, n=3e9).startswith("spark: the engine 'local' numbers nodes in 31 bits")


def test_every_input_is_described_and_used():
    formulas = " ".join(line.formula for line in plan(PlanInputs(1, 1, 1)))
    for name, meaning in described().items():
        assert meaning
        assert name in formulas.replace("(", " ").replace(")", " ").replace(",", " ").split(), name


@pytest.mark.parametrize("wrong", [{"n": 0}, {"network": -1}, {"c": float("nan")}, {"e": float("inf")}])
def test_inputs_above_zero(wrong):
    with pytest.raises(ConfigError, match=rf"plan: {next(iter(wrong))} must be a number above 0"):
        values(**wrong)


def test_formulas_are_arithmetic_and_nothing_else():
    assert evaluate("-a ** 2 + max(1, b) / 4", {"a": 3, "b": 2}) == -8.5
    for wrong in ("x", "a.b", "__import__('os')", "[1]", "'a'"):
        with pytest.raises(ValueError, match="no part of a formula"):
            evaluate(wrong, {"a": 1})
