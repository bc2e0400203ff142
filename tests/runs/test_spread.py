"""Scores over seeds."""

import numpy as np
import pytest

from labeldeconv.runs.spread import Spread, paired_p, signed_rank, signed_rank_p


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


def test_wilcoxon_over_pairs():
    differences = [1.2, 0.4, 2.0, -0.3, 0.9, 1.5]
    # All ranks but the smallest are positive: W- = 1, and of 2^6 signs 2 are as extreme on one side.
    assert signed_rank_p(differences) == pytest.approx(2 * 2 / 64)
    assert signed_rank_p([0.0, 0.0, 1.0]) is None


def test_bayesian_signed_rank_knows_clear_cases():
    rng = np.random.default_rng(0)
    assert signed_rank(rng.normal(2.0, 0.5, 30), 0.3)[2] > 0.999
    assert signed_rank(rng.normal(-2.0, 0.5, 30), 0.3)[0] > 0.999
    assert signed_rank(rng.normal(0.0, 0.05, 30), 0.3)[1] > 0.999
    worse, equal, better = signed_rank(rng.normal(0.3, 0.3, 30), 0.3)
    assert worse < 0.001
    assert worse + equal + better == pytest.approx(1)
    assert 0.02 < better < 0.98  # at the border of the region, nobody can tell


def test_bayesian_signed_rank_by_its_definition():
    """Two differences: the parts of w w^T, vote by vote."""
    z, rope = np.array([0.0, 1.0, -0.5]), 0.3
    w = np.random.default_rng(0).dirichlet([0.5, 1, 1], 500)
    votes = []
    for row in w:
        parts = np.zeros(3)
        for i in range(3):
            for j in range(3):
                mean = (z[i] + z[j]) / 2
                parts[0 if mean < -rope else 1 if mean <= rope else 2] += row[i] * row[j]
        votes.append(parts.argmax())
    expected = np.bincount(votes, minlength=3) / 500
    assert signed_rank([1.0, -0.5], rope, samples=500) == pytest.approx(tuple(expected))
