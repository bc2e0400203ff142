"""One self-contained HTML file: sections to markup, charts and nodes as JSON, scripts and styles inlined.

Node texts, ids and class names are untrusted. Markup is escaped by Jinja2, JSON cannot close its element, the scripts
write text through `textContent` only, and the page's policy runs no script but the one whose hash it names and asks the
network for nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import labeldeconv
from labeldeconv.errors import DataError, MissingExtra
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.report.blocks import Explorer, Figure, Section, embedded
from labeldeconv.report.source import ReportSource, open_source
from labeldeconv.report.tabs.costs import costs
from labeldeconv.report.tabs.curves import training
from labeldeconv.report.tabs.data_card import data_section
from labeldeconv.report.tabs.learning_targets import labels
from labeldeconv.report.tabs.nodes import MOST_BYTES, nodes
from labeldeconv.report.tabs.predictions import predictions
from labeldeconv.report.tabs.reproduce import settings_section
from labeldeconv.report.tabs.scores import headline, overview
from labeldeconv.report.tabs.sweeps import sweeps
from labeldeconv.stages.files import write_text
from labeldeconv.theme.shared import theme

LARGEST = 6_000_000  # bytes of a page
SCRIPTS = ("pen.js", "charts.js", "numbers.js", "explorer.js", "page.js")


@dataclass(frozen=True)
class Report:
    """A written report."""

    path: Path
    bytes: int
    sections: list[str]

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {"path": str(self.path), "bytes": self.bytes, "sections": self.sections}


def write_report(source: str | Path, out: str | Path | None = None) -> Report:
    """Write the report of a run directory or a comparison; default `report.html` inside it."""
    opened = open_source(source)
    path = Path(out) if out else opened.folder / "report.html"
    found = sections(opened)
    page = render(opened, found)
    if len(page.encode()) > LARGEST:  # only the explorer can be cut further, and everything else is bounded
        room = LARGEST - len(render(opened, [s for s in found if s.key != "nodes"]).encode())
        page = render(opened, sections(opened, max(0, room // 2)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, page)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}); --out names another file") from None
    return Report(path, len(page.encode()), [s.key for s in found])


def sections(source: ReportSource, node_bytes: int = MOST_BYTES) -> list[Section]:
    """The tabs, those without data left out."""
    found: list[Section | None] = [overview(source), training(source), costs(source), sweeps(source)]
    if source.graph is not None:
        adj = Adjacency.from_edges(source.graph.edges, source.graph.num_nodes)
        found.insert(1, data_section(source.graph, adj))
        found.insert(3, predictions(source, adj))
        found.insert(4, labels(source) if source.runs else None)
        found.append(nodes(source, adj, most_bytes=node_bytes))
    found.append(settings_section(source))
    return [section for section in found if section]


def render(source: ReportSource, found: Sequence[Section]) -> str:
    """The page."""
    try:
        import jinja2
    except ImportError:
        raise MissingExtra("the report", "report") from None
    page = files("labeldeconv.report") / "page"
    script = "\n".join([theme("theme.js"), *((page / name).read_text(encoding="utf-8") for name in SCRIPTS)])
    style = theme("theme.css") + (page / "page.css").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string((page / "page.html").read_text(encoding="utf-8"))
    figures = [block for s in found for block in s.blocks if isinstance(block, Figure)]
    explorer = next((block.data for s in found for block in s.blocks if isinstance(block, Explorer)), None)
    data = {"figures": [[spec for _, spec in figure.variants] for figure in figures], "explorer": explorer}
    return template.render(
        source=source,
        sections=found,
        number=lambda figure: next(i for i, other in enumerate(figures) if other is figure),
        headline=headline(source),
        version=labeldeconv.__version__,
        style=style,
        script=script,
        data=embedded(data),
        policy=f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'",
    )


def digest(text: str) -> str:
    """How a Content-Security-Policy names an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
