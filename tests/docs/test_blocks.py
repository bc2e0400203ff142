"""Every code block of README.md and docs/ is run, or says why not; every command of theirs has options that exist.

Quick: all commands are parsed by the real command line, and the Python of most documents is run. `make docs` (marker
docs) also runs the Python that trains MiniLM or chooses, and the commands in miniature: 60 nodes and a tiny encoder.
"""

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import networkx
import pytest
import torch
import typer
from torch_geometric.data import Data
from typer.testing import CliRunner

from labeldeconv import open_data
from labeldeconv.cli.app import app
from labeldeconv.data.catalog import DATASETS
from labeldeconv.encoders.pretrained import _OWN, ENCODERS
from labeldeconv.errors import MissingExtra
from labeldeconv.gnns.base import GNNS
from labeldeconv.methods.base import METHODS
from labeldeconv.runs import asked
from labeldeconv.settings.reading import load_config, parse_set, parse_vary
from labeldeconv.settings.space import parse_search
from tests.docs.documents import DOCUMENTS, ROOT, Block, Command, blocks, commands, inline_commands

BLOCKS = [block for path in DOCUMENTS for block in blocks(path)]
COMMANDS = [command for block in BLOCKS for command in commands(block)]
INLINE = [command for path in DOCUMENTS for command in inline_commands(path)]
PYTHON = {d: [b for b in BLOCKS if b.document == d and b.kind == "python"] for d in {b.document for b in BLOCKS}}
PYTHON = {document: found for document, found in sorted(PYTHON.items()) if found}
SLOW = {"README.md", "docs/extend.md", "docs/gnns.md", "docs/own-data.md", "docs/serving.md"}  # MiniLM, races, ONNX
PROGRAM = typer.main.get_command(app)

CLASSES, PAPERS = 7, 56
STANDS_FOR = {  # what capitals mean in a document
    "DATA": "planted:60", "planted": "planted:60", "FOLDER": "papers", "RUN": "runs/small", "runs/NAME": "runs/small",
    "runs/planted": "runs/small", "runs/first": "runs/small", "runs/papers": "runs/small", "NODE": "3",
    "COMPARISON": "runs/demo",
}  # fmt: skip
TINY = ("train.epochs=1", "gnn.epochs=2", "gnn.hidden=8", "joint.epochs=1", "encoder.max_tokens=16")
FEW_EPOCHS = {"gnn.epochs": 20, "train.epochs": 1}
FEWER = {
    ("--seeds", "3"): "1",
    ("--trials", "20"): "2",
    ("--minutes", "60"): "0.01",
    ("--epochs", "200"): "2",
    ("--epochs", "20"): "2",
    ("--graphstorm", "papers"): "for graphstorm",
}
ELSEWHERE = {
    "serve": "tests/cli/test_new_nodes.py runs it",
    "--onnx": "the Python of docs/serving.md needs it",
    "spark": "tests/lake/test_spark.py has a cluster of two workers: make test-spark",
}


def write_papers(folder: Path) -> None:
    """Tables of a reader: papers of seven subjects; new.csv and new_edges.csv are two papers that came later."""
    (folder / "papers").mkdir()
    rows = [f"{i},paper {i} of subject {i % CLASSES},subject {i % CLASSES}" for i in range(PAPERS)]
    (folder / "papers" / "nodes.csv").write_text("\n".join(["id,text,label", *rows]) + "\n")
    edges = [f"{i},{(i + CLASSES) % PAPERS}\n{i},{(i + 1) % PAPERS}" for i in range(PAPERS)]
    (folder / "papers" / "edges.csv").write_text("\n".join(["source,target", *edges]) + "\n")
    (folder / "new.csv").write_text("id,text\na,amber river\nb,quiet drum\n")
    (folder / "new_edges.csv").write_text("source,target\na,17\nb,a\n")
    (folder / "my.toml").write_text("[train]\nepochs = 1\n")


def of_the_reader() -> dict[str, Any]:
    """Names that a document supposes: what a reader has in his program."""
    labels = torch.arange(PAPERS) % CLASSES
    edges = torch.stack([torch.arange(PAPERS), (torch.arange(PAPERS) + CLASSES) % PAPERS])
    texts = [f"paper {i} of subject {i % CLASSES}" for i in range(PAPERS)]
    data = Data(x=torch.ones(PAPERS, 3), edge_index=edges, y=labels, num_nodes=PAPERS, text=texts)
    G = networkx.Graph(edges.T.tolist())
    for i in G:
        G.nodes[i].update(abstract=texts[i], venue=f"venue {i % CLASSES}")
    rows = [{"id": i, "text": texts[i], "label": f"subject {i % CLASSES}"} for i in range(PAPERS)]
    links = [{"source": i, "target": (i + 1) % PAPERS} for i in range(PAPERS)]
    graph = open_data("papers").graph
    return {"graph": graph, "data": data, "texts": texts, "G": G, "rows": rows, "links": links, "dataset": [data]}


