from run_writing import ring, write_comparison, write_run

from labeldeconv.report.costs import costs
from labeldeconv.report.overview import headline, overview, p_text
from labeldeconv.report.source import open_source
from labeldeconv.report.sweeps import sweeps
from labeldeconv.report.training import moving_mean, training


def test_headline_names_gap_and_significance(tmp_path):
    source = open_source(write_comparison(tmp_path, ring(), seeds=2))
    told = headline(source)
    gap = 100 * (source.entries[1].test[0] - source.entries[0].test[0])
    assert f"{abs(gap):.1f} points {'above' if gap >= 0 else 'below'}" in told
    assert "p = 0.010" in told.replace("\u00a0", " ")
    assert "One seed" not in told


def test_headline_owns_up_to_one_seed(tmp_path):
    write_run(tmp_path, ring())
    assert "One seed: there is no spread" in headline(open_source(tmp_path))


def test_table_marks_the_best_and_the_significant(tmp_path):
    source = open_source(write_comparison(tmp_path, ring(), seeds=2))
    table = overview(source).blocks[-1]
    place = table.columns.index("test")
    best = max(range(2), key=lambda i: source.entries[i].test[0])
    assert [row[place].strong for row in table.rows] == [i == best for i in range(2)]
    assert [row[table.columns.index("p vs ld")].text for row in table.rows] == ["0.010", ""]
    assert p_text(0.0001) == "< 0.001"


def test_a_sweep_of_one_method_has_one_best(tmp_path):
    varied = [{"train.epochs": t} for t in (1, 2, 3)]
    source = open_source(write_comparison(tmp_path, ring(), methods=("ld",), varied=varied))
    for place, entry in enumerate(source.entries):
        object.__setattr__(entry, "test", (0.1 * place, 0.0))
    scores, table = overview(source).blocks[1:]
    assert [row[table.columns.index("test")].strong for row in table.rows] == [False, False, True]
    assert [row["name"] for row in scores.variants[0][1]["rows"]] == [f"gcn, epochs {t}" for t in (1, 2, 3)]


def test_one_seed_has_no_p_column(tmp_path):
    table = overview(open_source(write_comparison(tmp_path, ring()))).blocks[-1]
    assert "p vs ld" not in table.columns


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
