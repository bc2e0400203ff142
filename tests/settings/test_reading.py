import pytest

from labeldeconv.errors import ConfigError
from labeldeconv.settings.models import Config
from labeldeconv.settings.reading import (
    load_config,
    parse_set,
    said,
    setting_names,
    settings_schema,
    with_suggestions,
)


def test_toml_round_trip(tmp_path):
    config = load_config(None, {"labels.hops": 4, "gnn.options": {"norm": "layer"}, "train.lr": 1})
    path = tmp_path / "c.toml"
    path.write_text(config.to_toml())
    assert load_config(path) == config
    assert config.train.lr == 1.0
    assert load_config(config, {"seed": 3}).labels.hops == 4


def test_all_errors_at_once_with_nearest_name():
    with pytest.raises(ConfigError) as error:
        load_config(None, {"train.epoch": 2, "labels.alpha": 1.7, "labels.hops": "three", "sed": 1})
    message = str(error.value)
    assert "4 wrong" in message
    assert "train.epoch: unknown setting; did you mean 'train.epochs'?" in message
    assert "labels.alpha" in message
    assert "got 1.7" in message
    assert "labels.hops" in message
    assert "sed: unknown setting; did you mean 'seed'?" in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train.lr=1e-4", ("train.lr", 1e-4)),
        ("gnn.name=sagn", ("gnn.name", "sagn")),
        ("train.gradient_checkpointing=true", ("train.gradient_checkpointing", True)),
        ("labels.hops=none", ("labels.hops", None)),
        ('data="a=b"', ("data", "a=b")),
    ],
)
def test_parse_set(text, expected):
    assert parse_set(text) == expected


def test_parse_set_without_value():
    with pytest.raises(ConfigError, match="KEY=VALUE expected"):
        parse_set("train.lr")


def test_setting_is_not_a_group():
    with pytest.raises(ConfigError, match="'seed' is a setting"):
        load_config(Config(), {"seed.x": 1})


@pytest.mark.parametrize(("content", "message"), [(None, "no such file"), ("a = ", "not valid TOML")])
def test_bad_file(tmp_path, content, message):
    path = tmp_path / "c.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        load_config(path)


def test_suggestions_stand_under_what_was_said():
    config = load_config(None, {"gnn.layers": 4, "gnn.adjacency.undirected": False})
    full = with_suggestions(config, {"gnn.layers": 1, "gnn.adjacency.self_loops": False, "train.lr": 1e-4})
    assert (full.gnn.layers, full.gnn.adjacency.self_loops, full.train.lr) == (4, False, 1e-4)
    assert full.gnn.adjacency.undirected is False
    assert said(config, "gnn.layers")
    assert said(config, "gnn.adjacency.undirected")
    assert not said(config, "gnn.adjacency.self_loops")
    assert not said(config, "train.lr")
    assert not said(load_config(config, {"gnn.layers": None}), "gnn.layers")


def test_one_setting_of_a_group_leaves_the_others_alone():
    adjacency = load_config(None, {"data": "elsewhere", "gnn.adjacency.undirected": False}).gnn.adjacency
    assert (adjacency.normalization, adjacency.self_loops, adjacency.undirected) == ("symmetric", True, False)


def test_the_schema_knows_every_setting_and_its_choices():
    schema = settings_schema()
    assert schema["properties"]["extends"]["type"] == "string"
    for name in setting_names():
        node = schema
        for part in name.split("."):
            node = schema["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node
            node = node["properties"][part]
        assert node, name
    labels = schema["$defs"]["LabelConfig"]["properties"]
    assert labels["targets"]["enum"] == ["mix", "hops"]
    assert "gamma" in labels["gamma"]["description"]
