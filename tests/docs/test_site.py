"""The site: every public name has its docstring there, nothing is loaded from elsewhere, search works from disk.

The built site is the one that LABELDECONV_SITE names (`make docs` does), or one built now.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import labeldeconv
from labeldeconv.settings import models

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_every_public_name_is_on_one_page_of_the_api():
    pages = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    named = re.findall(r"^::: labeldeconv\.(\w+)$", pages, re.MULTILINE)
    assert sorted(set(named) - {"testing"}) == sorted(labeldeconv.__all__)
    assert len(named) == len(set(named))


def test_every_phase_of_the_settings_is_in_the_api():
    page = (DOCS / "api" / "settings.md").read_text(encoding="utf-8")
    kinds = [kind for kind in vars(models).values() if isinstance(kind, type)]
    phases = [kind.__name__ for kind in kinds if issubclass(kind, models.Settings)]
    named = re.findall(r"^::: labeldeconv\.(?:settings\.models\.)?(\w*Config)$", page, re.MULTILINE)
    assert sorted(named) == sorted(set(phases) - {"Settings"})


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    built = os.environ.get("LABELDECONV_SITE")
    if built:
        return ROOT / built
    pytest.importorskip("mkdocs", reason="extra 'docs' is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, timeout=300, env=os.environ | {"PYTHONPATH": str(ROOT)})
    return folder


@pytest.mark.docs
class TestBuilt:
    def test_docstrings_and_version_are_there(self, site):
        runs = (site / "api" / "index.html").read_text(encoding="utf-8")
        assert "Learn node features and predictions on a graph." in runs
        assert "where finished stages live" in runs  # an argument of fit, in a table
        assert f"labeldeconv {labeldeconv.__version__}" in (site / "index.html").read_text(encoding="utf-8")

    def test_links_to_sources_lead_to_pages(self, site):
        assert 'href="source/labeldeconv/methods/deconvolution.py.html"' in (site / "methods.html").read_text()
        assert "Algorithm 1" in (site / "source/labeldeconv/methods/deconvolution.py.html").read_text()

    def test_nothing_is_loaded_from_elsewhere(self, site):
        """Links may lead elsewhere; scripts, styles, fonts, pictures and frames may not."""
        loads = re.compile(r"<(?:script|link|img|iframe|source|video)\b[^>]*>")
        elsewhere = re.compile(r"""(?:src|href)=["']?(?:https?:)?//""")
        wrong = [
            f"{page.name}: {tag}"
            for page in site.rglob("*.html")
            for tag in loads.findall(page.read_text(encoding="utf-8"))
            if elsewhere.search(tag) and 'rel="canonical"' not in tag
        ]
        for style in site.rglob("*.css"):
            wrong += re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//[^)\s]*", style.read_text(encoding="utf-8"))
        assert wrong == []

    def test_search_from_disk(self, site):
        """In chromium, without a server: the word is found, nothing is asked of a network, nothing is an error."""
        playwright = pytest.importorskip("playwright.sync_api", reason="extra 'browser' is not installed")
        path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if path is None:
            pytest.skip("no chromium on this system")
        with playwright.sync_playwright() as p:
            browser = p.chromium.launch(executable_path=path, args=["--no-sandbox"])
            page, wrong = browser.new_page(), []
            page.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else wrong.append(r.url))
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
            page.goto((site / "index.html").as_uri())
            page.get_by_role("textbox", name="Search").press_sequentially("calibrated probabilities")
            found = page.locator(".md-search-result__link")
            found.first.wait_for(timeout=20_000)
            assert any("serving.html" in link.get_attribute("href") for link in found.all())
            browser.close()
        assert wrong == []
