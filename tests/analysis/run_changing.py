"""Runs with other settings than they were made with, as somebody else might have made them."""

import json
import shutil
from pathlib import Path

from labeldeconv.runs.directory import RESULT, RunDirectory
from labeldeconv.settings.reading import load_config


def with_settings(run: Path, out: Path, sets: dict) -> RunDirectory:
    """A copy of a run whose settings are changed; all else is as it was."""
    shutil.copytree(run, out)
    config = load_config(RunDirectory.open(out).config(), sets)
    result = json.loads((out / RESULT).read_text())
    (out / "config.toml").unlink()
    (out / "config.toml").write_text(config.to_toml())
    result["settings"] = config.model_dump()
    result["files"]["config.toml"][0] = (out / "config.toml").stat().st_size
    del result["checksum"]
    (out / RESULT).unlink()
    (out / RESULT).write_text(json.dumps(result))
    return RunDirectory.open(out)
