"""X of a Parquet table of texts, by the encoder of a run or a pre-trained one, on one machine or by Spark.

    labeldeconv encode --run runs/planted-ld-gcn-0 --texts nodes.parquet --out X

Every process that encodes, this one or a worker of Spark, loads one model and keeps it.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labeldeconv.errors import ConfigError, DataError
from labeldeconv.lake.parquet import complete, read_texts, read_values, write_rows
from labeldeconv.lake.tables import ASKED, Cluster, file_states, path_of, refuse_other
from labeldeconv.prediction.restored import TextFeatures, check_imports
from labeldeconv.progress import bar
from labeldeconv.registry import imports_trusted, trusting
from labeldeconv.runs.directory import RESULT, RunDirectory
from labeldeconv.settings.models import Config
from labeldeconv.stages.files import checksum, map_array, write_json

DONE = "encode.json"  # what was made, written last
STORE = "X.npy"
_loaded: dict[TableEncoder, TextFeatures] = {}  # one model per process: a worker keeps it from task to task


@dataclass(frozen=True)
class TableEncoder:
    """Texts to features (m, d), by the encoder of a run directory or that of settings; it is loaded on first use.

    It is small and can be sent to other processes, which must see the run directory, or have the encoder, themselves.
    """

    run: str | None
    settings: str  # of a pre-trained encoder, as JSON
    trusted: bool = False

    @classmethod
    def of(cls, run: Path | None, config: Config) -> TableEncoder:
        """The encoder of a run directory, or where that is None of the settings."""
        if run is not None:
            check_imports(RunDirectory.open(run))
        return cls(None if run is None else str(run.absolute()), config.model_dump_json(), imports_trusted())

    def __call__(self, texts: list[str]) -> np.ndarray:
        """Features (m, d) float16 of m texts."""
        if self not in _loaded:
            _loaded[self] = self._load().to(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
        return _loaded[self](texts)

    def _load(self) -> TextFeatures:
        with trusting(self.trusted):
            if self.run is not None:
                return TextFeatures(RunDirectory.open(self.run))
            return TextFeatures.pretrained(Config.model_validate_json(self.settings))

    def question(self) -> dict[str, Any]:
        """What its features depend on, as JSON has it."""
        if self.run is not None:
            return {"run": self.run, "result": checksum(Path(self.run) / RESULT)}
        said = json.loads(self.settings)
        return {"encoder": said["encoder"], "precision": said["train"]["precision"]}


def encode_table(
    texts: str,
    out: str,
    encoder: TableEncoder,
    engine: str = "local",
    cluster: Cluster | None = None,
    id: str = "id",
    text: str = "text",
) -> dict[str, Any]:
    """Write X.parquet (id, row, values) and X.npy (n, d) float16, in the order of sorted ids, into the folder `out`.

    Spark writes X.npy only where `out` is a folder of this machine. What is there complete is left as it is: the same
    command goes on where it stopped. Returns what encode.json says.
    """
    if engine not in ("local", "spark"):
        raise ConfigError(f"--engine {engine}: one of local, spark expected")
    folder = path_of(out)
    question = {"texts": texts, "id": id, "text": text, "files": file_states(texts), **encoder.question()}
    if folder is not None:
        if (folder / ASKED).is_file():
            refuse_other(out, (folder / ASKED).read_text(encoding="utf-8"), question)
        if (folder / DONE).is_file():
            return json.loads((folder / DONE).read_text(encoding="utf-8"))
    if engine == "local":
        if folder is None:
            raise DataError(f"{out}: a folder of this machine expected; `--engine spark` writes elsewhere")
        return _local(texts, id, text, folder, encoder, question)
    from labeldeconv.lake.spark import local_rows, spark_encode

    told = spark_encode(texts, id, text, out, cluster or Cluster(), encoder, question)
    if folder is not None:
        X = map_array(folder / STORE, (told["nodes"], told["dim"]), np.float16)
        for rows, values in local_rows(f"{out}/X.parquet"):
            X[rows] = values
        X.flush()
        write_json(folder / DONE, told)
    return told


def _local(
    texts: str, id: str, text: str, folder: Path, encoder: TableEncoder, question: dict[str, Any]
) -> dict[str, Any]:
    """The engine 'local': some thousand texts at a time, each lot a file; files of a killed attempt are kept."""
    start, part = time.perf_counter(), folder / "X.parquet"
    n, lots = read_texts(texts, id, text)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / ASKED, question)
    X: np.memmap | None = None
    with bar("encode", n) as advance:
        for number, (ids, some, rows) in enumerate(lots):
            values = read_values(part, number)
            if values is None:
                values = encoder(some).astype(np.float32)
                write_rows(part, number, {"id": ids, "row": rows}, values)
            if X is None:
                X = map_array(folder / STORE, (n, values.shape[1]), np.float16)
            X[rows] = values
            advance(len(rows))
    assert X is not None
    X.flush()
    complete(part)
    seconds = {"encode": time.perf_counter() - start}
    told = {"engine": "local", "nodes": n, "dim": X.shape[1], "seconds": seconds}
    write_json(folder / DONE, told)
    return told
