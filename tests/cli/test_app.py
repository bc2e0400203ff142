"""The command line as a newcomer meets it: JSON on stdout, messages, exit codes."""

import json
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from labeldeconv import __version__
from labeldeconv.cli.app import app, main

QUICK = ["--encoder", "tiny", "--set", "train.epochs=1", "--set", "gnn.epochs=3"]


def invoke(*args):
    result = CliRunner().invoke(app, list(args), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_list_json():
    names = json.loads(invoke("list", "--json"))
    assert set(names) == {"data", "encoders", "gnns", "methods"}
    assert {"pne", "fne", "wo-ld", "ld"} <= set(names["methods"])
    assert {"gcn", "sagn"} <= set(names["gnns"])


def test_list_text():
    text = invoke("list")
    assert "GNN sagn" in text
    assert "input_dropout" in text


def test_fit_json(tmp_path):
    out = json.loads(invoke("fit", "planted:60", "--method", "ld", "--out", str(tmp_path / "r"), "--json", *QUICK))
    for key in ("metric", "higher_is_better", "val", "test", "gamma", "seconds", "settings", "run"):
        assert key in out
    assert set(out["seconds"]) >= {"tokens", "encode", "pseudo", "hops", "train", "features", "gnn"}
    assert out["run"] == str(tmp_path / "r")


def test_fit_text(tmp_path):
    text = invoke("fit", "planted:60", "--gnn", "sagn", "--hops", "1", "--out", str(tmp_path / "r"), *QUICK)
    assert "run directory" in text
    assert "gamma" in text


def test_find_batch(tmp_path):
    args = ("fit", "planted:60", "--method", "fne", "--out", str(tmp_path / "r"), "--find-batch", "--memory", "2000")
    assert json.loads(invoke(*args, "--json", *QUICK))["largest_batch"] == 60
    assert "largest batch that fits: 60 nodes of 256 tokens" in invoke(*args, *QUICK)


def test_compare_json(tmp_path):
    args = ("--methods", "pne,ld", "--gnns", "gcn", "--seeds", "2", "--out", str(tmp_path / "r"), "--json")
    out = json.loads(invoke("compare", "planted:60", *args, *QUICK))
    assert [(r["method"], r["gnn"], r["seeds"]) for r in out["rows"]] == [("pne", "gcn", 2), ("ld", "gcn", 2)]
    assert set(out["rows"][0]["val"]) == {"mean", "std"}
    assert out["rows"][0]["seconds"] > 0


@pytest.mark.parametrize(("option", "value", "settings"), [
    ("--alpha", "auto", {"gamma": "auto", "alpha": 1.0}),
    ("--hops", "auto", {"gamma": "auto"}),
    ("--alpha", "0.5", {"gamma": "learned", "alpha": 0.5}),
    ("--hops", "3", {"gamma": "learned", "hops": 3}),
])  # fmt: skip
def test_compare_takes_alpha_and_hops(tmp_path, option, value, settings):
    args = ("--methods", "ld", "--out", str(tmp_path / "r"), option, value)
    invoke("compare", "planted:60", *args, *QUICK)
    labels = json.loads((tmp_path / "r" / "ld-gcn-0" / "result.json").read_text())["settings"]["labels"]
    assert {name: labels[name] for name in settings} == settings


@pytest.mark.parametrize("data", ["planted:200", "planted-multilabel:200", "planted-protein:200"])
def test_inspect_json(data):
    out = json.loads(invoke("inspect", data, "--encoder", "tiny", "--json"))
    assert out["nodes"] == 200
    assert sum(out["split"].values()) == 200
    assert 0 <= out["homophily"] <= 1
    assert out["estimate"]["seconds"]["total"] > 0
    assert out["estimate"]["tokens"]["max"] > 1
    assert out["errors"] == []


def test_inspect_text():
    text = invoke("inspect", "planted:200", "--encoder", "tiny")
    assert "homophily" in text
    assert "estimate for ld with tiny and gcn" in text


def test_dry_run_trains_nothing(tmp_path):
    text = invoke("fit", "planted:60", "--dry-run", "--out", str(tmp_path / "r"), "--alpha", "0.5", *QUICK)
    assert "alpha = 0.5" in text
    assert "estimate" in text
    assert not (tmp_path / "r").exists()
    out = json.loads(invoke("fit", "planted:60", "--dry-run", "--json", *QUICK))
    assert out["settings"]["train"]["epochs"] == 1


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["fit", "nowhere"], "data 'nowhere': no such folder"),
        (["fit", "planted:60", "--set", "train.epoch=1"], "did you mean 'train.epochs'"),
        (["fit", "planted:60", "--alpha", "1.5"], "labels.alpha"),
        (["fit", "planted:60", "--method", "lld"], "did you mean 'ld'"),
        (["settings", "train.llr"], "settings: none has 'train.llr' in its name; did you mean 'train.lr'"),
        (["compare", "planted:60", "--gnns", "gcnn", "--encoder", "tiny"], "did you mean 'gcn'"),
        (["fit", "planted:60", "--encoder", "no/such"], "encoder.name 'no/such'"),
        (["fit", "planted:60", "--config", "none.toml"], "none.toml: no such file"),
    ],
)
def test_errors_are_one_message(args, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["labeldeconv", *args])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "\nerror: " in f"\n{err}"
    assert "Traceback" not in err


