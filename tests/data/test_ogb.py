"""OGB: small data sets in exactly OGB's formats, the real pieces of ogbn-arxiv, and ogb's own Evaluator."""

import gzip
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from labeldeconv.data.ogb import load_ogb, ogb_files, ogb_score
from labeldeconv.data.ogb_files import ARXIV, PRODUCTS, PROTEINS, recognise
from labeldeconv.data.raw_files import MissingFiles
from labeldeconv.errors import DataError
from labeldeconv.names import open_data
from labeldeconv.record import Cache
from labeldeconv.task import Task

REAL = Path(__file__).parents[3] / "shared" / "data" / "ogbn_arxiv_partial"
N = 12


def put(folder, name, text):
    path = folder / f"{name}.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


def rows(cells):
    return "".join(",".join(map(str, row)) + "\n" for row in cells)


def write_graph(folder, spec, labels):
    edges = [(i, (i + 1) % N) for i in range(N)]
    put(folder, "raw/edge.csv", rows(edges))
    put(folder, "raw/node-label.csv", rows(labels))
    put(folder, "raw/num-node-list.csv", f"{N}\n")
    for part, nodes in (("train", range(6)), ("valid", range(6, 9)), ("test", range(9, N))):
        put(folder, f"split/{spec.scheme}/{part}.csv", rows([[i] for i in nodes]))


def arxiv(root):
    folder = root / "ogbn_arxiv"
    write_graph(folder, ARXIV, [[i % 40] for i in range(N)])
    order = np.random.default_rng(0).permutation(N)
    put(folder, "mapping/nodeidx2paperid.csv", "node idx,paper id\n" + rows([(i, 100 + i) for i in order]))
    put(
        folder,
        "mapping/labelidx2arxivcategeory.csv",
        "label idx,arxiv category\n" + rows((k, f"cs {k}") for k in range(40)),
    )
    put(folder, "raw/node-feat.csv", rows([[f"{i / 8}"] * 128 for i in range(N)]))
    texts = [f'{100 + i}\ttitle "{i}\tabstract, {i}' for i in reversed(range(N + 3)) if i != 4]
    put(folder, "titleabs.tsv", "\n".join(texts) + "\n")
    return folder


def products(root):
    folder = root / "ogbn_products"
    write_graph(folder, PRODUCTS, [[i % 47] for i in range(N)])
    put(folder, "mapping/nodeidx2asin.csv", "node idx,asin\n" + rows([(i, f"B00{i}") for i in range(N)]))
    for part, items in (("trn", range(8)), ("tst", range(6, N + 2))):
        put(
            folder,
            f"Amazon-3M.raw/{part}.json",
            "".join(
                json.dumps(
                    {
                        "uid": f"B00{i}",
                        "title": f"title {i} é",
                        "content": "" if i == 3 else f"{part}\n{i}",
                        "target_ind": [1],
                    }
                )
                + "\n"
                for i in items
            ),
        )
    return folder


def proteins(root, version="11.0"):
    folder = root / "ogbn_proteins"
    write_graph(folder, PROTEINS, [[(i + k) % 2 for k in range(112)] for i in range(N)])
    put(folder, "raw/edge-feat.csv", rows([[0.001 * i + k for k in range(8)] for i in range(N)]))
    put(folder, "mapping/nodeidx2proteinid.csv", "node idx,protein id\n" + rows([(i, f"4932.Y{i}") for i in range(N)]))
    fasta = "".join(f">4932.Y{i}\nMKJ*\n{'A' * i}\n" for i in range(N + 2) if i != 5)
    put(folder, f"protein.sequences.v{version}.fa", fasta)
    return folder


def load(spec, folder):
    return load_ogb(spec, ogb_files(spec, folder))


def test_arxiv(tmp_path):
    folder = arxiv(tmp_path)
    loaded = load(ARXIV, folder)
    graph = loaded.graph
    assert graph.texts[7] == 'Title: title "7 Abstract: abstract, 7'
    assert graph.texts[4] == ""
    assert list(graph.ids) == [str(100 + i) for i in range(N)]
    assert graph.edges.tolist() == [list(range(N)), [*range(1, N), 0]]
    assert graph.class_names[3] == "cs 3"
    assert graph.features.shape == (N, 128)
    assert graph.features[4, 0] == 0.5
    assert graph.split.roles.tolist() == [0] * 6 + [1] * 3 + [2] * 3
    assert loaded.warnings == [
        "titleabs.tsv.gz: 1 of 12 nodes have no attribute; paper id '104'",
        "titleabs.tsv.gz: 3 of 14 rows belong to no node and are left out",
    ]


