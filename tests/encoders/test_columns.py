"""Several columns: one contract for text, numbers, categories and images, with random-weight models."""

import json

import numpy as np
import pytest
import torch

from labeldeconv.data.convert import record_texts
from labeldeconv.data.tables.folder import load_tables
from labeldeconv.encoders.pretrained import Pretrained, load_encoder
from labeldeconv.encoders.tokens import tokens, write_tokens
from labeldeconv.errors import ConfigError, DataError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import Split
from labeldeconv.graph.texts import Texts
from labeldeconv.runs.fit import fit
from labeldeconv.settings.models import EncoderConfig
from labeldeconv.testing import ENCODER_CHECKS

Image = pytest.importorskip("PIL.Image", reason="needs the extra images")


@pytest.fixture(scope="module")
def name(vit):
    return f"title=tiny,price=number,brand=category,photo=image:{vit}"


@pytest.fixture(scope="module")
def texts(photos):
    return record_texts(
        {
            "title": ["a red thing", "", "blue é", None],
            "price": [1.5, None, -20, "3e4"],
            "brand": ["acme", "acme", None, "other"],
            "photo": [photos / "red.png", photos / "blue.png", None, photos / "red.png"],
        }
    )


def batch(encoder, texts, folder, nodes=(0, 1, 2, 3)):
    folder.mkdir(exist_ok=True)
    return write_tokens(encoder.tokenizer_part, texts, 32, folder).batch(np.array(nodes))


def test_features_are_the_concatenation_before_training(name, texts, tmp_path):
    encoder = load_encoder(EncoderConfig(name=name)).eval()
    assert encoder.dim == 32 + 2 + 16 + 16
    with torch.inference_mode():
        x = encoder(*batch(encoder, texts, tmp_path / "t"))
        title, price, brand, photo = x.split([32, 2, 16, 16], dim=1)
        text = load_encoder(EncoderConfig(name="tiny")).eval()
        plain = Texts.from_strings(["a red thing", "", "blue é", ""])
        torch.testing.assert_close(title, text(*batch(text, plain, tmp_path / "p")), atol=1e-5, rtol=1e-5)
    log = np.log1p
    expected = [[log(1.5), 1], [0, 0], [-log(20), 1], [log(3e4), 1]]
    np.testing.assert_allclose(price, expected, rtol=1e-5)
    assert torch.equal(brand[0], brand[1])
    assert not brand[2].any()
    assert not torch.equal(brand[0], brand[3])
    torch.testing.assert_close(photo[0], photo[3])
    assert not photo[2].any()
    assert not torch.allclose(photo[0], photo[1])


def test_batches_do_not_matter(name, texts, tmp_path):
    encoder = load_encoder(EncoderConfig(name=name)).eval()
    with torch.inference_mode():
        whole = encoder(*batch(encoder, texts, tmp_path / "t"))
        for node in range(4):
            alone = encoder(*batch(encoder, texts, tmp_path / "t", [node]))
            torch.testing.assert_close(alone[0], whole[node], atol=1e-5, rtol=1e-5)


def test_trains_saves_and_restores(name, texts, tmp_path):
    encoder = load_encoder(EncoderConfig(name=name))
    before = encoder.weights_key()
    assert before == load_encoder(EncoderConfig(name=name)).weights_key()
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    encoder(*batch(encoder, texts, tmp_path / "t")).square().sum().backward()
    for child in encoder.by_column().values():
        assert all(p.grad is not None for n, p in child.named_parameters() if "pooler" not in n)
    optimizer.step()
    assert encoder.weights_key() != before
    encoder.save(tmp_path / "m")
    same = load_encoder(EncoderConfig(name=str(tmp_path / "m")))
    fresh = load_encoder(EncoderConfig(name=name))
    fresh.restore(tmp_path / "m")
    with torch.inference_mode():
        x = encoder.eval()(*batch(encoder, texts, tmp_path / "t"))
        for other in (same, fresh):
            torch.testing.assert_close(other.eval()(*batch(other, texts, tmp_path / "t")), x)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("plain text", r"reads records, a JSON object per node: set attributes = \"record\""),
        (json.dumps({"title": "x", "prize": "1"}), r"no column 'price' in the records; did you mean 'prize'"),
        (json.dumps({"title": "x", "price": "cheap"}), r"column 'price': a number expected, got 'cheap'"),
        (json.dumps({"title": "x", "price": "1e99"}), r"column 'price': a finite number expected"),
    ],
)
def test_bad_records(text, message):
    with pytest.raises(DataError, match=message):
        load_encoder(EncoderConfig(name="title=tiny,price=number")).tokenize([text], 32)


