"""The audit: bandit over the source, pip-audit over everything installed. `make audit`; needs the extra 'audit'.

    python -m benchmarks.audit [--only bandit | pip-audit] [--json]

A finding of bandit passes only if EXCEPTIONS argues why, or a comment beside it; an exception that nothing needs any
more is told too. pip-audit asks an advisory service over the network. Where none answers it calls every package "not
found", finds no vulnerability and ends well, which would pass for clean: here that is an outcome of its own.

Exit code 0: clean. 1: something was found. 3: bandit is clean, but packages could not be audited.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOUND, NOT_AUDITED = 1, 3
SQL = (
    "duckdb takes no parameters for names of tables, columns and files. Names from outside go through `quoted`, texts "
    "and paths through `literal` (labeldeconv/sql.py), which double their quotes; the others are our own constants. "
    "The database is in memory. tests/test_malicious.py has columns and files called like statements."
)
EXCEPTIONS = {  # (test of bandit, files): why it is right here
    ("B101", "labeldeconv/testing.py"): "contract suites for users: an AssertionError is their answer",
    ("B101", "labeldeconv/*.py"): "narrows a type for mypy; input is checked by graph/validation.py, which raises",
    ("B105", "labeldeconv/analysis/tfidf.py"): "a pattern of words, no password",
    ("B106", "labeldeconv/encoders/huggingface.py"): "names of a tokenizer's special tokens, no passwords",
    ("B404", "labeldeconv/data/sets/apt.py"): "asks apt-get, by a list of words and never by a shell",
    ("B603", "labeldeconv/data/sets/apt.py"): "as above: constant words, and a folder of our own as option values",
    ("B608", "labeldeconv/data/*.py"): SQL,
    ("B608", "labeldeconv/lake/parquet.py"): SQL,
    ("B608", "labeldeconv/prediction/*.py"): SQL,
    ("B608", "labeldeconv/runs/export.py"): SQL,
    ("B608", "labeldeconv/sharing/graphstorm.py"): SQL,
    ("B615", "labeldeconv/encoders/*.py"): (
        "which model and whom to trust is the user's word (encoder.name); only safetensors, never code; the key of a "
        "stage is made of the weights' content, so that another revision is another result"
    ),
}  # fmt: skip


def bandit() -> tuple[list[str], list[str]]:
    """Findings of bandit that nothing argues, and exceptions that nothing needs."""
    command = [sys.executable, "-m", "bandit", "-q", "-r", "labeldeconv", "-f", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if not done.stdout.startswith("{"):
        raise SystemExit(f"bandit did not run; pip install 'labeldeconv[audit]': {done.stderr[-500:]}")
    told = json.loads(done.stdout)
    return argued([*told["results"], *told["errors"]])


def argued(results: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """The same of bandit's list of results."""
    findings, used = [], set()
    for each in results:
        name, test = each["filename"].removeprefix("./"), each.get("test_id", "unreadable")
        key = next((key for key in EXCEPTIONS if key[0] == test and fnmatch.fnmatch(name, key[1])), None)
        if key:
            used.add(key)
        else:
            findings.append(f"{name}:{each.get('line_number')}: {test} {each.get('issue_text') or each.get('reason')}")
    return findings, [f"{test} in {files}" for test, files in EXCEPTIONS if (test, files) not in used]


def pip_audit() -> dict[str, list[str]]:
    """Packages by outcome: 'audited', 'vulnerable' (with advisory and mended versions) and 'not audited'."""
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if not done.stdout.startswith("{"):  # no network at all: it ends with an error of the connection
        return {"audited": [], "vulnerable": [], "not audited": [f"all: {last_line(done.stderr)}"]}
    return outcomes(json.loads(done.stdout)["dependencies"])


def outcomes(dependencies: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The same of pip-audit's list of dependencies."""
    found: dict[str, list[str]] = {"audited": [], "vulnerable": [], "not audited": []}
    for each in dependencies:
        if "skip_reason" in each:
            found["not audited"].append(each["name"])
            continue
        found["audited"].append(each["name"])
        for advisory in each.get("vulns", []):
            mended = ", ".join(advisory.get("fix_versions", [])) or "none"
            found["vulnerable"].append(f"{each['name']} {each['version']}: {advisory['id']}, mended in: {mended}")
    found["not audited"] = [name for name in found["not audited"] if name != "labeldeconv"]  # which is no release yet
    return found


def verdict(findings: list[str], stale: list[str], packages: dict[str, list[str]]) -> int:
    """The exit code."""
    if findings or stale or packages["vulnerable"]:
        return FOUND
    return NOT_AUDITED if packages["not audited"] else 0


def last_line(text: str) -> str:
    """The last line of an error, which says what it is."""
    return (text.strip().splitlines() or ["no word"])[-1][:300]


def main() -> None:
    """Audit, print, and leave with the verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["bandit", "pip-audit"])
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    findings, stale = bandit() if args.only != "pip-audit" else ([], [])
    packages = pip_audit() if args.only != "bandit" else outcomes([])
    code = verdict(findings, stale, packages)
    if args.json:
        print(json.dumps({"findings": findings, "stale": stale, **packages, "code": code}))
        sys.exit(code)
    if args.only != "pip-audit":
        print(*(f"bandit: {finding}" for finding in findings), sep="\n", end="\n" if findings else "")
        print(*(f"bandit: nothing needs the exception {name}" for name in stale), sep="\n", end="\n" if stale else "")
        print(
            f"bandit: {len(findings)} findings, {len(EXCEPTIONS)} exceptions with their reasons in benchmarks/audit.py"
        )
    if args.only != "bandit":
        print(
            *(f"pip-audit: {told}" for told in packages["vulnerable"]),
            sep="\n",
            end="\n" if packages["vulnerable"] else "",
        )
        print(f"pip-audit: {len(packages['audited'])} packages audited, {len(packages['vulnerable'])} advisories")
        if packages["not audited"]:
            print(
                f"pip-audit: {len(packages['not audited'])} packages NOT AUDITED: no advisory service knows them from "
                "here. This says nothing about them; run it where https://pypi.org/pypi or https://api.osv.dev answers."
            )
    sys.exit(code)


if __name__ == "__main__":
    main()
