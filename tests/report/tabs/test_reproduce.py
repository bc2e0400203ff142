import shlex

import pytest

from labeldeconv.report.source import open_source
from labeldeconv.report.tabs.reproduce import compare_command, differences, fit_command, settings_section
from labeldeconv.runs.asked import resolve
from labeldeconv.settings.reading import load_config, parse_set, parse_vary
from tests.report.run_writing import ring, write_comparison, write_run

OPTIONS = {"--method": "method", "--encoder": "encoder.name", "--gnn": "gnn.name", "--seed": "seed"}


def parsed(command):
    """What the command line would make of it: data and dotted settings."""
    words = shlex.split(command)
    given = {"data": words[2]}
    for option, value in zip(words[3::2], words[4::2], strict=True):
        if option == "--set":
            name, value = parse_set(value)
            given[name] = value
        elif option in OPTIONS:
            given[OPTIONS[option]] = int(value) if option == "--seed" else value
    return given


@pytest.mark.parametrize(
    "sets",
    [
        {},
        {"labels.hops": 3, "labels.alpha": 0.5, "train.lr": 3e-6, "gnn.fanouts": [5, 10], "device": "cpu"},
        {"gnn.name": "sagn", "gnn.options": {"input_dropout": 0.2}, "encoder.layers": 3, "setting": "inductive"},
        {"data": "planted#300", "train.gamma_lr": 0.001, "gnn.adjacency.self_loops": True},
        {"data": "my graph's folder", "encoder.name": "a folder/with spaces"},
    ],
)
def test_fit_command_resolves_to_the_same_settings(sets):
    config = resolve(load_config(None, {"method": "ld", "seed": 3, **sets}))
    command = fit_command(config.model_dump())
    assert resolve(load_config(None, parsed(command))) == config


def test_compare_command(tmp_path):
    source = open_source(write_comparison(tmp_path, ring(), methods=("wo-ld", "ld"), gnns=("gcn", "sagn"), seeds=2))
    words = shlex.split(compare_command(source))
    assert words[:3] == ["labeldeconv", "compare", "ring"]
    assert words[3:] == ["--methods", "wo-ld,ld", "--gnns", "gcn,sagn", "--seeds", "2", "--encoder", "tiny"]


def test_sweep_command_varies(tmp_path):
    varied = [{"labels.hops": h} for h in (0, 1, 2)]
    source = open_source(write_comparison(tmp_path, ring(), methods=("ld",), varied=varied))
    words = shlex.split(compare_command(source))
    assert words[1] == "sweep"
    assert parse_vary(words[words.index("--vary") + 1]) == ("labels.hops", [0, 1, 2])
    assert "labels.hops=0" not in words


def test_differences_leave_out_what_the_data_set_suggests():
    config = resolve(load_config(None, {"data": "planted", "gnn.epochs": 20}))
    assert differences(config.model_dump()) == [("gnn.epochs", 20, 200)]


def test_settings_section_of_a_single_run(tmp_path):
    write_run(tmp_path, ring(), **{"labels.hops": 4})
    table = next(block for block in settings_section(open_source(tmp_path)).blocks if block.kind == "table")
    assert ["labels.hops", "4", "none"] in [[cell.text for cell in row] for row in table.rows]
    titles = [block.title for block in settings_section(open_source(tmp_path)).blocks]
    assert titles[0] == "Reproduce the run"
    assert titles[-1].startswith("All settings")
