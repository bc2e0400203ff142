"""The page of a server in Debian's chromium, headless: `make test-browser`."""

import json
from dataclasses import replace

import numpy as np
import pytest

from labeldeconv import Texts, fit, planted
from tests.serving.running import served

from labeldeconv.serving.application import loaded  # isort: skip

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser
QUICK = {"encoder": "tiny", "gnn__epochs": 5, "gnn__hidden": 8, "encoder__max_tokens": 16, "train__epochs": 1}
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script> \"' river"


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    """A run on a graph whose texts and classes are hostile."""
    graph = planted(80, seed=0).graph
    texts = [EVIL, *list(graph.texts)[1:]]
    names = [f"<b>topic</b> {k}" for k in range(graph.num_classes)]
    hostile = replace(graph, texts=Texts.from_strings(texts), class_names=names)
    folder = tmp_path_factory.mktemp("page")
    fit(hostile, method="ld", out=folder / "run", cache=folder / "cache", **QUICK)
    return loaded(folder / "run")


@pytest.fixture
def visit(chromium):
    """Open a page; afterwards nothing may have gone wrong, nor out to anybody else."""
    contexts, wrong = [], []

    def go(client, path="/", width=1440, scheme="light", fails=()):
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()

        def heard(message):
            if message.type in ("error", "warning") and not any(text in message.text for text in fails):
                wrong.append(message.text)

        page.on("console", heard)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda r: None if r.url.startswith((client.address, "data:")) else wrong.append(r.url))
        page.goto(client.address + path)
        return page

    yield go
    for context in contexts:
        context.close()
    assert wrong == []


def fits(page):
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1440, "light")])
def test_a_text_with_neighbors_is_predicted(visit, predictor, tmp_path, width, scheme):
    with served(predictor) as client:
        page = visit(client, width=width, scheme=scheme)
        playwright.expect(page.locator("#meta")).to_contain_text("80 nodes")
        page.locator("textarea").fill("not amber river but drum")
        for query, node in (("onerror river", "0"), ("17", "17")):
            page.locator("#search").fill(query)
            playwright.expect(page.locator("#hits li b").first).to_have_text(node)
            page.locator("#search").press("Enter")
        assert page.locator("#chosen li b").all_inner_texts() == ["0", "17"]
        assert fits(page)
        page.get_by_role("button", name="Predict").click()
        playwright.expect(page.locator("#node h3")).to_contain_text("<b>topic</b>")
        told = client.predict([{"text": "not amber river but drum", "neighbors": ["0", "17"]}]).json["nodes"][0]
        assert page.locator("#node h3").inner_text() == told["prediction"]
        shown = page.locator("#node tbody").first.locator("tr").first.locator(".meter span").all_inner_texts()
        assert shown[0] == f"{100 * told['probability']:.1f}%"
        assert len(shown) == 2  # with neighbors, and alone
        assert "by gnn" in page.locator("#node .meta").inner_text()
        assert page.locator("#node thead").first.inner_text().count("psi") == 1
        why = client.ask(
            "POST", "/explain", {"nodes": [{"text": "not amber river but drum", "neighbors": [0, 17]}]}
        ).json
        hops = page.locator("#node table.hops td.n").all_inner_texts()
        assert [float(value) for value in hops] == pytest.approx(why["by_hop"], abs=0.006)
        points = page.locator("#node tbody").nth(2).locator("td.n").all_inner_texts()
        alone = client.predict([{"text": "not amber river but drum", "neighbors": ["17"]}]).json["nodes"][0]
        top = int(np.argmax(told["probabilities"]))
        gained = 100 * (told["probabilities"][top] - alone["probabilities"][top])
        assert float(points[0]) == pytest.approx(gained, abs=0.06)
        assert page.locator("img, #node script").count() == 0
        assert fits(page)
        page.screenshot(path=tmp_path / f"serve-{width}.png", full_page=True)


@pytest.fixture(scope="module")
def of_numbers(tmp_path_factory):
    """A run on two targets, one of them with a hostile name and a spread of thousands, the other's of thousandths."""
    graph = planted(60, "regression", num_classes=4, num_targets=2).graph
    names = ["<b>price</b>", "rating"]
    labels = np.stack([1000 * graph.labels[:, 0], graph.labels[:, 1] / 10_000], axis=1)
    folder = tmp_path_factory.mktemp("numbers")
    hostile = replace(graph, labels=labels, class_names=names)
    fit(hostile, method="ld", gnn="gcn", out=folder / "run", cache=folder / "cache", **QUICK)
    return loaded(folder / "run")


