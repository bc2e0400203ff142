"""What a graph of any size would cost on a cluster, by arithmetic: nothing is run.

    labeldeconv plan --nodes 1e9 --edges 1e10 --classes 172 --gpus 64

Every line is a formula in the names of the lines above it and of the inputs, and the formula that is printed is the one
that is computed. Constants marked 'measured' come from one machine with two cores (docs/distributed.md); the others are
assumptions to be replaced by one's own numbers.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any

from labeldeconv.errors import ConfigError

GIB = 1 << 30
LOCAL_NODES = 1 << 31  # columns of a CSR are 4 bytes
OPERATORS: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
FUNCTIONS: dict[str, Callable[..., float]] = {
    "ceil": math.ceil,
    "min": min,
    "max": max,
    "expm1": math.expm1,
    "log1p": math.log1p,
}


def _input(meaning: str, default: Any = MISSING) -> Any:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True)
class PlanInputs:
    """What is known or assumed, under the names that formulas have."""

    n: float = _input("nodes")
    e: float = _input("edges")
    c: float = _input("classes")
    gpus: float = _input("GPUs", 8)
    hops: float = _input("N of the hop labels", 2)
    ways: float = _input("entries of A-hat per edge: 2 undirected, 1 directed", 2)
    executors: float = _input("Spark executors, one a machine", 16)
    cores: float = _input("cores of an executor", 16)
    block: float = _input("bytes of sums that a block of nodes receives at most (--block-mib)", 256 << 20)
    network: float = _input("bytes a second of one machine: assumed, 10 Gbit/s", 1.25e9)
    disk: float = _input("bytes a second of one machine's disk: assumed", 1e9)
    rate: float = _input("entries x classes a second of one core in Spark: measured", 5e6)
    local_rate: float = _input("the same of the engine 'local': measured, ogbn-products' shape", 1.1e9)
    tokens: float = _input("tokens of a text", 128)
    parameters: float = _input("weights of the encoder without word vectors: MiniLM's 6 layers", 10.6e6)
    epochs: float = _input("passes of the encoder's training", 3)
    flops: float = _input("operations a second of one GPU at its peak: assumed, A100 in bfloat16", 312e12)
    used: float = _input("share of that which is reached: assumed", 0.3)
    gpu_price: float = _input("an hour of a GPU: assumed", 2.0)
    core_price: float = _input("an hour of a core: assumed", 0.04)


@dataclass(frozen=True)
class PlanLine:
    """One quantity: its name in formulas, what it is, its unit, the formula, and the value."""

    name: str
    what: str
    unit: str
    formula: str
    value: float


# name, what it is, unit, formula
LINES = [
    ("a", "entries of A-hat, before duplicates go", "", "ways * e"),
    ("local_memory", "the engine 'local': memory at its peak", "bytes", "12 * a + 32 * n"),
    ("local_hours", "the engine 'local' on one machine: all hops", "hours",
     "hops * a * c / (local_rate * cores) / 3600"),
    ("P", "blocks of nodes", "", "max(executors * cores, ceil(a * (4 * c + 4) / block))"),
    ("M", "sums that travel per hop, one per target and source block", "", "-n * P * expm1(a / n * log1p(-1 / P))"),
    ("sums", "shuffle per hop: sums and their targets", "bytes", "M * (4 * c + 4)"),
    ("page", "sums of one source block for one target block: Spark is slow below some KB", "bytes", "sums / P ** 2"),
    ("vectors", "shuffle per hop: vectors to the blocks of their entries", "bytes", "n * (4 * c + 24)"),
    ("entries", "shuffle per hop: entries, and ids with degrees", "bytes", "8 * a + 24 * n"),
    ("shuffle", "shuffle per hop, before compression", "bytes", "sums + vectors + entries"),
    ("least", "the least that must move if no node lies beside its neighbours", "bytes", "M * 4 * c"),
    ("task", "memory of one task: sums as they come and as numbers, vectors, entries", "bytes",
     "2 * block + n / P * c * 12 + a / P * 24"),
    ("executor", "memory of an executor: all its tasks, and a third for Java", "bytes", "1.33 * cores * task"),
    ("hop_network", "a hop: bytes over the network", "hours", "shuffle / (executors * network) / 3600"),
    ("hop_disk", "a hop: shuffle written and read, K written", "hours",
     "(2 * shuffle + 4 * n * c) / (executors * disk) / 3600"),
    ("hop_work", "a hop: sums", "hours", "a * c / (rate * executors * cores) / 3600"),
    ("hops_hours", "all hops, one after the other", "hours", "hops * (hop_network + hop_disk + hop_work)"),
    ("K", "K_0 ... K_N as Parquet, before compression", "bytes", "4 * n * c * (hops + 1)"),
    ("X", "X of all nodes in float16, 384 numbers", "bytes", "2 * 384 * n"),
    ("forward", "one pass of the encoder over all texts", "GPU hours",
     "2 * parameters * tokens * n / (flops * used) / 3600"),
    ("train", "its training: forward and twice that backward", "GPU hours", "3 * epochs * forward"),
    ("encoder", "X_PNE, training, X_LD", "GPU hours", "2 * forward + train"),
    ("encoder_hours", "the same on all GPUs", "hours", "encoder / gpus"),
    ("cost", "price of GPUs and cores", "money",
     "encoder * gpu_price + hops_hours * executors * cores * core_price"),
]  # fmt: skip


def plan(inputs: PlanInputs) -> list[PlanLine]:
    """All lines of a plan, in order."""
    values = {name: float(value) for name, value in asdict(inputs).items()}
    for name, value in values.items():
        if not math.isfinite(value) or value <= 0:
            raise ConfigError(f"plan: {name} must be a number above 0; it is {value:g}")
    found = []
    for name, what, unit, formula in LINES:
        values[name] = evaluate(formula, values)
        found.append(PlanLine(name, what, unit, formula, values[name]))
    return found


def advice(inputs: PlanInputs, lines: list[PlanLine], memory: float) -> str:
    """Which engine, for machines of so many bytes of memory."""
    value = {line.name: line.value for line in lines}
    if inputs.n >= LOCAL_NODES:
        return f"spark: the engine 'local' numbers nodes in 31 bits, so it holds fewer than {LOCAL_NODES:,}"
    if value["local_memory"] <= memory:
        return f"local: A-hat takes {value['local_memory'] / GIB:.1f} GiB of the {memory / GIB:.0f} of one machine"
    if value["executor"] > memory:
        return (
            f"spark, with fewer cores per executor or a smaller --block-mib: an executor needs "
            f"{value['executor'] / GIB:.1f} GiB, a machine has {memory / GIB:.0f}"
        )
    return f"spark: A-hat takes {value['local_memory'] / GIB:.1f} GiB, and one machine has {memory / GIB:.0f}"


def described() -> dict[str, str]:
    """What every input is, by its name."""
    return {each.name: each.metadata["meaning"] for each in fields(PlanInputs)}


def evaluate(formula: str, values: Mapping[str, float]) -> float:
    """A formula of numbers, names, + - * / **, and ceil, min, max, expm1, log1p."""

    def of(node: Any) -> float:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return node.value
        if isinstance(node, ast.Name) and node.id in values:
            return values[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -of(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](of(node.left), of(node.right))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
            return FUNCTIONS[node.func.id](*map(of, node.args))
        raise ValueError(f"'{formula}': {ast.unparse(node)} is no part of a formula")

    return float(of(ast.parse(formula, mode="eval").body))
