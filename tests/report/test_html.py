import json
import re
import sys
from html.parser import HTMLParser

import pytest

from labeldeconv.errors import DataError, MissingExtra
from labeldeconv.report.html import LARGEST, digest, write_report
from tests.report.run_writing import ring, write_comparison, write_run

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\"quotes\" 'single' `back` &amp; \u2028 <!-- <script>",
    "{{ 7 * 7 }} {% raw %} ${7 * 7}",
    "<" * 1_000_000,
]


class Page(HTMLParser):
    """Elements and scripts of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.inside = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = tag == "script"

    def handle_data(self, data):
        if self.inside:
            self.scripts.append(data)
            self.inside = False


def hostile(n=60):
    return ring(n, texts=[HOSTILE[i % len(HOSTILE)] for i in range(n)])


def test_nothing_in_a_text_becomes_markup(tmp_path):
    graph = hostile()
    graph.class_names[:] = ["<b>bold</b>", "\"'><script>alert(2)</script>", "x" * 500]
    page = write_report(write_comparison(tmp_path, graph, seeds=2)).path.read_text()
    seen = Page(page)
    assert [tag for tag, _ in seen.tags].count("script") == 2
    assert "img" not in [tag for tag, _ in seen.tags]
    assert "b" not in [tag for tag, _ in seen.tags]
    assert not [name for _, attrs in seen.tags for name in attrs if name.startswith("on")]
    data = json.loads(seen.scripts[0])
    assert data["explorer"]["nodes"][0]["t"] == HOSTILE[0]
    assert data["explorer"]["nodes"][2]["t"] == HOSTILE[2]
    assert "{{ 7 * 7 }}" in data["explorer"]["nodes"][3]["t"]


def test_a_policy_allows_the_one_script_and_no_network(tmp_path):
    write_run(tmp_path, ring())
    page = write_report(tmp_path).path.read_text()
    seen = Page(page)
    (policy,) = [attrs["content"] for tag, attrs in seen.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert digest(seen.scripts[1]) in policy
    assert digest(re.search("<style>(.*?)</style>", page, re.S)[1]) in policy
    assert "unsafe" not in policy
    assert not [attrs for _, attrs in seen.tags if "src" in attrs or attrs.get("href", "#")[:1] not in ("#", "d")]
    assert not [attrs for _, attrs in seen.tags if "style" in attrs]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", seen.scripts[1])


def test_the_file_stays_small_whatever_the_graph(tmp_path):
    write_run(tmp_path, hostile(5000))
    written = write_report(tmp_path)
    assert written.bytes == written.path.stat().st_size < LARGEST
    assert "of 5,000 nodes: " in written.path.read_text()


def test_sections_without_data_are_left_out(tmp_path):
    write_run(tmp_path, ring(val=False), "pne", val=None)
    keys = ["overview", "data", "training", "predictions", "labels", "costs", "nodes", "settings"]
    assert write_report(tmp_path).sections == keys


def test_a_report_of_an_incomplete_run_is_refused(tmp_path):
    write_run(tmp_path, ring())
    (tmp_path / "logits.npy").unlink()
    with pytest.raises(DataError, match=r"not complete: logits.npy is missing"):
        write_report(tmp_path)


def test_scores_alone_make_a_report(tmp_path):
    folder = write_comparison(tmp_path / "c", ring())
    (tmp_path / "alone").mkdir()
    (folder / "compare.json").rename(tmp_path / "alone" / "compare.json")
    assert write_report(tmp_path / "alone").sections == ["overview", "costs"]


@pytest.mark.parametrize("multilabel", [False, True])
def test_same_input_same_page(tmp_path, multilabel):
    write_comparison(tmp_path, ring(multilabel=multilabel), seeds=2)
    first, second = (write_report(tmp_path, tmp_path / "out" / name).path for name in ("a.html", "b.html"))
    assert first.read_bytes() == second.read_bytes()


def test_no_path_of_the_machine_is_told(tmp_path):
    page = write_report(write_comparison(tmp_path / "here", ring())).path.read_text()
    assert str(tmp_path) not in page
    assert "from here." in page


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    write_run(tmp_path / "r", ring())
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="--out names another file"):
        write_report(tmp_path / "r", tmp_path / "file" / "page.html")


def test_missing_extra_is_named(tmp_path, monkeypatch):
    write_run(tmp_path, ring())
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtra, match=r"labeldeconv\[report\]"):
        write_report(tmp_path)
