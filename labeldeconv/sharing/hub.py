"""Upload a run to a hub: its repository is written into a folder of its own first, then uploaded in one commit."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from labeldeconv.errors import ConfigError
from labeldeconv.prediction.pushed import REPOSITORY
from labeldeconv.sharing.repository import write_repository


def push_run(
    run: str | Path, name: str, private: bool = True, with_graph: bool = False, license: str = "unknown"
) -> str:
    """Upload a run as USER/NAME, which is made where it is not there; returns its address.

    Whoever uploads is who has logged in by `hf auth login`, or HF_TOKEN. An existing repository stays as public or
    private as it is.
    """
    if not REPOSITORY.fullmatch(name):
        raise ConfigError(f"push: USER/NAME expected, got '{name}'; a folder is --folder DIR")
    if os.environ.get("HF_HUB_OFFLINE", "0").upper() in ("1", "TRUE", "YES", "ON"):
        raise ConfigError(
            f"{name}: HF_HUB_OFFLINE is set, so that nothing is uploaded; --folder DIR writes the same files"
        )
    from huggingface_hub import HfApi

    with tempfile.TemporaryDirectory(prefix="labeldeconv-") as scratch:
        folder = write_repository(run, Path(scratch) / name.rpartition("/")[2], with_graph, license, name)
        api = HfApi()
        try:
            url = api.create_repo(name, private=private, exist_ok=True)
            api.upload_folder(repo_id=name, folder_path=folder, commit_message="Upload a run of labeldeconv")
        except Exception as error:  # of the hub, of its tokens, of the network: there is no common base
            why = next(iter(str(error).splitlines()), "") or type(error).__name__
            raise ConfigError(
                f"{name}: cannot be uploaded: {why}; `hf auth login` or HF_TOKEN says who uploads, and --folder DIR "
                "writes the same files without a hub"
            ) from error
    return str(url)