def test_inspect_tells_all_errors_as_json(tmp_path):
    (tmp_path / "nodes.csv").write_text("id,text,label\n1,a,x\n1,b,x\n")
    (tmp_path / "edges.csv").write_text("source,target\n1,9\n")
    result = CliRunner().invoke(app, ["inspect", str(tmp_path), "--json"])
    assert result.exit_code == 1
    problems = json.loads(result.stdout)["errors"]
    assert len(problems) >= 3


def test_help_does_not_wait_for_torch():
    code = "import sys, labeldeconv.cli.app; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_settings_are_all_named_with_their_meaning():
    found = json.loads(invoke("settings", "--json"))["settings"]
    assert all(s["meaning"] for s in found)
    assert {"name": "train.lr", "default": 5e-5} in [{k: s[k] for k in ("name", "default")} for s in found]
    lines = invoke("settings", "gnn.schedule")
    assert "linear" in lines
    assert "train.lr" not in lines


def test_python_m_is_the_command():
    out = subprocess.run([sys.executable, "-m", "labeldeconv", "--version"], check=True, capture_output=True, text=True)
    assert out.stdout.strip().endswith(__version__)


def test_export(tmp_path):
    invoke("fit", "planted:60", "--method", "pne", "--out", str(tmp_path / "r"), *QUICK)
    assert "x.parquet" in invoke("export", str(tmp_path / "r"), str(tmp_path / "x.parquet"))
    assert (tmp_path / "x.parquet").stat().st_size > 0


def test_report(tmp_path, monkeypatch):
    args = ("--methods", "pne,ld", "--seeds", "2", "--out", str(tmp_path / "c"), "--json")
    invoke("compare", "planted:60", *args, *QUICK)
    out = json.loads(invoke("report", str(tmp_path / "c"), "--out", str(tmp_path / "page.html"), "--json"))
    assert out["path"] == str(tmp_path / "page.html")
    assert out["bytes"] == (tmp_path / "page.html").stat().st_size < 6_000_000
    keys = ["overview", "data", "training", "predictions", "labels", "costs", "nodes", "settings"]
    assert out["sections"] == keys
    opened = []
    monkeypatch.setattr("typer.launch", opened.append)
    assert "report.html" in invoke("report", str(tmp_path / "c" / "ld-gcn-1"), "--open")
    assert opened == [(tmp_path / "c" / "ld-gcn-1" / "report.html").as_uri()]


def test_max_nodes_and_encoder_that_does_not_fit():
    out = json.loads(invoke("inspect", "planted-protein:300", "--max-nodes", "100", "--encoder", "tiny", "--json"))
    assert out["nodes"] == 100
    assert "'tiny' reads texts" in out["warnings"][-1]


