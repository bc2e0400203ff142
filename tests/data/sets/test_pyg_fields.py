"""The fields of PyG's Data by the names that public graphs have, and what is wrong with them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from labeldeconv.data.findings import Findings
from labeldeconv.data.sets.pickled import plain
from labeldeconv.data.sets.pyg_fields import PygFields
from labeldeconv.errors import DataError

from .pyg_writing import NAMES, TEXTS, N, cora, masks


def read(choice=0, **changed):
    findings = Findings()
    fields = {name: plain(value) for name, value in cora(**changed).to_dict().items()}
    return PygFields(Path("cora.pt"), fields, choice=choice).graph("cora", findings), findings.warnings


def test_every_part():
    graph, warnings = read()
    assert list(graph.texts) == TEXTS
    assert graph.labels.tolist() == [i % 3 for i in range(N)]
    assert graph.class_names == NAMES
    assert graph.split.train.tolist() == [0, 1, 4, 5, 8, 9]
    assert graph.split.val.tolist() == [2, 6, 10]
    assert graph.features.dtype == np.float32
    assert graph.edges[:, -1].tolist() == [11, 0]
    expected = "texts = raw_texts, labels = y, class names = label_name, features = x (2 columns)"
    assert warnings == [f"cora.pt: read as {expected}, split = train_mask, val_mask, test_mask"]


@pytest.mark.parametrize("layout", ["columns", "rows", "list", "masks"])
def test_the_seed_chooses_among_splits(layout):
    held = masks(5)
    if layout == "rows":
        held = [mask.T for mask in held]
    if layout in ("list", "masks"):
        held = [list(mask.T) for mask in held]
    if layout == "masks":
        none = {"train_mask": None, "val_mask": None, "test_mask": None}
        changed = none | dict(zip(("train_masks", "val_masks", "test_masks"), held, strict=True))
    else:
        changed = dict(zip(("train_mask", "val_mask", "test_mask"), held, strict=True))
    graph, warnings = read(choice=7, **changed)
    assert graph.split.val.tolist() == [0, 4, 8]  # nodes 2, 6 and 10, moved on by two
    assert "cora.pt: 5 splits; number 2 is taken (data_seed 7 modulo 5)" in warnings


def test_one_test_mask_for_many_splits():
    """As WikiCS has it."""
    train, val, _ = masks(2)
    test = masks()[2]
    assert read(choice=0, train_mask=train, val_mask=val, test_mask=test)[0].split.test.tolist() == [3, 7, 11]
    with pytest.raises(DataError, match=r"cora.pt, split 1: split: 3 nodes of 'test' are in another part too"):
        read(choice=1, train_mask=train, val_mask=val, test_mask=test)
    with pytest.raises(DataError, match=r"splits of one number expected, got 2 of train_mask, 3 of val_mask"):
        read(train_mask=train, val_mask=masks(3)[1])


def test_node_numbers_and_a_split_that_is_made():
    numbers = {f"{r}_id": m.nonzero().flatten() for r, m in zip(("train", "val", "test"), masks(), strict=True)}
    none = {"train_mask": None, "val_mask": None, "test_mask": None}
    assert read(**none, **numbers)[0].split.train.tolist() == [0, 1, 4, 5, 8, 9]
    graph, warnings = read(val_mask=None)
    assert "cora.pt: only train and test are given; a stratified split was made with seed 0, 60/20/20" in warnings
    assert len(graph.split.val) == 3
    with pytest.raises(DataError, match=r"field 'val_id': node numbers 0..11 expected, got 0..12"):
        read(**none, **{**numbers, "val_id": np.array([0, 1, 12])})


def test_labels_of_lists():
    """TEG-DB: -1 is none, lists are several labels."""
    listed = ["b", "a", -1, "b"] * 3
    graph, warnings = read(y=None, label_name=None, node_labels=listed)
    assert (graph.class_names, graph.labels.tolist()) == (["a", "b"], [1, 0, -1, 1] * 3)
    assert "cora.pt: 3 nodes of the split have no label and are left out" in warnings
    several = [["b", "a"], -1, ["a"], []] * 3
    graph, _ = read(y=None, label_name=None, text_node_labels=several)
    assert graph.labels[:4].tolist() == [[1, 1], [-1, -1], [1, 0], [0, 0]]


def test_names_of_each_node_and_no_names():
    per_node = [NAMES[i % 3] for i in range(N)]
    assert read(label_name=None, category_names=per_node)[0].class_names == NAMES
    assert read(label_name=None)[0].class_names == ["0", "1", "2"]
    with pytest.raises(
        DataError, match=r"field 'category_names': one name of class 0 expected, got 'theory' and 'x' at 3"
    ):
        read(label_name=None, category_names=["x" if i == 3 else name for i, name in enumerate(per_node)])


def test_missing_texts_are_told():
    graph, warnings = read(raw_texts=[None, float("nan"), *TEXTS[2:]])
    assert list(graph.texts)[:3] == ["", "", TEXTS[2]]
    assert "cora.pt, field 'raw_texts': 2 texts are missing: node 0, node 1" in warnings


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"raw_texts": None}, r"cora.pt: no texts; a field raw_texts or .* expected, got edge_index, label_name, "),
        ({"raw_texts": "abc"}, r"field 'raw_texts': a list of texts expected, got str"),
        ({"raw_texts": [1, *TEXTS[1:]]}, r"field 'raw_texts': texts expected, got int at node 0"),
        ({"raw_texts": ["\ud800", *TEXTS[1:]]}, r"field 'raw_texts': UTF-8 expected, but that of node 0 is not"),
        ({"raw_texts": TEXTS[:-1]}, r"field 'edge_index': node numbers 0..10 expected, .* edge 10 is 10 to 11"),
        ({"raw_texts": [*TEXTS, "x"]}, r"field 'y': 13 labels expected, one for each text, got 12"),
        ({"edge_index": None}, r"no edges; a field edge_index expected"),
        ({"edge_index": cora().x}, r"field 'edge_index': whole numbers \(2, e\) expected, got float32 \(12, 2\)"),
        ({"y": None}, r"cora.pt: no labels; a field y or "),
        ({"y": cora().y / 2}, r"field 'y': class numbers 0..1048575, or -1 for none, expected, got 0.5 at node 1"),
        ({"y": cora().y[None, None]}, r"field 'y': class numbers \(n,\) or 0 and 1 \(n, c\) expected"),
        ({"label_name": NAMES[:2]}, r"field 'label_name': names of 3 classes expected, got 2"),
        ({"label_name": "ab"}, r"field 'label_name': a list of class names expected"),
        ({"x": cora().x[:5]}, r"field 'x': 12 rows expected, one for each text, got 5"),
        ({"val_mask": masks()[1][:5]}, r"field 'val_mask': a mask \(12,\), \(12, splits\) or node numbers expected"),
        (
            {"y": None, "labels": [{}] * N},
            r"field 'labels': numbers, texts or lists of them expected, got {} at node 0",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_field(changed, message):
    with pytest.raises(DataError, match=message):
        read(**changed)


def test_numbers_that_are_not_whole_are_targets():
    y = torch.arange(N) / 2.0
    y[3] = float("nan")
    for held in (y, y[:, None], y.tolist()):
        graph, warnings = read(label_name=None, y=held)
        assert graph.task == "regression"
        assert graph.labels.dtype == np.float64
        assert graph.class_names == ["y"]
        np.testing.assert_array_equal(graph.labels, y.numpy()[:, None])
        assert (
            "cora.pt, field 'y': taken for numbers to be predicted, since 5 of them are not whole: 0.5 at node 1"
            in (warnings)
        )
        assert "cora.pt: 1 nodes of the split have no label and are left out" in warnings
        assert 3 not in np.concatenate([graph.split.train, graph.split.val, graph.split.test])
    graph, _ = read(label_name=None, y=torch.stack([y, 2 * y + 0.25], 1))
    assert graph.class_names == ["y 0", "y 1"]
    assert read(label_name=None, y=torch.arange(N) % 3 * 1.0)[0].task == "multiclass"
    none = {"train_mask": None, "val_mask": None, "test_mask": None}
    assert (
        "cora.pt: none is given; a random split was made with seed 0, 60/20/20" in read(label_name=None, y=y, **none)[1]
    )
    with pytest.raises(DataError, match=r"field 'y': finite numbers, or NaN for none, expected, got inf at node 2"):
        read(label_name=None, y=torch.tensor([0.5, 1.0, float("inf"), *[0.0] * (N - 3)]))
