"""What the site has beyond the documents: the package's version, pages of notebooks, and of linked sources.

    make docs        # mkdocs.yml names this file under `hooks`

A document links to a source file as `[name](../labeldeconv/name.py)`, which works where the repository is browsed. A
site holds documents alone, so each such file becomes a page of the site and the link leads there. A notebook becomes a
page of its text, code and outputs, with links that are checked as all others are; the file itself stands beside it.
"""

import json
import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import labeldeconv

ROOT = Path(__file__).parent.parent
UPWARDS = re.compile(r"\]\((\.\./[\w./-]+)\)")  # links out of the folder of a document
KINDS = {".py": "python", ".toml": "toml", ".yml": "yaml", ".md": "markdown"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The version stands in the footer; the list of versions is only there where mike publishes several."""
    config.copyright = f"labeldeconv {labeldeconv.__version__}"
    if "MIKE_DOCS_VERSION" in os.environ:
        config.extra["version"] = {"provider": "mike", "default": "latest"}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every notebook, and for every file of the repository that a document links to."""
    for book in [file for file in files if file.src_uri.endswith(".ipynb")]:
        content = notebook_page(book.content_string, posixpath.basename(book.src_uri))
        files.append(File.generated(config, book.src_uri.replace(".ipynb", ".md"), content=content))
    documents = [file for file in files.documentation_pages() if file.src_uri.endswith(".md")]
    found = {_outside(link, file) for file in documents for link in UPWARDS.findall(file.content_string)}
    for path in sorted(path for path in found if path is not None):
        kind = KINDS.get(Path(path).suffix, "text")
        source = (ROOT / path).read_text(encoding="utf-8")
        content = f"---\nsearch: {{exclude: true}}\n---\n\n# {path}\n\n````{kind}\n{source}````\n"
        page = File.generated(config, f"source/{path}.md", content=content)
        page.inclusion = page.inclusion.NOT_IN_NAV
        files.append(page)
    return files


def notebook_page(text: str, name: str) -> str:
    """A notebook as Markdown: code with what it printed below it, and the file to take home."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source.replace(".ipynb)", ".md)"))
            continue
        parts.append(f"````python\n{source}\n````")
        printed = "".join("".join(part["text"]) for part in cell["outputs"]).rstrip()
        parts += [f"````text\n{printed}\n````"] if printed else []
    return "\n\n".join([*parts, f"[The notebook]({name})"]) + "\n"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links to files of the repository to their pages."""
    up = "../" * page.file.src_uri.count("/")

    def led(found: re.Match[str]) -> str:
        path = _outside(found[1], page.file)
        return found[0] if path is None else f"]({up}source/{path}.md)"

    return UPWARDS.sub(led, markdown.replace(".ipynb)", ".md)") if page.file.generated_by is None else markdown)


def _outside(link: str, file: File) -> str | None:
    """The path from the root of the repository that a document links to; None for documents, and what is not there.

    Links of a page of a source are left alone: it only shows them.
    """
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(file.src_uri), link))
    is_outside = not path.startswith(("docs/", "..")) and not file.src_uri.startswith("source/")
    return path if is_outside and (ROOT / path).is_file() else None
