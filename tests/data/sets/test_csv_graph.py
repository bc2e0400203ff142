"""Graphs of one CSV file: CS-TAG's and WebKB's layouts."""

import pytest

from labeldeconv.data.opening import open_data
from labeldeconv.data.sets.pickled import DGL
from labeldeconv.errors import DataError

HEADER = "category,text,label,node_id,neighbour\n"
ROWS = [
    f'{"World" if i % 2 else "Europe"},"book, {i}",{i % 2},{i},"[{(i + 1) % 8}, {(i + 2) % 8}]"\n' for i in range(8)
]


def write(folder, rows=ROWS, header=HEADER, name="History.csv"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(header + "".join(rows))
    (folder / name).with_suffix(".pt").write_bytes(DGL)
    return folder


def test_cs_tag_by_folder_and_file(tmp_path):
    folder = write(tmp_path / "History")
    for place in (folder, folder / "History.csv", f"csv-graph@{folder}"):
        loaded = open_data(str(place))
        graph = loaded.graph
        assert list(graph.texts)[:2] == ["book, 0", "book, 1"]
        assert (graph.name, graph.class_names) == ("History", ["Europe", "World"])
        assert graph.edges[:, :4].T.tolist() == [[0, 1], [0, 2], [1, 2], [1, 3]]
        assert loaded.warnings[0] == "History.csv: read as text = text, label = category, split = made"
    with pytest.raises(DataError, match=r"History.pt: DGL's binary format"):
        open_data(str(folder / "History.pt"))


def test_classes_whose_names_do_not_fit_have_numbers_and_a_year_is_told(tmp_path):
    rows = [row.replace("\n", ",2014\n").replace("Europe", f"name {i}") for i, row in enumerate(ROWS)]
    loaded = open_data(str(write(tmp_path / "Photo", rows, HEADER.replace("\n", ",year\n"), "Photo.csv")))
    assert loaded.graph.class_names == ["0", "1"]
    assert "has a column 'year', by which its authors split it" in loaded.warnings[-1]


def test_webkb(tmp_path):
    header = "url,raw_text,category,node_id,label,len,neighbor_ids\n"
    rows = [f"http://x/{i},page {i},{'ab'[i % 2]},{i},{i % 2},3,[{(i + 1) % 8}]\n" for i in range(7)]
    graph = open_data(str(write(tmp_path / "Cornell", [*rows, "u,page 7,b,7,1,3,[]\n"], header, "Cornell.csv"))).graph
    assert (graph.texts[7], graph.class_names, graph.num_edges) == ("page 7", ["a", "b"], 7)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            'World,x,1,8,"1, 2"\n',
            r"History.csv, line 10, column 'neighbour': a list such as \[1, 2\] expected, got '1, 2'",
        ),
        ('World,x,1,8,"[99]"\n', r"History.csv, line 10, column 'neighbour': node '99' has no row"),
        ("World,x\n", r"History.csv, line 10: 5 cells expected, as in the header, got 2"),
        ("World,x,1,3,[]\n", r"column 'node id': 1 ids occur more than once: '3' 2 times \(line 5, line 10\)"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path, row, message):
    with pytest.raises(DataError, match=message):
        open_data(str(write(tmp_path / "History", [*ROWS, row])))


def test_without_ids(tmp_path):
    (tmp_path / "a.csv").write_text("text,neighbour\nx,[]\n")
    with pytest.raises(DataError, match=r"a.csv, line 1: columns node_id and neighbour expected, got text, neighbour"):
        open_data(str(tmp_path / "a.csv"))
    with pytest.raises(DataError, match="with a column neighbour or neighbor, or its folder, expected"):
        open_data("csv-graph")
