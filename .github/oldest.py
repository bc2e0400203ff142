"""Constraints for pip: every dependency of pyproject.toml, extras included, at the oldest version it allows.

python .github/oldest.py pyproject.toml > oldest.txt
"""

import re
import sys
import tomllib
from pathlib import Path


def oldest(project: dict) -> list[str]:
    """NAME==VERSION for every requirement NAME>=VERSION."""
    asked = [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]
    found = (re.fullmatch(r"([A-Za-z0-9_.-]+)>=([0-9.]+)", requirement) for requirement in asked)
    return sorted({f"{match[1]}=={match[2]}" for match in found if match})


if __name__ == "__main__":
    print("\n".join(oldest(tomllib.loads(Path(sys.argv[1]).read_text())["project"])))  # noqa: T201
