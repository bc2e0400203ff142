"""Files of torch and pickle: read as they are, and nothing in them is ever run."""

import pickle
from collections import OrderedDict

import numpy as np
import pytest
import torch

from labeldeconv.data.sets.pickled import DGL, STAND_INS, HeldObject, fields_of, open_pickle, open_torch, plain
from labeldeconv.errors import DataError

from .pyg_writing import TEXTS, Malicious, cora

ARRAYS = {
    "objects": np.array(["a", "bé"], dtype=object),
    "floats": np.arange(6, dtype=">f4").reshape(2, 3),
    "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "words": np.array(["ab", "c"]),
    "flags": np.array([True, False]),
    "number": np.float64(2.5),
}


def same(held, path):
    fields = fields_of(held, path)
    assert fields["raw_texts"] == TEXTS
    assert fields["edge_index"].tolist() == cora().edge_index.tolist()
    for name, array in ARRAYS.items():
        assert np.asarray(fields[name]).tolist() == np.asarray(array).tolist(), name
    assert fields["fortran"].shape == (2, 3)


@pytest.mark.parametrize("zipped", [True, False])
def test_data_of_torch(tmp_path, zipped):
    path = tmp_path / "a.pt"
    torch.save(cora(**ARRAYS), path, _use_new_zipfile_serialization=zipped)
    same(open_torch(path), path)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_data_of_pickle(tmp_path, protocol):
    path = tmp_path / "a.pkl"
    path.write_bytes(pickle.dumps(cora(**ARRAYS), protocol=protocol))
    same(open_pickle(path), path)


def test_what_an_in_memory_dataset_keeps(tmp_path):
    path = tmp_path / "a.pt"
    for held in ((cora(), None), (cora().to_dict(), {}, type(cora())), cora().to_dict(), OrderedDict(cora().to_dict())):
        torch.save(held, path)
        assert fields_of(open_torch(path), path)["raw_texts"] == TEXTS
    torch.save(TEXTS, path)
    assert open_torch(path) == TEXTS
    with pytest.raises(DataError, match=r"a.pt: PyG's Data, or a dictionary, expected, got list"):
        fields_of(open_torch(path), path)


def test_numpy_of_another_version(tmp_path):
    """numpy 1 calls its functions by another module."""
    path = tmp_path / "a.pkl"
    content = pickle.dumps({"x": np.arange(3)}, protocol=2)
    assert b"numpy._core.multiarray" in content or b"numpy.core.multiarray" in content
    path.write_bytes(content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    assert fields_of(open_pickle(path), path)["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("where", ["field", "alone", "list"])
@pytest.mark.parametrize("kind", ["zip", "legacy", "pickle"])
def test_nothing_of_a_malicious_file_is_run(tmp_path, where, kind):
    mark, path = tmp_path / "ran", tmp_path / "a.pt"
    evil = Malicious(mark)
    held = {"field": cora(extra=evil), "alone": evil, "list": [TEXTS, evil]}[where]
    if kind == "pickle":
        path.write_bytes(pickle.dumps(held))
    else:
        torch.save(held, path, _use_new_zipfile_serialization=kind == "zip")
    with pytest.raises(DataError, match=r"a.pt: refused, nothing of it was run: it names (posix|nt).system"):
        (open_pickle if kind == "pickle" else open_torch)(path)
    assert not mark.exists()
    pickle.loads(pickle.dumps(evil))  # the test itself: a plain unpickler does run it
    assert mark.exists()


def test_what_others_have_allowed_is_not_allowed_here(tmp_path):
    import torch_geometric.data

    before = torch.serialization.get_safe_globals()
    assert torch_geometric.data.HeteroData in before  # PyG allows it for the whole process
    path = tmp_path / "a.pt"
    torch.save(torch_geometric.data.HeteroData(), path)
    with pytest.raises(DataError, match=r"it names .*torch_geometric.data.hetero_data.HeteroData"):
        open_torch(path)
    assert set(torch.serialization.get_safe_globals()) == set(before)
    torch.save(cora(), path)
    assert isinstance(open_torch(path), HeldObject)  # not PyG's own


def test_stand_ins_call_nothing_but_themselves():
    assert {f.__module__ for f in STAND_INS.values()} == {"labeldeconv.data.sets.pickled"}


def test_files_of_dgl_are_told(tmp_path):
    (tmp_path / "History.pt").write_bytes(DGL + b"\0" * 20)
    with pytest.raises(DataError, match=r"History.pt: DGL's binary format.*\.csv beside it"):
        open_torch(tmp_path / "History.pt")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a zip", b"text", b"\x80\x02.", b"\x80\x04]\x94"])
def test_broken_files(tmp_path, content):
    (tmp_path / "a.pt").write_bytes(content)
    for opened in (open_torch, open_pickle):
        with pytest.raises(
            DataError, match=r"a.pt: not a file of torch or pickle that can be read \(.+\); download"
        ) as e:
            opened(tmp_path / "a.pt")
        assert "weights_only" not in str(e.value)  # torch's own advice would run the file


def test_arrays_that_do_not_fit_their_bytes(tmp_path):
    path = tmp_path / "a.pkl"
    content = pickle.dumps({"x": np.arange(3, dtype=np.int64)}, protocol=2)
    path.write_bytes(content.replace(b"i8", b"V8"))
    with pytest.raises(DataError, match=r"a.pkl, field 'x': cannot be read: .*got dtype 'V8'"):
        fields_of(open_pickle(path), path)
    path.write_bytes(content.replace(b"i8", b"i4"))
    with pytest.raises(DataError, match=r"a.pkl, field 'x': cannot be read: cannot reshape"):
        fields_of(open_pickle(path), path)


def test_half_precision_and_sparse_tensors():
    assert plain(torch.ones(2, dtype=torch.bfloat16)).dtype == np.float32
    assert plain(torch.eye(2).to_sparse()).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("put", [b"r" + (1 << 24).to_bytes(4, "little"), b"p16777216\n"])
def test_a_memo_that_would_take_all_memory_is_refused(tmp_path, put):
    """The unpickler of Python takes 16 bytes for every number up to the one that an object is noted under."""
    path = tmp_path / "bomb.pkl"
    path.write_bytes(b"\x80\x04]" + put + b".")
    with pytest.raises(DataError, match=r"bomb.pkl: .*object number 16777216 in a file of \d+ bytes"):
        open_pickle(path)
