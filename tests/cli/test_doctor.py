"""labeldeconv doctor: facts that can be checked, on a terminal and as JSON."""

import json
import os
import platform

import torch
from typer.testing import CliRunner

from labeldeconv import __version__
from labeldeconv.cli.app import app


def test_it_says_what_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELDECONV_CACHE", str(tmp_path / "new" / "cache"))
    found = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).output)
    assert found["labeldeconv"]["version"] == __version__
    assert found["labeldeconv"]["python"] == platform.python_version()
    assert found["labeldeconv"]["torch"] == torch.__version__
    assert found["hardware"]["cores"] == os.cpu_count()
    assert found["a run would use"]["precision"] in ("float32", "bfloat16")
    assert found["cache"]["folder"] == str(tmp_path / "new" / "cache")
    assert not (tmp_path / "new").exists()  # it only looks
    assert "pytest" in found["extras"]["dev"]


def test_an_extra_that_is_missing_says_how_to_get_it(monkeypatch):
    from labeldeconv.runs import provenance

    known = provenance.version_of
    monkeypatch.setattr(provenance, "version_of", lambda name: None if name == "peft" else known(name))
    shown = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "200"}).output
    assert "not installed: pip install 'labeldeconv[lora]'" in shown


def test_compile_says_how_many_how_long_and_where(monkeypatch):
    from labeldeconv.propagation import compiling

    done = compiling.Compilation(98, 3, 1.25, ["/some/[where]"])
    monkeypatch.setattr(compiling, "compile_kernels", lambda: done)
    shown = CliRunner().invoke(app, ["doctor", "--compile"]).output
    assert shown.splitlines() == ["kernels: 3 of 98 compiled, 1.2 s", "cached in /some/[where]"]
    found = json.loads(CliRunner().invoke(app, ["doctor", "--compile", "--json"]).output)
    assert found == {"kernels": 98, "compiled": 3, "seconds": 1.25, "folders": ["/some/[where]"]}
    done = compiling.Compilation(98, 0, 0.03, ["/a"])
    monkeypatch.setattr(compiling, "compile_kernels", lambda: done)
    assert "all 98 compiled before, 0.0 s" in CliRunner().invoke(app, ["doctor", "--compile"]).output