def number(text):
    """A number as the page writes it."""
    return float(text.replace("\u2212", "-").replace(",", ""))


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1440, "light")])
def test_numbers_are_shown_with_their_targets_and_explained(visit, of_numbers, tmp_path, width, scheme):
    """What the page says is what the server answers, at the decimals of each target; no bars, no percents."""
    node = {"text": "not amber river but drum", "neighbors": ["3", "17"]}
    with served(of_numbers) as client:
        page = visit(client, width=width, scheme=scheme)
        playwright.expect(page.locator("#meta")).to_contain_text("2 targets")
        page.locator("textarea").fill(node["text"])
        for query in node["neighbors"]:
            page.locator("#search").fill(query)
            playwright.expect(page.locator("#hits li b").first).to_have_text(query)
            page.locator("#search").press("Enter")
        page.get_by_role("button", name="Predict").click()
        playwright.expect(page.locator("#node h3")).to_contain_text("<b>price</b>")
        told, alone = (client.predict([{**node, "neighbors": n}]).json["nodes"][0] for n in (node["neighbors"], []))
        unit = client.get("/run").json["targets"]
        rows = [r.locator("td").all_inner_texts() for r in page.locator("table.numbers tbody tr").all()]
        assert page.locator("table.numbers tbody th").all_inner_texts() == ["<b>price</b>", "rating"]
        for k, row in enumerate(rows):
            near = 0.0051 * unit["std"][k] + 0.51 * (k == 0)  # half of the last digit
            assert [number(row[0]), number(row[1])] == pytest.approx(
                [told["prediction"][k], alone["prediction"][k]], abs=near
            )
            mean, std = map(number, row[2].split(" ± "))
            assert [mean, std] == pytest.approx([unit["mean"][k], unit["std"][k]], abs=near)
        assert page.locator("#node h3").inner_text() == f"<b>price</b> {rows[0][0]}, rating {rows[1][0]}"
        assert page.locator("#node progress").count() == 0
        assert "%" not in page.locator("#node").inner_text()
        heads = page.locator("table.hops thead th").all_inner_texts()
        assert heads == ["hop", "<b>price</b>", "rating"]
        for k, name in enumerate(heads[1:]):
            why = client.ask("POST", "/explain", {"nodes": [node], "of": name}).json
            hops = page.locator(f"table.hops td:nth-child({k + 2})").all_inner_texts()
            near = 0.0051 * unit["std"][k] + 0.51 * (k == 0)
            assert [number(text) for text in hops] == pytest.approx(why["by_hop"], abs=near)
        without = client.predict([{**node, "neighbors": ["17"]}]).json["nodes"][0]["prediction"]
        added = page.locator("table.each tbody tr").first.locator("td.n").all_inner_texts()
        for k, text in enumerate(added):
            near = 0.0051 * unit["std"][k] + 0.51 * (k == 0)
            assert number(text) == pytest.approx(told["prediction"][k] - without[k], abs=near)
        assert fits(page)
        page.screenshot(path=tmp_path / f"serve-numbers-{width}.png", full_page=True)


def test_without_neighbors_and_with_one_taken_away(visit, predictor):
    with served(predictor) as client:
        page = visit(client)
        page.locator("textarea").fill("river")
        page.locator("#search").fill("5")
        playwright.expect(page.locator("#hits li").first).to_be_visible()
        page.locator("#hits li").first.click()
        page.get_by_role("button", name="Remove 5").click()
        page.get_by_role("button", name="Predict").click()
        playwright.expect(page.locator("#node .meta")).to_contain_text("no neighbors")
        assert "by psi" in page.locator("#node .meta").inner_text()


def test_a_refusal_is_shown(visit, predictor):
    with served(predictor, text=5) as client:
        page = visit(client, fails=["413"])
        page.locator("textarea").evaluate(
            "box => { box.maxLength = 100; }"
        )  # waits until the page has asked the server
        page.locator("textarea").fill("longer than five")
        page.get_by_role("button", name="Predict").click()
        playwright.expect(page.locator("#wrong")).to_contain_text("nodes[0].text: at most 5 characters")


def test_a_token_is_asked_for_and_kept(visit, predictor):
    with served(predictor, token="a long and secret token") as client:
        page = visit(client, fails=["401"])
        playwright.expect(page.locator("#locked")).to_be_visible()
        page.locator("#token").fill("a long and wrong token")
        page.get_by_role("button", name="Open").click()
        playwright.expect(page.locator("#locked")).to_be_visible()
        page.locator("#token").fill("a long and secret token")
        page.get_by_role("button", name="Open").click()
        playwright.expect(page.locator("#meta")).to_contain_text("80 nodes")
        page.reload()
        playwright.expect(page.locator("#meta")).to_contain_text("80 nodes")
        page.goto(f"{client.address}/docs")
        playwright.expect(page.locator("#paths")).to_contain_text("POST /predict")


@pytest.mark.parametrize("width", [390, 1440])
def test_the_interface_has_a_page(visit, predictor, width):
    with served(predictor) as client:
        page = visit(client, "/docs", width)
        playwright.expect(page.locator("#paths")).to_contain_text("POST /predict")
        for name in ("NewNode", "neighbors", "GET /metrics", "PredictedNode"):
            assert name in page.locator("#paths").inner_text()
        assert json.loads(page.locator("pre").first.inner_text())["nodes"]
        assert fits(page)
