"""bfloat16 where an encoder can, float32 where it cannot: DeBERTa, and modules that fail in every way there is."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from labeldeconv.encoders.base import Encoder
from labeldeconv.encoders.fallback import InFloat32, compute_in_float32_where_needed, in_float32
from labeldeconv.encoders.image import load_image_encoder
from labeldeconv.encoders.pretrained import load_encoder
from labeldeconv.encoders.unirep import UniRep
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.testing import encoded
from tests.encoders.families import TEXTS

IDS = torch.tensor([[3, 1, 4, 1], [5, 9, 2, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
LOW = torch.autocast("cpu", torch.bfloat16)


class Plain(nn.Module):
    """A linear layer and what stands for attention."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class Filling(Plain):
    """Fills bfloat16 with the least float32, as DeBERTa does."""

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).masked_fill(x > 1e9, torch.finfo(torch.float32).min)


class Adding(Plain):
    """Writes what its child gives into a float32 table, so that it, and not its child, fails."""

    def forward(self, x: Tensor) -> Tensor:
        flat = self.linear(x).flatten(0, 1)
        return torch.zeros(len(flat), 4).index_put((torch.arange(len(flat)),), flat).view_as(x)


class FailsBackward(torch.autograd.Function):
    """Has a gradient for float32 alone."""

    @staticmethod
    def forward(ctx, x):
        ctx.low = x.dtype == torch.bfloat16
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        if ctx.low:
            raise RuntimeError("no gradient in bfloat16")
        return g


class Backward(Plain):
    """Fails on the way back."""

    def forward(self, x: Tensor) -> Tensor:
        return FailsBackward.apply(self.linear(x))


class Overflowing(Plain):
    """Gives no finite number in bfloat16: 1 + 2^-9 is 1 there."""

    def forward(self, x: Tensor) -> Tensor:
        one = (self.linear(x) * 0 + 1).to(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None)
        return x / (one + 2**-9 - 1)


class Mine(Encoder):
    """Two modules of one kind and a plain one over a table of words, as a user would write it."""

    dim, pad_id, vocab_size = 4, 0, 10

    def __init__(self, kind):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.table, self.parts = nn.Embedding(10, 4), nn.ModuleList([kind(), kind()])
            self.last = nn.Linear(4, 4)
        self.seen: list[torch.dtype] = []

    def forward(self, input_ids, attention_mask):
        x = self.table(input_ids)
        for part in self.parts:
            x = part(x)
        last = self.last(x)
        self.seen.append(last.dtype)
        return (last * attention_mask.unsqueeze(-1)).sum(1)

    def tokenize(self, texts, max_tokens): ...

    def save(self, folder): ...

    def restore(self, folder): ...


@pytest.mark.parametrize("kind", [Filling, Adding])
def test_the_smallest_part_that_fails_computes_in_float32(kind, caplog):
    encoder = Mine(kind)
    with pytest.raises(RuntimeError), LOW:
        encoder(IDS, MASK)
    expected = encoder(IDS, MASK)
    assert compute_in_float32_where_needed(encoder, IDS, MASK, training=True) == [kind.__name__]
    assert [isinstance(m, InFloat32) for m in (*encoder.parts, encoder.last, encoder)] == [True, True, False, False]
    with LOW:
        found = encoder(IDS, MASK)
    assert encoder.seen[-1] == torch.bfloat16  # the rest
    torch.testing.assert_close(found.float(), expected, atol=0.05, rtol=0.05)
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == [
        f"warning: Mine: {kind.__name__} cannot compute in bfloat16"
    ]


@pytest.mark.parametrize("kind", [Backward, Overflowing])
def test_what_has_no_place_is_mended_as_a_whole(kind, caplog):
    """A failure on the way back, or numbers that are not finite, name no module: the whole encoder is float32."""
    encoder = Mine(kind)
    assert compute_in_float32_where_needed(encoder, IDS, MASK, training=True) == ["Mine"]
    with LOW:
        found = encoder(IDS, MASK)
    assert encoder.seen[-1] == torch.float32
    assert torch.equal(found, encoder(IDS, MASK))
    found.sum().backward()
    assert "Mine: Mine cannot compute in bfloat16" in caplog.text
    assert "the rest" not in caplog.text


def test_without_training_the_way_back_is_not_tried():
    assert compute_in_float32_where_needed(Mine(Backward), IDS, MASK, training=False) == []


