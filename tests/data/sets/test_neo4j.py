"""Neo4j's CSV export: ids in groups, types in headers, several files."""

import pytest

from labeldeconv.data.opening import open_data
from labeldeconv.errors import DataError

PAPERS = "paperId:ID(Paper),text:string,category,year:int,:LABEL\n"
CITES = ":START_ID(Paper),:END_ID(Paper),:TYPE\n"


def write(folder, papers=PAPERS, more="", cites=CITES):
    folder.mkdir(exist_ok=True)
    rows = "".join(f'{i},"text, {i}",{"ab"[i % 2]},2020,Paper\n' for i in range(8))
    (folder / "papers.csv").write_text(papers + rows + more)
    (folder / "cites.csv").write_text(cites + "".join(f"{i},{(i + 1) % 8},CITES\n" for i in range(8)))
    return folder


def test_nodes_and_relationships(tmp_path):
    folder = write(tmp_path / "export")
    for place in (folder, f"neo4j@{folder}"):
        loaded = open_data(str(place))
        graph = loaded.graph
        assert (graph.name, graph.texts[1], graph.class_names) == ("export", "text, 1", ["a", "b"])
        assert graph.edges[:, -1].tolist() == [7, 0]
        assert graph.ids.tolist() == list(range(8))
        assert loaded.warnings[0] == "export: read as text = text, label = category, split = made"


def test_groups_of_ids_and_the_label_as_the_class(tmp_path):
    folder = write(tmp_path / "export", papers=PAPERS.replace("category", "kind:IGNORE"))
    authors = "".join(f"{i},author {i},Person\n" for i in range(4))
    (folder / "people.csv").write_text("personId:ID(Person),text,:LABEL\n" + authors)
    (folder / "wrote.csv").write_text(":START_ID(Person),:END_ID(Paper),:TYPE\n3,7,WROTE\n")
    graph = open_data(str(folder)).graph
    assert graph.class_names == ["Paper", "Person"]
    wrote = graph.edges[:, -1]
    assert [graph.node_id(node) for node in wrote] == ["Person:3", "Paper:7"]


def test_arrays_are_several_labels(tmp_path):
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "n.csv").write_text(
        ":ID,text,labels:string[]\n" + "".join(f"{i},t{i},{'x;y' if i % 2 else 'x'}\n" for i in range(8))
    )
    (folder / "r.csv").write_text(":START_ID,:END_ID\n0,1\n")
    graph = open_data(str(folder)).graph
    assert graph.labels[:2].tolist() == [[1, 0], [1, 1]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"more": ",x,a,2020,Paper\n"},
            r"papers.csv, line 10, column 'paperId:ID\(Paper\)': an id expected, got nothing",
        ),
        ({"more": "3,x,a,2020,Paper\n"}, r"'3' 2 times \(papers.csv, line 5, papers.csv, line 10\)"),
        ({"more": "9,x\n"}, r"papers.csv, line 10: 5 cells expected"),
        ({"cites": CITES + "0,99,CITES\n"}, r"unknown to export: cites.csv, line 2 \('99'\)"),
        ({"cites": CITES.replace(":END_ID(Paper)", "end")}, r"cites.csv, line 1: both :START_ID and :END_ID expected"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(tmp_path, changed, message):
    with pytest.raises(DataError, match=message):
        open_data(str(write(tmp_path / "export", **changed)))


def test_without_a_folder(tmp_path):
    for name in ("neo4j", f"neo4j@{tmp_path}"):
        with pytest.raises(DataError, match="a folder of CSV files with :ID and :START_ID columns expected"):
            open_data(name)
