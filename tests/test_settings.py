import pytest

from labeldeconv.config import Config
from labeldeconv.errors import ConfigError
from labeldeconv.settings import load_config, parse_set


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


def test_data_sets_bring_settings_that_the_user_overrules(tmp_path):
    assert load_config(None, {"data": "planted:500"}).gnn.layers == 1
    assert load_config(None, {"data": "elsewhere"}).gnn.layers == 2
    path = tmp_path / "c.toml"
    path.write_text('data = "planted"\n[gnn]\nlayers = 4\n')
    assert load_config(path).gnn.layers == 4
    assert load_config(load_config(path), {"seed": 1}).gnn.layers == 4
    assert not load_config(path).gnn.adjacency.self_loops


def test_one_setting_of_a_group_leaves_the_others_alone():
    adjacency = load_config(None, {"data": "elsewhere", "gnn.adjacency.undirected": False}).gnn.adjacency
    assert (adjacency.normalization, adjacency.self_loops, adjacency.undirected) == ("symmetric", True, False)


def test_suggestions_follow_the_data_and_the_gnn():
    planted = load_config(None, {"data": "planted"})
    assert load_config(planted, {"gnn.name": "revgat"}).gnn.layers == 2  # its least
    assert load_config(load_config(planted, {"gnn.name": "revgat"}), {"gnn.name": "gcn"}).gnn.layers == 1
    assert load_config(planted, {"gnn.name": "revgat", "gnn.layers": 1}).gnn.layers == 1  # an error that names it
    assert load_config(planted, {"data": "elsewhere"}).model_dump() == Config(data="elsewhere").model_dump()
    asked = load_config(None, {"data": "planted", "gnn.layers": 4})
    assert load_config(asked, {"gnn.name": "revgat", "data": "elsewhere"}).gnn.layers == 4
