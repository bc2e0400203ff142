"""The evidence: cells of a rule that is no more count as no cell of the present one."""

import json

from benchmarks import evidence


def test_cells_of_the_first_auto_have_a_name_of_their_own(tmp_path, monkeypatch, capsys):
    place = {"graph": "words", "split": "low", "gnn": "auto", "seed": 0}
    rows = [
        {"cell": {**place, "method": "auto"}, "test": 0.5},
        {"cell": {**place, "method": "ld"}, "test": 0.6},
        {"cell": {**place, "seed": 1, "method": "auto"}, "test": 0.7, "tried": []},
    ]
    monkeypatch.setattr(evidence, "RESULTS", tmp_path / "evidence.jsonl")
    evidence.RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = evidence.finished()
    assert {(cell.method, cell.seed): row["test"] for cell, row in done.items()} == {
        ("auto-first", 0): 0.5,
        ("ld", 0): 0.6,
        ("auto", 1): 0.7,
    }
    assert [cell in done for cell in evidence.cells(["words"], ["auto"])][:2] == [False, True]
    evidence.report(done)
    assert capsys.readouterr().out.splitlines()[2].endswith("| 70.00 ± 0.00 | 50.00 ± 0.00 |")
