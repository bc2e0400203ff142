"""Files of which every rank writes its rows: one map on one machine, bytes in their places on several."""

import numpy as np
import pytest

from labeldeconv.errors import StorageError
from labeldeconv.stages import ranks, shared_arrays
from labeldeconv.stages.shared_arrays import rows_of_all, shared_array
from tests.launched import launch

ROWS = [slice(0, 3), slice(3, 3), slice(3, 10)]  # the second of three ranks has none


def by_ranks(folder):
    shared_arrays.PIECE = 50
    with ranks.joined():
        own = ROWS[ranks.rank()]
        with rows_of_all(folder / "a.npy", (10, 2, 4), np.uint16, own) as rows:
            assert not rows.any()
            rows[:] = np.arange(80).reshape(10, 2, 4)[own]
        seen = np.load(folder / "a.npy").tolist()
        ranks.meet("the end")
        return [seen, [path.name for path in folder.iterdir()]]


@pytest.mark.parametrize("machines", [False, True], ids=["one machine", "machines"])
def test_all_rows_are_there_for_every_rank(tmp_path, machines):
    for ended in launch(by_ranks, tmp_path / "ranks", tmp_path, world=3, machines=machines):
        assert ended.value == [np.arange(80).reshape(10, 2, 4).tolist(), ended.value[1]]
        assert sorted(ended.value[1]) == ["a.npy", "ranks"]


def test_one_process_has_all_rows(tmp_path, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    shared_array(tmp_path / "a.npy", (4, 2), np.float32)[:] = 1
    assert (np.load(tmp_path / "a.npy") == 1).all()


def test_a_folder_that_others_do_not_see_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "appears", lambda path: False)
    with pytest.raises(StorageError, match=r"b\.npy: not to be seen by rank 0"):
        shared_arrays._write_rows(tmp_path / "b.npy", np.ones((2, 2)), 0)
