"""The report in Debian's chromium, headless: `make test-browser`."""

from dataclasses import replace

import numpy as np
import pytest

from labeldeconv.graph.texts import Texts
from labeldeconv.report.html import write_report
from tests.report.run_writing import ring, write_comparison, write_run
from tests.report.test_html import hostile
from tests.report.xss_payloads import payloads

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser
WIDTHS = (390, 1440)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Reports by name: every kind of input."""
    root = tmp_path_factory.mktemp("reports")
    bad = hostile()
    bad.class_names[:] = ["<img src=x onerror=alert(3)>", "\"'><script>alert(2)</script>", "long name " * 50]
    write_comparison(root / "methods", ring(240), methods=("pne", "fne", "wo-ld", "ld"), gnns=("gcn", "sagn"), seeds=2)
    write_comparison(root / "labels", ring(120, multilabel=True))
    write_comparison(root / "numbers", ring(240, numbers=2), methods=("pne", "wo-ld", "ld"), seeds=2)
    write_comparison(root / "sweep", ring(), methods=("ld",), varied=[{"labels.hops": h} for h in (0, 1, 2)])
    write_comparison(root / "hostile", bad)
    write_run(root / "single", ring(val=False), "pne", val=None)
    names = ("methods", "labels", "numbers", "sweep", "hostile", "single")
    return {name: write_report(root / name).path.as_uri() for name in names}


@pytest.fixture
def visit(chromium):
    """Open a page; afterwards nothing may have gone wrong or out."""
    contexts, wrong = [], []

    def go(address, width=1440, scheme="light"):
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else wrong.append(r.url))
        page.goto(address)
        return page

    yield go
    for context in contexts:
        context.close()
    assert wrong == []


def tabs(page):
    return page.get_by_role("tab").all()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["methods", "labels", "numbers", "sweep", "hostile", "single"])
def test_every_tab_is_drawn_and_fits(visit, pages, tmp_path, name, width):
    page = visit(pages[name], width, "dark" if name in ("labels", "numbers") else "light")
    for tab in tabs(page):
        tab.click()
        panel = page.locator(f"#{tab.get_attribute('aria-controls')}")
        assert panel.is_visible()
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over <= 0, f"{over} pixels too wide"
        for plot in panel.locator(".plot").all():
            box = plot.locator("svg").last.bounding_box()
            assert box["width"] > 200
            assert box["height"] > 40
        outside = panel.locator(".plot text").evaluate_all(
            "texts => texts.map(t => [t.textContent, t.getBoundingClientRect()])"
            ".filter(([, box]) => box.left < 0 || box.right > innerWidth).map(([text]) => text)"
        )
        assert outside == []
        page.screenshot(path=tmp_path / f"{tab.inner_text()}.png", full_page=True)


def test_tabs_by_mouse_and_keyboard(visit, pages):
    page = visit(pages["methods"])
    first, second = tabs(page)[:2]
    assert first.get_attribute("aria-selected") == "true"
    second.click()
    assert page.locator("#data").is_visible()
    assert not page.locator("#overview").is_visible()
    second.press("ArrowLeft")
    assert page.locator("#overview").is_visible()
    first.press("End")
    assert page.locator("#settings").is_visible()
    assert page.evaluate("document.activeElement.id") == "to-settings"
    page.goto(pages["methods"] + "#costs")
    assert page.locator("#costs").is_visible()


def test_theme_follows_the_system_and_the_switch(visit, pages):
    paper = "getComputedStyle(document.body).backgroundColor"
    page = visit(pages["methods"], scheme="light")
    light = page.evaluate(paper)
    page.locator("#theme").click()
    dark = page.evaluate(paper)
    assert dark != light
    assert page.locator("#theme").inner_text() == "Light"
    page.reload()
    assert page.evaluate(paper) == dark  # kept
    other = visit(pages["methods"], scheme="dark")
    assert other.evaluate(paper) == dark
    other.locator("#theme").click()
    assert other.evaluate(paper) == light


def test_search_finds_a_node_by_id_and_by_words(visit, pages):
    page = visit(pages["methods"])
    page.get_by_role("tab", name="Nodes").click()
    search = page.locator("#search")
    search.fill("217")
    assert page.locator("#hits li").first.inner_text().startswith("217")
    search.press("Enter")
    playwright.expect(page.locator("#node h3")).to_have_text("217")
    assert "node number 217 of the ring" in page.locator("#node .words").inner_text()
    search.fill("RING 33 number")
    assert page.locator("#hits li b").all_inner_texts() == ["33", "133", "233"]
    search.press("ArrowDown")
    search.press("ArrowDown")
    search.press("Enter")
    playwright.expect(page.locator("#node h3")).to_have_text("133")
    search.fill("no such word")
    assert page.locator("#count").inner_text() == "0 nodes found"


def test_node_view_has_predictions_bars_and_links(visit, pages):
    page = visit(pages["methods"] + "#node=40")
    assert page.locator("#node h3").inner_text() == "40"
    methods = page.locator("#node tbody").first.locator("th").all_inner_texts()
    assert methods[:2] == ["pne, gcn", "fne, gcn"]
    assert set(page.locator("#node tbody").first.locator("td:nth-child(4)").all_inner_texts()) <= {"right", "wrong"}
    heads = page.locator("#node thead").nth(1).locator("th").all_inner_texts()
    assert heads == ["class", "true", "K0 pseudo", "K1", "inverse"]
    page.locator("#node .near a", has_text="41").click()
    playwright.expect(page.locator("#node h3")).to_have_text("41")
    page.go_back()
    playwright.expect(page.locator("#node h3")).to_have_text("40")


def test_filter_lists_errors_of_one_method(visit, pages):
    page = visit(pages["methods"] + "#nodes")
    page.locator("#filter").select_option(label="ld, gcn wrong")
    page.locator("#hits li").first.click()
    playwright.expect(page.locator("#hits li").first).to_have_attribute("aria-selected", "true")
    row = page.locator("#node tbody").first.locator("tr", has_text="ld, gcn").last
    assert row.locator("td").nth(2).inner_text() == "wrong"


def said(text):
    """A number as the page writes it."""
    return float(text.replace("\u2212", "-").replace(",", "").partition(" ")[0])


def test_numbers_are_listed_by_error_and_shown_with_it(visit, pages):
    """Predicted less true is the error that is told; the node with the largest comes first."""
    page = visit(pages["numbers"] + "#nodes")
    page.locator("#filter").select_option(label="ld: largest error first")
    sizes = [said(text) for text in page.locator("#hits li em").all_inner_texts()]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == 60
    page.locator("#hits li").first.click()
    playwright.expect(page.locator("#hits li").first).to_have_attribute("aria-selected", "true")
    heads = page.locator("#node thead").first.locator("th").all_inner_texts()
    assert heads == ["method", "height 0", "error", "height 1", "error"]
    truth, *methods = page.locator("#node tbody").first.locator("tr").all()
    told = [truth.locator("td").nth(k).inner_text() for k in (0, 2)]
    true = [said(text) for text in told]
    assert [row.locator("th").inner_text() for row in methods] == ["pne", "wo-ld", "ld"]
    for row in methods:
        cells = [said(text) for text in row.locator("td").all_inner_texts()]
        assert [cells[0] - true[0], cells[2] - true[1]] == pytest.approx([cells[1], cells[3]], abs=0.0051)
    least = min(abs(said(row.locator("td").nth(1).inner_text())) for row in methods)
    assert abs(said(page.locator("#node tbody").first.locator("td:nth-child(3) .best").first.inner_text())) == least
    assert page.locator("#node .meta span").first.inner_text() == f"height 0 {told[0]}, height 1 {told[1]}"
    page.locator("#search").fill("height")
    assert page.locator("#count").inner_text() == "0 nodes found"
    page.locator("#search").fill("217")
    page.locator("#filter").select_option(label="Methods differ most")
    assert page.locator("#hits li b").first.inner_text() == "217"  # an id goes before the order


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_numbers_by_hop_lean_from_the_mean(visit, pages, scheme, tmp_path):
    page = visit(pages["numbers"] + "#node=40", scheme=scheme)
    table = page.locator("#node table", has_text="inverse")
    assert table.locator("thead th").all_inner_texts() == ["target", "true", "K0 pseudo", "K1", "inverse"]
    rows = table.locator("tbody tr").all()
    assert [row.locator("th").inner_text() for row in rows] == ["height 0", "height 1"]
    note = page.locator("#node .note", has_text="Bars lean").inner_text()
    mean = [float(part) for part in note.partition("(")[2].partition(")")[0].split(", ")]
    for row, middle in zip(rows, mean, strict=True):
        for cell in row.locator("td").all():
            bar, box = cell.locator("b").bounding_box(), cell.locator("i").bounding_box()
            right = bar["x"] + bar["width"] / 2 > box["x"] + box["width"] / 2
            assert right == (said(cell.inner_text()) > middle)
            assert box["x"] - 0.5 <= bar["x"] <= bar["x"] + bar["width"] <= box["x"] + box["width"] + 0.5
    page.locator("#node .near a").first.click()
    near = page.locator("#node h3").inner_text()
    assert near in ("33", "39", "41", "47")
    page.screenshot(path=tmp_path / f"numbers-{scheme}.png", full_page=True)


def test_choosing_a_group_moves_all_charts(visit, pages):
    page = visit(pages["methods"] + "#training")
    losses = page.locator("figure.chart", has_text="GNN training loss").locator("select")
    losses.select_option(label="sagn")
    shown = page.locator("figure.chart", has_text="GNN validation score").locator("select")
    assert shown.evaluate("s => s.selectedOptions[0].textContent") == "sagn"


def test_charts_tell_their_numbers(visit, pages):
    page = visit(pages["methods"] + "#costs")
    page.locator("#costs .plot").first.locator(".point").last.hover()
    assert page.locator("#tip").is_visible()
    figure = page.locator("figure.chart", has_text="Score against time")
    figure.locator("summary").click()
    assert figure.locator(".numbers tr").count() == 9
    assert figure.locator("svg[role=img]").get_attribute("aria-label") == "Score against time"


def test_hostile_texts_are_only_texts(visit, pages):
    page = visit(pages["hostile"])
    for tab in tabs(page):
        tab.click()
    for node in range(5):
        page.goto(pages["hostile"] + f"#node={node}")
        page.wait_for_timeout(30)
    page.goto(pages["hostile"] + "#node=1")
    page.wait_for_function("document.querySelector('#node .words').textContent.startsWith('</script>')")
    assert page.locator("#node .words").inner_text() == "</script><img src=x onerror=alert(1)>"
    assert page.evaluate("document.querySelectorAll('img, iframe, object').length") == 0
    assert page.evaluate("document.scripts.length") == 2
    page.locator("#search").fill("<script>")
    assert page.locator("#hits li").count() > 0


def test_200_payloads_are_shown_and_none_runs(visit, tmp_path):
    """In texts, ids, class names and the graph's name of one report: no dialog, no request, no script, no markup.

    `visit` fails on any dialog, request, error or warning, so also where the policy had to stop something.
    """
    held = payloads()
    assert len(set(held)) == 200
    n = 2 * len(held)
    names = [f"{payload} {k}" for k, payload in enumerate(held)]
    graph = replace(
        ring(n, texts=held * 2),
        labels=np.arange(n) % len(held),
        class_names=names,
        ids=Texts.from_strings(f"{i} {payload}" for i, payload in enumerate(held * 2)),
        name=" ".join(held[::20]),
    )
    report = write_report(write_comparison(tmp_path / "c", graph, methods=("pne", "ld")))
    page = visit(report.path.as_uri())
    for tab in tabs(page):
        tab.click()
    shown = page.evaluate(
        """async (count) => {
        const found = [];
        for (let i = 0; i < count; i++) {
            location.hash = `#node=${i}`;
            const begins = `${i} `;
            const heading = () => document.querySelector("#node h3")?.textContent ?? "";
            for (let tries = 0; tries < 200 && !heading().startsWith(begins); tries++)
                await new Promise((done) => setTimeout(done, 2));
            found.push([heading(), document.querySelector("#node .words").textContent]);
        }
        return found;
    }""",
        len(held),
    )
    assert [text for _, text in shown] == held
    ids = [" ".join(f"{i} {payload}".split()) for i, payload in enumerate(held)]  # the report shortens them
    assert [name[:32] for name, _ in shown] == [name[:32] for name in ids]
    for payload in held[::20]:
        assert payload.replace("\x00", "") in page.title() + page.locator("body").text_content()
    page.locator("#search").fill("<svg")
    page.wait_for_timeout(100)
    assert page.locator("#hits li").count() > 0
    assert page.evaluate("window.ran") is None
    strange = (
        "img, image, iframe, object, embed, video, audio, base, form, marquee, math, animate, link:not([rel=icon])"
    )
    assert page.evaluate(f"document.querySelectorAll('{strange}').length") == 0
    assert page.evaluate("document.scripts.length") == 2
    handlers = "[...document.querySelectorAll('*')].flatMap(e => [...e.attributes]).filter(a => /^on/i.test(a.name))"
    assert page.evaluate(f"{handlers}.length") == 0


def test_policy_stops_injected_scripts(chromium, pages):
    context = chromium.new_context()
    page = context.new_page()
    page.goto(pages["single"])
    page.evaluate("""() => {
        const script = document.createElement("script");
        script.textContent = "window.ran = true";
        document.body.append(script);
        const image = new Image();
        image.src = "http://127.0.0.1:9/x.png";
        document.body.append(image);
    }""")
    assert page.evaluate("window.ran") is None
    context.close()


def test_print_shows_every_section_on_white(visit, pages, tmp_path):
    page = visit(pages["methods"], scheme="dark")
    page.emulate_media(media="print")
    page.wait_for_timeout(100)
    for section in page.locator("main > section").all():
        assert section.is_visible()
    assert not page.locator("nav").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator(".plot svg[role=img]").count() == page.locator("figure.chart").count()
    page.emulate_media(media="screen")
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").stat().st_size > 20_000


def test_without_scripts_everything_is_there(chromium, pages):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(pages["methods"])
    assert page.locator("#overview table").is_visible()
    assert page.locator("#settings pre").first.is_visible()
    context.close()