def test_inspect_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELDECONV_DATA", str(tmp_path))
    result = CliRunner().invoke(app, ["inspect", "ogbn-products", "--json"])
    out = json.loads(result.stdout)
    assert result.exit_code == 1
    assert out["classes"] == 47
    assert len(out["errors"]) == 8
    assert "Amazon-3M.raw/trn.json.gz" in out["errors"][-2]


def run_command(args, stdout=subprocess.PIPE, **environment):
    command = [sys.executable, "-m", "labeldeconv", *args]
    return subprocess.Popen(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )


def test_a_reader_who_goes_away_is_no_error():
    """`labeldeconv settings | head -1`"""
    read, write = os.pipe()
    os.close(read)
    process = run_command(["settings"], stdout=write)
    os.close(write)
    _, err = process.communicate()
    assert (process.returncode, err) == (1, "")


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_full_stdout_is_one_line(more):
    with open("/dev/full", "w") as full:  # noqa: PTH123 (a device)
        process = run_command(["settings", *more], stdout=full)
        _, err = process.communicate()
    assert process.returncode == 1
    assert err.splitlines() == [
        "error: stdout: No space left on device; what was to be printed is lost, but files are written"
    ]


def test_ctrl_c_says_how_to_go_on(tmp_path):
    args = ["fit", "planted:60", "--method", "ld", "--gnn", "gcn", "--encoder", "tiny", "--set", "train.epochs=100000"]
    args += ["--out", str(tmp_path / "run")]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs us in the background ignores it
    try:
        process = run_command(args, LABELDECONV_CACHE=str(tmp_path / "cache"))
    finally:
        signal.signal(signal.SIGINT, before)
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "hops " in line:  # the encoder is trained now
            process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    assert lines[-1] == "interrupted; resume with the same command: it goes on from the last checkpoint\n"
    assert not (tmp_path / "run").exists()