@pytest.mark.parametrize("bad", ["title=", "=tiny", "a=number,a=number", "a=number,,b=number"])
def test_bad_names(bad):
    with pytest.raises(ConfigError, match=r"COLUMN=ENCODER,... expected"):
        load_encoder(EncoderConfig(name=bad))


def test_bad_image(name, photos, tmp_path):
    (photos / "broken.png").write_bytes(b"not an image")
    encoder = load_encoder(EncoderConfig(name=name))
    for path, why in ((photos / "broken.png", "cannot be opened as an image"), (photos / "none.png", "No such file")):
        texts = record_texts({"title": ["x"], "price": [1], "brand": [""], "photo": [path]})
        with pytest.raises(DataError, match=why):
            encoder(*batch(encoder, texts, tmp_path / "t", [0]))


def test_keys_are_those_of_the_columns(name, vit):
    """Another encoder of one column, or the columns in another order, are other tokens and other weights."""
    encoder = load_encoder(EncoderConfig(name=name))
    title, price, rest = name.split(",", 2)
    for other in (f"{price},{title},{rest}", f"title=tiny,price=category,{rest}", name.replace("price", "cost")):
        changed = load_encoder(EncoderConfig(name=other))
        assert changed.tokenizer_key() != encoder.tokenizer_key()
        assert changed.weights_key() != encoder.weights_key()
    with torch.no_grad():
        encoder.fusion.bias[0] += 1
    assert encoder.weights_key() != load_encoder(EncoderConfig(name=name)).weights_key()


@pytest.mark.parametrize("check", ENCODER_CHECKS, ids=lambda check: check.__name__)
def test_contract(name, texts, check):
    check(lambda: load_encoder(EncoderConfig(name=name)), list(texts)[:3])


def test_another_content_of_an_image_is_another_key(vit, tmp_path):
    """The path alone would serve the features of the old picture from the cache."""
    config = EncoderConfig(name=f"title=tiny,photo=image:{vit}")
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    for path in paths:
        Image.new("RGB", (8, 8), (255, 0, 0)).save(path)
    texts = record_texts({"title": ["x", "y"], "photo": paths})
    keys = [Pretrained(config).files_key(texts)]
    Image.new("RGB", (8, 8), (254, 0, 0)).save(paths[1])
    keys.append(Pretrained(config).files_key(texts))
    paths[0].unlink()
    keys.append(Pretrained(config).files_key(texts))
    assert None not in keys
    assert len(set(keys)) == 3
    assert keys[2] == Pretrained(config).files_key(texts)
    plain = Pretrained(EncoderConfig(name="title=tiny"))
    assert plain.files_key(texts) is None
    tokenizer = Pretrained(config).tokenizer
    assert len({tokens.key(texts, tokenizer, 32, key) for key in keys}) == 3


def test_unequal_columns():
    with pytest.raises(DataError, match=r"columns of equal length expected"):
        record_texts({"a": [1], "b": [1, 2]})


def test_tables_of_records(tmp_path):
    (tmp_path / "nodes.csv").write_text(
        "id,title,price,label\n" + "".join(f'{i},"t ""{i}""",{i},{i % 2}\n' for i in range(9))
    )
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    (tmp_path / "graph.toml").write_text('attributes = "record"\ntext = ["title", "price"]')
    graph = load_tables(tmp_path).graph
    assert graph.attributes == "record"
    assert json.loads(graph.texts[3]) == {"title": 't "3"', "price": "3"}


def test_end_to_end(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 60)
    texts = record_texts({"title": [f"node {i}" for i in range(60)], "size": (labels * 40 + rng.random(60)).tolist()})
    graph = AttributedGraph(
        texts,
        np.stack([np.arange(59), np.arange(1, 60)]),
        labels,
        Split.stratified(labels, 0),
        ["small", "large"],
        attributes="record",
        name="sizes",
    )
    result = fit(
        graph,
        method="ld",
        encoder="title=tiny,size=number",
        gnn="sagn",
        out=tmp_path / "r",
        cache=tmp_path / "c",
        train__epochs=1,
        gnn__epochs=30,
        gnn__layers=1,
    )
    assert result.features.shape == (60, 34)
    assert result.test > 0.7


def test_a_folder_names_no_encoder_of_its_own(name, texts, tmp_path):
    """Whoever wrote columns.json could otherwise name a module that is imported."""
    load_encoder(EncoderConfig(name=name)).save(tmp_path / "saved")
    path = tmp_path / "saved" / "columns.json"
    held = json.loads(path.read_text())
    path.write_text(json.dumps({**held, "title": "antigravity:x"}))
    with pytest.raises(
        DataError, match=r"columns.json: columns with one of the kinds .* expected, got .*'antigravity:x"
    ):
        load_encoder(EncoderConfig(name=str(tmp_path / "saved")))
