"""X_PNE: features of the pre-trained encoder as it is."""

from __future__ import annotations

from labeldeconv import stages
from labeldeconv.job import Job
from labeldeconv.record import Stage


def pretrained(job: Job) -> Stage:
    """Features of the untouched encoder."""
    return stages.encode(job)
