"""Damage every file of a cache and of a run, one at a time: is it found and made again, or refused with its name?

    python -m benchmarks.corruption                  # every file, every damage
    python -m benchmarks.corruption --sample 20      # some of them, as the test suite does

Damages: one byte changed (in the middle), cut to half, emptied, deleted, replaced by a file of another stage, made
unreadable (for a user who is not the superuser). After a damage to the cache, `fit` into a new directory must give
the predictions of the undamaged run and a whole cache, or refuse with the file's name (unreadable). After a damage to a
run, `labeldeconv verify` must name the file. A damage to an unfinished stage (`KEY.partial`, as a kill leaves it) must
be found when the run goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.faults import Ended, start, wait, warm_up

DAMAGES = ("flip", "truncate", "empty", "delete", "exchange", "unreadable")
NOBODY = 65534


def damage(path: Path, kind: str, others: list[Path]) -> bool:
    """Damage one file; False where this damage changes nothing of it."""
    content = path.read_bytes()
    path.chmod(0o644)
    path.parent.chmod(0o755)
    if kind == "flip":
        middle = len(content) // 2
        changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :] if content else b"x"
    elif kind == "truncate":
        changed = content[: len(content) // 2]
    elif kind == "exchange":
        changed = next((other.read_bytes() for other in others if other.suffix == path.suffix), b"")
    else:
        changed = b""
    if kind == "delete":
        path.unlink()
    elif kind == "unreadable":
        path.chmod(0)
    else:
        path.unlink()  # another file may be a link to it
        path.write_bytes(changed)
    return kind in ("delete", "unreadable") or changed != content


def answer(place: Path, arguments: list[str], user: int | None = None) -> Ended:
    """What a command says, perhaps as another user."""
    child = os.fork()
    if not child:
        code = 70
        try:
            handle = os.open(place / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            os.environ["LABELDECONV_CACHE"] = str(place / "work" / "cache")
            if user is not None and os.getuid() == 0:
                os.setuid(user)
            sys.argv = ["labeldeconv", *arguments]
            from labeldeconv.cli.app import main

            try:
                main()
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 0
            sys.stdout.flush()
        finally:
            os._exit(code)
    return wait(child, place)


def copy(source: Path, target: Path) -> Path:
    """A fresh copy of a place, open to other users."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    for path in [target, *target.rglob("*")]:
        path.chmod(0o777 if path.is_dir() else 0o666)
    return target


def files_below(folder: Path) -> list[Path]:
    """Files that count, relative to the folder."""
    kept = (p.relative_to(folder) for p in sorted(folder.rglob("*")) if p.is_file())
    return [p for p in kept if p.parts[0] not in ("locks", "runs")]


def check_cache(place: Path, name: Path, kind: str, expected: bytes) -> str | None:
    """Fit again on a damaged cache; what is wrong, or None."""
    user = NOBODY if kind == "unreadable" else None
    ended = start_again(place, user)
    if kind == "unreadable":
        told = name.name in ended.said and "LABELDECONV_CACHE" in ended.said and "Traceback" not in ended.said
        return None if ended.code == 1 and told else f"exit code {ended.code}: {ended.said[-300:]}"
    if ended.code != 0:
        return f"exit code {ended.code}: {ended.said[-300:]}"
    if (place / "work" / "out" / "run" / "logits.npy").read_bytes() != expected:
        return "other predictions"
    if name.parts[-1] != "stage.json" and "is broken" not in ended.said:
        return "nothing was said"
    left = answer(place, ["cache", "verify"])
    return None if left.code == 0 else f"the cache is still broken: {left.said[-300:]}"


def start_again(place: Path, user: int | None) -> Ended:
    """The same fit into a new directory."""
    shutil.rmtree(place / "work" / "out", ignore_errors=True)
    (place / "work" / "out").mkdir()
    (place / "work" / "out").chmod(0o777)
    if user is None:
        return wait(start(place, "fit"), place)
    from benchmarks.faults import COMMANDS

    return answer(place, [*COMMANDS["fit"], "--out", str(place / "work" / "out" / "run")], user)


def check_run(place: Path, name: Path, kind: str) -> str | None:
    """Verify a damaged run; what is wrong, or None."""
    user = NOBODY if kind == "unreadable" else None
    ended = answer(place, ["verify", str(place / "work" / "out" / "run")], user)
    if kind == "delete" and str(name) == "result.json":
        return None if ended.code == 1 and "expected" in ended.said else f"exit code {ended.code}"
    told = name.name in ended.said and "Traceback" not in ended.said
    return None if ended.code == 1 and told else f"exit code {ended.code}: {ended.said[-300:]}"


def unfinished(folder: Path) -> list[Path]:
    """Places that a kill has left with an unfinished stage: in training, in a GNN, in self-training."""
    places = []
    for at in (200, 300, 420):
        place = folder / f"killed-{at}"
        (place / "work").mkdir(parents=True)
        if wait(start(place, "fit", at, "kill"), place).code == -signal.SIGKILL:
            places.append(place)
    return places


def main() -> None:
    """Damage, run or verify, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, help="so many damages, chosen at random; default all")
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    begun, done, wrong = time.monotonic(), Counter[str](), []
    with tempfile.TemporaryDirectory(prefix="labeldeconv-corruption-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        warm_up(folder)
        whole = folder / "whole"
        (whole / "work").mkdir(parents=True)
        ended = wait(start(whole, "fit"), whole)
        if ended.code != 0:
            raise SystemExit(ended.said)
        run = whole / "work" / "out" / "run"
        expected = (run / "logits.npy").read_bytes()
        cases = [("cache", whole, p, k) for p in files_below(whole / "work" / "cache") for k in DAMAGES]
        cases += [("run", whole, p, k) for p in files_below(run) for k in DAMAGES]
        for killed in unfinished(folder):
            cache = killed / "work" / "cache"
            open_stages = [p for p in files_below(cache) if ".partial" in str(p)]
            cases += [("unfinished", killed, p, k) for p in open_stages for k in DAMAGES if k != "unreadable"]
        random.Random(args.seed).shuffle(cases)
        files = len({(where, source, path) for where, source, path, _ in cases})
        for where, source, path, kind in cases[: args.sample]:
            if args.minutes and time.monotonic() - begun > 60 * args.minutes:
                break
            place = copy(source, folder / "place")
            root = place / "work" / ("out/run" if where == "run" else "cache")
            others = [root / p for p in files_below(root) if p.parent != path.parent]
            if not damage(root / path, kind, others):
                continue
            if where == "run":
                problem = check_run(place, path, kind)
            elif where == "cache":
                problem = check_cache(place, path, kind, expected)
            else:
                again = start_again(place, None)
                same = again.code == 0 and (place / "work/out/run/logits.npy").read_bytes() == expected
                problem = None if same else f"exit code {again.code}: {again.said[-300:]}"
            done[f"{where} {kind}"] += 1
            if problem:
                wrong.append(f"{where} {path} {kind}: {problem}")
                print(f"NOT FOUND {wrong[-1]}", file=sys.stderr, flush=True)
    seconds = round(time.monotonic() - begun, 1)
    out = {"files": files, "damages": sum(done.values()), "found": sum(done.values()) - len(wrong)}
    out |= {"not_found": len(wrong), "seconds": seconds, "by_kind": dict(sorted(done.items()))}
    if args.json:
        print(json.dumps({**out, "wrong": wrong}))
    else:
        for key, value in out.items():
            print(f"{key}: {value}")
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()
