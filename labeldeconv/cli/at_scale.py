"""`labeldeconv hops`, `encode` and `plan`: tables in a lake, by this machine or by Spark; what a cluster needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from labeldeconv.cli.terminal import AsJson, Quiet, Sets, Trust, console, print_json, print_table, settings_of
from labeldeconv.errors import ConfigError, nearest

if TYPE_CHECKING:
    from labeldeconv.settings.models import Config

STORES = ("float32", "uint16")
ENGINE = "local: this machine, in memory. spark: a cluster, or a graph that is larger than the memory."
Engine = Annotated[str, typer.Option(help=ENGINE)]
Master = Annotated[str, typer.Option(help="Spark's master: local[*], local-cluster[2,1,1024], spark://..., k8s://...")]
ExecutorMemory = Annotated[str, typer.Option(help="Spark: memory of an executor and of the driver, such as 4g.")]
SparkSettings = Annotated[list[str] | None, typer.Option("--spark", help="A setting of Spark's own, KEY=VALUE.")]


def cluster_of(master: str, memory: str, settings: list[str] | None, **more: Any) -> Any:
    """The cluster that options describe."""
    from labeldeconv.lake.tables import Cluster

    pairs = [text.partition("=") for text in settings or []]
    if wrong := [key for key, sign, _ in pairs if not sign or not key.startswith("spark.")]:
        raise ConfigError(f"--spark {wrong[0]}: spark.NAME=VALUE expected, such as spark.executor.cores=4")
    return Cluster(master, memory, tuple((key, value) for key, _, value in pairs), **more)


def hops(
    nodes: Annotated[str, typer.Option(help="Parquet, a file, a folder or a URL: ids and labels.")],
    edges: Annotated[str, typer.Option(help="Parquet: sources and targets.")],
    out: Annotated[str, typer.Option(help="A new folder for K_0.parquet ... K_N.parquet and K.npy.")],
    number: Annotated[int, typer.Option("--hops", min=0, max=1000, help="N: K_0 ... K_N are made.")] = 2,
    engine: Engine = "local",
    master: Master = "local[*]",
    normalization: Annotated[str, typer.Option(help="row: D^-1 A. symmetric: D^-1/2 A D^-1/2.")] = "row",
    self_loops: Annotated[bool, typer.Option("--self-loops", help="Every node is its own neighbour too.")] = False,
    directed: Annotated[bool, typer.Option("--directed", help="Edges work from source to target only.")] = False,
    backward: Annotated[bool, typer.Option("--backward", help="Turn all edges round first.")] = False,
    store: Annotated[str, typer.Option(help="float32, or uint16: fixed point, as runs keep K.")] = "float32",
    classes: Annotated[int | None, typer.Option(min=1, help="Number of classes; default largest + 1.")] = None,
    id: Annotated[str, typer.Option(help="Column of the nodes.")] = "id",
    label: Annotated[str, typer.Option(help="Column of the nodes: a class, or a list of numbers.")] = "label",
    source: Annotated[str, typer.Option(help="Column of the edges.")] = "source",
    target: Annotated[str, typer.Option(help="Column of the edges.")] = "target",
    executor_memory: ExecutorMemory = "1g",
    blocks: Annotated[int | None, typer.Option(min=1, help="Spark: blocks of nodes; default by --block-mib.")] = None,
    block_mib: Annotated[int, typer.Option(min=1, help="Spark: MiB of sums that a block receives at most.")] = 256,
    spark: SparkSettings = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Hop labels K_i = A-hat^i Y of a graph in Parquet tables, as Parquet and as K.npy."""
    for name, value, known in (("normalization", normalization, ("row", "symmetric")), ("store", store, STORES)):
        if value not in known:
            raise ConfigError(f"--{name} {value}: one of {', '.join(known)} expected")
    from labeldeconv.labels.hop_tables import hops_of_tables
    from labeldeconv.lake.tables import HopTables
    from labeldeconv.settings.models import AdjacencyConfig

    kind: Literal["row", "symmetric"] = "row" if normalization == "row" else "symmetric"
    adjacency = AdjacencyConfig(normalization=kind, self_loops=self_loops, undirected=not directed)
    tables = HopTables(nodes, edges, number, adjacency, store, backward, classes, id, label, source, target)
    cluster = cluster_of(master, executor_memory, spark, blocks=blocks, block_mib=block_mib)
    told = hops_of_tables(tables, out, engine, cluster)
    if as_json:
        return print_json({"out": out, **told})
    took = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in told["seconds"].items())
    size = f"{told['nodes']:,} nodes, {told['entries']:,} entries, {told['classes']} classes, {told['hops']} hops"
    console.print(f"{out}: {size} by {told['engine']} ({took})", soft_wrap=True, highlight=False, markup=False)
    return None


