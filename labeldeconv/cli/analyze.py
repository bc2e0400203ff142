"""`labeldeconv analyze`: figures and tables of the paper on your own data, printed, as JSON, or as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labeldeconv.cli.terminal import (
    AsJson,
    ConfigFile,
    Data,
    Encoder,
    MaxNodes,
    Out,
    Sets,
    Trust,
    console,
    part_of,
    print_json,
    print_table,
    print_tree,
    settings_of,
)

if TYPE_CHECKING:
    from labeldeconv.analysis.bias import Bias
    from labeldeconv.analysis.output import Analysis
    from labeldeconv.analysis.spectrum import Spectrum
    from labeldeconv.graph.attributed import AttributedGraph
    from labeldeconv.settings.models import Config

analyze = typer.Typer(no_args_is_help=True, help="Figures and tables of the paper on your own data and runs.")

Run = Annotated[Path, typer.Argument(help="The directory of a run or of a comparison.")]
Source = Annotated[str, typer.Argument(help="The directory of a run or a comparison, or data as for `fit`.")]
Folder = Annotated[Path | None, typer.Option("--out", help="Folder that gets the same content as JSON and CSV.")]


@analyze.command("gamma")
def gamma(run: Run, out: Folder = None, trust: Trust = False, as_json: AsJson = False) -> None:
    """gamma over the training steps (the weight figure)."""
    from labeldeconv.analysis.weights import gamma_curves

    result = gamma_curves(run)
    if _plain(result, "gamma", out, as_json):
        return
    most = max(len(c.final) for c in result.curves)
    columns = ["run", "at", *(f"gamma {i}" for i in range(most)), "mean hop", "eff. hops"]
    rows: list[list[Any]] = []
    for c in result.curves:
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            k = round(share * (len(c.steps) - 1))
            cells = [*c.gamma[k], *[None] * (most - len(c.final))]
            rows.append([c.run, f"step {c.steps[k]}", *cells, *((c.mean_hop, c.effective_hops) if share == 1 else ())])
    print_table("gamma over training", columns, rows, left=2)


@analyze.command("similarity")
def similarity(
    run: Run,
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of nodes in the matrices.")] = 3,
    threshold: Annotated[float, typer.Option(min=0, max=1, help="Least text similarity of a pair.")] = 0.6,
    seed: Annotated[int, typer.Option(min=0, help="Of the draw of pairs.")] = 0,
    out: Folder = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """True and inverse labels of nodes with similar texts but different labels (the similarity figure)."""
    from labeldeconv.analysis.similarity import KINDS, similarity

    result = similarity(run, pairs, threshold, seed=seed)
    if _plain(result, "similarity", out, as_json):
        return
    print_table(
        f"{result.found} pairs with texts alike ({threshold:g} or more) but different labels; drawn:",
        ["", "node", "label", "text"],
        [[i, n.id, n.label, n.text[:70]] for i, n in enumerate(result.nodes)],
        left=4,
    )
    numbers = range(len(result.nodes))
    for name in ("text", *KINDS):
        title = {"text": "text similarity", "pseudo": "similarity of the (pseudo) labels Y"}.get(name)
        title = title or f"similarity of the {name} labels"
        print_table(title, ["", *map(str, numbers)], [[i, *getattr(result, name)[i]] for i in numbers])
    print_table(
        f"how labels follow texts, {result.fits['true'].count} pairs",
        ["labels", "correlation", "similar texts, other label", "random, other label"],
        [[kind, fit.correlation, fit.similar, fit.random] for kind, fit in result.fits.items()],
    )


@analyze.command("spectrum")
def spectrum(
    source: Source,
    hops: Annotated[int | None, typer.Option(min=0, help="N of phi = A-hat^N; default the GNN's.")] = None,
    dense: Annotated[int, typer.Option(min=1, help="Largest component that is decomposed whole, in nodes.")] = 20_000,
    self_loops: Annotated[
        bool | None, typer.Option(help="A-hat with self-loops or not; default labels.adjacency.")
    ] = None,
    max_nodes: MaxNodes = None,
    config: ConfigFile = None,
    sets: Sets = None,
    out: Folder = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Multiple eigenvalues, missing frequencies and whether phi is invertible (Appendix A.3, Assumption 1)."""
    from labeldeconv.analysis.spectrum import spectrum_for
    from labeldeconv.runs.directory import is_run, run_with_gamma

    if is_run(source):
        run = run_with_gamma(source)
        result = spectrum_for(run.graph, run.config(), run, hops, self_loops, dense)
    else:
        result = spectrum_for(*_opened(source, max_nodes, config, sets), None, hops, self_loops, dense)
    if not _plain(result, "spectrum", out, as_json):
        _print_spectrum(result)


