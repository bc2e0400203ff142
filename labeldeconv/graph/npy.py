"""Arrays in .npy files, opened without ever unpickling anything."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from labeldeconv.errors import DataError


def open_npy(path: Path) -> np.ndarray:
    """A .npy file, memory-mapped for reading; a `DataError` for everything else, pickled objects included."""
    if path.exists() and not path.is_file():  # a FIFO would wait for ever
        raise DataError(
            f"{path}: cannot be read: a file expected, and this is {'a folder' if path.is_dir() else 'none'}"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy warns of odd headers that it then refuses
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            if isinstance(array, np.ndarray) and not array.size:
                array = np.array(array)
    except EOFError:
        raise DataError(f"{path}: the file is empty; an array written by numpy.save expected") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception as error:  # numpy's parser of headers lets through whatever Python's tokenizer raises
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        objects = "Python objects" in why or "allow_pickle" in why
        told = "an array of Python objects or no array at all, which is never unpickled" if objects else why
        raise DataError(f"{path}: not a readable .npy file: {told}") from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise DataError(f"{path}: one array written by numpy.save expected, got an .npz archive")
    return array
