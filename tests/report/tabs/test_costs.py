from labeldeconv.report.source import open_source
from labeldeconv.report.tabs.costs import costs
from tests.report.run_writing import ring, write_comparison, write_run


def test_cost_plot_of_a_single_run_is_left_out(tmp_path):
    write_run(tmp_path, ring())
    assert [b.title for b in costs(open_source(tmp_path)).blocks] == ["Time by stage"]


def test_costs_name_every_entry(tmp_path):
    section = costs(open_source(write_comparison(tmp_path, ring(), gnns=("gcn", "sagn"))))
    time, memory, stages = section.blocks
    names = [s["points"][0][3] for s in time.variants[0][1]["series"]]
    assert names == ["pne, gcn", "ld, gcn", "pne, sagn", "ld, sagn"]
    assert memory.variants[0][1]["series"][0]["points"][0][0] == 300.0
    assert stages.variants[0][1]["rows"][0]["parts"] == [0.5, 8.0, 1.5]
