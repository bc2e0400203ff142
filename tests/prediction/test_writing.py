"""Tables of predictions: the same rows in every format, and nothing half written."""

import duckdb
import numpy as np
import pytest

from labeldeconv.errors import DataError
from labeldeconv.prediction import writing
from labeldeconv.prediction.writing import check_output, write_table

COLUMNS = {
    "id": ["a", "7", "ç'\t"],
    "prediction": [["x", "y"], [], ['"z"']],
    "probability": np.array([0.5, 0.25, 1.0], np.float32),
    "features": np.arange(6, dtype=np.float32).reshape(3, 2),
}


@pytest.mark.parametrize("ending", ["parquet", "csv", "tsv", "jsonl"])
@pytest.mark.parametrize("rows", [2, 1 << 14])
def test_formats(tmp_path, monkeypatch, ending, rows):
    monkeypatch.setattr(writing, "ROWS", rows)
    path = write_table(tmp_path / "new" / f"out.{ending}", COLUMNS)
    read = {"tsv": f"read_csv('{path}', delim='\t')", "jsonl": f"read_json('{path}')"}.get(ending, f"'{path}'")
    found = duckdb.sql(
        f"SELECT id::VARCHAR, probability, features::VARCHAR, prediction::VARCHAR FROM {read}"
    ).fetchall()
    assert [row[0] for row in found] == COLUMNS["id"]
    assert [row[1] for row in found] == [0.5, 0.25, 1.0]
    assert [row[2].replace(" ", "") for row in found] == ["[0.0,1.0]", "[2.0,3.0]", "[4.0,5.0]"]
    assert found[1][3] == "[]"
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch):
    path = write_table(tmp_path / "out.csv", COLUMNS)
    before = path.read_bytes()

    def broken(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "_insert", broken)
    with pytest.raises(OSError, match="No space"):
        write_table(path, {**COLUMNS, "id": ["1", "2", "3"]})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if p.name != "cache"] == ["out.csv"]


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"a name that ends in .parquet, .csv, .tsv, .jsonl expected"):
        check_output(tmp_path / "out.xlsx")
