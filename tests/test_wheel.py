"""The wheel works where the repository is not: what it holds, and a run of what was unpacked."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from labeldeconv import __version__

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel that `make wheel` has built, or one built now."""
    built = os.environ.get("LABELDECONV_WHEEL")
    folder = ROOT / built if built else tmp_path_factory.mktemp("dist")
    if not built:
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    (found,) = folder.glob("*.whl")
    return found


def test_it_holds_the_package_and_nothing_else(wheel):
    assert wheel.name.startswith(f"labeldeconv-{__version__}-")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"labeldeconv", f"labeldeconv-{__version__}.dist-info"}
    package = {str(path.relative_to(ROOT)) for path in (ROOT / "labeldeconv").rglob("*.py")}
    assert package <= set(names)
    assert any(name.endswith("page.css") for name in names)  # the report's parts come along


def test_it_runs_without_the_repository(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    settings = ["--set", "train.epochs=1", "--set", "gnn.epochs=2"]
    command = ["fit", "planted:60", "--method", "ld", "--gnn", "gcn", "--encoder", "tiny", "--out", "run", *settings]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "LABELDECONV_CACHE": str(tmp_path / "cache")}
    code = "import labeldeconv; from pathlib import Path; assert Path(labeldeconv.__file__).is_relative_to(Path.cwd())"
    for program in (["-c", code], ["-m", "labeldeconv", *command], ["-m", "labeldeconv", "report", "run"]):
        python = [sys.executable, *program]
        done = subprocess.run(python, cwd=tmp_path, env=environment, capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr.decode()
    assert list((tmp_path / "run").glob("*.html"))
