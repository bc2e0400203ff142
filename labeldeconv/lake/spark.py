"""Spark, in this file alone (the extra 'spark'): hop labels of tables larger than a machine, and texts encoded.

One hop is a join of the entries of A-hat with the (node, vector) table, both in blocks, and a sum by target; its
arithmetic (lake/node_blocks.py) runs in Spark's Python workers, to which Arrow carries whole blocks. Sums travel as
pages of bytes: Spark takes no fixed-size lists (4.3: UNSUPPORTED_ARROWTYPE), and lists cost it a step per number.

Every hop is written as Parquet before the next one is read, and so are the entries once: a driver that dies is started
again with the same command and goes on behind the last complete folder. Executors that die are Spark's own business.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import labeldeconv
from labeldeconv.errors import DataError, LabelDeconvError, MissingExtra
from labeldeconv.lake.arrow import encoder_of, finisher, local_rows, packer, summer
from labeldeconv.lake.node_blocks import BlockForm, blocks_for, hub_degree, scaled_sources
from labeldeconv.lake.tables import (
    ASKED,
    DONE,
    SUCCESS,
    WORK,
    Cluster,
    HopTables,
    class_count,
    list_length,
    need_columns,
    path_of,
    refuse_ids,
    refuse_other,
    refuse_range,
    refuse_type,
    refuse_unknown,
    spark_url,
)
from labeldeconv.progress import bar, logger

SLICE = 1 << 22  # texts encoded between two marks of completeness
ROW_BITS = 33  # monotonically_increasing_id: the partition above, the place in it below
WHOLE = ("tinyint", "smallint", "int", "bigint")
REAL = ("float", "double", "decimal", "boolean", *WHOLE)
PANDAS = "PySpark does not yet fully support pandas"  # of which nothing is used here but what Spark itself calls


@contextmanager
def spark_session(cluster: Cluster) -> Iterator[Any]:
    """A Spark session, ended afterwards; one that the process has already is used and left open.

    Errors of Spark become one message. Workers need this package: on `local` masters they get it from here.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=PANDAS, category=FutureWarning)
        try:
            from py4j.protocol import Py4JError
            from pyspark.errors import PySparkException
            from pyspark.sql import SparkSession
        except ImportError:
            raise MissingExtra("--engine spark", "spark") from None
        if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
            raise LabelDeconvError("--engine spark: no Java found; Java 17 or newer expected, in PATH or in JAVA_HOME")
        open_already = SparkSession.getActiveSession()
        builder = SparkSession.builder.master(cluster.master).appName("labeldeconv")
        for name, value in _settings(cluster).items():
            builder = builder.config(name, value)
        spark = open_already
        try:
            with _environment(cluster.master):
                spark = spark or builder.getOrCreate()
            yield spark
        except (PySparkException, Py4JError) as error:
            raise LabelDeconvError(f"Spark at {cluster.master}: {_reason(error)}") from error
        finally:
            if spark is not None and open_already is None:
                spark.stop()


def _settings(cluster: Cluster) -> dict[str, str]:
    """Spark's settings: ours, then those of the user."""
    ours = {
        "spark.executor.memory": cluster.memory,
        "spark.driver.memory": cluster.memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.adaptive.enabled": "false",  # which would join small blocks into one task
        "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
        "spark.sql.parquet.compression.codec": "zstd",
    }
    if cluster.master.startswith("local"):
        ours |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executorEnv.PYTHONPATH": _python_path(),
        }
    return ours | dict(cluster.settings)


def _python_path() -> str:
    """Where workers on this machine find the package."""
    here = str(Path(labeldeconv.__file__).parents[1])
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])


