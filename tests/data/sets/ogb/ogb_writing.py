"""Small data sets on disk in exactly OGB's formats."""

import gzip
import json

import numpy as np

from labeldeconv.data.sets.ogb.layout import ARXIV, PRODUCTS, PROTEINS
from labeldeconv.data.sets.ogb.raw_graph import load_ogb, ogb_files

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
    put(folder, "raw/node-feat.csv", rows([[f"{i / 4}"] * 100 for i in range(N)]))
    names = "label idx,product category\n" + rows((k, f"category {k}") for k in range(47))
    put(folder, "mapping/labelidx2productcategory.csv", names)
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
