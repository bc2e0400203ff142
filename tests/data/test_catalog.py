"""Names of data sets: what is registered, where files are looked for, and what is said about wrong names."""

import subprocess
import sys

import pytest

from labeldeconv.data.catalog import DATASETS, Dataset, dataset, folder_source, named_source, suggestions
from labeldeconv.data.opening import open_data
from labeldeconv.data.sets.planted import PlantedSource
from labeldeconv.errors import ConfigError, DataError

PLANTED = ["planted", "planted-multilabel", "planted-protein", "planted-regression"]
NAMES = [*PLANTED, "ogbn-arxiv", "ogbn-products", "ogbn-proteins"]
NAMES += ["conllu", "debian", "debian-tags", "string", "wordnet", "csv-graph", "neo4j", "graphml", "node-link", "pyg"]
MINE = """
from dataclasses import dataclass

from labeldeconv.data.catalog import dataset
from labeldeconv.data.findings import Loaded
from labeldeconv.data.sets.planted import planted


@dataclass(frozen=True)
class Source:
    nodes: int
    seed: int

    def load(self):
        return Loaded(planted(self.nodes, seed=self.seed).graph, ["mine is odd"])


@dataset("mine", "my own", suggests={"train.epochs": 7}, takes_argument=True)
def mine(request):
    return Source(int(request.argument or 40), request.seed)


def plain(request):
    return None
"""


@pytest.fixture
def registered(monkeypatch):
    """Forgets what a test registers."""
    assert len(DATASETS) >= len(NAMES)
    monkeypatch.setattr(DATASETS, "_members", dict(DATASETS._members))


@pytest.fixture
def module(tmp_path, monkeypatch, registered):
    (tmp_path / "my_data_module.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "my_data_module"
    sys.modules.pop("my_data_module", None)


def test_every_name_is_listed():
    assert list(DATASETS) == NAMES
    for name, known in DATASETS.items():
        assert isinstance(known, Dataset)
        assert known.name == name
        assert known.summary


@pytest.mark.parametrize("name", ["nowhere", "./some@folder", "debiann", "C:/folder", "plantde:100", "no.such:thing"])
def test_other_names_are_left_alone(name):
    assert named_source(name) is None
    assert suggestions(name) == {}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wordnet:3", r"'wordnet' takes nothing after a colon; --max-nodes takes a part"),
        ("wordnet@/no/such", r"/no/such is no folder"),
        ("string", r"string:SPECIES or string:SPECIES:SCORE expected"),
        ("string:4932:high", r"string:SPECIES:SCORE expected"),
        ("ogbn-proteins", r"0 files of ogbn-proteins are there, 8 are missing"),
        ("planted:2", r"data 'planted:2': a number of nodes, 4 to 100,000,000, expected after"),
        ("planted@/", r"data 'planted@/': 'planted' is generated and takes no folder"),
    ],
)
def test_wrong_names(tmp_path, monkeypatch, name, message):
    monkeypatch.setenv("LABELDECONV_DATA", str(tmp_path))
    with pytest.raises(DataError, match=message):
        named_source(name)


def test_a_folder_of_something_else(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    assert folder_source(tmp_path) is None


def test_suggestions():
    planted = suggestions("planted")
    assert planted["gnn.adjacency.normalization"] == "row"
    assert planted == suggestions("planted-protein:500#100")
    assert suggestions("wordnet") == suggestions("wordnet@/no/such") == suggestions("some/folder") == {}
    planted["train.lr"] = 1.0
    assert suggestions("planted")["train.lr"] == 1e-4


def test_suggestions_do_not_wait_for_numba_and_torch():
    code = "import sys; from labeldeconv.data.catalog import suggestions; suggestions('planted')\n"
    code += "print([name for name in ('torch', 'numba') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_a_data_set_of_a_users_module(module):
    loaded = open_data(f"{module}:mine")
    assert (loaded.graph.num_nodes, loaded.warnings) == (40, ["mine is odd"])
    assert open_data(f"{module}:mine:60").graph.num_nodes == 60
    assert open_data("mine:70#50").graph.num_nodes == 50  # its module has been imported
    assert suggestions(f"{module}:mine:60") == {"train.epochs": 7}
    with pytest.raises(ConfigError, match=r"my_data_module:plain is no data set; @dataset makes a function one"):
        open_data(f"{module}:plain")
    with pytest.raises(ConfigError, match=r"data 'my_data_module:nothing': cannot be imported"):
        open_data(f"{module}:nothing")


def test_one_function_of_several_names(registered):
    @dataset("two", "the second")
    @dataset("one", "the first", takes_argument=True)
    def both(request):
        return PlantedSource(10 if request.name == "one" else 20, "multiclass", request.seed)

    assert named_source("one:x", 3) == PlantedSource(10, "multiclass", 3)
    assert named_source("two") == PlantedSource(20, "multiclass", 0)
    with pytest.raises(DataError, match=r"'two' takes nothing after a colon"):
        named_source("two:x")


def test_a_recognised_folder_is_asked_for_by_itself(tmp_path, registered):
    asked = []

    @dataset("marked", "has a mark", recognise=lambda folder: (folder / "mark").exists())
    def marked(request):
        asked.append(request)
        return PlantedSource(10, "multiclass", request.seed)

    (tmp_path / "mark").touch()
    assert folder_source(tmp_path, 5) is not None
    assert (asked[0].folder, asked[0].recognised, asked[0].seed) == (tmp_path, True, 5)
    assert named_source(f"marked@{tmp_path}") is not None
    assert (asked[1].folder, asked[1].recognised, asked[1].written) == (tmp_path, False, f"marked@{tmp_path}")
