"""docs/performance.svg from benchmarks/results/*.json: every ratio as a bar, 1 is the peer.

python benchmarks/chart.py
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
LABEL, WIDTH, ROW = 380, 330, 22
BLUE, GREY = "#0b63a5", "#8a8f98"


def load(name: str) -> dict[str, Any] | None:
    """A result, if it was made."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() and path.stat().st_size else None


def bars() -> list[tuple[str, float]]:
    """Names and ratios."""
    out = []
    for shape in ("arxiv", "products", "proteins"):
        if r := load(f"hops-{shape}"):
            cpu = r["cpu"]
            out += [
                (f"hop of {shape}, float32, over torch CSR", cpu["ratio_torch_csr"]),
                (f"hop of {shape}, uint16, over torch CSR", cpu["ratio_torch_csr_uint16"]),
                (f"hop of {shape} from whole labels, over torch CSR", cpu["ratio_torch_csr_counted"]),
                (f"CSR of {shape} (2 threads), over scipy", r["wall"]["ratio_csr_scipy"]),
            ]
    if r := load("gnn-epoch"):
        out += [
            ("GCN epoch, over torch CSR", r["ratio_torch_csr"]),
            ("GCN epoch, over PyG's EdgeIndex", r["ratio_edge_index_class"]),
        ]
    if r := load("gnn-train"):
        out += [
            (f"{name.upper()} epoch of a small graph, over torch and PyG", r[f"ratio_{name}_peer"])
            for name in ("sagn", "gamlp", "gcn")
        ]
    for data in ("stacks", "planted"):
        if r := load(f"encoder-{data}"):
            out += [
                (f"encoder training on {data}, over transformers.Trainer", r["ratio_hf_trainer"]),
                (f"encoder training on {data}, over padding to 512", r["ratio_padded_512"]),
            ]
    if r := load("export"):
        out += [
            ("feature export, over sentence-transformers at 128", r["ratio_sentence_transformers"]),
            ("feature export, over sentence-transformers' default", r["ratio_sentence_transformers_default"]),
        ]
    return out


def main() -> None:
    """Draw."""
    rows = bars()
    most = min(6.0, max(ratio for _, ratio in rows))
    height = ROW * len(rows) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LABEL + WIDTH + 80} {height}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="100%" height="100%" fill="#ffffff"/><title>{escape(__doc__.splitlines()[0])}</title>',
    ]
    for k, (name, ratio) in enumerate(rows):
        y = 10 + ROW * k
        width = WIDTH * min(ratio, most) / most
        parts.append(f'<text x="{LABEL - 8}" y="{y + 14}" text-anchor="end" fill="#222">{escape(name)}</text>')
        parts.append(f'<rect x="{LABEL}" y="{y + 3}" width="{width:.1f}" height="{ROW - 7}" fill="{BLUE}"/>')
        parts.append(f'<text x="{LABEL + width + 6:.1f}" y="{y + 14}" fill="#222">{ratio:.2f}</text>')
    one = LABEL + WIDTH / most
    parts.append(
        f'<line x1="{one:.1f}" x2="{one:.1f}" y1="6" y2="{height - 26}" stroke="{GREY}" stroke-dasharray="3 3"/>'
    )
    told = f"1 = the peer; bars end at {most:g}"
    parts.append(f'<text x="{one:.1f}" y="{height - 10}" text-anchor="middle" fill="#555">{told}</text></svg>')
    (ROOT / "docs" / "performance.svg").write_text("\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
