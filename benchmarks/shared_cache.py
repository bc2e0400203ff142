"""Several processes, one cache, many small fits: is every stage built once, and is every result right?

    python -m benchmarks.shared_cache                        # 8 processes, 200 fits
    python -m benchmarks.shared_cache --processes 3 --fits 9 # as the test suite does
    python -m benchmarks.shared_cache --without-locks        # as on a file system without locks and hard links
    python -m benchmarks.shared_cache --slow 50              # as on a disk that takes 50 ms for a flush or a rename

Fits differ in method and seed, so that some stages belong to all of them and some to one; several processes do the same
fit at the same time, into directories of their own. A stage that was built twice, a fit that failed or gave another
result than its twin, and a file left behind are told.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import hashlib
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.faults import SETTINGS, warm_up

METHODS = ("pne", "fne", "wo-ld", "ld")


def without_locks() -> None:
    """From here on this process is on a file system that has neither locks nor hard links, as some of NFS."""

    def refused(number: int) -> Any:
        def call(*args: Any, **kwargs: Any) -> None:
            raise OSError(number, os.strerror(number))

        return call

    fcntl.flock, os.link = refused(errno.ENOLCK), refused(errno.ENOTSUP)


def slow_disk(milliseconds: float) -> None:
    """From here on every flush, rename, link and deletion of this process takes so much longer."""

    def late(name: str) -> None:
        real = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            time.sleep(milliseconds / 1000)
            return real(*args, **kwargs)

        setattr(os, name, call)

    for name in ("fsync", "replace", "rename", "link", "unlink"):
        late(name)


def work(number: int, fits: list[tuple[int, str, int]], folder: Path) -> None:
    """Do some fits in a child process; a line per fit goes to its file."""
    from labeldeconv.progress import logger
    from labeldeconv.runs.fit import fit
    from labeldeconv.stages.cache import Cache

    logger.disabled = True
    made: list[str] = []
    real = Cache._make

    def counted(self: Cache, final: Path, build: Any, alone: bool = True) -> None:
        made.append(f"{final.parent.name}/{final.name}")
        real(self, final, build, alone)

    Cache._make = counted  # type: ignore[method-assign]
    given = {name.replace(".", "__"): value for name, value in SETTINGS.items() if name != "encoder.name"}
    with (folder / f"done-{number}.jsonl").open("w") as out:
        for index, method, seed in fits:
            made.clear()
            try:
                cache, run = folder / "cache", folder / "runs" / str(index)
                result = fit("planted:40", method, "tiny", seed=seed, out=run, cache=cache, **given)
                digest = hashlib.blake2b(result.logits.tobytes() + str(result.test).encode()).hexdigest()[:16]
                row: dict[str, Any] = {"fit": f"{method}-{seed}", "result": digest, "built": list(made)}
            except Exception as error:
                row = {"fit": f"{method}-{seed}", "error": repr(error), "built": list(made)}
            out.write(json.dumps(row) + "\n")


def main() -> None:
    """Share, count, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--fits", type=int, default=200)
    parser.add_argument(
        "--seeds", type=int, default=5, help="seeds of the fits; with 4 methods there are 4 times as many"
    )
    parser.add_argument("--without-locks", action="store_true")
    parser.add_argument(
        "--slow", type=float, default=0.0, help="milliseconds of every flush, rename, link and deletion"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="labeldeconv-shared-") as name:
        folder = Path(name)
        warm_up(folder)
        begun = time.monotonic()
        kinds = [(method, seed) for seed in range(args.seeds) for method in METHODS]
        fits = [(i, *kinds[i % len(kinds)]) for i in range(args.fits)]
        children = []
        for number in range(args.processes):
            own = fits[number :: args.processes]
            random.Random(number).shuffle(own)
            child = os.fork()
            if not child:
                try:
                    if args.without_locks:
                        without_locks()
                    if args.slow:
                        slow_disk(args.slow)
                    work(number, own, folder)
                finally:
                    os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        seconds = time.monotonic() - begun
        rows = [json.loads(line) for path in folder.glob("done-*.jsonl") for line in path.read_text().splitlines()]
        errors = [row for row in rows if "error" in row]
        built = Counter(stage for row in rows for stage in row["built"])
        results: dict[str, set[str]] = {}
        for row in rows:
            results.setdefault(row["fit"], set()).add(row.get("result", "error"))
        twice = sorted(stage for stage, count in built.items() if count > 1)
        differ = sorted(fit for fit, found in results.items() if len(found) > 1)
        finished = [*(folder / "cache").glob("*/*/stage.json")]
        odd = [str(p) for p in folder.rglob("*") if p.suffix in (".partial", ".tmp", ".lock", ".replaced")]
        odd += [str(p) for p in (folder / "cache" / "locks").iterdir()]
    out = {
        "processes": args.processes,
        "fits": len(rows),
        "missing": args.fits - len(rows),
        "failed": len(errors),
        "kinds_of_fit": len(results),
        "with_different_results": len(differ),
        "stages": len(finished),
        "built": sum(built.values()),
        "built_twice": len(twice),
        "left_behind": len(odd),
        "seconds": round(seconds, 1),
    }
    if args.json:
        print(json.dumps({**out, "errors": errors[:5], "twice": twice, "odd": odd}))
    else:
        for key, value in out.items():
            print(f"{key}: {value}")
    twice = [] if args.without_locks else twice  # there nobody can know that another one is at it
    if out["missing"] or errors or differ or twice or odd or len(finished) != len(built):
        print(*(row["error"] for row in errors[:3]), *odd[:3], sep="\n", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