@pytest.fixture
def reader(tmp_path_factory, tmp_path, comparison, monkeypatch) -> Iterator[Path]:
    """The folder in which a reader tries a document, with runs and tables; the cache is shared by all documents.

    What a block registers or changes in the process is forgotten afterwards. `fit` trains for a few epochs.
    """
    cache = tmp_path_factory.getbasetemp() / "cache of the documents"
    monkeypatch.setenv("LABELDECONV_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr("logging.basicConfig", lambda **_: None)  # docs/runs.md: the log of the whole process
    monkeypatch.setattr(asked, "OF_FIT", asked.OF_FIT | FEW_EPOCHS)
    write_papers(tmp_path)
    shutil.copytree(comparison, tmp_path / "runs" / "demo")
    shutil.copytree(comparison / "ld-gcn-0", tmp_path / "runs" / "small")
    kept = [(held, dict(held)) for held in (GNNS._load(), METHODS._load(), DATASETS._load(), _OWN, ENCODERS)]
    yield tmp_path
    sys.modules.pop("mymodule", None)
    for held, before in kept:
        held.clear()
        held.update(before)


def run_python(found: Sequence[Block]) -> None:
    """Run the blocks of a document one after the other, as a reader would."""
    names = of_the_reader() | {"__name__": "reader"}
    for block in found:
        if not block.not_run:
            exec(compile("\n" * (block.line - 1) + block.code, block.document, "exec"), names)


def before_python(document: str) -> None:
    """Run the commands whose files the Python of a document reads."""
    if document == "docs/serving.md":
        for command in COMMANDS:
            if command.place.startswith(document) and command.words[0] in ("export", "push") and not command.not_run:
                told = CliRunner().invoke(app, list(command.words), catch_exceptions=False)
                assert told.exit_code == 0, told.output


@pytest.mark.parametrize("document", [d for d in PYTHON if d not in SLOW])
def test_python_runs(document, reader):
    run_python(PYTHON[document])


@pytest.mark.docs
@pytest.mark.parametrize("document", sorted(SLOW))
def test_python_runs_that_trains(document, reader, request, monkeypatch):
    if document == "README.md":
        chosen = request.getfixturevalue("_named_choices")  # of users: method and GNN by validation score
        monkeypatch.setattr(asked, "OF_FIT", chosen | FEW_EPOCHS | {"gnn.candidates": ["gcn", "mlp"]})
    before_python(document)
    run_python(PYTHON[document])


def parsed(words: Sequence[str]) -> dict[str, Any]:
    """What the command line reads from these words, without running anything; the parser's error otherwise."""
    command, context, rest = PROGRAM, None, list(words)
    while hasattr(command, "commands"):
        context = command.context_class(command, parent=context)
        if rest[0] not in command.commands:
            raise LookupError(f"{rest[0]}: no such command")
        command = command.commands[rest.pop(0)]
    return command.make_context(command.name, rest, parent=context).params


def check_command(words: Sequence[str]) -> None:
    """Options exist and have values of their kind; settings, GNNs, methods and files that are named exist."""
    params = parsed(words)
    for assignment in params.get("sets") or []:
        load_config(None, dict([parse_set(assignment)]))
    for text in params.get("vary") or []:
        name, values = parse_vary(text)
        for value in values:
            load_config(None, {name: value})
    for name, part in map(parse_search, params.get("search") or []):
        for value in part.ends:
            load_config(None, {name: value})
    for registry, given in ((METHODS, ("method", "methods")), (GNNS, ("gnn", "gnns"))):
        for key in given:
            for name in (params.get(key) or "").split(","):
                if name and name not in ("all", "auto", "NAME") and not name.startswith("mymodule:"):
                    registry.named(name)
    config = params.get("config")
    if config is not None and str(config).startswith("recipes/"):
        load_config(ROOT / config, {})


def test_commands_have_options_that_exist():
    wrong = []
    for command in [*COMMANDS, *INLINE]:
        try:
            check_command(command.words)
        except Exception as error:
            wrong.append(f"{command}: {error!r}")
    assert len(COMMANDS) > 50
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        ("fit", "DATA", "--gnns", "gcn"),
        ("fit", "DATA", "--seed", "one"),
        ("fit", "DATA", "--set", "train.epoch=2"),
        ("fit", "DATA", "--gnn", "gnc"),
        ("sweep", "DATA", "--vary", "hop=1,2"),
        ("sweep", "DATA", "--search", "train.rate=1e-5..1e-3:log"),
        ("analyze", "gama", "RUN"),
        ("refit", "DATA"),
        ("explain", "RUN"),
    ],
)
def test_a_wrong_command_is_noticed(wrong):
    with pytest.raises(Exception, match=r"(?i)no such|did you mean|missing|valid integer|unknown"):
        check_command(wrong)


def miniature(command: Command) -> list[str]:
    """A command of a document on small data, with a tiny encoder and a few epochs."""
    words = [STANDS_FOR.get(word, word) for word in command.words if word != "--open"]
    words = [FEWER.get((before, word), word) for before, word in zip(["", *words], words, strict=False)]
    words = [word.replace("OTHER", "tiny").replace("encoder.layers=1,2,3", "encoder.layers=1,2") for word in words]
    if words[0] in ("fit", "compare", "sweep"):
        words += [f"--set={setting}" for setting in TINY if setting.partition("=")[0] not in " ".join(words)]
        if not {"--encoder", "encoder=minilm,OTHER"} & set(command.words):
            words += ["--encoder", "tiny"]
        if "auto" in words:
            words += ['--set=gnn.candidates=["gcn", "mlp"]']
    return words


def quick(command: Command) -> bool:
    return not command.not_run and not set(command.words) & set(ELSEWHERE)


@pytest.mark.docs
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow's own, of SQLAlchemy 2.1
@pytest.mark.parametrize("command", [c for c in COMMANDS if quick(c)], ids=str)
def test_commands_run_in_miniature(command, reader):
    if "mymodule" in str(command):
        run_python(PYTHON["docs/extend.md"][:1])
    told = CliRunner().invoke(app, miniature(command))
    if isinstance(told.exception, MissingExtra):
        pytest.skip(str(told.exception))
    assert told.exit_code == 0, f"{told.output}\n{told.exception!r}"


def test_reasons_are_given():
    """What is not run says what it needs."""
    reasons = [block.not_run for block in BLOCKS if block.not_run]
    assert all(reason.startswith("needs ") for reason in reasons)
