"""Pictures of the README, made from a real comparison: the report in light and dark, and the table of the terminal.

    labeldeconv compare planted --methods pne,fne,wo-ld,ld --gnns gcn --seeds 3 --out runs/demo
    python docs/pictures.py runs/demo

Needs chromium and the extra `browser`. The pictures in the repository were drawn with the font Inter installed.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI

from labeldeconv.cli.terminal import comparison_table
from labeldeconv.report.html import write_report
from labeldeconv.runs.compare import Comparison, Row
from labeldeconv.runs.spread import Spread

DOCS = Path(__file__).parent
# name, tab (or node), colour scheme, width, height
PICTURES = (
    ("report-scores", "#overview", "light", 1180, 900),
    ("report-training", "#training", "light", 1180, 800),
    ("report-node", "#node={node}", "dark", 1180, 900),
    ("report-phone", "#costs", "light", 390, 800),
)


def main(folder: Path) -> None:
    """Write all pictures of the comparison in `folder`."""
    terminal(folder, DOCS / "compare.svg")
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as p:
        page = write_report(folder, Path(scratch) / "report.html").path
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, place, scheme, width, height in PICTURES:
            address = page.as_uri() + place.format(node=telling_node(page))
            screenshot(browser, address, scheme, width, height, DOCS / f"{name}.png")
        browser.close()


def screenshot(browser: Browser, address: str, scheme: str, width: int, height: int, out: Path) -> None:
    """The first screen of a page."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    page.goto(address)
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(300)
    page.screenshot(path=out)
    context.close()
    print(f"{out.name}: {out.stat().st_size / 1000:.0f} kB")


def telling_node(page: Path) -> int:
    """The first test node with at least three neighbours that only the reference method gets right."""
    text = re.search(r'id="page-data">(.*?)</script>', page.read_text(encoding="utf-8"), re.S)
    data = json.loads(text[1])["explorer"] if text else {"nodes": []}
    best = data["reference"]
    for i, node in enumerate(data["nodes"]):
        right = [p[0] == node["y"] for p in node["p"]]
        if node["r"] == 2 and node["d"] >= 3 and sum(right) == 1 and right[best]:
            return i
    return 0


def terminal(folder: Path, out: Path) -> None:
    """The table that `compare` prints, as SVG without web fonts."""
    found = json.loads((folder / "compare.json").read_text(encoding="utf-8"))
    rows = [Row(**{**row, "val": Spread(**row["val"]), "test": Spread(**row["test"])}) for row in found["rows"]]
    comparison = Comparison(found["data"], found["metric"], found["higher_is_better"], rows, folder)
    console = Console(record=True, width=84, file=io.StringIO())
    console.print("$ labeldeconv compare planted --methods pne,fne,wo-ld,ld --gnns gcn --seeds 3")
    console.print(comparison_table(comparison))
    picture = console.export_svg(title="labeldeconv", theme=DIMMED_MONOKAI)
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.S)
    out.write_text(picture.replace("Fira Code", "ui-monospace"), encoding="utf-8")
    print(f"{out.name}: {out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
