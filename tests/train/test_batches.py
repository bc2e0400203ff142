import numpy as np
import pytest

from labeldeconv.train.batches import ahead, epoch_batches, length_batches

LENGTHS = np.random.default_rng(0).integers(3, 120, 5000)


def test_every_node_once_within_both_limits_and_little_padding():
    nodes = np.flatnonzero(LENGTHS % 3)
    batches = epoch_batches(LENGTHS, nodes, 32, 1024, seed=0, epoch=0)
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), nodes)
    padded = [len(b) * LENGTHS[b].max() for b in batches]
    assert max(padded) <= 1024
    assert max(map(len, batches)) <= 32
    assert 1 - LENGTHS[nodes].sum() / sum(padded) < 0.05


def test_pure_function_of_seed_and_epoch():
    a, b, other = (epoch_batches(LENGTHS, np.arange(5000), 32, 4096, 7, epoch) for epoch in (1, 1, 2))
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    assert not np.array_equal(a[0], other[0])


def test_long_text_alone():
    lengths = np.array([10, 900, 10])
    batches = length_batches(lengths, np.arange(3), 8, 100)
    assert [b.tolist() for b in batches] == [[1], [0, 2]]


def test_ahead_keeps_order_prepares_early_and_passes_errors_on():
    made = []

    def prepare(k):
        made.append(k)
        return 10 // k

    used = ahead(prepare, [1, 2, 0, 5])
    assert next(used) == 10
    assert next(used) == 5
    with pytest.raises(ZeroDivisionError):
        next(used)
    assert made[:3] == [1, 2, 0]
    assert list(ahead(prepare, [])) == []
