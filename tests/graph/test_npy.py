"""Arrays of unknown origin: opened, or refused in one plain line; nothing is ever unpickled."""

import numpy as np
import pytest

from labeldeconv.errors import DataError
from labeldeconv.graph.npy import open_npy


def test_an_array_is_mapped_and_an_empty_one_read(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(open_npy(tmp_path / "a.npy"), [[0, 1, 2], [3, 4, 5]])
    np.save(tmp_path / "none.npy", np.empty((2, 0), np.int32))
    assert open_npy(tmp_path / "none.npy").shape == (2, 0)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "the file is empty"),
        (b"hello", "never unpickled"),
        (b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f8'}", "not a readable .npy file"),
    ],
)
def test_what_is_no_array_is_refused(tmp_path, content, told):
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(DataError, match=f"x.npy: .*{told}"):
        open_npy(tmp_path / "x.npy")


def test_objects_are_never_unpickled(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="Python objects"):
        open_npy(tmp_path / "x.npy")


def test_a_truncated_array_an_archive_and_a_folder(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(1000))
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:500])
    with pytest.raises(DataError, match="not a readable"):
        open_npy(tmp_path / "x.npy")
    with (tmp_path / "y.npy").open("wb") as file:
        np.savez(file, a=np.zeros(2))
    with pytest.raises(DataError, match=r"got an \.npz archive"):
        open_npy(tmp_path / "y.npy")
    (tmp_path / "z.npy").mkdir()
    with pytest.raises(DataError, match="cannot be read"):
        open_npy(tmp_path / "z.npy")


def test_a_header_that_the_tokenizer_cannot_read(tmp_path):
    """Found by fuzzing: tokenize.TokenError is no ValueError."""
    np.save(tmp_path / "x.npy", np.zeros((4, 2), np.float32))
    content = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(content[:67] + b"#e{\xe9\xd4{" + content[74:])
    with pytest.raises(DataError, match="not a readable"):
        open_npy(tmp_path / "x.npy")
