"""`labeldeconv paper`: every table and figure of the paper, the command that makes it, and a miniature that runs now.

    labeldeconv paper                 what there is, and which command makes it on DATA of yours
    labeldeconv paper --run           the miniature of each, end to end: generated data, a tiny encoder, minutes
    labeldeconv paper --run gamma     one of them

A miniature goes the whole way of the real one (the same commands, methods and files) on a graph and an encoder so small
that its scores mean nothing.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from labeldeconv.cli.terminal import AsJson, console, print_json, print_table
from labeldeconv.errors import ConfigError, nearest

QUICK = ("--encoder", "tiny", "--set", "train.epochs=1", "--set", "gnn.epochs=10", "--set", "gnn.hidden=16")
SMALL = "planted:120"
REPRODUCED = "reproduced"  # the very content of the paper
ELSEWHERE = "measured on other data"  # and in miniature


@dataclass(frozen=True)
class Exhibit:
    """A table, figure or statement of the paper.

    Args:
        name: short, for `--run`.
        place: its label in the paper, and what it shows.
        command: what makes it on DATA.
        state: how far it was made here.
        needs: what the published numbers themselves need.
        miniature: commands of the miniature; {out} is a folder that they share.
    """

    name: str
    place: str
    command: str
    state: str
    needs: str
    miniature: tuple[tuple[str, ...], ...]


GPU = "OGB's raw files, a GPU of 24 GiB"
_METHODS = ("--methods", "pne,wo-ld,ld", "--seeds", "2")
_COMPARISON = ("compare", SMALL, *_METHODS, *QUICK, "--out", "{out}/compare")
EXHIBITS = (
    Exhibit(
        "algorithm",
        "Algorithm 1: Label Deconvolution",
        "labeldeconv fit DATA --method ld",
        ELSEWHERE,
        GPU,
        (("fit", SMALL, "--method", "ld", *QUICK, "--out", "{out}/ld"),),
    ),
    Exhibit(
        "subgraphs",
        "tab:subgraph_size: score by size of the sampled subgraphs, features fixed",
        "labeldeconv sweep DATA --methods joint-gas --set train.lr=0 --vary joint.batch_nodes=4096,512,64",
        ELSEWHERE,
        GPU,
        (
            (
                "sweep", SMALL, "--methods", "joint-sage", *QUICK, "--set", "train.lr=0", "--vary",
                "joint.batch_nodes=32,8", "--out", "{out}/subgraphs",
            ),
        ),
    ),
    Exhibit(
        "complexity",
        "tab:complexity_conv: time and memory of the encoder phase",
        "labeldeconv analyze cost COMPARISON",
        ELSEWHERE,
        GPU,
        (_COMPARISON, ("analyze", "cost", "{out}/compare")),
    ),
    Exhibit(
        "example",
        "tab:example: the motivating example, and the learning bias of a graph",
        "labeldeconv analyze bias DATA",
        REPRODUCED,
        "nothing",
        (("analyze", "bias", SMALL),),
    ),
    Exhibit(
        "datasets",
        "tab:datasets: statistics of the data",
        "labeldeconv inspect DATA",
        ELSEWHERE,
        "OGB's raw files",
        (("inspect", SMALL, "--encoder", "tiny"),),
    ),
    Exhibit(
        "baselines",
        "tab:baselines: what each method trains the encoder on",
        "labeldeconv list",
        REPRODUCED,
        "nothing",
        (("list",),),
    ),
    Exhibit(
        "main",
        "tab:main_table: methods x GNNs",
        "labeldeconv compare DATA --methods all --gnns gcn,revgat --seeds 5",
        ELSEWHERE,
        GPU,
        (
            (
                "compare", SMALL, "--methods", "all", "--gnns", "gcn,revgat", *QUICK, "--set", "joint.epochs=1",
                "--set", "giant.coarsest=2", "--out", "{out}/main",
            ),
        ),
    ),
    Exhibit(
        "runtime",
        "tab:runtime: seconds, memory and largest batch by method",
        "labeldeconv analyze cost COMPARISON",
        ELSEWHERE,
        GPU,
        (_COMPARISON, ("analyze", "cost", "{out}/compare")),
    ),
    Exhibit(
        "gamma",
        "fig:weight: gamma over training",
        "labeldeconv analyze gamma RUN",
        ELSEWHERE,
        GPU,
        (_COMPARISON, ("analyze", "gamma", "{out}/compare")),
    ),
    Exhibit(
        "similarity",
        "fig:similarity: texts alike, labels different",
        "labeldeconv analyze similarity RUN",
        ELSEWHERE,
        GPU,
        (_COMPARISON, ("analyze", "similarity", "{out}/compare", "--threshold", "0.2")),
    ),
    Exhibit(
        "ablation",
        "tab:ablation: FNE, WO/LD, LD",
        "labeldeconv compare DATA --methods fne,wo-ld,ld --seeds 5",
        ELSEWHERE,
        GPU,
        (("compare", SMALL, "--methods", "fne,wo-ld,ld", *QUICK, "--out", "{out}/ablation"),),
    ),
    Exhibit(
        "hops",
        "fig:n-layer: N of the inverse labels",
        "labeldeconv sweep DATA --vary hops=0..8",
        ELSEWHERE,
        GPU,
        (("sweep", SMALL, "--vary", "hops=0..3", *QUICK, "--out", "{out}/hops"),),
    ),
    Exhibit(
        "alpha",
        "fig:alpha: share of the inverse labels",
        "labeldeconv sweep DATA --vary alpha=0,0.2,0.5,1.0",
        ELSEWHERE,
        GPU,
        (("sweep", SMALL, "--vary", "alpha=0,0.5,1.0", *QUICK, "--out", "{out}/alpha"),),
    ),
    Exhibit(
        "scaling",
        "fig:scaling: size of the encoder",
        "labeldeconv sweep DATA --vary encoder=NAME,NAME --methods pne,fne,ld",
        ELSEWHERE,
        GPU,
        (
            (
                "sweep", SMALL, "--vary", "encoder.layers=1,2", "--methods", "pne,fne,ld", *QUICK, "--out",
                "{out}/scaling",
            ),
        ),
    ),
    Exhibit(
        "inductive",
        "tab:inductive: evaluation nodes unseen in training",
        "labeldeconv compare DATA --set setting=inductive",
        ELSEWHERE,
        GPU,
        (("compare", SMALL, *_METHODS, *QUICK, "--set", "setting=inductive", "--out", "{out}/inductive"),),
    ),
    Exhibit(
        "spectrum",
        "tab::cite_datasets: multiple eigenvalues and missing frequencies",
        "labeldeconv analyze spectrum DATA",
        ELSEWHERE,
        "the citation graphs",
        (("analyze", "spectrum", SMALL),),
    ),
    Exhibit(
        "curves",
        "fig:curves: GNNs and their spectral twins",
        "labeldeconv analyze approximation DATA",
        ELSEWHERE,
        GPU,
        (
            (
                "analyze", "approximation", SMALL, "--encoder", "tiny", "--epochs", "10", "--set", "gnn.hidden=16",
                "--out", "{out}/curves",
            ),
        ),
    ),
)  # fmt: skip


def paper(
    context: typer.Context,
    only: Annotated[list[str] | None, typer.Argument(help="Names of the first column; default all.")] = None,
    run: Annotated[bool, typer.Option("--run", help="Run the miniatures.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the miniatures' runs.")] = Path("runs/paper"),
    as_json: AsJson = False,
) -> None:
    """Name the command behind every table and figure of the paper; --run makes a miniature of each."""
    chosen = _chosen(only)
    if not run:
        if as_json:
            return print_json({"exhibits": [{**asdict(e), "miniature": _shell(e, out)} for e in chosen]})
        rows = [[e.name, e.place, e.command, e.state] for e in chosen]
        heads = ["name", "in the paper", "command", "state"]
        print_table("the paper, as far as it was made here", heads, rows, left=4, folds=heads[1:])
        return None
    group, done, told = context.find_root().command, set[tuple[str, ...]](), []
    for exhibit in chosen:
        start = time.monotonic()
        for words in exhibit.miniature:
            if words not in done:  # several exhibits read one comparison
                done.add(words)
                console.print(f"\n$ labeldeconv {' '.join(_filled(words, out))}", soft_wrap=True)
                group.main([*_filled(words, out)], prog_name="labeldeconv", standalone_mode=False)
        told.append([exhibit.name, exhibit.place, f"{time.monotonic() - start:.1f}"])
    print_table("made in miniature", ["name", "in the paper", "seconds"], told, left=2, folds=["in the paper"])
    return None


def _chosen(names: list[str] | None) -> list[Exhibit]:
    known = {exhibit.name: exhibit for exhibit in EXHIBITS}
    for name in names or []:
        if name not in known:
            raise ConfigError(f"paper '{name}': unknown; {nearest(name, known)}")
    return [known[name] for name in names] if names else list(EXHIBITS)


def _filled(words: tuple[str, ...], out: Path) -> list[str]:
    return [word.replace("{out}", str(out)) for word in words]


def _shell(exhibit: Exhibit, out: Path) -> list[str]:
    return [" ".join(["labeldeconv", *_filled(words, out)]) for words in exhibit.miniature]
