"""Raw attributes: joined by id, whatever their order, and what does not join is told."""

import gzip
import io
import tarfile

import pytest

from labeldeconv.data.sets.ogb.layout import ARXIV, PRODUCTS
from labeldeconv.errors import DataError
from tests.samples import real_data

from .ogb_writing import N, arxiv, load, products, put


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
    assert loaded.graph.class_names == [f"category {k}" for k in range(47)]
    assert loaded.warnings[0] == "trn.json.gz and tst.json.gz: 2 rows repeat an id; the first one counts"


def test_classes_without_names_have_numbers(tmp_path):
    folder = products(tmp_path)
    (folder / "mapping" / "labelidx2productcategory.csv.gz").unlink()
    assert load(PRODUCTS, folder).graph.class_names == [str(k) for k in range(47)]


def test_bad_json(tmp_path):
    folder = products(tmp_path)
    put(folder, "Amazon-3M.raw/tst.json", '{"uid": "B001", "title": "x", "content": "y"}\n{"uid": "B002", "ti\n')
    with pytest.raises(DataError, match=r"tst.json.gz, line 2: not JSON: "):
        load(PRODUCTS, folder)


def test_real_paper_ids_join(tmp_path):
    folder = real_data("ogbn_arxiv_partial")
    for path in folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    with gzip.open(folder / "nodeidx2paperid.csv.gz", "rt") as file:
        papers = [line.strip().split(",")[1] for line in file][1:]
    put(tmp_path, "raw/edge.csv", "0,1\n5,7\n")
    text = "".join(f"{paper}\tt{i}\ta{i}\n" for i, paper in enumerate(papers) if i % 1000) + "77\tx\ty\n"
    put(tmp_path, "titleabs.tsv", text)
    loaded = load(ARXIV, tmp_path)
    assert loaded.graph.num_nodes == 169_343
    assert loaded.graph.texts[169_342] == "Title: t169342 Abstract: a169342"
    assert loaded.graph.class_names[:5] == [f"arxiv cs {name}" for name in ("na", "mm", "lo", "cy", "cr")]
    assert "170 of 169,343 nodes have no attribute; paper id '9657784'" in loaded.warnings[0]


def test_line_ends_of_two_kinds_and_a_broken_tar(tmp_path):
    """Found by fuzzing: duckdb's parser gives up, and a tar's size may be no number."""
    folder = arxiv(tmp_path)
    content = gzip.decompress((folder / "titleabs.tsv.gz").read_bytes())
    (folder / "titleabs.tsv.gz").unlink()
    (folder / "titleabs.tsv").write_bytes(b"\r\n" + content)
    with pytest.raises(DataError, match=r"titleabs\.tsv: .*CSV"):
        load(ARXIV, folder)
    head = bytearray(512)
    head[257:262], head[124:127] = b"ustar", b"9xz"
    (folder / "titleabs.tsv").write_bytes(bytes(head) + content)
    with pytest.raises(DataError, match="a broken tar"):
        load(ARXIV, folder)


def test_texts_of_pygs_tag_dataset(tmp_path):
    folder = arxiv(tmp_path)
    put(folder, "raw/node-text.csv", "text\n" + "".join(f'"text, {i}"\n' for i in range(N)))
    assert load(ARXIV, folder).graph.texts[0].startswith("Title: ")  # the raw ones count where they are there
    (folder / "titleabs.tsv.gz").unlink()
    loaded = load(ARXIV, folder)
    assert list(loaded.graph.texts) == [f"text, {i}" for i in range(N)]
    assert "node-text.csv.gz: taken for the texts, a row per node, since the raw ones are not there" in loaded.warnings
    for content, message in (
        ("text\n" + "x\n" * (N - 1), r"node-text.csv.gz: 12 rows expected, one for each node, got 11"),
        ("text\n" + "x\n" * (N + 1), r"node-text.csv.gz, line 14: 12 rows expected, one for each node, got more"),
        ("title\nx\n", r"node-text.csv.gz, line 1: a column 'text' expected, got title"),
    ):
        put(folder, "raw/node-text.csv", content)
        with pytest.raises(DataError, match=message):
            load(ARXIV, folder)
