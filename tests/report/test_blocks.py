import json
import math

import numpy as np

from labeldeconv.report.blocks import embedded, percent, plain, series, spread, thinned


def test_embedded_json_cannot_leave_its_element():
    value = {"text": "</script><!-- & \u2028\u2029 \"quoted\" 'too' \x00", "n": math.nan, "k": np.float32(0.5)}
    text = embedded(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"text": value["text"], "n": None, "k": 0.5}


def test_plain_keeps_what_json_knows():
    assert plain({"a": (1, math.inf, True, None, np.int64(3))}) == {"a": [1, None, True, None, 3]}


def test_thinned_keeps_both_ends():
    points = thinned(list(range(1000)), 10)
    assert len(points) == 10
    assert (points[0], points[-1]) == (0, 999)
    assert thinned([1, 2], 10) == [1, 2]


def test_scores_in_percent():
    assert spread(0.5, 0.01, 3) == "50.00 ± 1.00"
    assert spread(0.5, 0.0, 1) == "50.00"
    assert percent(math.nan) == spread(math.nan, 0.0, 2) == "\u2013"


def test_series_rounds_floats_only():
    assert series("a", 0, [[3, 0.123456789, None, "name"]])["points"] == [[3, 0.12346, None, "name"]]
