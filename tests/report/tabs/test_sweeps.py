from labeldeconv.report.source import open_source
from labeldeconv.report.tabs.sweeps import sweeps
from tests.report.run_writing import ring, write_comparison


def test_sweep_orders_values_and_tells_lines_apart(tmp_path):
    varied = [{"labels.hops": h, "labels.alpha": a} for h in (2, 0) for a in (0.5, 1.0)]
    source = open_source(write_comparison(tmp_path, ring(), methods=("ld",), varied=varied))
    hops, alpha = sweeps(source).blocks
    lines = hops.variants[0][1]["series"]
    assert [line["name"] for line in lines] == ["alpha 0.5", "alpha 1.0"]
    assert [p[0] for p in lines[0]["points"]] == [0, 2]
    assert alpha.title.endswith("alpha")


def test_sweep_over_encoders_has_named_places(tmp_path):
    varied = [{"encoder.name": name} for name in ("tiny", "minilm")]
    source = open_source(write_comparison(tmp_path, ring(), varied=varied))
    (figure,) = sweeps(source).blocks
    assert figure.variants[0][1]["x"]["names"] == ["tiny", "minilm"]
    assert [line["name"] for line in figure.variants[0][1]["series"]] == ["pne", "ld"]


def test_nothing_varied_no_sweeps(tmp_path):
    assert sweeps(open_source(write_comparison(tmp_path, ring()))) is None
