"""The model card of a pushed run: README.md with Hugging Face's YAML front matter, made from the run alone."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labeldeconv.graph.metrics import METRICS, TITLES, score_text
from labeldeconv.runs.directory import RunDirectory

BASE_MODELS = {"minilm": "sentence-transformers/all-MiniLM-L6-v2"}  # hub ids of our own names
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
METRIC_TYPES = {
    "accuracy": "accuracy", "macro-f1": "f1", "micro-f1": "f1", "balanced-accuracy": "accuracy",
    "average-precision": "average_precision", "roc-auc": "roc_auc", "r2": "r_squared", "mae": "mae", "rmse": "rmse",
}  # fmt: skip  # as the hub calls them
SHOWN = 50  # class names in the card
CITATION = """@article{shi2024label,
  title = {Label Deconvolution for Node Representation Learning on Large-scale Attributed Graphs against Learning Bias},
  author = {Shi, Zhihao and Wang, Jie and Lu, Fanghua and Chen, Hanzhu and Lian, Defu and Wang, Zheng and Ye, Jieping
            and Wu, Feng},
}"""


def model_card(
    run: RunDirectory,
    data: Mapping[str, Any],
    name: str,
    encoder: str,
    license: str,
    with_graph: bool,
    sentences: bool,
) -> str:
    """The text of README.md.

    Args:
        run: whose scores, settings and classes are told.
        data: the data card of its graph (`analysis.card.data_card`).
        name: what `from_pretrained` is given to load it.
        encoder: the name of the encoder before it was trained.
        license: as Hugging Face calls it.
        with_graph: whether the graph was pushed.
        sentences: whether sentence-transformers opens it with the run's features.
    """
    title, what = name.rpartition("/")[2], "Targets" if run.task.kind == "regression" else "Classes"
    parts = [
        f"---\n{_front_matter(run, data, title, encoder, license, sentences)}\n---\n",
        f"# {_inline(title)}\n\n{_summary(run, data, encoder)}\n",
        f"## How to load it\n\n{_loading(run, name, with_graph, sentences)}\n",
        f"## Scores\n\n{_scores(run)}\n",
        f"## Data\n\n{_data(data)}\n\n{what}: {_classes(run.class_names)}.\n",
        f"## What is in here\n\n{_contents(run, with_graph)}\n",
        f"## Licence\n\n{_licence(license, encoder)}\n",
        f"## Citation\n\n```bibtex\n{CITATION}\n```\n",
    ]
    return "\n".join(parts)


def base_model(encoder: str) -> str | None:
    """The hub id of an encoder; None for one that is on no hub, as far as its name tells."""
    found = BASE_MODELS.get(encoder, encoder)
    return found if HUB_ID.fullmatch(found) and not Path(found).exists() else None


def _front_matter(
    run: RunDirectory, data: Mapping[str, Any], title: str, encoder: str, license: str, sentences: bool
) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    dataset = str(data["name"])
    results = [
        EvalResult(
            task_type=_task_type(run),
            dataset_type=re.sub(r"[^\w.-]+", "-", dataset) or "graph",
            dataset_name=dataset,
            dataset_split=split,
            metric_type=METRIC_TYPES[run.task.metric_name],
            metric_name=run.result["metric"],
            metric_value=round(float(run.result[key]), 6),
        )
        for key, split in (("val", "validation"), ("test", "test"))
        if math.isfinite(run.result[key])
    ]
    tags = ["labeldeconv", "label-deconvolution", _task_type(run), "graph", run.gnn]
    tags += ["sentence-transformers", "feature-extraction"] if sentences else []
    card = ModelCardData(
        base_model=base_model(encoder),
        eval_results=results or None,
        library_name="labeldeconv",
        license=license,
        model_name=title if results else None,
        pipeline_tag="feature-extraction" if sentences else None,
        tags=tags,
    )
    return card.to_yaml()


def _task_type(run: RunDirectory) -> str:
    return "node-regression" if run.task.kind == "regression" else "node-classification"


def _summary(run: RunDirectory, data: Mapping[str, Any], encoder: str) -> str:
    how = (
        f"the method `{run.method}` of labeldeconv" if run.psi_weights else "labeldeconv, without being trained itself"
    )
    kind = {"text": "texts", "sequence": "protein sequences", "record": "records"}[data["attributes"]]
    known = base_model(encoder) or Path(encoder).name
    what = f"{data['targets']} targets, which are numbers" if "targets" in data else f"{data['classes']} classes"
    return (
        f"An encoder of {kind} (from `{_code(known)}`, {run.dim} features) used by {how} and the GNN "
        f"`{_code(run.gnn)}` on the graph {_inline(data['name'])}, with the heads that predict its {what}."
    )


def _loading(run: RunDirectory, name: str, with_graph: bool, sentences: bool) -> str:
    lines = ["from labeldeconv import LabelDeconvolution", "", f"model = LabelDeconvolution.from_pretrained({name!r})"]
    lines += ['features = model.transform(["a text"])']
    if with_graph:
        lines += ['told = model.predictor_.predict(["a text"], edges=[("new-0", "id of a node")])']
    elif run.psi_weights and run.task.kind == "regression":
        lines += ['numbers = model.predict(texts=["a text"])']
    elif run.psi_weights:
        lines += ['probabilities = model.predict_proba(texts=["a text"])']
    told = "```python\n" + "\n".join(lines) + "\n```"
    if sentences:
        told += f"\n\nThe encoder alone, with the same features: `SentenceTransformer({name!r})`."
    return told


def _scores(run: RunDirectory) -> str:
    if run.task.kind == "regression":
        shown = {role: run.result["metrics"][role] for role in ("val", "test")}
        titles = {name: TITLES[name] for name in METRICS["regression"]}
        lines = [
            f"| {title} | {score_text(title, shown['val'][name])} | {score_text(title, shown['test'][name])} |"
            for name, title in titles.items()
        ]
        told = f"Of the GNN on all nodes of the graph, in the unit of the labels, seed {run.seed}."
        return "\n".join(["| | validation | test |", "|---|---:|---:|", *lines]) + f"\n\n{told}"
    val, test = (f"{100 * run.result[key]:.2f}" if math.isfinite(run.result[key]) else "-" for key in ("val", "test"))
    rows = [f"| {run.result['metric']} | {val} | {test} |"]
    for when in ("before", "after"):
        errors = [run.calibration.get(f"ece_{role}", {}).get(when) for role in ("val", "test")]
        cells = " | ".join("-" if e is None else f"{100 * e:.2f}" for e in errors)
        rows.append(f"| calibration error {when} scaling | {cells} |")
    return "\n".join(["| | validation | test |", "|---|---:|---:|", *rows]) + (
        f"\n\nOf the GNN on all nodes of the graph, in percent, seed {run.seed}; temperature "
        f"{run.calibration['temperature']:.4g}."
    )


def _data(data: Mapping[str, Any]) -> str:
    rows = []
    for name, value in data.items():
        if value is not None:
            shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else value
            rows.append(f"| {name.replace('_', ' ')} | {_inline(shown)} |")
    return "\n".join(["| | |", "|---|---|", *rows])


def _classes(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(_inline(name) for name in names[:SHOWN]) + more


def _contents(run: RunDirectory, with_graph: bool) -> str:
    heads = "psi and the GNN" if run.psi_weights else "the GNN"
    graph = (
        "The graph it learned on is here too, with all its texts and labels."
        if with_graph
        else "Texts, labels and edges of the graph it learned on are not here."
    )
    return f"The encoder, {heads} (safetensors), settings, class names and temperatures. {graph} Nothing is pickled."


def _licence(license: str, encoder: str) -> str:
    told = "not stated by its author" if license == "unknown" else f"`{_code(license)}`"
    known = base_model(encoder)
    return f"{told}." + (f" The encoder began as `{known}`, whose licence holds for it too." if known else "")


def _inline(value: Any) -> str:
    """A text as Markdown shows it, whatever is in it: no markup, no table cell, no line of its own."""
    return re.sub(r"([\\`*_{}\[\]<>()#|!~$])", r"\\\1", " ".join(str(value).split()))


def _code(value: Any) -> str:
    return " ".join(str(value).replace("`", "'").split())