def test_nothing_is_changed_by_the_try():
    encoder = Mine(Filling)
    encoder.parts[0].eval()
    state = {k: v.clone() for k, v in encoder.state_dict().items()}
    modes = [m.training for m in encoder.modules()]
    torch.manual_seed(0)
    before = torch.get_rng_state()
    compute_in_float32_where_needed(encoder, IDS, MASK, training=True)
    assert torch.equal(torch.get_rng_state(), before)
    assert [m.training for m in encoder.modules()] == modes
    assert all(p.grad is None for p in encoder.parameters())
    assert encoder.state_dict().keys() == state.keys()
    assert all(torch.equal(v, state[k]) for k, v in encoder.state_dict().items())


def test_an_error_of_another_kind_is_left_to_the_run(caplog):
    class Wrong(Plain):
        def forward(self, x):
            raise RuntimeError("this has nothing to do with precision")

    encoder = Mine(Wrong)
    assert compute_in_float32_where_needed(encoder, IDS, MASK, training=True) == []
    assert not caplog.records
    with pytest.raises(RuntimeError, match="nothing to do with precision"):
        encoder(IDS, MASK)


def test_out_of_memory_is_no_matter_of_precision():
    class Greedy(Plain):
        def forward(self, x):
            raise torch.OutOfMemoryError("too much")

    with pytest.raises(torch.OutOfMemoryError):
        compute_in_float32_where_needed(Mine(Greedy), IDS, MASK, training=True)


def test_a_class_in_float32_keeps_its_name_and_its_weights():
    kind = in_float32(Filling)
    assert (kind.__name__, kind.__module__) == ("Filling", Filling.__module__)
    assert issubclass(kind, Filling)
    assert in_float32(Filling) is kind


def test_deberta_keeps_all_but_its_attention_in_bfloat16(family, caplog):
    """The defect: DeBERTa-base died in bfloat16. Now its attention alone is float32, told once for all its loads."""
    for _ in range(2):
        encoder = load_encoder(EncoderConfig(name=family("deberta"))).eval()
        expected = encoded(encoder, TEXTS)
        ids = [row + [0] * (64 - len(row)) for row in encoder.tokenize(TEXTS, 64)]
        batch = torch.tensor(ids), (torch.tensor(ids) != 0).long()
        with pytest.raises(RuntimeError, match="without overflow"), LOW:
            encoder(*batch)
        assert compute_in_float32_where_needed(encoder, *batch, training=True) == ["DisentangledSelfAttention"]
        dtypes = {}
        for name, module in encoder.named_modules():
            if isinstance(module, nn.Linear):
                module.register_forward_hook(lambda m, i, o, name=name, to=dtypes: to.update({name: o.dtype}))
        with LOW, torch.no_grad():
            found = encoder(*batch).float()
        low = {name for name, dtype in dtypes.items() if dtype == torch.bfloat16}
        assert low == {name for name in dtypes if ".self." not in name}
        assert len(low) == 2 * 3
        assert torch.cosine_similarity(found, expected).min() > 0.999
        assert not torch.equal(found, expected)
    assert len(caplog.records) == 1
    assert "DebertaModel: DisentangledSelfAttention cannot compute in bfloat16" in caplog.text
    assert np.isfinite(found.numpy()).all()


@pytest.mark.parametrize("name", ["unirep", "columns", "image"])
@pytest.mark.parametrize("training", [True, False])
def test_encoders_of_our_own_compute_in_bfloat16(name, training, request, caplog):
    if name == "image":
        photos, vit = request.getfixturevalue("photos"), request.getfixturevalue("vit")
        encoder, texts = load_image_encoder(EncoderConfig(name=str(vit))), [str(photos / "red.png"), ""]
    elif name == "columns":
        encoder = load_encoder(EncoderConfig(name="title=tiny,price=number,brand=category"))
        texts = ['{"title": "a graph", "price": "1.5", "brand": "x"}', '{"title": "", "price": "", "brand": ""}']
    else:
        encoder, texts = UniRep(8, 2), ["MKVLAAGW", "ACD"]
        for p in encoder.parameters():
            nn.init.normal_(p, std=0.5)
    expected = encoded(encoder.eval(), texts)
    rows = encoder.tokenize(texts, 32)
    longest = max(map(len, rows))
    ids = torch.tensor([row + [encoder.pad_id] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    assert compute_in_float32_where_needed(encoder, ids, mask, training=training) == []
    with LOW, torch.set_grad_enabled(training):
        found = encoder(ids, mask)
    assert torch.cosine_similarity(found.float(), expected)[0] > 0.99
    if training:
        found.float().square().sum().backward()
    assert not caplog.records