def _interrupted_as(error):
    """A library in which Ctrl-C came, and that made another error of it, as numpy does while it writes a file."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise error from None


@pytest.mark.parametrize(
    ("where", "error"),
    [("labeldeconv.cli.app.show", KeyboardInterrupt()), ("labeldeconv.runs.fit.fit_config", TypeError("expected str"))],
)
def test_ctrl_c_at_any_time_is_one_line(where, error, monkeypatch, capsys):
    """At a random time in the first tenth of a run, while typer reads the commands, it was a traceback."""
    standing = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        monkeypatch.setattr(where, lambda *_, **__: _interrupted_as(error))
        monkeypatch.setattr(sys, "argv", ["labeldeconv", "fit", "planted:60"])
        with pytest.raises(SystemExit) as stop:
            main()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, standing)
    assert stop.value.code == 130
    assert capsys.readouterr().err == "interrupted; resume with the same command: it goes on from the last checkpoint\n"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "No space left on device", "/data/x"), "/data/x: the disk is full; make room"),
        (PermissionError(13, "Permission denied", "/data/x"), "/data/x: no permission"),
        (
            MemoryError("Unable to allocate 1 TiB"),
            "not enough memory (Unable to allocate 1 TiB); lower train.batch_nodes",
        ),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "not enough memory"),
    ],
)
def test_errors_of_the_machine_are_one_message(error, message, monkeypatch, capsys):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("labeldeconv.runs.fit.fit_config", fail)
    monkeypatch.setattr(sys, "argv", ["labeldeconv", "fit", "planted:60"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1


def test_what_is_odd_about_the_data_is_said_and_recorded(tmp_path):
    """Off a terminal too: on stderr, and as `warnings` of result.json."""
    tables = tmp_path / "tables"
    tables.mkdir()
    rows = "".join(f"{i},text {i % 3},{i % 3}\n" for i in range(30))
    (tables / "nodes.csv").write_text(f"id,text,label\n{rows}")
    edges = "".join(f"{i},{(i + 1) % 30}\n" for i in range(30))
    (tables / "edges.csv").write_text(f"source,target\n{edges}0,0\n0,1\n")
    args = ["fit", str(tables), "--method", "pne", *QUICK, "--out", str(tmp_path / "run"), "--json"]
    process = run_command(args, LABELDECONV_CACHE=str(tmp_path / "cache"))
    out, err = process.communicate()
    told = json.loads(out)["warnings"]
    assert told
    assert json.loads((tmp_path / "run" / "result.json").read_text())["warnings"] == told
    assert all(f"warning: {warning}" in err for warning in told)


def test_fit_tells_how_the_gnn_was_chosen(tmp_path):
    auto = ("--gnn", "auto", "--set", 'gnn.candidates=["gcn", "mlp"]', "--set", "gnn.hidden=8")
    text = invoke("fit", "planted:60", "--method", "pne", *auto, "--out", str(tmp_path / "r"), *QUICK)
    assert "GNNs by validation score" in text
    assert "has the best accuracy on the validation nodes" in " ".join(text.split())
    planned = json.loads(invoke("fit", "planted:60", *auto, "--dry-run", "--json", *QUICK))
    assert planned["settings"]["gnn"]["name"] == "auto"
    assert planned["estimate"]["seconds"]["gnn race (at most)"] == 300


def test_the_default_of_fit_is_a_race(raced_default):
    planned = json.loads(invoke("fit", "planted:60", "--dry-run", "--json", *QUICK))
    assert planned["settings"]["gnn"]["name"] == "auto"
    assert "estimate for auto with tiny and auto" in invoke("inspect", "planted:60", "--encoder", "tiny")
    compared = json.loads(invoke("compare", "planted:60", "--dry-run", "--json", *QUICK))
    assert compared["settings"]["gnn"]["name"] == "gcn"


def test_inspect_says_how_a_public_file_was_read(tmp_path):
    ring = {"nodes": [{"id": i, "abstract": f"t{i}", "subject": i % 2} for i in range(9)], "links": []}
    (tmp_path / "ring.json").write_text(json.dumps(ring))
    out = json.loads(invoke("inspect", str(tmp_path / "ring.json"), "--encoder", "tiny", "--json"))
    assert out["warnings"][0] == "ring.json: read as text = abstract, label = subject, split = made"


def test_inspect_gives_advice_as_text_and_json():
    args = ("inspect", "planted:200", "--encoder", "tiny")
    told = json.loads(invoke(*args, "--json"))["advice"]
    assert {piece["topic"] for piece in told} >= {"homophily", "label deconvolution"}
    assert all(piece["command"].startswith("labeldeconv ") for piece in told)
    assert "advice label deconvolution: inverse labels can take away" in invoke(*args)


def loaded(code: str) -> set[str]:
    """Modules that a program loads beyond those of an empty one."""
    told = "import sys; before = set(sys.modules); {}; print(*sorted(set(sys.modules) - before))"
    return set(subprocess.check_output([sys.executable, "-c", told.format(code)], text=True).split())


def test_first_contact_loads_little():
    """`import labeldeconv` is a few modules of Python; --help waits for nothing that computes or validates."""
    found = loaded("import labeldeconv")
    assert len(found) < 40, sorted(found)
    assert not {m.partition(".")[0] for m in found} & {"numpy", "torch", "pydantic", "typer", "rich"}
    heavy = {"numpy", "torch", "pydantic", "scipy", "sklearn", "transformers", "numba", "duckdb", "torch_geometric"}
    assert not {m.partition(".")[0] for m in loaded("import labeldeconv.cli.app")} & heavy


def test_fit_says_a_word_before_it_loads_torch():
    code = "import sys; sys.modules['torch'] = None; from labeldeconv.cli.app import main; main()"
    command = [sys.executable, "-c", code, "fit", "planted:60", "--method", "pne", "--gnn", "gcn"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "fit of planted:60: loading torch" in done.stderr.splitlines()[0]