def encode(
    texts: Annotated[str, typer.Option(help="Parquet, a file, a folder or a URL: ids and texts.")],
    out: Annotated[str, typer.Option(help="A new folder for X.parquet and X.npy.")],
    run: Annotated[Path | None, typer.Option(help="A run directory: its trained encoder.")] = None,
    encoder: Annotated[str | None, typer.Option(help="A pre-trained encoder instead: a name, a folder.")] = None,
    engine: Engine = "local",
    master: Master = "local[*]",
    id: Annotated[str, typer.Option(help="Column of the ids.")] = "id",
    text: Annotated[str, typer.Option(help="Column of the texts.")] = "text",
    sets: Sets = None,
    executor_memory: ExecutorMemory = "1g",
    spark: SparkSettings = None,
    trust: Trust = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """X of the texts of a Parquet table, by the encoder of a run or a pre-trained one, as Parquet and as X.npy."""
    if (run is None) == (encoder is None):
        raise ConfigError("encode: one of --run RUN and --encoder NAME expected")
    from labeldeconv.prediction.encoded_tables import TableEncoder, encode_table

    settings = settings_of(None, sets, encoder__name=encoder)
    cluster = cluster_of(master, executor_memory, spark)
    told = encode_table(texts, out, TableEncoder.of(run, settings), engine, cluster, id, text)
    if as_json:
        return print_json({"out": out, **told})
    took = f"{told['seconds']['encode']:.1f} s"
    size = f"{told['nodes']:,} texts, features of {told['dim']} numbers"
    console.print(f"{out}: {size} by {told['engine']} ({took})", soft_wrap=True, highlight=False, markup=False)
    return None


def print_cluster_commands(run: Path, settings: Config) -> None:
    """What a cluster would be told for the same steps on tables that no machine holds."""
    adjacency, labels = settings.labels.adjacency, settings.labels
    options = [f"--hops {labels.hops if labels.hops is not None else settings.gnn.layers}", f"--store {labels.store}"]
    options += [] if adjacency.normalization == "row" else [f"--normalization {adjacency.normalization}"]
    options += ["--self-loops"] if adjacency.self_loops else []
    options += [] if adjacency.undirected else ["--directed"]
    spark = "--engine spark --master spark://HOST:7077"
    lines = [
        "the same on a cluster (docs/distributed.md):",
        f"  labeldeconv hops {spark} --nodes NODES --edges EDGES --out K {' '.join(options)}",
        f"  labeldeconv encode {spark} --run {run} --texts NODES --out X",
    ]
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def plan(
    nodes: Annotated[str, typer.Option(help="Number of nodes, such as 1e9.")],
    edges: Annotated[str, typer.Option(help="Number of edges, such as 1e10.")],
    classes: Annotated[str, typer.Option(help="Number of classes.")],
    gpus: Annotated[str, typer.Option(help="Number of GPUs.")] = "8",
    number: Annotated[str, typer.Option("--hops", help="N of the hop labels.")] = "2",
    directed: Annotated[bool, typer.Option("--directed", help="Edges work from source to target only.")] = False,
    memory: Annotated[float, typer.Option(min=1, help="GiB of memory of one machine.")] = 128,
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="Another input, NAME=NUMBER, as --json names them.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What hop labels and the encoder would cost on a cluster: bytes, memory, hours, money, each with its formula."""
    from dataclasses import asdict

    from labeldeconv.analysis.plan import GIB, PlanInputs, advice, described
    from labeldeconv.analysis.plan import plan as planned

    known = described()
    given = {"n": nodes, "e": edges, "c": classes, "gpus": gpus, "hops": number, "ways": "1" if directed else "2"}
    for text in sets or []:
        name, _, value = text.partition("=")
        if name not in known:
            raise ConfigError(f"--set {text}: {nearest(name, known)}")
        given[name] = value
    inputs = PlanInputs(**{name: _number(name, value) for name, value in given.items()})
    lines = planned(inputs)
    engine = advice(inputs, lines, memory * GIB)
    if as_json:
        return print_json({"inputs": asdict(inputs), "lines": [asdict(line) for line in lines], "engine": engine})
    told = [(name, known[name], _amount(value, "")) for name, value in asdict(inputs).items()]
    print_table("inputs", ["name", "what", "value"], told, left=2, folds=["what"])
    rows = [(line.name, line.what, _amount(line.value, line.unit), line.formula) for line in lines]
    print_table("plan", ["name", "what", "value", "formula"], rows, left=2, folds=["what", "formula"])
    console.print(f"engine: {engine}", soft_wrap=True, highlight=False, markup=False)
    return None


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"plan: {name} must be a number, such as 1e9; it is '{text}'") from None


def _amount(value: float, unit: str) -> str:
    """A number for people: bytes as KB to PB, others with three digits."""
    if unit != "bytes":
        return f"{value:,.0f} {unit}".rstrip() if value >= 1000 else f"{value:.3g} {unit}".rstrip()
    for name in ("B", "KB", "MB", "GB", "TB"):
        if value < 1000:
            return f"{value:.3g} {name}"
        value /= 1000
    return f"{value:.3g} PB"
