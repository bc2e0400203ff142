"""The command line: parse, call one public function, print. `labeldeconv --help` names the commands."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

# Before torch loads: threads that spin while waiting cost a shared machine up to 70 times (measured).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("KMP_BLOCKTIME", "0")

import typer
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from labeldeconv.cli.analyze import analyze
from labeldeconv.cli.at_scale import encode, hops, plan, print_cluster_commands
from labeldeconv.cli.doctor import doctor
from labeldeconv.cli.elsewhere import export, push
from labeldeconv.cli.housekeeping import cache
from labeldeconv.cli.link_prediction import links
from labeldeconv.cli.listing import list_names, list_settings
from labeldeconv.cli.new_nodes import explain, predict
from labeldeconv.cli.paper import paper
from labeldeconv.cli.searching import search_and_print
from labeldeconv.cli.terminal import (
    Alpha,
    AsJson,
    ConfigFile,
    Data,
    Encoder,
    Hops,
    LogTo,
    MaxNodes,
    Out,
    Quiet,
    Sets,
    Trust,
    Verbose,
    Version,
    comparison_table,
    console,
    part_of,
    print_json,
    print_race,
    print_tree,
    settings_of,
)
from labeldeconv.cli.web import serve
from labeldeconv.errors import ConfigError, DataError, LabelDeconvError, plainly
from labeldeconv.progress import logger, printable, show
from labeldeconv.stages import ranks

if TYPE_CHECKING:
    from labeldeconv.runs.compare import Comparison
    from labeldeconv.settings.models import Config


INTERRUPTED = "interrupted; resume with the same command: it goes on from the last checkpoint\n"
LOST = "stdout: {}; what was to be printed is lost, but files are written"


class Commands(TyperGroup):
    """The commands, and what Ctrl-C and a closed stdout do to each of them."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; typer itself would leave without a word."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.stderr.write(INTERRUPTED)
            raise typer.Exit(130) from None
        except BrokenPipeError:  # `labeldeconv ... | head -1`
            _forget_stdout()
            raise typer.Exit(1) from None
        except OSError as error:
            if error.filename is None and error.errno is not None:  # files have names: it is stdout
                _forget_stdout()
                raise LabelDeconvError(LOST.format(error.strerror)) from None
            raise


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(analyze, name="analyze")
app.add_typer(cache, name="cache")

MaxMemory = Annotated[
    str | None, typer.Option(help="Memory that the run may take, such as 2GiB; refused before a stage that needs more.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the settings and the estimated cost, and stop.")]


@app.callback()
def _labeldeconv(context: typer.Context, version: Version = False) -> None:
    """Label Deconvolution: learn node features and predictions on attributed graphs."""
    if ranks.started() > 1 and (asked := context.invoked_subcommand) != "fit":
        raise ConfigError(f"{asked}: only `fit` is run by several processes; {ranks.started()} were started")


