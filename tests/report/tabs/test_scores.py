from labeldeconv.report.source import open_source
from labeldeconv.report.tabs.scores import headline, overview, p_text
from labeldeconv.report.wording import NOTHING
from tests.report.run_writing import ring, write_comparison, write_run


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


def test_how_the_gnn_was_chosen(tmp_path):
    """The reason in words and a row per candidate, the chosen one bold; runs whose GNN was named have none."""
    candidates = [
        {"name": "gcn", "score": 0.75, "epochs": 200, "seeds": 3, "seconds": 61.23, "dropped": ""},
        {"name": "gat", "score": None, "epochs": 0, "seeds": 0, "seconds": 0.0, "dropped": "too slow: <b>"},
    ]
    write_run(tmp_path / "a", ring(), race={"chosen": "gcn", "reason": "gcn is best.", "candidates": candidates})
    blocks = overview(open_source(tmp_path / "a")).blocks
    assert ("GNN", "gcn, chosen among 2 by validation score") in blocks[1].facts
    assert blocks[2].text == "gcn is best."
    assert [[cell.text for cell in row] for row in blocks[3].rows] == [
        ["gcn", "75.00", "200", "3", "61.2", "chosen"],
        ["gat", NOTHING, NOTHING, NOTHING, "0.0", "too slow: <b>"],
    ]
    assert [row[0].strong for row in blocks[3].rows] == [True, False]
    write_run(tmp_path / "b", ring())
    assert len(overview(open_source(tmp_path / "b")).blocks) == 2
