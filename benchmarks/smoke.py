"""Some minutes of benchmarks that fail where a ratio falls far below what docs/performance.md says: `make bench-smoke`.

Ratios of interleaved rounds on the same data, so that a slow or busy machine does not matter; bars are well below what
was measured, so that only a real loss trips them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
BARS = {  # command: {ratio: (least, most)}
    "hops.py --shape arxiv --rounds 5": {
        "ratio_torch_csr": (1.3, None),
        "ratio_scipy": (1.3, None),
        "bound_share": (0.7, None),
    },
    "gnn_epoch.py --rounds 3": {"ratio_torch_csr": (1.0, None), "losses_equal_to": (None, 1e-3)},
    "encoder.py --data planted:400 --nodes 128 --layers 1 --rounds 1": {
        "ratio_padded_512": (4.0, None),
        "ld_step_over_ce_step": (None, 1.15),
        "padding_share": (None, 0.1),
    },
    "scale.py --sizes 10000,100000,400000": {},
}


def main() -> None:
    """Run every command with --json and compare."""
    wrong = []
    for command, bars in BARS.items():
        script, *options = command.split()
        done = subprocess.run(
            [sys.executable, str(HERE / script), *options, "--json"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{command}\n{done.stderr}")
        found = json.loads(done.stdout.splitlines()[-1])
        for name, (least, most) in bars.items():
            value = found[name]
            fine = (least is None or value >= least) and (most is None or value <= most)
            wanted = f"at least {least}" if least is not None else f"at most {most}"
            print(f"{'ok  ' if fine else 'FAIL'} {script:14} {name:24} {value:8.4g}   {wanted}", flush=True)
            wrong += [] if fine else [name]
        for part, slopes in found.get("exponents", {}).items():
            fine = slopes["seconds"] < 1.25
            print(
                f"{'ok  ' if fine else 'FAIL'} {script:14} {part:24} time ~ edges^{slopes['seconds']:.2f}", flush=True
            )
            wrong += [] if fine else [part]
    sys.exit(f"below the bar: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
