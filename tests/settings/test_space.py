import pytest

from labeldeconv.errors import ConfigError
from labeldeconv.settings.space import Choices, Range, parse_search


@pytest.mark.parametrize(
    ("text", "name", "part"),
    [
        ("train.lr=1e-5..1e-3:log", "train.lr", Range(1e-5, 1e-3, True)),
        ("gnn.dropout=0.2..0.7", "gnn.dropout", Range(0.2, 0.7, False)),
        ("hops=0..4", "labels.hops", Range(0, 4, False)),
        ("gnn.hidden=16..512:log", "gnn.hidden", Range(16, 512, True)),
        ("gnn.hidden=64, 128,64", "gnn.hidden", Choices((64, 128))),
        ("gnn.schedule=linear,constant", "gnn.schedule", Choices(("linear", "constant"))),
    ],
)
def test_parse(text, name, part):
    assert parse_search(text) == (name, part)
    assert type(part).__name__ == "Choices" or part.whole == (text.startswith(("hops", "gnn.hidden")))


@pytest.mark.parametrize(
    "text",
    ["train.lr", "train.lr=", "=1..2", "a=1..", "a=2..1", "a=0..1:log", "a=1..x", "a=1,,2", "a=1..inf", "a=nan..1"],
)
def test_what_is_wrong_is_told(text):
    with pytest.raises(ConfigError, match=r"--search .*: KEY=LOW\.\.HIGH, KEY=LOW\.\.HIGH:log or KEY=VALUE,VALUE"):
        parse_search(text)


def test_what_a_part_holds():
    assert Range(1, 4, False).holds(4)
    assert not Range(1, 4, False).holds(2.5)
    assert Range(0.0, 4, False).holds(2.5)
    assert not Range(0.0, 1.0, False).holds(True)
    assert not Range(1, 4, False).holds(None)
    assert Choices(("a", 2)).holds(2)
    assert (Range(1, 4, False).ends, Choices((1, 2, 3)).ends) == ((1, 4), (1, 2, 3))