@pytest.mark.parametrize("packed", [False, True])
def test_titleabs_in_a_tar(tmp_path, packed):
    folder = arxiv(tmp_path)
    expected = list(load(ARXIV, folder).graph.texts)
    text = gzip.decompress((folder / "titleabs.tsv.gz").read_bytes())
    (folder / "titleabs.tsv.gz").unlink()
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        info = tarfile.TarInfo("titleabs.tsv")
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
    content = held.getvalue()
    (folder / f"titleabs.tsv{'.gz' if packed else ''}").write_bytes(gzip.compress(content) if packed else content)
    assert list(load(ARXIV, folder).graph.texts) == expected


def test_products(tmp_path):
    loaded = load(PRODUCTS, products(tmp_path))
    texts = loaded.graph.texts
    assert texts[0] == "Title: title 0 é Content: trn\n0"
    assert texts[3] == "Title: title 3 é"
    assert texts[6] == "Title: title 6 é Content: trn\n6"  # in both files: the first counts
    assert texts[11] == "Title: title 11 é Content: tst\n11"
    assert loaded.graph.class_names == [str(k) for k in range(47)]
    assert loaded.warnings[0] == "trn.json.gz and tst.json.gz: 2 rows repeat an id; the first one counts"


@pytest.mark.parametrize("version", ["11.0", "11.5", "12.0"])
def test_proteins(tmp_path, version):
    loaded = load(PROTEINS, proteins(tmp_path, version))
    graph = loaded.graph
    assert graph.attributes == "sequence"
    assert graph.texts[2] == "MKXAA"
    assert graph.texts[5] == ""
    assert graph.labels.shape == (N, 112)
    assert graph.edge_features.shape == (N, 8)
    np.testing.assert_allclose(graph.edge_features[3], 0.003 + np.arange(8), rtol=1e-6)
    assert f"protein.sequences.v{version}.fa.gz: 11 sequences hold 'J', read as 'X'" in loaded.warnings
    assert "1 of 12 nodes have no attribute; protein id '4932.Y5'" in loaded.warnings[-1]


def test_class_names_that_cannot_be_read_only_warn(tmp_path):
    folder = proteins(tmp_path)
    put(folder, "mapping/labelidx2GO.csv", "label idx,GO,aspect\n0,GO:1,P\n")
    loaded = load(PROTEINS, folder)
    assert loaded.graph.class_names[:2] == ["0", "1"]
    assert "classes have numbers instead of names" in loaded.warnings[-1]


def test_missing_files_are_named_with_what_is_there(tmp_path):
    folder = products(tmp_path)
    (folder / "Amazon-3M.raw" / "tst.json.gz").unlink()
    with pytest.raises(MissingFiles) as caught:
        ogb_files(PRODUCTS, folder)
    (told,) = caught.value.problems
    assert told.startswith(f"missing {folder}/Amazon-3M.raw/tst.json.gz (or without .gz): one JSON object a line")
    assert caught.value.found["nodes"] == N
    assert caught.value.found["split"] == {"train": 6, "val": 3, "test": 3}
    assert "trn texts" in caught.value.found["files"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("raw/edge.csv", "0,1\n1,12\n", r"edge.csv.gz, line 2: node numbers 0..11 expected as target, got 12"),
        ("raw/edge.csv", "0,1\n1\n", r"1 rows cannot be read"),
        ("raw/node-label.csv", "0\n" * 11 + "40\n", r"line 12: labels 0..39 expected, got 40"),
        ("raw/node-feat.csv", "0.5\n", r"cannot be read"),
        ("split/time/test.csv", "9\n99\n", r"test.csv.gz, line 2: node numbers 0..11 expected, got 99"),
        ("split/time/test.csv", "0\n", r"1 nodes of 'test' are in another part too"),
        ("mapping/nodeidx2paperid.csv", "idx,id\n", r"line 1: the header 'node idx,paper id' expected"),
        (
            "mapping/nodeidx2paperid.csv",
            "node idx,paper id\n" + "3,100\n" * 12,
            r"each of the node numbers 0..11 is expected once",
        ),
        ("titleabs.tsv", "1\ta\tb\n", r"none of the 12 nodes has its paper id there, such as '100'"),
        ("titleabs.tsv", "100\ta\n", r"1 rows cannot be read"),
    ],
)
def test_bad_files(tmp_path, name, text, message):
    folder = arxiv(tmp_path)
    put(folder, name, text)
    with pytest.raises(DataError, match=message):
        load(ARXIV, folder)


