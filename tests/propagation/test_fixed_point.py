"""Fixed point: exact at both ends, at most 7.7e-6 off between them."""

import numpy as np
import pytest

from labeldeconv.propagation.fixed_point import FULL, dequantize, quantize


def test_ends_and_middle_by_hand():
    assert quantize(np.array([0.0, 1.0, 0.5, 1 / FULL])).tolist() == [0, 65535, 32768, 1]
    assert dequantize(np.array([0, 65535], np.uint16)).tolist() == [0.0, 1.0]


def test_every_number_comes_back():
    every = np.arange(FULL + 1, dtype=np.uint16)
    assert dequantize(every).dtype == np.float32
    np.testing.assert_array_equal(quantize(dequantize(every)), every)


def test_error_is_half_a_step():
    x = np.random.default_rng(0).random(10_000)
    assert np.abs(dequantize(quantize(x)) - x).max() < 7.7e-6


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_other_types_only_change_their_type(dtype):
    x = np.array([0.25, 3.0], dtype=dtype)
    assert dequantize(x).dtype == np.float32
    assert dequantize(x).tolist() == [0.25, 3.0]