@contextmanager
def _environment(master: str) -> Iterator[None]:
    """Inside, the variables that a Java process started here takes along: this Python, this package, this machine."""
    before = dict(os.environ)
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ["PYTHONPATH"] = _python_path()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _reason(error: Exception) -> str:
    """The line of a long message that says why: the last error of a Python worker, or the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if "Error: " in line and not line.startswith(("at ", "py4j", "org."))]
    return (python or lines or [type(error).__name__])[-1 if python else 0]


class _Files:
    """Files of any place that Spark writes to, by Hadoop's own interface."""

    def __init__(self, spark: Any) -> None:
        self.jvm, self.conf = spark._jvm, spark._jsc.hadoopConfiguration()

    def _at(self, url: str) -> tuple[Any, Any]:
        path = self.jvm.org.apache.hadoop.fs.Path(url)
        return path.getFileSystem(self.conf), path

    def exists(self, url: str) -> bool:
        system, path = self._at(url)
        return bool(system.exists(path))

    def complete(self, url: str) -> bool:
        return self.exists(f"{url}/{SUCCESS}")

    def read(self, url: str) -> str:
        system, path = self._at(url)
        stream = system.open(path)
        try:
            return str(self.jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, url: str, value: Any) -> None:
        """JSON, complete or not at all where the place has a rename."""
        system, path = self._at(url)
        _, temporary = self._at(f"{url}.tmp")
        stream = system.create(temporary, True)
        stream.write(bytearray(json.dumps(value, indent=1).encode()))
        stream.close()
        system.delete(path, False)
        system.rename(temporary, path)

    def delete(self, url: str) -> None:
        system, path = self._at(url)
        system.delete(path, True)


def moved_bytes(spark: Any) -> int:
    """Bytes that all shuffles of this session have written so far, as Spark counts them: compressed."""
    executors = spark._jsc.sc().statusStore().executorList(False)
    return sum(int(executors.apply(i).totalShuffleWrite()) for i in range(executors.size()))


def spark_hops(tables: HopTables, out: str, cluster: Cluster) -> tuple[dict[str, Any], Iterator[Any]]:
    """Write K_0.parquet ... K_N.parquet into `out`; returns what was made, and (hop, rows, values) of local folders."""
    root, start = spark_url(out), time.perf_counter()
    question = tables.question()
    with spark_session(cluster) as spark, bar("hop labels", tables.hops + 1, unit="hops") as advance:
        files, before = _Files(spark), moved_bytes(spark)
        if files.exists(f"{root}/{ASKED}"):
            refuse_other(out, files.read(f"{root}/{ASKED}"), question)
        elif files.exists(f"{root}/K_0.parquet"):
            raise DataError(f"{out}: holds a K_0.parquet of unknown origin, without {ASKED}; another --out expected")
        prepared = f"{root}/{WORK}/prepared.json"
        if files.exists(prepared):
            known = json.loads(files.read(prepared))
            logger.info("hops: %s is there in part; it goes on behind the last complete hop", out)
        else:
            files.write(f"{root}/{ASKED}", question)
            try:
                known = _prepare(spark, tables, root, cluster)
            except DataError:  # another question may take the folder
                files.delete(f"{root}/{ASKED}")
                files.delete(f"{root}/{WORK}")
                raise
            files.write(prepared, known)
        form = BlockForm(**known["form"])
        seconds, moved = {"prepare": time.perf_counter() - start}, [before, moved_bytes(spark)]
        spark.conf.set("spark.sql.shuffle.partitions", str(form.blocks))
        advance(1)
        for hop in range(1, tables.hops + 1):
            begin = time.perf_counter()
            if not files.complete(f"{root}/K_{hop}.parquet"):
                _hop(spark, form, root, hop, np.array(known["hubs"], np.int64), known["id"])
                seconds[f"hop {hop}"] = time.perf_counter() - begin
                moved.append(moved_bytes(spark))
            advance(1)
        told = {
            "engine": "spark",
            "nodes": form.nodes,
            "entries": known["entries"],
            "classes": form.classes,
            "hops": tables.hops,
            "store": None,
            "blocks": form.blocks,
            "hubs": len(known["hubs"]),
            "seconds": seconds,
            "shuffled": {name: b - a for name, (a, b) in zip(seconds, pairwise(moved), strict=True)},
        }
        if path_of(out) is None:
            files.write(f"{root}/{DONE}", told)
            files.delete(f"{root}/{WORK}")
    return told, _parts(out, tables.hops)


