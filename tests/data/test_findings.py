"""Findings: collected, then told at once, a few examples of each."""

import pytest

from labeldeconv.data.findings import Findings, shown
from labeldeconv.errors import DataError


def test_errors_come_first():
    findings = Findings()
    findings.warn("odd")
    findings.error("wrong")
    with pytest.raises(DataError, match=r"FOLDER: 1 wrong, 1 odd") as caught:
        findings.stop("FOLDER")
    assert caught.value.problems == ["wrong", "warning: odd"]


def test_a_few_names_are_shown():
    assert shown(["a", "b"]) == "'a', 'b'"
    assert shown(list("abcdef")) == "'a', 'b', 'c', 'd', 'e', ..."
