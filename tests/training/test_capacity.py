"""The largest batch: a search that is right to the node, a CPU's budget, and real steps of the tiny encoder."""

import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from labeldeconv.encoders.pretrained import Pretrained, Weights
from labeldeconv.encoders.tokens import Tokens, write_tokens
from labeldeconv.encoders.trunk import TokenStates, layers_of
from labeldeconv.errors import ConfigError
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.graph.task import Task
from labeldeconv.graph.texts import Texts
from labeldeconv.settings.models import EncoderConfig, GNNConfig, TrainConfig
from labeldeconv.stages.memory import free_memory_mib, peak_memory_mib
from labeldeconv.training import capacity
from labeldeconv.training.capacity import Room, full_row, largest_batch, largest_size, room_for, training_step
from labeldeconv.training.encoder import PsiHead

CPU = torch.device("cpu")
tells = pytest.mark.skipif(peak_memory_mib() is None or free_memory_mib() is None, reason="this system does not tell")


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 7, 8, 9, 100, 1023, 1024, 5000])
@pytest.mark.parametrize("most", [1, 60, 1000, 1 << 20])
def test_the_search_is_exact_or_as_near_as_it_says(limit, most):
    """Exact where it is asked for; else to one part in sixteen, and never a size that was not seen to fit."""
    tried = []

    def fits(size):
        tried.append(size)
        return size <= limit

    assert largest_size(fits, most, exact=1 << 30) == min(limit, most)
    assert max(tried) <= min(most, 2 * max(limit, 1))
    found = largest_size(fits, most)
    assert min(limit, most) * 15 / 16 - 1 <= found <= min(limit, most)
    assert found == 0 or found in tried
    assert len(tried) <= 60


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_step_that_runs_out_of_memory_above_a_size(device):
    room, tried = Room(torch.device(device), None), []

    def step(size):
        tried.append(size)
        if size > 11:
            raise torch.OutOfMemoryError(f"{size} nodes")

    assert largest_size(lambda size: room.fits(step, size), 1000) == 11
    assert tried == [1, 2, 4, 8, 16, 12, 10, 11]


class Held:
    """Something large, known to whoever looks for it afterwards."""


def test_what_a_try_held_is_freed_before_the_next():
    """Also what the traceback of a failed try holds, and what is held in a circle."""
    room, seen = Room(torch.device("cuda"), None), []

    def step(size):
        assert not [ref for ref in seen if ref() is not None]
        held = Held()
        held.itself = held
        seen.append(weakref.ref(held))
        if size > 5:
            raise torch.OutOfMemoryError("too much")

    gc.disable()
    try:
        assert largest_size(lambda size: room.fits(step, size), 100) == 5
    finally:
        gc.enable()
    assert len(seen) > 4


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_a_cpu_says_it_in_its_own_words(error):
    def step(size):
        raise error

    assert not Room(CPU, None).fits(step, 1)


def test_another_error_is_not_hidden():
    def step(size):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="shapes"):
        Room(CPU, 100.0).fits(step, 1)


def test_a_cpu_s_budget_is_never_exceeded(monkeypatch):
    """A process that uses 20 MiB + 3 MiB a node, with 100 MiB: 26 nodes, and none of the steps was larger."""
    now = {"peak": 0.0}
    monkeypatch.setattr(capacity, "peak_memory_mib", lambda: now["peak"])
    tried, room = [], Room(CPU, 100.0, before_mib=500.0)

    def step(size):
        tried.append(size)
        now["peak"] = 500.0 + 20.0 + 3.0 * size

    assert largest_size(lambda size: room.fits(step, size), 1000) == 26
    assert max(tried) == 26
    assert room.expected_mib(30) == pytest.approx(110.0)
    assert not Room(CPU, 22.0, before_mib=500.0).fits(step, 1)  # one node takes 23


@tells
def test_real_memory_is_measured():
    def step(size):
        torch.ones(size << 18)  # size MiB

    with room_for(CPU, 200.0) as room:
        assert [room.fits(step, size) for size in (100, 150, 300)] == [True, True, False]
        assert [used for _, used in room.used] == pytest.approx([100, 150], abs=15)
        assert not Room(CPU, 200.0, room.before_mib).fits(step, 250)  # tried, and found to be too much


