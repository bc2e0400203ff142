"""What a run names, as far as it is known here.

A run may be somebody else's, so that no module that its settings name is imported in order to look at it: a method or a
GNN counts as known if it is one of labeldeconv's or was registered by the user in this process, or if the user says so
(`--trust`, `labeldeconv.registry.trusting`).
"""

from __future__ import annotations

from labeldeconv.errors import DataError
from labeldeconv.gnns.architecture import Architecture
from labeldeconv.gnns.base import GNNS
from labeldeconv.registry import imports_trusted
from labeldeconv.runs.directory import RunDirectory


def known_architecture(run: RunDirectory) -> Architecture | None:
    """The architecture of a run's GNN; None where the GNN is not known here."""
    return Architecture.of(run.config().gnn) if run.gnn in GNNS or imports_trusted() else None


def convolutions_of(run: RunDirectory) -> int:
    """The number of convolutions of a run's GNN.

    Inverse labels tell it where the GNN is not known here, since they have as many hops unless `labels.hops` was set.
    """
    architecture = known_architecture(run)
    if architecture is not None:
        return architecture.hops
    if run.gamma is not None and run.settings["labels"]["hops"] is None:
        return len(run.gamma) - 1
    raise DataError(f"{run.path}: GNN '{run.gnn}' is not known here, so that its number of convolutions is not either")


def hops_of(run: RunDirectory) -> int:
    """N of a run: as set, or the number of convolutions of its GNN."""
    number: int | None = run.settings["labels"]["hops"]
    return convolutions_of(run) if number is None else number
