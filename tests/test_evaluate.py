import pytest

from labeldeconv.evaluate import Spread, paired_p, student_tail


@pytest.mark.parametrize(
    ("t", "freedom", "expected"),
    [(0.0, 4, 1.0), (2.776, 4, 0.05), (12.706, 1, 0.05), (4.303, 2, 0.05), (3.169, 10, 0.01)],
)
def test_student_tail_equals_the_tables(t, freedom, expected):
    assert student_tail(t, freedom) == pytest.approx(expected, abs=2e-4)


def test_paired_p():
    assert paired_p([0.5, 0.6, 0.7], [0.4, 0.51, 0.59]) == pytest.approx(0.0032, abs=1e-3)
    assert paired_p([0.5], [0.4]) is None
    assert paired_p([0.5, 0.6], [0.4, 0.5]) is None or paired_p([0.5, 0.6], [0.4, 0.5]) < 1e-6


def test_spread():
    assert str(Spread.of([0.5, 0.7])) == "60.00 ± 14.14"
    assert Spread.of([0.5]).std == 0