def test_bad_json(tmp_path):
    folder = products(tmp_path)
    put(folder, "Amazon-3M.raw/tst.json", '{"uid": "B001", "title": "x", "content": "y"}\n{"uid": "B002", "ti\n')
    with pytest.raises(DataError, match=r"tst.json.gz, line 2: not JSON: "):
        load(PRODUCTS, folder)


def test_by_name_and_nothing_half_written(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELDECONV_DATA", str(tmp_path / "root"))
    cache = Cache(tmp_path / "c")
    with pytest.raises(MissingFiles, match=r"0 files of ogbn-arxiv are there, 7 are missing"):
        open_data("ogbn-arxiv", 0, cache)
    folder = arxiv(tmp_path / "root")
    titles = folder / "titleabs.tsv.gz"
    whole = titles.read_bytes()
    titles.write_bytes(whole[:-20])
    with pytest.raises(DataError, match="truncated"):
        open_data("ogbn-arxiv", 0, cache)
    assert not [path for path in (tmp_path / "c" / "graph").rglob("*") if path.is_file() and path.suffix != ".lock"]
    titles.write_bytes(whole)
    first = open_data("ogbn-arxiv", 0, cache)
    assert len(first.warnings) == 2
    titles.unlink()
    for name in (f"ogbn-arxiv@{tmp_path / 'root'}", f"ogbn-arxiv@{folder}", str(folder)):
        with pytest.raises(MissingFiles, match=r"titleabs.tsv.gz"):
            open_data(name, 0, cache)


@pytest.mark.skipif(not REAL.is_dir(), reason="needs ../shared/data/ogbn_arxiv_partial")
def test_real_pieces_of_arxiv():
    assert recognise(REAL) is ARXIV
    with pytest.raises(MissingFiles) as caught:
        ogb_files(ARXIV, REAL)
    found = caught.value.found
    assert (found["nodes"], found["classes"]) == (169_343, 40)
    assert found["split"] == {"train": 90_941, "val": 29_799, "test": 48_603}
    assert ["edge.csv" in told or "titleabs.tsv" in told for told in caught.value.problems] == [True, True]


@pytest.mark.skipif(not REAL.is_dir(), reason="needs ../shared/data/ogbn_arxiv_partial")
def test_real_paper_ids_join(tmp_path):
    for path in REAL.iterdir():
        (tmp_path / path.name).symlink_to(path)
    with gzip.open(REAL / "nodeidx2paperid.csv.gz", "rt") as file:
        papers = [line.strip().split(",")[1] for line in file][1:]
    put(tmp_path, "raw/edge.csv", "0,1\n5,7\n")
    text = "".join(f"{paper}\tt{i}\ta{i}\n" for i, paper in enumerate(papers) if i % 1000) + "77\tx\ty\n"
    put(tmp_path, "titleabs.tsv", text)
    loaded = load(ARXIV, tmp_path)
    assert loaded.graph.num_nodes == 169_343
    assert loaded.graph.texts[169_342] == "Title: t169342 Abstract: a169342"
    assert loaded.graph.class_names[4] == "arxiv cs dm" or loaded.graph.class_names[4].startswith("arxiv cs ")
    assert "170 of 169,343 nodes have no attribute; paper id '9657784'" in loaded.warnings[0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_evaluator_agrees_with_our_score():
    pytest.importorskip("ogb", reason="needs the extra ogb")
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(300, 40)), rng.integers(0, 40, 300)
    metric, value = ogb_score("ogbn-arxiv", logits, labels)
    assert metric == "acc"
    assert value == pytest.approx(Task("multiclass", 40).score(logits, labels))
    logits, labels = rng.normal(size=(200, 112)), rng.integers(0, 2, (200, 112))
    metric, value = ogb_score("ogbn-proteins", logits, labels)
    assert metric == "rocauc"
    assert value == pytest.approx(Task("multilabel", 112).score(logits, labels))
