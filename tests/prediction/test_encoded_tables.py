import json

import numpy as np
import pytest

from labeldeconv import fit
from labeldeconv.data.opening import open_data
from labeldeconv.errors import ConfigError, DataError
from labeldeconv.lake import parquet
from labeldeconv.prediction import encoded_tables
from labeldeconv.prediction.encoded_tables import TableEncoder, encode_table
from labeldeconv.settings.models import Config, EncoderConfig
from tests.samples import write_parquet

TINY = Config(encoder=EncoderConfig(name="tiny"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("encoded") / "run"
    return fit("planted:40", encoder="tiny", train__epochs=1, gnn__epochs=2, out=out).run


def test_a_run_encodes_a_table_as_it_encoded_its_graph(run, tmp_path):
    texts = np.array(list(open_data("planted:40").graph.texts), dtype=object)
    path = write_parquet(tmp_path / "t.parquet", id=np.arange(40)[::-1], text=texts[::-1])
    told = encode_table(str(path), str(tmp_path / "X"), TableEncoder.of(run, TINY))
    X = np.load(tmp_path / "X" / "X.npy")
    assert (told["nodes"], told["dim"]) == X.shape
    assert X.dtype == np.float16
    np.testing.assert_allclose(X, np.load(run / "features.npy"), atol=2e-3)


def test_a_pretrained_encoder_and_a_second_call(tmp_path, monkeypatch):
    names = np.array(["b", "c", "a"], dtype=object)
    path = write_parquet(tmp_path / "t.parquet", name=names, body=np.array(["two words", None, "one"], dtype=object))
    encoder, out = TableEncoder.of(None, TINY), str(tmp_path / "X")
    told = encode_table(str(path), out, encoder, id="name", text="body")
    np.testing.assert_array_equal(np.load(tmp_path / "X" / "X.npy"), encoder(["one", "two words", ""]))
    assert told == json.loads((tmp_path / "X" / "encode.json").read_text())
    monkeypatch.setattr(TableEncoder, "__call__", None)  # nothing is encoded again
    assert encode_table(str(path), out, encoder, id="name", text="body") == told
    with pytest.raises(DataError, match="another question"):
        encode_table(str(path), out, TableEncoder.of(None, Config()), id="name", text="body")


def test_a_killed_attempt_goes_on_behind_its_files(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "ROWS", 2)
    path = write_parquet(tmp_path / "t.parquet", id=np.arange(5), text=np.array(list("abcde"), dtype=object))
    real, calls = TableEncoder.__call__, []

    def counted(self, texts):
        calls.append(texts)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, texts)

    monkeypatch.setattr(TableEncoder, "__call__", counted)
    encoder, out = TableEncoder.of(None, TINY), str(tmp_path / "X")
    with pytest.raises(KeyboardInterrupt):
        encode_table(str(path), out, encoder)
    encode_table(str(path), out, encoder)
    assert calls == [["a", "b"], ["c", "d"], ["e"], ["e"]]
    np.testing.assert_array_equal(np.load(tmp_path / "X" / "X.npy"), real(encoder, list("abcde")))


def test_one_model_per_process(monkeypatch):
    monkeypatch.setattr(encoded_tables, "_loaded", {})
    encoder = TableEncoder.of(None, TINY)
    encoder(["a"])
    (first,) = encoded_tables._loaded.values()
    TableEncoder.of(None, TINY)(["b"])
    assert list(encoded_tables._loaded.values()) == [first]


def test_what_is_not_accepted(tmp_path):
    encoder = TableEncoder.of(None, TINY)
    with pytest.raises(ConfigError, match="local, spark expected"):
        encode_table("t", "X", encoder, "dask")
    path = write_parquet(tmp_path / "t.parquet", id=np.arange(2), text=np.array(["a", "b"], dtype=object))
    with pytest.raises(DataError, match="a folder of this machine"):
        encode_table(str(path), "s3a://bucket/X", encoder)
    with pytest.raises(DataError, match="finished `labeldeconv fit`"):
        TableEncoder.of(tmp_path, TINY)
