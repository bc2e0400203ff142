"""The model card: YAML that a hub reads, code that runs, and names of strangers that are shown, not obeyed."""

import re

import pytest
import yaml
from huggingface_hub import ModelCard

from labeldeconv import RunDirectory
from labeldeconv.analysis.card import data_card
from labeldeconv.sharing.model_card import _classes, _inline, base_model, model_card
from labeldeconv.sharing.repository import write_repository


@pytest.fixture
def run(ld_run):
    return RunDirectory.open(ld_run)


def card_of(run, **changed):
    given = {"name": "someone/papers", "encoder": "minilm", "license": "mit", "with_graph": False, "sentences": True}
    return model_card(run, data_card(run.graph), **{**given, **changed})


def test_the_front_matter_says_what_a_hub_asks(run):
    front = yaml.safe_load(card_of(run).split("---\n")[1])
    assert (front["license"], front["library_name"], front["base_model"]) == (
        "mit", "labeldeconv", "sentence-transformers/all-MiniLM-L6-v2",
    )  # fmt: skip
    assert {"node-classification", "gcn", "sentence-transformers"} <= set(front["tags"])
    (index,) = front["model-index"]
    found = {r["dataset"]["split"]: r["metrics"][0]["value"] for r in index["results"]}
    assert found == pytest.approx({"validation": run.result["val"], "test": run.result["test"]}, abs=1e-6)
    assert index["results"][0]["metrics"][0]["name"] == "accuracy"
    again = ModelCard(card_of(run)).data
    assert again.eval_results[0].metric_value == pytest.approx(run.result["val"], abs=1e-6)


def test_the_code_of_the_card_runs_and_is_short(ld_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_repository(ld_run, "papers", license="mit")
    (code,) = re.findall(r"```python\n(.*?)```", (tmp_path / "papers" / "README.md").read_text(), re.S)
    assert len([line for line in code.splitlines() if line]) <= 5
    held: dict = {}
    exec(code, held)
    assert held["features"].shape == (1, 32)
    assert held["probabilities"].shape == (1, 10)


def test_scores_data_licence_and_citation_are_in_it(run):
    text = card_of(run)
    assert f"| accuracy | {100 * run.result['val']:.2f} | {100 * run.result['test']:.2f} |" in text
    assert "| nodes | 80 |" in text
    assert "topic 0, topic 1" in text
    assert "`mit`. The encoder began as `sentence-transformers/all-MiniLM-L6-v2`" in text
    assert "@article" in text
    assert "are not here" in text
    whole = card_of(run, with_graph=True, license="unknown", encoder="tiny", sentences=False)
    assert "with all its texts and labels" in whole
    assert "not stated by its author." in whole
    assert "SentenceTransformer" not in whole
    assert "base_model" not in whole


def test_names_are_shown_and_not_obeyed(run):
    assert _inline("a|b\n# c <script> `x` [l](u)") == r"a\|b \# c \<script\> \`x\` \[l\]\(u\)"
    assert _classes(["x"] * 51).endswith("x and 1 more")
    hostile = data_card(run.graph) | {"name": "a: b\n---\n# c"}
    text = model_card(run, hostile, "someone/x", "minilm", "mit", False, True)
    front = yaml.safe_load(text.split("\n---\n")[0].removeprefix("---\n"))
    assert front["model-index"][0]["results"][0]["dataset"]["name"] == "a: b\n---\n# c"


@pytest.mark.parametrize(
    ("encoder", "wanted"),
    [("someone/model", "someone/model"), ("tiny", None), ("title=minilm,price=number", None), ("/a/b", None)],
)
def test_base_models_are_ids_of_a_hub(encoder, wanted):
    assert base_model(encoder) == wanted