def _prepare(spark: Any, tables: HopTables, root: str, cluster: Cluster) -> dict[str, Any]:
    """Check the tables, count degrees, write K_0 and the entries of A-hat in blocks."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    nodes, types = _table(spark, tables.nodes, {"id": tables.id, "label": tables.label})
    edges, ends = _table(spark, tables.edges, {"source": tables.source, "target": tables.target})
    for name, column in (("source", tables.source), ("target", tables.target)):
        if (ends[name] == "string") != (types["id"] == "string"):
            raise refuse_type(tables.edges, column, ends[name], f"of the type of ids, {types['id']}")
    least = max(2, spark.sparkContext.defaultParallelism)
    pieces = cluster.blocks or max(least, 2 * edges.rdd.getNumPartitions())  # of 128 MB of Parquet each, and less
    spark.conf.set("spark.sql.shuffle.partitions", str(pieces))
    values, c, hard = _labels(nodes, tables, types["label"])
    base, n, own = _numbered(spark, nodes, tables.nodes, tables.id, types["id"], f"{root}/{WORK}")
    pairs = edges.select(F.col("source").alias("s"), F.col("target").alias("t"))
    if own:  # ids are 0 ... n - 1 already
        inside = [F.when(F.col(e).between(0, n - 1), F.col(e).cast("bigint")).alias(f"{e}_row") for e in ("s", "t")]
        pairs = pairs.select("s", "t", *inside)
    else:
        for e in ("s", "t"):
            numbers = base.select(F.col("id").alias(e), F.col("row").alias(f"{e}_row"))
            pairs = pairs.join(numbers, on=e, how="left")
    pairs = pairs.persist(StorageLevel.DISK_ONLY)
    both = (F.struct(F.col(f"{e}_row").alias("row"), F.col(e).alias("id")) for e in ("s", "t"))
    lost = pairs.select(F.explode(F.array(*both)))
    lost = lost.where("col.row IS NULL").select("col.id")
    if count := lost.count():
        refuse_unknown(tables, count, [row["id"] for row in lost.limit(3).collect()])
    ways = [("s_row", "t_row")[:: -1 if tables.backward else 1]]
    ways += [ways[0][::-1]] if tables.adjacency.undirected else []
    entries = None
    for s, t in ways:
        way = pairs.where("s_row <> t_row").select(F.col(s).alias("source"), F.col(t).alias("target"))
        entries = way if entries is None else entries.union(way)
    assert entries is not None
    entries = entries.distinct()
    rows = base.select("row")
    if tables.adjacency.self_loops:
        entries = entries.union(rows.selectExpr("row AS source", "row AS target"))
    entries = entries.persist(StorageLevel.DISK_ONLY)
    degrees = entries.groupBy("target").count()
    alone = rows.join(degrees, rows.row == degrees.target, "left_anti").selectExpr("row AS source", "row AS target")
    entries = entries.union(alone)  # a node without neighbours is its own
    total = entries.count()
    form = BlockForm(
        cluster.blocks or blocks_for(total, c, least, cluster.block_mib << 20),
        n,
        c,
        tables.adjacency.normalization == "symmetric",
        tables.fixed,
        hard,
    )
    hubs = entries.groupBy("source").count().where(F.col("count") > hub_degree(total, form.blocks)).select("source")
    hub_rows = sorted(row["source"] for row in hubs.collect())
    spark.conf.set("spark.sql.shuffle.partitions", str(form.blocks))
    known = base.join(degrees, base.row == degrees.target, "left")
    degree = F.coalesce("count", F.lit(1)).alias("degree")
    known.select("id", "row", degree, values).write.mode("overwrite").parquet(f"{root}/K_0.parquet")
    marked = F.broadcast(hubs.withColumn("hub", F.lit(True)))
    home = F.when(F.col("hub"), F.col("target")).otherwise(F.col("source")) % form.blocks
    entries = entries.join(marked, "source", "left").select(home.cast("int").alias("block"), "source", "target")
    packed = entries.groupBy("block").applyInArrow(packer(form), "block int, page int, sources binary, targets binary")
    packed.write.mode("overwrite").parquet(f"{root}/{WORK}/entries.parquet")
    for kept in (entries, pairs):
        kept.unpersist()
    return {"form": asdict(form), "entries": total, "hubs": hub_rows, "id": types["id"]}


def _hop(spark: Any, form: BlockForm, root: str, hop: int, hubs: np.ndarray, id_type: str) -> None:
    """K_hop from K_{hop - 1} and the entries, written as Parquet."""
    from pyspark.sql import functions as F

    block = (F.col("row") % form.blocks).cast("int").alias("block")
    before = spark.read.parquet(f"{root}/K_{hop - 1}.parquet")
    entries = spark.read.parquet(f"{root}/{WORK}/entries.parquet")
    held = (
        before.where(F.col("row").isin(hubs.tolist())).select("row", "degree", "values").collect() if len(hubs) else []
    )
    held.sort(key=lambda row: row["row"])
    vectors = np.array([row["values"] for row in held], np.float32).reshape(len(held), form.classes)
    hub_x = scaled_sources(form, vectors, np.array([row["degree"] for row in held], np.int64))
    given = spark.sparkContext.broadcast((hubs, hub_x))
    sums = (
        entries.groupBy("block")
        .cogroup(before.select(block, "row", "degree", "values").groupBy("block"))
        .applyInArrow(summer(form, given), "block int, targets binary, sums binary")
    )
    nodes = spark.read.parquet(f"{root}/K_0.parquet").select(block, "id", "row", "degree")
    following = (
        nodes.groupBy("block")
        .cogroup(sums.groupBy("block"))
        .applyInArrow(finisher(form, hop), f"id {id_type}, row bigint, degree bigint, values array<float>")
    )
    following.write.mode("overwrite").parquet(f"{root}/K_{hop}.parquet")
    given.destroy()


def _table(spark: Any, url: str, columns: dict[str, str]) -> tuple[Any, dict[str, str]]:
    """A table with columns renamed {new: old}, and their types."""
    from pyspark.errors import AnalysisException, PySparkException
    from pyspark.sql import functions as F

    try:
        table = spark.read.parquet(spark_url(url))
    except (AnalysisException, PySparkException) as error:
        raise DataError(f"{url}: no Parquet that can be read: {_reason(error)}") from None
    need_columns(url, list(columns.values()), table.columns)
    table = table.select(*(F.col(f"`{old}`").alias(new) for new, old in columns.items()))
    return table, {field.name: field.dataType.simpleString() for field in table.schema.fields}


def _numbered(spark: Any, nodes: Any, url: str, column: str, kind: str, work: str) -> tuple[Any, int, bool]:
    """The table with `row`, the place of its id among all, sorted; n; and whether ids are their own rows."""
    from pyspark.sql import functions as F

    if kind not in (*WHOLE, "string"):
        raise refuse_type(url, column, kind, "whole numbers or strings")
    asked = (F.count(F.lit(1)), F.count("id"), F.count_distinct("id"), F.min("id"), F.max("id"))
    n, there, distinct, least, most = nodes.agg(*asked).first()
    refuse_ids(url, column, n, n - there, distinct)
    if kind != "string" and (least, most) == (0, n - 1):
        return nodes.withColumn("row", F.col("id").cast("bigint")), n, True
    ordered = nodes.sort("id").withColumn("at", F.monotonically_increasing_id())
    ordered.write.mode("overwrite").parquet(f"{work}/numbered.parquet")
    ordered = spark.read.parquet(f"{work}/numbered.parquet").withColumn("piece", F.shiftright("at", ROW_BITS))
    sizes = sorted((row["piece"], row["count"]) for row in ordered.groupBy("piece").count().collect())
    firsts = np.concatenate([[0], np.cumsum([size for _, size in sizes])[:-1]]).tolist()
    offsets = spark.createDataFrame(
        [(piece, first) for (piece, _), first in zip(sizes, firsts, strict=True)], "piece bigint, first bigint"
    )
    row = (F.col("first") + F.col("at").bitwiseAND((1 << ROW_BITS) - 1)).alias("row")
    joined = ordered.join(F.broadcast(offsets), "piece")
    return joined.select(*nodes.columns, row), n, False


def _labels(nodes: Any, tables: HopTables, kind: str) -> tuple[Any, int, bool]:
    """The column `values` of K_0 = Y as lists of c numbers, c, and whether every row has one 1 or none."""
    from pyspark.sql import functions as F

    label = F.col("label")
    hard = True
    if kind.startswith("array<") and kind[6:-1].partition("(")[0] in REAL:
        numbers = F.transform(label, lambda v: v.cast("float"))
        hole = F.exists(numbers, lambda v: v.isNull() | F.isnan(v))
        single = (F.size(F.filter(numbers, lambda v: v != 0)) <= 1) & F.forall(numbers, lambda v: (v == 0) | (v == 1))
        ranges = F.min(F.array_min(numbers)), F.max(F.array_max(numbers))
        asked = (F.min(F.size(label)), F.max(F.size(label)), F.count(F.when(hole, 1)), F.bool_and(single), *ranges)
        least, most, holes, hard, lowest, highest = nodes.where(label.isNotNull()).agg(*asked).first()
        c = list_length(tables.nodes, tables.label, least, most, holes)
        refuse_range(tables, lowest, highest)
        values = F.coalesce(numbers, F.array_repeat(F.lit(0.0).cast("float"), c))
    else:
        if kind == "string":
            names = sorted(row["label"] for row in nodes.select("label").where(label.isNotNull()).distinct().collect())
            least, most = (0, len(names) - 1) if names else (None, None)
            label = F.array_position(F.array(*map(F.lit, names)), label) - 1 if names else label
        elif kind in WHOLE:
            least, most = nodes.agg(F.min("label"), F.max("label")).first()
        else:
            raise refuse_type(tables.nodes, tables.label, kind, "whole numbers, strings or lists of numbers")
        c = class_count(tables.nodes, tables.label, least, most, tables.classes)
        held = F.coalesce(label.cast("int"), F.lit(-1))
        values = F.transform(F.sequence(F.lit(0), F.lit(c - 1)), lambda k: (k == held).cast("float"))
    if tables.fixed:
        values = F.transform(values, lambda v: (F.rint(v * F.lit(65535.0).cast("float")) / 65535).cast("float"))
    return values.alias("values"), c, bool(hard)


def _parts(out: str, hops: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """(hop, rows (m,), values (m, c)) of the K_i.parquet of a folder of this machine."""
    for hop in range(hops + 1):
        for rows, values in local_rows(f"{out}/K_{hop}.parquet"):
            yield hop, rows, values


def spark_encode(
    url: str,
    id: str,
    text: str,
    out: str,
    cluster: Cluster,
    encode: Callable[[list[str]], np.ndarray],
    question: dict[str, Any],
) -> dict[str, Any]:
    """Write X.parquet (id, row, values) of a table of texts, SLICE texts a folder; complete folders are left.

    `encode` goes to the workers, which call it with some texts at a time; it keeps what it loads.
    """
    root, start = spark_url(out), time.perf_counter()
    with spark_session(cluster) as spark:
        from pyspark.sql import functions as F

        files = _Files(spark)
        texts, types = _table(spark, url, {"id": id, "text": text})
        if types["text"] != "string":
            raise refuse_type(url, text, types["text"], "strings")
        if files.exists(f"{root}/{ASKED}"):
            refuse_other(out, files.read(f"{root}/{ASKED}"), question)
        spark.conf.set("spark.sql.shuffle.partitions", str(max(2, spark.sparkContext.defaultParallelism)))
        texts, n, _ = _numbered(spark, texts, url, id, types["id"], f"{root}/{WORK}")
        texts = texts.select("id", "row", F.coalesce("text", F.lit("")).alias("text"))
        files.write(f"{root}/{ASKED}", question)
        with bar("encode", n) as advance:
            for number, lo in enumerate(range(0, n, SLICE)):
                part, hi = f"{root}/X.parquet/slice={number}", min(lo + SLICE, n)
                if not files.complete(part):
                    tasks = min(4 * spark.sparkContext.defaultParallelism, hi - lo)
                    chosen = texts.where(F.col("row").between(lo, hi - 1)).repartition(tasks, "row")
                    made = chosen.mapInArrow(encoder_of(encode), f"id {types['id']}, row bigint, values array<float>")
                    made.write.mode("overwrite").parquet(part)
                advance(hi - lo)
        files.delete(f"{root}/{WORK}")
        dim = len(spark.read.parquet(f"{root}/X.parquet/slice=0").first()["values"])
    return {"engine": "spark", "nodes": n, "dim": dim, "seconds": {"encode": time.perf_counter() - start}}