@app.command()
def fit(
    data: Data,
    method: Annotated[str | None, typer.Option(help="A method of `labeldeconv list`; default auto.")] = None,
    encoder: Encoder = None,
    gnn: Annotated[
        str | None, typer.Option(help="A GNN of `labeldeconv list`, package.module:Name, or auto, the default.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    hops: Hops = None,
    alpha: Alpha = None,
    engine: Annotated[str | None, typer.Option(help="Who computes hop labels: local, or spark (extra).")] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master; default local-cluster[2,1,1024].")] = None,
    max_nodes: MaxNodes = None,
    max_memory: MaxMemory = None,
    out: Out = None,
    start: Annotated[
        Path | None, typer.Option("--continue", help="Start from the encoder and the GNN of this run directory.")
    ] = None,
    log: LogTo = None,
    config: ConfigFile = None,
    sets: Sets = None,
    profile: Annotated[bool, typer.Option("--profile", help="Also write and print where the time went.")] = False,
    find_batch: Annotated[
        bool, typer.Option("--find-batch", help="Measure the largest batch that fits first.")
    ] = False,
    memory: Annotated[
        float | None, typer.Option(help="MiB that --find-batch may use; default all that is free.")
    ] = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Train one method with one GNN and one seed; writes a run directory."""
    names = {"data": part_of(data, max_nodes), "method": method, "encoder__name": encoder, "gnn__name": gnn, "log": log}
    names |= {"start": None if start is None else str(start), "max_memory": max_memory}
    names |= {"labels__engine": engine, "labels__master": master}
    from labeldeconv.settings.reading import label_settings

    asked = settings_of(config, sets, **names, seed=seed, **label_settings(alpha, hops))
    if sys.modules.get("torch") is None:  # which takes seconds: a word before it
        logger.info("fit of %s: loading torch", printable(asked.data))
    from labeldeconv.runs.asked import with_choices_of_fit
    from labeldeconv.runs.fit import fit_config

    settings = with_choices_of_fit(asked)
    if dry_run:
        return _dry_run(settings, as_json)
    result = fit_config(settings, out=out, find_batch=find_batch, memory_mib=memory)
    if not ranks.leads():
        return
    times = result.write_profile() if profile else None
    if as_json:
        return print_json(result.to_dict() | ({"profile": times} if times else {}))
    title = f"{settings.method} on {printable(settings.data)}: {result.metric}"
    console.print(Text(title, style="italic"), soft_wrap=True)  # a table's own title is cut to its width
    table = Table()
    for column in ("val", "test", "seconds"):
        table.add_column(column, justify="right")
    table.add_row(*_shown(result), f"{sum(result.seconds.values()):.1f}")
    console.print(table)
    if times:
        _print_profile(times)
    else:
        console.print("seconds by stage: " + ", ".join(f"{k} {v:.1f}" for k, v in result.seconds.items()))
    if result.chosen is not None:
        console.print(f"auto took {result.chosen}: " + "; ".join(_tried(row, result.metric) for row in result.tried))
    if result.largest_batch is not None:
        most = settings.encoder.max_tokens
        console.print(f"largest batch that fits: {result.largest_batch:,} nodes of {most} tokens")
    if result.race:
        print_race(result.race, result.metric)
    if result.gamma:
        console.print("gamma: " + ", ".join(f"{g:.3f}" for g in result.gamma))
    if settings.labels.engine == "spark":
        print_cluster_commands(result.run, settings)
    console.print(f"run directory: {result.run}", soft_wrap=True)


def _tried(row: dict[str, Any], metric: str) -> str:
    """A candidate of the method 'auto': its name, epochs, validation score and leads."""
    from labeldeconv.graph.lead import Lead, lead_text
    from labeldeconv.graph.metrics import score_text

    epochs = f" ({row['epochs']} epochs)" if row["epochs"] else ""
    leads = [f"{lead_text(metric, Lead(**lead))} over {label}" for label, lead in row.get("leads", {}).items()]
    told = f" ({', '.join(leads)})" if leads else ""
    return f"{row['method']}{epochs} {score_text(metric, row['val'])}{told}"


@app.command()
def compare(
    data: Data,
    methods: Annotated[str, typer.Option(help="Comma-separated, or all that can run here.")] = "pne,fne,wo-ld,ld",
    gnns: Annotated[str | None, typer.Option(help="Comma-separated GNNs.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, from 0.")] = 1,
    encoder: Encoder = None,
    hops: Hops = None,
    alpha: Alpha = None,
    max_nodes: MaxNodes = None,
    max_memory: MaxMemory = None,
    out: Out = None,
    log: LogTo = None,
    config: ConfigFile = None,
    sets: Sets = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Run several methods, GNNs and seeds; stages are shared, finished ones are not run again."""
    from labeldeconv.settings.reading import label_settings

    names = {"data": part_of(data, max_nodes), "encoder__name": encoder, "log": log, "max_memory": max_memory}
    settings = settings_of(config, sets, **names, **label_settings(alpha, hops))
    if dry_run:
        return _dry_run(settings, as_json)
    from labeldeconv.runs.compare import compare_config

    chosen = _methods(methods), _names("gnns", gnns or settings.gnn.name)
    result = compare_config(settings, *chosen, seeds, out)
    if as_json:
        return print_json(result.to_dict())
    _print_comparison(result)


@app.command()
def sweep(
    data: Data,
    vary: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUES: hops=0..8, alpha=0,0.5,1, encoder=minilm,tiny.")
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(help="In place of --vary: train.lr=1e-5..1e-3:log, gnn.hidden=64,128 (extra optuna)."),
    ] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Most trials of a search; default 20.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0, help="No trial begins after so many minutes of them.")] = None,
    methods: Annotated[str | None, typer.Option(help="Comma-separated methods; default ld.")] = None,
    gnns: Annotated[str | None, typer.Option(help="Comma-separated GNNs.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, from 0.")] = 1,
    encoder: Encoder = None,
    max_nodes: MaxNodes = None,
    out: Out = None,
    log: LogTo = None,
    config: ConfigFile = None,
    sets: Sets = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Vary settings, all combinations, or search them by validation score; stages are shared as in compare."""
    settings = settings_of(config, sets, data=part_of(data, max_nodes), encoder__name=encoder, log=log)
    if bool(vary) == bool(search):
        raise ConfigError("sweep: either --vary KEY=VALUES or --search KEY=LOW..HIGH expected")
    if search:
        one = methods or settings.method, gnns or settings.gnn.name
        return search_and_print(settings, search, *one, trials, minutes, seeds, out, as_json)
    if trials is not None or minutes is not None:
        raise ConfigError("sweep: --trials and --minutes belong to --search; --vary tries all combinations")
    from labeldeconv.runs.compare import compare_config
    from labeldeconv.settings.reading import parse_vary

    grid = dict(parse_vary(text) for text in vary or [])
    chosen = _methods(methods or settings.method), _names("gnns", gnns or settings.gnn.name)
    result = compare_config(settings, *chosen, seeds, out, vary=grid)
    return print_json(result.to_dict()) if as_json else _print_comparison(result)


@app.command()
def inspect(
    data: Data,
    encoder: Encoder = None,
    max_nodes: MaxNodes = None,
    config: ConfigFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Check a graph, print its statistics, what a fit would cost and what to do with it; trains nothing."""
    from dataclasses import asdict

    from labeldeconv.analysis.advice import advise
    from labeldeconv.analysis.card import data_card
    from labeldeconv.analysis.estimate import SAMPLE, estimate
    from labeldeconv.data.opening import open_data
    from labeldeconv.encoders.pretrained import Pretrained
    from labeldeconv.runs.asked import resolve, with_choices_of_fit
    from labeldeconv.runs.preparation import attribute_warning

    asked = settings_of(config, sets, data=part_of(data, max_nodes), encoder__name=encoder)
    settings = resolve(with_choices_of_fit(asked))
    try:
        loaded = open_data(settings.data, settings.data_seed)
    except DataError as error:
        found = getattr(error, "found", {})  # what a data set with missing files has
        if as_json and error.problems:
            print_json({**found, "errors": error.problems})
            raise typer.Exit(1) from None
        if found and not as_json:
            print_tree(found.get("name", data), {k: v for k, v in found.items() if k not in ("name", "files")})
            print_tree("files there", found.get("files", {}))
        raise
    graph = loaded.graph.resplit(settings.split, settings.data_seed)
    card, warnings = data_card(graph), list(loaded.warnings)
    try:
        if told := attribute_warning(Pretrained(settings.encoder), graph):
            warnings.append(told)
        cost: dict[str, Any] = estimate(graph, settings)
    except LabelDeconvError as error:
        cost = {"not estimated": str(error)}
    cut = cost["tokens"]["cut"] / min(SAMPLE, graph.num_nodes) if "tokens" in cost else None
    advice = advise(graph, settings, cut)
    if as_json:
        pieces = [asdict(piece) for piece in advice]
        return print_json({**card, "errors": [], "warnings": warnings, "estimate": cost, "advice": pieces})
    print_tree(card["name"], {k: v for k, v in card.items() if k != "name" and v is not None})
    print_tree(f"estimate for {settings.method} with {settings.encoder.name} and {settings.gnn.name}", cost)
    for piece in advice:
        reason = printable(f"{piece.finding}: {piece.reason}")
        console.print(
            Text.assemble(("advice", "cyan"), f" {piece.topic}: ", reason, "\n    ", piece.command), soft_wrap=True
        )
    for warning in warnings:
        console.print(Text.assemble(("warning", "yellow"), " ", printable(warning)), soft_wrap=True)


app.command("export")(export)
app.command("push")(push)


@app.command()
def verify(
    run: Annotated[Path, typer.Argument(help="A run directory of `fit`, or the folder of a `compare` or `sweep`.")],
    as_json: AsJson = False,
) -> None:
    """Compare every file of a run with its checksum and compute its scores again; exit code 1 where one differs."""
    from labeldeconv.runs.verification import verify_run

    found = verify_run(run)
    if as_json:
        print_json(found.to_dict())
    else:
        for problem in found.problems:
            console.print(problem, soft_wrap=True, highlight=False, markup=False)
        counts = f"{found.runs} runs, {found.files} files, {found.scores} scores"
        console.print(f"{counts}: {len(found.problems)} problems", highlight=False)
    if found.problems:
        raise typer.Exit(1)


app.command("predict")(predict)
app.command("explain")(explain)
app.command("serve")(serve)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A run directory of `fit`, or the folder of a `compare` or `sweep`.")],
    out: Annotated[Path | None, typer.Option(help="The HTML file; default report.html in that folder.")] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Write one self-contained HTML file: scores, curves, errors, costs and every node to look at."""
    from labeldeconv.report.html import write_report

    written = write_report(run, out)
    if show:
        typer.launch(written.path.resolve().as_uri())
    if as_json:
        return print_json(written.to_dict())
    console.print(f"report: {written.path} ({written.bytes / 1e6:.1f} MB)", soft_wrap=True)


@app.command()
def ensemble(
    runs: Annotated[list[Path], typer.Argument(help="Runs and comparisons of one graph.")],
    out: Annotated[Path | None, typer.Option(help="Folder for ensemble.json and logits.npy.")] = None,
    as_json: AsJson = False,
) -> None:
    """Average the predictions of finished runs, chosen greedily on the validation nodes."""
    from labeldeconv.runs.ensemble import ensemble as together

    found = together(runs, out)
    if as_json:
        return print_json(found.to_dict())
    table = Table(title=f"ensemble: {found.metric}", title_justify="left")
    for column in ("run", "weight", "val", "test"):
        table.add_column(column, justify="left" if column == "run" else "right", overflow="fold")
    for member in found.members:
        table.add_row(Text(printable(member.run)), f"{member.weight:.2f}", *_shown(member, found.metric))
    table.add_section()
    table.add_row("best single", "", *_shown(found.best, found.metric))
    table.add_row("ensemble", "", *_shown(found))
    console.print(table)


def _shown(scored: Any, metric: str | None = None) -> tuple[str, str]:
    """Validation and test score as a table shows them."""
    from labeldeconv.graph.metrics import score_text

    title = scored.metric if metric is None else metric
    return score_text(title, scored.val), score_text(title, scored.test)


app.command("links")(links)
app.command("hops")(hops)
app.command("encode")(encode)
app.command("plan")(plan)
app.command("list")(list_names)
app.command("settings")(list_settings)
app.command("doctor")(doctor)
app.command("paper")(paper)


def _print_profile(times: dict[str, list[dict[str, Any]]]) -> None:
    """Tables of stages and of parts of the training step."""
    for name, rows in times.items():
        table = Table(title={"stages": "stages", "step": "encoder's training steps"}[name], title_justify="left")
        for column in rows[0]:
            table.add_column(column.replace("_", " "), justify="left" if column in ("stage", "part") else "right")
        for row in rows:
            table.add_row(*(f"{v:.1%}" if k == "share" else str(v) for k, v in row.items()))
        console.print(table)


def _print_comparison(result: Comparison) -> None:
    console.print(comparison_table(result))
    console.print(f"run directory: {result.run}", soft_wrap=True)


def _names(option: str, text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ConfigError(f"--{option} {text}: at least one name expected, several separated by commas")
    return names


def _methods(text: str) -> list[str] | Literal["all"]:
    return "all" if text == "all" else _names("methods", text)


def _dry_run(settings: Config, as_json: bool) -> None:
    from labeldeconv.analysis.estimate import estimate
    from labeldeconv.methods.base import method_named
    from labeldeconv.runs.asked import resolve
    from labeldeconv.runs.preparation import open_graph

    method_named(settings.method)
    settings = resolve(settings)
    cost = estimate(open_graph(settings), settings)
    if as_json:
        return print_json({"settings": settings.model_dump(), "estimate": cost})
    console.print(settings.to_toml())
    print_tree("estimate", cost)


def main() -> None:
    """Entry point: errors of the input, the disk or memory are one message and exit code 1, never a traceback."""
    with _interrupts() as interrupts:
        try:
            show()
            with ranks.joined():
                app()
        except KeyboardInterrupt:  # before a command began
            sys.stderr.write(INTERRUPTED)
            raise SystemExit(130) from None
        except Exception as error:
            if interrupts:
                sys.stderr.write(INTERRUPTED)
                raise SystemExit(130) from None
            told = plainly(error, "labeldeconv") if isinstance(error, OSError | MemoryError | RuntimeError) else None
            if told is None and not isinstance(error, LabelDeconvError):
                raise
            _stop(told or error)
        except SystemExit:
            _flush_stdout()
            raise
    _flush_stdout()


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Every Ctrl-C inside: numpy makes a TypeError of one that comes while it writes a file."""
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        signal.default_int_handler(number, frame)

    before = signal.getsignal(signal.SIGINT)
    noted = before is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    if noted:
        signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        if noted:
            signal.signal(signal.SIGINT, before)


def _flush_stdout() -> None:
    """Print what is still held back; a reader who went away is no error, a full disk is one."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
    except OSError as error:
        _forget_stdout()
        _stop(LabelDeconvError(LOST.format(error.strerror)))


def _forget_stdout() -> None:
    """Let nothing more be written to a stdout that takes nothing, also when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _stop(error: Exception) -> None:
    """Say one message, unless another rank does, and leave with exit code 1."""
    if isinstance(error, ranks.Lost) and error.told:
        sys.exit(1)
    told_by = f"rank {ranks.rank()}: " if ranks.started() > 1 else ""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"error: {told_by}{printable(str(error))}\n")
        sys.stderr.flush()
    sys.exit(1)
