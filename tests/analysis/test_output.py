"""Tables as CSV."""

import csv

from labeldeconv.analysis.output import to_csv


def test_rows_may_leave_columns_out():
    text = to_csv([{"a": 1, "b": "x, y"}, {"a": None, "c": 2.5}])
    assert list(csv.DictReader(text.splitlines())) == [
        {"a": "1", "b": "x, y", "c": ""},
        {"a": "", "b": "", "c": "2.5"},
    ]
