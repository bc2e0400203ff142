"""Keys are made of exactly what a stage is given and declares that it reads."""

import sys
from dataclasses import dataclass, field

import numpy as np
import pytest

from labeldeconv.settings.models import AdjacencyConfig, GNNConfig, TrainConfig
from labeldeconv.stages.keys import Reading, array_key, code_key, digest, token


def test_digest_ignores_order():
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})


def test_arrays_by_content_type_and_shape():
    a = np.arange(6, dtype=np.int32)
    assert array_key(a) == array_key(a.copy())
    assert len({array_key(x) for x in (a, a.astype(np.int64), a.reshape(2, 3), a + 1)}) == 4
    assert array_key(a.reshape(2, 3).T) == array_key(np.ascontiguousarray(a.reshape(2, 3).T))


def test_settings_by_value_without_those_that_change_nothing():
    assert token(TrainConfig()) == token(TrainConfig(checkpoint_minutes=7.0)) != token(TrainConfig(lr=1.0))
    assert token(GNNConfig()) != token(
        GNNConfig(adjacency=GNNConfig().adjacency.model_copy(update={"undirected": False}))
    )


def test_a_younger_setting_is_in_a_key_where_it_is_not_the_default():
    names = ("lr", "optimizer_states")
    plain, other = ({"lr": 5e-5, "optimizer_states": states} for states in ("float32", "8bit"))
    for given, held in ((plain, {"lr": 5e-5}), (other, other)):
        assert token(Reading(TrainConfig(**given), names, set())) == held
        assert ("optimizer_states" in token(TrainConfig(**given))) == (held == other)


def test_what_has_no_key_is_refused():
    with pytest.raises(TypeError, match="of type object has no key"):
        token(object())


@dataclass(frozen=True)
class Spec:
    number: int
    hidden: int = field(default=0, metadata={"idle": True})


def test_dataclasses_by_type_and_fields_but_the_idle_ones():
    assert token(Spec(1)) == token(Spec(1, 5)) != token(Spec(2))
    assert "test_keys:Spec" in token(Spec(1))["type"]


def test_a_class_from_outside_is_keyed_by_its_source(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    keys = []
    for text in ("class Own:\n    x = 1\n", "class Own:\n    x = 22\n"):
        (tmp_path / "own_module.py").write_text(text)
        sys.modules.pop("own_module", None)
        import linecache

        linecache.clearcache()
        import own_module

        keys.append(code_key(own_module.Own))
    assert keys[0] != keys[1]
    assert code_key(AdjacencyConfig) == "labeldeconv.settings.models:AdjacencyConfig"


def test_a_reading_gives_what_is_declared_and_remembers_it():
    reads: set[str] = set()
    seen = Reading(GNNConfig(), ("lr", "adjacency", "checkpoint_minutes"), reads, "settings.")
    assert seen.lr == 0.01
    assert seen.adjacency.undirected is True
    assert reads == {"settings.lr", "settings.adjacency.undirected"}
    with pytest.raises(AttributeError, match="reads lr, adjacency, checkpoint_minutes of GNNConfig, not 'epochs'"):
        _ = seen.epochs
    with pytest.raises(AttributeError, match="changes nothing"):
        seen.lr = 1.0
    assert set(token(seen)) == {"lr", "adjacency"}
