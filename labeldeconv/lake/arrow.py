"""What Spark's Python workers do: Arrow tables in, Arrow tables out, the arithmetic of lake/node_blocks.py between.

Spark sends whole blocks. The functions are made on the driver, from a `BlockForm`, and pickled; workers import this
package, numpy, scipy and pyarrow, but neither torch nor pyspark's own classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from labeldeconv.lake.node_blocks import BlockForm, finish, pack_entries, partial_sums, scaled_sources
from labeldeconv.lake.tables import parquet_files


def packer(form: BlockForm) -> Callable[[Any], Any]:
    """A function from the entries (block, source, target) of a block to pages (block, page, sources, targets)."""

    def pack(entries: Any) -> Any:
        import pyarrow as pa

        pages = list(pack_entries(form, numbers(entries["source"]), numbers(entries["target"])))
        block = pa.array([entries["block"][0].as_py()] * len(pages), pa.int32())
        page = pa.array(range(len(pages)), pa.int32())
        sources, targets = (_bytes([page[k] for page in pages]) for k in (0, 1))
        return pa.table({"block": block, "page": page, "sources": sources, "targets": targets})

    return pack


def summer(form: BlockForm, hubs: Any) -> Callable[[Any, Any, Any], Any]:
    """A function from a block's entries in pages and its vectors (row, degree, values) to sums in pages.

    `hubs.value` are rows (k,) of hubs and their `scaled_sources` (k, c).
    """

    def add(key: Any, entries: Any, vectors: Any) -> Any:
        import pyarrow as pa

        block, (hub_rows, hub_x) = key[0].as_py(), hubs.value
        order = np.argsort(numbers(entries["page"]))
        sources, targets = (_joined(entries[name], order, form.numbers) for name in ("sources", "targets"))
        values = lists(vectors["values"], form.classes)
        x = np.zeros((form.size(block), form.classes), hub_x.dtype)
        x[numbers(vectors["row"]) // form.blocks] = scaled_sources(form, values, numbers(vectors["degree"]))
        pages = list(partial_sums(form, block, sources, targets, x, hub_rows, hub_x))
        blocks = pa.array([page[0] for page in pages], pa.int32())
        reached, sums = _bytes([page[1] for page in pages]), _bytes([page[2] for page in pages])
        return pa.table({"block": blocks, "targets": reached, "sums": sums})

    return add


def finisher(form: BlockForm, hop: int) -> Callable[[Any, Any], Any]:
    """A function from a block's nodes (id, row, degree) and the pages that came for it to its part of K_hop."""

    def add_up(nodes: Any, pages: Any) -> Any:
        import pyarrow as pa

        rows, degree = numbers(nodes["row"]), numbers(nodes["degree"])
        came = zip(pages["targets"].to_pylist(), pages["sums"].to_pylist(), strict=True)
        values = as_lists(finish(form, rows, degree, came, hop))
        return pa.table({"id": nodes["id"], "row": rows, "degree": degree, "values": values})

    return add_up


def encoder_of(encode: Callable[[list[str]], np.ndarray]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function from batches (id, row, text) to batches (id, row, values)."""

    def encoded(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            values = as_lists(np.asarray(encode(batch.column("text").to_pylist()), np.float32))
            yield pa.RecordBatch.from_pydict({"id": batch.column("id"), "row": batch.column("row"), "values": values})

    return encoded


def local_rows(url: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """rows (m,) and values (m, c) of Parquet files of this machine, some at a time."""
    import pyarrow.parquet as pq

    for path in parquet_files(url):
        for batch in pq.ParquetFile(path).iter_batches(columns=["row", "values"]):
            if batch.num_rows:
                yield batch.column("row").to_numpy(), lists(batch.column("values"), len(batch.column("values")[0]))


def numbers(column: Any) -> np.ndarray:
    """(m,) int64 of a column of whole numbers."""
    return column.to_numpy().astype(np.int64, copy=False)


def lists(column: Any, width: int) -> np.ndarray:
    """(m, width) float32 of a column of lists."""
    import pyarrow as pa

    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return whole.flatten().to_numpy(zero_copy_only=False).astype(np.float32, copy=False).reshape(-1, width)


def as_lists(values: np.ndarray) -> Any:
    """A column of lists of (m, c) float32."""
    import pyarrow as pa

    ends = pa.array(np.arange(len(values) + 1) * values.shape[1], pa.int32())
    return pa.ListArray.from_arrays(ends, pa.array(values.reshape(-1), pa.float32()))


def _bytes(pages: list[bytes]) -> Any:
    import pyarrow as pa

    return pa.array(pages, pa.binary())


def _joined(column: Any, order: np.ndarray, kind: str) -> np.ndarray:
    """(m,) int64 of a column of pages, joined in this order."""
    pages = column.to_pylist()
    return np.frombuffer(b"".join(pages[k] for k in order), kind).astype(np.int64)
