"""Registries find their members in their package, and answer wrong names with the nearest."""

import pytest

from labeldeconv.errors import ConfigError
from labeldeconv.gnns.base import GNNS
from labeldeconv.registry import Registry, imported


def test_members_come_in_the_order_asked_for():
    assert list(GNNS)[:3] == ["gcn", "sage", "gat"]
    assert len(GNNS) == 10


def test_own_members_and_wrong_names():
    registry: Registry[int] = Registry("thing", "labeldeconv.methods")
    registry.add("one", 1)
    registry.add("one", 2)
    assert registry.named("one") == 2
    with pytest.raises(ConfigError, match="thing 'oen': unknown; did you mean 'one'"):
        registry.named("oen")


def test_module_and_name():
    assert imported("thing", "math:pi") == pytest.approx(3.14159, abs=1e-4)
    for path in ("math:no", "no.such:x", ":x"):
        with pytest.raises(ConfigError, match=f"thing '{path}': cannot be imported"):
            imported("thing", path)
