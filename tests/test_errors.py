"""Errors of the disk and of memory become one line that names the place and says what to do."""

import errno
import os

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from labeldeconv.errors import STORAGE_ADVICE, DataError, NotEnoughMemory, StorageError, nearest, plainly


@pytest.mark.parametrize("number", [*STORAGE_ADVICE, errno.EXDEV])
def test_every_error_of_the_disk_is_one_line_with_the_path(number):
    told = plainly(OSError(number, os.strerror(number), "/data/file"), "/elsewhere")
    assert isinstance(told, StorageError)
    assert str(told).startswith("/data/file: ")
    assert "\n" not in str(told)
    assert str(plainly(OSError(number, os.strerror(number)), "/folder")).startswith("/folder: ")


def test_an_error_of_a_rename_names_the_new_name():
    assert str(plainly(OSError(errno.EROFS, "x", "/a", None, "/b"), "/c")).startswith(
        "/b: the file system is read-only"
    )


def test_numpy_s_short_write_has_no_number():
    assert "/f: 10 requested and 3 written" in str(plainly(OSError("10 requested and 3 written"), "/f"))


def test_the_writer_of_safetensors_is_understood():
    error = SafetensorError('Error while serializing: I/O error: Os { code: 28, kind: StorageFull, message: "x" }')
    assert "/f: the disk is full" in str(plainly(error, "/f"))
    assert plainly(SafetensorError("header too small"), "/f") is None


def test_memory():
    with pytest.raises(MemoryError) as numpy:
        np.empty(1 << 60, np.uint8)
    with pytest.raises(RuntimeError) as of_torch:
        torch.empty(1 << 60, dtype=torch.uint8)
    for error in (numpy.value, of_torch.value, torch.OutOfMemoryError("CUDA out of memory. Tried"), OSError(12, "x")):
        told = plainly(error, "train")
        assert isinstance(told, NotEnoughMemory)
        assert str(told).startswith("train: not enough memory")
        assert "train.batch_nodes" in str(told)


@pytest.mark.parametrize("error", [ValueError("x"), RuntimeError("shapes differ"), KeyError("x"), DataError("x")])
def test_other_errors_stay_what_they_are(error):
    assert plainly(error, "train") is None


def test_nearest():
    assert nearest("gcm", ["gcn", "gat"]) == "did you mean 'gcn'? known: gat, gcn"
