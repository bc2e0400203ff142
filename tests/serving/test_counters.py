"""Counters: what is counted is told, and workers are summed."""

import os
import re
import subprocess
import sys

import numpy as np

from labeldeconv.serving.counters import BUCKETS, WIDTH, Counters

LINE = re.compile(r'labeldeconv_\w+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? \d+(\.\d+)?(e[+-]\d+)?')


def values(text):
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")}


def test_what_is_counted_is_told(tmp_path):
    counters = Counters(tmp_path)
    for route, status, seconds in (
        ("/predict", 200, 0.02),
        ("/predict", 422, 0.3),
        ("/predict", 200, 99),
        ("/x", 404, 1),
    ):
        counters.answered(route, status, seconds)
    counters.answered("/run", 299, 0.1)
    counters.batch(3, 40)
    counters.add("in_flight", 2)
    counters.add("nodes_psi", 5)
    text = counters.text()
    told = values(text)
    assert told['labeldeconv_requests_total{path="/predict",status="200"}'] == 2
    assert told['labeldeconv_requests_total{path="other",status="404"}'] == 1
    assert told['labeldeconv_requests_total{path="/run",status="other"}'] == 1
    assert told['labeldeconv_predict_seconds_bucket{le="0.025"}'] == 1
    assert told['labeldeconv_predict_seconds_bucket{le="0.5"}'] == 2
    assert told['labeldeconv_predict_seconds_bucket{le="+Inf"}'] == told["labeldeconv_predict_seconds_count"] == 3
    assert told["labeldeconv_predict_seconds_sum"] == 99.32
    assert told["labeldeconv_batched_tokens_total"] == 40
    assert told["labeldeconv_in_flight"] == counters.in_flight == 2
    assert told['labeldeconv_nodes_total{by="psi"}'] == 5
    assert told["labeldeconv_workers"] == 1
    assert told["labeldeconv_resident_bytes"] > 1 << 20
    assert all(LINE.fullmatch(line) for line in text.splitlines() if line[0] != "#")
    assert len(re.findall("^# TYPE", text, re.M)) == len(set(re.findall(r"^# TYPE (\S+)", text, re.M)))
    assert sum(line.startswith("labeldeconv_predict_seconds_bucket") for line in text.splitlines()) == len(BUCKETS)


def test_a_dead_worker_counts_what_it_did_and_holds_nothing(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    held = np.zeros(WIDTH)
    other = Counters(tmp_path)
    other.answered("/predict", 200, 0.01)
    other.add("in_flight", 1)
    held[:] = other._values
    held.tofile(tmp_path / f"{ended.pid}.f64")
    (tmp_path / f"{os.getpid() + 1}.f64").write_bytes(b"\0" * 8)  # of one that is just starting
    told = values(other.text())
    assert told['labeldeconv_requests_total{path="/predict",status="200"}'] == 2
    assert told["labeldeconv_in_flight"] == 1
    assert told["labeldeconv_workers"] == 1
