"""Scores over seeds."""

import pytest

from labeldeconv.runs.spread import Spread, paired_p


def test_paired_p_equals_the_tables():
    assert paired_p([0.5, 0.6, 0.7], [0.4, 0.51, 0.59]) == pytest.approx(0.0032, abs=1e-3)
    # t = mean / (std / sqrt(n)) = 4.303 at 2 degrees of freedom is the 5% point
    shift = 4.303 / 3**0.5
    assert paired_p([shift - 1, shift, shift + 1], [0, 0, 0]) == pytest.approx(0.05, abs=2e-4)


@pytest.mark.parametrize(("a", "b"), [([0.5], [0.4]), ([0.5, 0.6], [0.4, 0.5]), ([0.3, 0.3], [0.3, 0.3])])
def test_no_p_below_two_seeds_or_without_spread(a, b):
    assert paired_p(a, b) is None


def test_spread():
    assert str(Spread.of([0.5, 0.7])) == "60.00 ± 14.14"
    assert Spread.of([0.5]).std == 0
