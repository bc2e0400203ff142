"""Public layouts of PyG's Data by file and folder, each with the files that lie beside it."""

import json
import pickle

import pytest
import torch

from labeldeconv.data.opening import open_data
from labeldeconv.errors import DataError

from .pyg_writing import NAMES, TEXTS, Malicious, cora, masks


def save(held, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(held, path)
    return path


def test_one_file(tmp_path):
    """GLBench, LLMNodeBed, GraphCLIP; by folder too where it is the only one."""
    path = save(cora(), tmp_path / "sets" / "cora.pt")
    for name in (path, path.parent, f"pyg@{path.parent}"):
        graph = open_data(str(name)).graph
        assert (graph.name, list(graph.texts), graph.class_names) == ("cora", TEXTS, NAMES)
        assert graph.features.shape == (12, 2)
    save(cora(), tmp_path / "sets" / "pubmed.pt")
    with pytest.raises(DataError, match=r"or the path of one, expected; found cora.pt, pubmed.pt"):
        open_data(str(path.parent))


def test_the_argument_or_the_seed_chooses_the_split(tmp_path):
    names = ("train_mask", "val_mask", "test_mask")
    path = save(cora(**dict(zip(names, masks(4), strict=True))), tmp_path / "wiki" / "wiki.pt")
    by_seed = open_data(str(path), seed=2)
    assert by_seed.graph.split.val.tolist() == [0, 4, 8]
    assert "wiki.pt: 4 splits; number 2 is taken (data_seed 2 modulo 4)" in by_seed.warnings
    assert open_data(f"pyg:3@{path.parent}", seed=2).graph.split.val.tolist() == [1, 5, 9]
    with pytest.raises(DataError, match="number of a split from 0 on expected"):
        open_data(f"pyg:x@{path.parent}")


def test_processed_data_with_texts_and_categories_beside_it(tmp_path):
    """Graph-COM: texts and class names are files of their own; LLaGA: label_texts inside."""
    folder = tmp_path / "bookhis"
    save(cora(raw_texts=None, label_name=None, x=None), folder / "processed_data.pt")
    save(TEXTS, folder / "raw_texts.pt")
    save(torch.ones(12, 4), folder / "sbert_x.pt")
    (folder / "categories.csv").write_text("name,description\n" + "".join(f"{name},what it is\n" for name in NAMES))
    for place in (folder, folder / "processed_data.pt"):
        loaded = open_data(str(place))
        assert (loaded.graph.name, list(loaded.graph.texts)) == ("bookhis", TEXTS)
        assert (loaded.graph.class_names, loaded.graph.features) == (NAMES, None)
        assert "texts = raw_texts.pt, labels = y, class names = categories.csv" in loaded.warnings[0]
    llaga = save(cora(label_name=None, label_texts=NAMES), tmp_path / "cora" / "processed_data.pt")
    assert open_data(str(llaga)).graph.class_names == NAMES


def test_taglas(tmp_path):
    none = {"train_mask": None, "val_mask": None, "test_mask": None}
    lists = {f"{role}_masks": [mask, mask] for role, mask in zip(("train", "val", "test"), masks(), strict=True)}
    path = save(cora(label_name=None, **none, **lists), tmp_path / "Cora" / "cora.pt")
    (path.parent / "cora_node.json").write_text(json.dumps([{"name": n, "description": "x"} for n in NAMES]))
    for place in (path, path.parent):
        graph = open_data(str(place)).graph
        assert graph.class_names == NAMES
        assert graph.split.val.tolist() == [2, 6, 10]
    (path.parent / "cora_node.json").write_text('[{"title": "x"}]')
    with pytest.raises(DataError, match=r"cora_node.json: a list of objects with a field 'name' expected"):
        open_data(str(path))
    (path.parent / "cora_node.json").write_text("[")
    with pytest.raises(DataError, match=r"cora_node.json: not valid JSON"):
        open_data(str(path))


def test_teg_db_and_tsgfm(tmp_path):
    data = cora(raw_texts=None, y=None, label_name=None, text_nodes=TEXTS, text_node_labels=["a", "b", -1] * 4)
    path = tmp_path / "children" / "processed" / "children.pkl"
    path.parent.mkdir(parents=True)
    path.write_bytes(pickle.dumps(data))
    for place in (path, path.parent.parent):
        assert open_data(str(place)).graph.class_names == ["a", "b"]
    folder = tmp_path / "cache_data_minilm" / "cora" / "processed"
    held = cora(raw_texts=None, x=None, node_text_feat=torch.ones(12, 3)).to_dict()
    save((held, None), folder / "geometric_data_processed.pt")
    save(None, folder / "pre_filter.pt")
    (folder / "texts.pkl").write_bytes(pickle.dumps([TEXTS, ["edge"], ["prompt"]]))
    graph = open_data(str(folder.parent)).graph
    assert (graph.name, list(graph.texts), graph.features.shape) == ("cora", TEXTS, (12, 3))


def test_oddities_are_told(tmp_path):
    path = save(cora(raw_texts=["", *TEXTS[1:]]), tmp_path / "cora.pt")
    assert open_data(str(path)).warnings[-1] == "cora.pt, texts: 1 of 12 texts are empty: node 0"


def test_a_malicious_file_is_refused_and_leaves_nothing(tmp_path):
    path = save(cora(extra=Malicious(tmp_path / "ran")), tmp_path / "evil.pt")
    with pytest.raises(DataError, match=r"evil.pt: refused, nothing of it was run: it names posix.system"):
        open_data(str(path))
    (tmp_path / "x").mkdir()
    save(cora(raw_texts=None), tmp_path / "x" / "processed_data.pt")
    save([Malicious(tmp_path / "ran")], tmp_path / "x" / "raw_texts.pt")
    with pytest.raises(DataError, match=r"raw_texts.pt: refused"):
        open_data(str(tmp_path / "x"))
    assert not (tmp_path / "ran").exists()
