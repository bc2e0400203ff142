"""Kernels compiled and cached before a first fit waits for them: `labeldeconv doctor --compile`.

numba compiles a kernel for every set of argument types that it meets, and keeps the results on disk by the kind of
processor. `listed` is all that a fit can ask for, whatever its graph and GNN: 32- and 64-bit edges in memory and
in files, rows of sums of one to eight cache lines of float32, float16 and uint16, small and large keys of CSR.

To ask numba whether all is there takes importing torch, seconds. So a file in the cache of labeldeconv notes what was
found there last: where sources, versions, processor and numba's files are still the same, nothing is imported.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from labeldeconv.errors import StorageError
from labeldeconv.progress import logger
from labeldeconv.stages.cache import Cache
from labeldeconv.stages.files import write_json

NOTE = "kernels.json"


@dataclass(frozen=True)
class Compilation:
    """How many kernels there are, by types, how many were compiled now, how long it took, and where they are kept."""

    kernels: int
    compiled: int
    seconds: float
    folders: list[str]


def compile_kernels() -> Compilation:
    """Compile and cache all kernels that are not there yet."""
    start, note, key = time.perf_counter(), Cache().root / NOTE, _key()
    known = _noted(note, key)
    if known is None:
        pairs = list(listed())
        logger.info("kernels: what is missing of %d is compiled, which takes half a minute at first", len(pairs))
        for kernel, types in pairs:
            kernel.compile(types)
        kernels = {id(kernel): kernel for kernel, _ in pairs}.values()
        compiled = sum(sum(kernel.stats.cache_misses.values()) for kernel in kernels)
        folders = sorted({str(kernel.stats.cache_path) for kernel in kernels})
        files = [path for folder in folders for path in sorted(Path(folder).glob("*.nb[ci]"))]
        known = {"key": key, "kernels": len(pairs), "folders": folders, "files": {str(p): _state(p) for p in files}}
        with suppress(OSError, StorageError):  # without the note the next call takes two seconds more
            note.parent.mkdir(parents=True, exist_ok=True)
            write_json(note, known)
    else:
        compiled = 0
    return Compilation(known["kernels"], compiled, round(time.perf_counter() - start, 2), known["folders"])


def _key() -> str:
    """What stands for the kernels' sources, the versions of what compiles them, and the processor."""
    from llvmlite import binding

    folder = Path(__file__).parent
    facts = [sys.version, version("numba"), version("llvmlite"), binding.get_host_cpu_name()]
    facts += [f"{name} {on}" for name, on in sorted(binding.get_host_cpu_features().items())]
    facts += [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("NUMBA_")]
    sources = [f"{path} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in sorted(folder.rglob("*.py"))]
    return hashlib.sha256("\n".join(facts + sources).encode()).hexdigest()


def _noted(note: Path, key: str) -> dict[str, Any] | None:
    """What was noted of the kernels, if it is still so."""
    try:
        known: dict[str, Any] = json.loads(note.read_text())
        same = known["key"] == key and all(_state(Path(path)) == state for path, state in known["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return known if same else None


def _state(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def listed() -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Every kernel with the types of its arguments, once for each that a fit can meet."""
    from numba import types as t

    from labeldeconv.propagation import adjacency, edge_features, hop_blocks, hop_rows, hop_sum, sampling, weighted_sum
    from labeldeconv.propagation.kernel import csr, draw, gather

    def array(kind: Any, ndim: int = 1, layout: str = "C", fixed: bool = False) -> Any:
        return t.Array(kind, ndim, layout, readonly=fixed)

    i32, i64, u16, u64, f32, f64, yes = t.int32, t.int64, t.uint16, t.uint64, t.float32, t.float64, t.boolean
    I32, I64, F32, span, bits = array(i32), array(i64), array(f32), (i64, i64), t.UniTuple(u64, 3)
    ends = [array(kind, fixed=fixed) for kind in (i32, i64) for fixed in (False, True)]  # of edges, in memory or files

    for rows, cols in [*zip(ends, ends, strict=True), (I64, I32)]:
        yield csr._count, (rows, cols, *span, u64, yes, yes, I64)
        for keys in (array(t.uint32), array(u64)):
            yield csr._scatter, (rows, cols, *span, bits, yes, yes, I64, keys)
    for keys in (array(t.uint32), array(u64)):
        yield csr._scatter_diagonal, (i64, bits, I64, keys)
        yield csr._sort_buckets, (*span, bits, array(t.uint32, 2), I64, keys, I32, I64)
    yield csr._collect, (*span, i64, i64, I64, I32, I64, I32)

    for form in (t.UniTuple(kind, lines) for kind in (f32, t.int16, u16) for lines in range(1, gather.WIDEST + 1)):
        yield gather._gather_rows, (I64, i64, u64, u64, u64, u64, u64, F32, form, *span)
        yield gather._gather_tiles, (I64, i64, u64, u64, I32, u64, u64, F32, form, i64, i64, i64, *span)
    for classes in (array(t.uint8), array(u16)):
        for out in (array(kind, 2, layout) for kind in (f32, u16) for layout in "AC"):
            yield gather._count_rows, (I64, I32, F32, classes, out, f32, f32, *span)
    yield adjacency._insert_diagonal, (I64, I32, array(yes), i64)
    for layout in "AC":
        yield adjacency._gather_float64, (I64, I32, array(f64, 2, layout), array(f64, 2))

    for index in (I32, I64):  # what entries carry, and columns of a part
        yield draw._draw_rows, (I64, I32, index, I64, I64, u64, i64, I32, index, *span)
        yield draw._mark, (index, array(yes), *span)
        yield draw._renumber, (I32, index, I32, *span)
    yield sampling._cut, (I64, I32, I64, i64, i64, I32)

    for end in ends:
        yield edge_features._note, (I64, I32, end, end, I32)
        yield hop_blocks._entries_between, (end, end, *span, yes, yes, I32, I32)
    for values in (array(kind, 2, fixed=fixed) for kind in (f32, f64) for fixed in (False, True)):
        for index in (I32, I64):
            yield edge_features._fill, (values, index, F32, array(f32, 2), *span)
    for fixed in (False, True):
        yield hop_rows._widen, (array(u16, 2, fixed=fixed), I64, array(t.uint32, 2), *span)

    matrix, heads = array(f32, 2), array(f32, 3)
    yield hop_sum._add_hop, (matrix, matrix, matrix, i64, *span)
    yield hop_sum._hop_gradient, (matrix, matrix, matrix, i64, matrix, matrix, *span)
    yield weighted_sum._add_kernel, (matrix, heads, I64, I64, heads, *span)
    yield weighted_sum._product_kernel, (heads, heads, I64, I64, matrix, *span)
    yield from _of_dropout(matrix, F32, I64)


def _of_dropout(matrix: Any, row: Any, steps: Any) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Those of `dropout`."""
    from numba import types as t

    from labeldeconv.propagation import dropout

    f32, span, cube = t.float32, (t.int64, t.int64), t.Array(t.float32, 3, "C")
    drawing = (t.uint64, t.uint32, f32)
    line = (row, row, f32, *drawing)
    yield dropout._drop, (matrix, matrix, *drawing, *span)
    yield dropout._drop_hops, (row, steps, cube, *drawing, *span)
    yield dropout._block_moments, (matrix, matrix, matrix, *span)
    yield dropout._apply, (matrix, matrix, matrix, *line, *span)
    yield dropout._gradient_sums, (matrix, matrix, matrix, row, *line, t.boolean, cube, *span)
    yield dropout._gradient, (matrix, matrix, matrix, *line, row, row, matrix, matrix, *span)