@analyze.command("bias")
def bias(
    source: Source,
    nodes: Annotated[str, typer.Option(help="Whose labels are read: train or labelled.")] = "train",
    max_nodes: MaxNodes = None,
    config: ConfigFile = None,
    sets: Sets = None,
    out: Folder = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """How far training on labels is from joint training on this graph, and so whether LD can help."""
    from labeldeconv.analysis.bias import bias as compute
    from labeldeconv.errors import ConfigError
    from labeldeconv.runs.directory import is_run

    if nodes not in ("train", "labelled"):
        raise ConfigError(f"--nodes {nodes}: train or labelled expected")
    chosen: Any = nodes
    if is_run(source):
        result = compute(source, nodes=chosen)
    else:
        result = compute(*_opened(source, max_nodes, config, sets), chosen)
    if not _plain(result, "bias", out, as_json):
        _print_bias(result)


@analyze.command("cost")
def cost(run: Run, out: Folder = None, trust: Trust = False, as_json: AsJson = False) -> None:
    """Seconds, memory and encoder passes by method and stage (the runtime and complexity tables)."""
    from labeldeconv.analysis.cost import cost
    from labeldeconv.graph.metrics import score_text

    result = cost(run)
    if _plain(result, "cost", out, as_json):
        return
    costs = ("seconds_per_epoch", "peak_mib", "encoder_passes", "batch", "subgraph")
    print_table(
        "by method",
        ["run", "test", "seconds", "s/epoch", "MiB", "passes", "|B|", "|G(B)|"],
        [
            [m.run, score_text(m.metric, m.test), f"{m.seconds:.1f}", *(getattr(m, c) for c in costs)]
            for m in result.methods
        ],
    )
    signals = [[m.run, m.time, m.memory, m.signals] for m in result.methods if m.time]
    if signals:
        print_table("the encoder phase in theory", ["run", "time", "memory", "signals"], signals, left=4)
    stages = [[m.run, s.stage, s.seconds, s.peak_mib, s.passes] for m in result.methods for s in m.stages]
    print_table("by stage", ["run", "stage", "seconds", "MiB", "passes"], stages, left=2)


@analyze.command("approximation")
def approximation(
    data: Data,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of every GNN; none stops early.")] = 200,
    encoder: Encoder = None,
    out: Out = None,
    config: ConfigFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Training curves of GCN and RevGAT against SpeGCN and SpeGNN on X_PNE (Appendix A.4): numbers and a plot."""
    from labeldeconv.analysis.approximation import approximation
    from labeldeconv.graph.metrics import score_text, score_unit

    result = approximation(settings_of(config, sets, data=data, encoder__name=encoder), epochs, out)
    if as_json:
        return print_json(result.to_dict())
    shown = result.metric
    rows = [
        [c.gnn, f"{c.loss[-1]:.4f}", score_text(shown, c.best_val), score_text(shown, c.test)] for c in result.curves
    ]
    print_table(f"{shown}{score_unit(shown)} on {result.data}", ["GNN", "loss at the end", "val", "test"], rows)
    console.print(f"numbers and plot: {result.out}", soft_wrap=True)


def _plain(result: Analysis, name: str, out: Path | None, as_json: bool) -> bool:
    """Write the files that --out asks for and print the JSON that --json asks for; True where nothing else is to."""
    if out is not None:
        from labeldeconv.analysis.output import write_analysis

        written = write_analysis(result, out, name)
        if not as_json:
            console.print("written: " + ", ".join(map(str, written)), soft_wrap=True)
    if as_json:
        print_json(result.to_dict())
    return as_json


def _opened(
    data: str, max_nodes: int | None, config: Path | None, sets: list[str] | None
) -> tuple[AttributedGraph, Config]:
    """The graph that a command names, and its settings."""
    from labeldeconv.runs.asked import resolve
    from labeldeconv.runs.preparation import open_graph

    settings = resolve(settings_of(config, sets, data=part_of(data, max_nodes)))
    return open_graph(settings), settings


def _print_spectrum(s: Spectrum) -> None:
    at_least, about = ("", "") if s.exact else ("at least ", "about ")
    values: dict[str, Any] = {"nodes": s.nodes, "edges": s.edges}
    values["eigenvalues"] = f"{s.distinct} different" if s.exact else f"at most {s.distinct} different, estimated"
    values |= {"range of A-hat": f"{s.low:.4f} to {s.high:.4f}", "R multi": f"{at_least}{s.multi_ratio:.2f} %"}
    values["not simple"] = f"{at_least}{s.coinciding:.2f} % of all eigenvalues"
    values |= {f"N miss, {name}": f"{about}{count}" for name, count in s.missing.items()}
    print_tree(f"spectrum of {s.data}", values)
    if s.multiple:
        rows = [[f"{m.eigenvalue:.6f}", m.multiplicity] for m in s.multiple]
        print_table("most frequent eigenvalues of A-hat", ["eigenvalue", f"{at_least}times"], rows)
    answers = {True: "yes", False: "no", None: "not decided"}
    print_table(
        "phi over the spectrum",
        ["phi", "min |phi|", "at", "max |phi|", "share near 0", "invertible"],
        [[p.name, p.smallest, p.at, p.largest, p.near_zero, answers[p.invertible]] for p in s.phi],
    )


def _print_bias(b: Bias) -> None:
    before = {k: v for k, v in b.before.__dict__.items() if k not in ("verdict", "can_help") and v is not None}
    before |= {k: ", ".join(f"{g:.3f}" for g in before[k]) for k in ("gamma", "gamma_free")}
    print_tree(f"{b.data}, before training", before)
    console.print(b.before.verdict)
    if b.after:
        from labeldeconv.graph.metrics import NUMBERS

        console.print()
        print_table(
            f"after training: test {b.after.metric}",
            ["run", "GNN", "psi alone", "agreement", "|Y(gamma) - Y| / |Y|"],
            [[r.run, r.gnn_test, r.psi_test, r.agreement, r.target_distance] for r in b.after.runs],
        )
        if b.after.differences:
            unit, scale = (b.after.metric, 1) if b.after.metric in NUMBERS else ("points", 100)
            rows = [[f"{d.a} - {d.b}", d.setting, scale * d.points, d.seeds, d.p_value] for d in b.after.differences]
            print_table("differences", ["methods", "setting", unit, "seeds", "p"], rows, left=2)
        console.print(b.after.verdict)
