from labeldeconv.report.source import open_source
from labeldeconv.report.tabs.curves import moving_mean, training
from tests.report.run_writing import ring, write_comparison, write_run


def test_moving_mean_by_hand():
    assert moving_mean([1.0, 2.0, 6.0], 3) == [1.5, 3.0, 4.0]
    assert moving_mean([1.0, 2.0], 1) == [1.0, 2.0]


def test_gamma_curves_end_where_the_log_ends(tmp_path):
    section = training(open_source(write_comparison(tmp_path, ring(), seeds=2)))
    gamma = section.blocks[0]
    (name, spec), *rest = gamma.variants
    assert (name, rest) == ("ld", [])
    strong = [s for s in spec["series"] if not s.get("faint")]
    assert [s["points"][-1] for s in strong] == [[20, 0.3], [20, 0.7]]
    assert [b.title for b in section.blocks][1:] == ["Encoder loss", "GNN training loss", "GNN validation score"]


def test_without_gamma_or_validation_figures_are_left_out(tmp_path):
    write_run(tmp_path, ring(val=False), "pne", val=None)
    assert [b.title for b in training(open_source(tmp_path)).blocks] == ["GNN training loss"]