@tells
def test_the_default_is_what_is_free_and_a_budget_is_positive():
    with room_for(CPU, None) as room:
        assert room.memory_mib == pytest.approx(free_memory_mib(), rel=0.2)
    with pytest.raises(ConfigError, match="memory: more than 0 MiB expected, got 0"), room_for(CPU, 0.0):
        pass
    with room_for(torch.device("cuda"), None) as room:
        assert (room.memory_mib, room.before_mib) == (None, 0.0)


@pytest.fixture
def parts(tmp_path):
    start = Pretrained(EncoderConfig(name="tiny"))
    tokens = write_tokens(start.tokenizer, Texts.from_strings("ab" * (1 + k % 7) for k in range(500)), 64, tmp_path)
    head = PsiHead(Architecture.of(GNNConfig(hidden=8)), 4)
    return Weights(start), head, tokens, Task("multiclass", 4)


def test_a_step_is_a_whole_one_on_nodes_of_full_length(parts):
    encoder, head, tokens, task = parts
    sizes = []

    class Watching(type(encoder.load())):
        def forward(self, input_ids, attention_mask):
            sizes.append((tuple(input_ids.shape), int(attention_mask.sum())))
            return super().forward(input_ids, attention_mask)

    model = encoder.load()
    model.__class__ = Watching

    class Given:
        def load(self):
            return model

    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    with training_step(Given(), head, tokens, task, TrainConfig(precision="float32", lr=0.1), 48, CPU) as step:
        step(3)
        step(5)
    assert sizes == [((3, 48), 3 * 48), ((5, 48), 5 * 48)]
    moved = [name for name, p in model.named_parameters() if not torch.equal(p, before[name])]
    assert len(moved) > len(before) / 2
    assert all(p.grad is None for p in model.parameters())


def test_a_step_behind_a_frozen_trunk_is_one_of_the_last_layers(parts):
    encoder, head, tokens, task = parts
    states = TokenStates(
        tokens.ids,
        tokens.offsets,
        tokens.pad_id,
        np.zeros((len(tokens.ids), 32), np.float16),
        tokens.offsets[:-1],
        1,
        0.0,
    )
    model = encoder.load()

    class Given:
        def load(self):
            return model

    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    sizes = []
    layers_of(model)[1].register_forward_hook(lambda layer, args, out: sizes.append(tuple(out.shape)))
    with training_step(Given(), head, states, task, TrainConfig(precision="float32", lr=0.1), 48, CPU) as step:
        sizes.clear()
        step(3)
    assert sizes == [(3, 48, 32)]
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved
    assert all("layer.1." in name for name in moved)


@tells
def test_the_tiny_encoder_on_this_machine(parts):
    """More memory, more nodes; all nodes of the graph are the most there is; nothing random is used up."""
    settings = TrainConfig(precision="float32")
    torch.manual_seed(3)
    random = torch.get_rng_state()
    small, large = (largest_batch(*parts, settings, 256, CPU, memory_mib=mib) for mib in (60.0, 120.0))
    assert 1 <= small < large < 500
    assert torch.equal(torch.get_rng_state(), random)
    encoder, head, tokens, task = parts
    few = Tokens(tokens.ids[: tokens.offsets[6]], tokens.offsets[:7], tokens.pad_id)
    assert largest_batch(encoder, head, few, task, settings, 8, CPU) == 6


def test_a_full_row(parts, tmp_path):
    encoder, _, tokens, _ = parts
    row, mask = full_row(encoder.load(), tokens, 40)
    assert (tuple(row.shape), int(mask.sum())) == ((1, 40), 40)
    columns = Pretrained(EncoderConfig(name="a=number,b=category")).load()
    (tmp_path / "records").mkdir()
    texts = Texts.from_strings(['{"a": "", "b": "x"}', '{"a": "1", "b": "x"}'])
    records = write_tokens(columns.tokenizer_part, texts, 40, tmp_path / "records")
    row, mask = full_row(columns, records, 40)
    assert row.shape == (1, 7)  # 4 bytes and a bucket, each with its length
    assert np.isfinite(nn.Identity()(columns(row, mask)).detach().numpy()).all()
