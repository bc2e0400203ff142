"""Pooling by the mask, whatever the side of the padding, and what comes behind it."""

import numpy as np
import pytest
import torch

from labeldeconv.encoders.readout import MODES, Dense, Readout

b, t, w = 3, 6, 4
LENGTHS = [6, 3, 1]


def rows(side):
    """States (b, t, w) and mask (b, t) of rows of 6, 3 and 1 tokens, and the states of each row alone."""
    torch.manual_seed(0)
    hidden, mask, alone = torch.randn(b, t, w), torch.zeros(b, t, dtype=torch.int64), []
    for i, length in enumerate(LENGTHS):
        at = slice(t - length, t) if side == "left" else slice(0, length)
        mask[i, at] = 1
        alone.append(hidden[i, at].numpy())
    return hidden, mask, alone


BY_HAND = {
    "first": lambda x: x[0],
    "last": lambda x: x[-1],
    "mean": lambda x: x.mean(0),
    "max": lambda x: x.max(0),
    "root-mean": lambda x: x.sum(0) / np.sqrt(len(x)),
    "weighted": lambda x: np.average(x, axis=0, weights=np.arange(1, len(x) + 1)),
}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_equals_its_formula(mode, side):
    hidden, mask, alone = rows(side)
    expected = np.stack([BY_HAND[mode](x) for x in alone])
    np.testing.assert_allclose(Readout(w, [mode])(hidden, mask), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_prompt_is_left_out_and_the_others_keep_their_places(side):
    hidden, mask, alone = rows(side)
    hidden, mask = hidden[:2], mask[:2]
    for mode in ("mean", "weighted", "first"):
        kept = [x[2:] for x in alone[:2]]
        weights = [np.arange(3, len(x) + 1) if mode == "weighted" else np.ones(len(x) - 2) for x in alone[:2]]
        by_hand = [
            x[0] if mode == "first" else np.average(x, axis=0, weights=v) for x, v in zip(kept, weights, strict=True)
        ]
        found = Readout(w, [mode], skip=2)(hidden, mask)
        np.testing.assert_allclose(found, np.stack(by_hand), rtol=1e-5, atol=1e-6)


def test_modes_side_by_side_then_layers_then_cut_then_length():
    hidden, mask, alone = rows("right")
    dense = Dense(2 * w, 5, activation=torch.nn.Tanh())
    readout = Readout(w, ["first", "mean"], [dense, torch.nn.LayerNorm(5)], dim=3, normalize=True)
    assert readout.dim == 3
    x = torch.from_numpy(np.stack([np.concatenate([a[0], a.mean(0)]) for a in alone]))
    cut = torch.nn.functional.layer_norm(torch.tanh(x @ dense.linear.weight.T + dense.linear.bias), (5,))[:, :3]
    torch.testing.assert_close(readout(hidden, mask), cut / cut.norm(dim=1, keepdim=True))


@pytest.mark.parametrize("out", [4, 6])
def test_a_dense_layer_may_add_its_input(out):
    dense = Dense(4, out, residual=True)
    x = torch.randn(2, 4)
    added = x if out == 4 else x @ dense.residual.weight.T
    torch.testing.assert_close(dense(x), dense.linear(x) + added)


def test_all_that_decides_is_described():
    told = {
        Readout(w, **options).described()
        for options in (
            {}, {"modes": ["last"]}, {"steps": [Dense(w, 3)]}, {"steps": [Dense(w, 3, residual=True)]},
            {"steps": [Dense(w, 3, activation=torch.nn.Tanh())]}, {"dim": 2}, {"normalize": True}, {"skip": 1},
        )
    }  # fmt: skip
    assert len(told) == 8
