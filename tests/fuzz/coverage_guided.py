"""Coverage-guided fuzzing by atheris, which mutates bytes towards code that no input has reached yet.

    python -m tests.fuzz.coverage_guided conllu --seconds 60      # or another of TARGETS; inputs that fail are kept
    make fuzz COVERAGE=60                                         # all of them, after Hypothesis

An input passes if it is refused in words, or gives a graph that passes its checks, settings, or a run that can be read.
Only modules that read are instrumented: numba cannot compile instrumented kernels. Needs `pip install atheris` (Linux,
no extra of the package).
"""

import argparse
import atexit
import json
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

import atheris

with atheris.instrument_imports(
    include=["labeldeconv.data", "labeldeconv.graph", "labeldeconv.settings", "labeldeconv.runs.result"]
):
    from labeldeconv.data.origin import Files
    from labeldeconv.data.sets.conllu import load_treebank, treebank_files
    from labeldeconv.data.sets.debian import debian_files, load_debian
    from labeldeconv.data.sets.fasta import read_fasta
    from labeldeconv.data.sets.ogb.layout import ARXIV
    from labeldeconv.data.sets.ogb.raw_graph import load_ogb, ogb_files
    from labeldeconv.data.sets.pyg_files import load_pyg
    from labeldeconv.data.tables.folder import load_tables
    from labeldeconv.graph.attributed import AttributedGraph
    from labeldeconv.settings.reading import load_config, parse_set

from labeldeconv.analysis.cost import cost
from labeldeconv.analysis.weights import gamma_curves
from labeldeconv.errors import LabelDeconvError
from labeldeconv.runs.directory import RunDirectory
from tests.data.table_writing import write
from tests.fuzz.test_fuzz_data import OGB, PICKLED, TORCH, saved
from tests.report.run_writing import ring, write_run

ROW = b"1\tdo\t_\t_\t_\t_\t2\taux\t_\t_\n2\tgo\t_\t_\t_\t_\t0\troot\t_\t_\n\n"
SEEDS = {
    "conllu": [ROW + ROW.replace(b"aux", b"obj"), b"# text = a\n1-2\tx" + b"\t_" * 8 + b"\n" + ROW],
    "tables": [b"id,text,label,split\n10,a,x,train\n11,b,y,train\n12,c,x,val\n13,d,y,test\n14,e,x,test\n15,f,y,val\n"],
    "toml": [b'name = "x"\nlabel = "label"\nfeatures = ["x"]\n', b'attributes = "record"\njoin = ", "\n'],
    "fasta": [b">a\nACDEFG\n>b x\nacj*\n", b">a\r\nAC\r\nDE\r\n"],
    "packages": [
        b"Package: a\nSection: x/net\nDepends: b, c | a (>= 1)\nTag: x::y, z\nDescription: d\n more\n\nPackage: b\n",
    ],
    "ogb": [bytes([k]) + OGB[name] for k, name in enumerate(sorted(OGB))],
    "pickled": [b"\x00" + PICKLED, b"\x01" + TORCH.getvalue()],
    "settings": [b"train.lr=1e-3\ngnn.name='gcn'\nlabels.gamma='auto'\n", b"encoder.max_tokens=12\ntrain.epochs=x\n"],
}


def conllu(folder: Path, data: bytes) -> None:
    """Bytes as a treebank."""
    (folder / "a.conllu").write_bytes(data)
    load_treebank(treebank_files(folder)).graph.check()


def tables(folder: Path, data: bytes) -> None:
    """Bytes as the table of nodes."""
    write(folder)
    (folder / "nodes.csv").write_bytes(data)
    load_tables(folder).graph.check()


def toml(folder: Path, data: bytes) -> None:
    """Bytes as graph.toml."""
    write(folder)
    (folder / "graph.toml").write_bytes(data)
    load_tables(folder).graph.check()


def saved_graph(folder: Path, data: bytes) -> None:
    """Bytes as one file of a saved graph, which the first byte chooses: its card or an array."""
    files = sorted(path for path in saved(folder).iterdir())
    files[data[0] % len(files) if data else 0].write_bytes(data[1:])
    graph = AttributedGraph.load(folder)
    list(graph.texts), [graph.node_id(i) for i in range(graph.num_nodes)]


def fasta(folder: Path, data: bytes) -> None:
    """Bytes as sequences."""
    (folder / "x.fa").write_bytes(data)
    assert all(name and sequence.isascii() for name, sequence in read_fasta(folder / "x.fa").by_name.items())


def packages(folder: Path, data: bytes) -> None:
    """Bytes as Debian's index; its tags or its sections are the labels, as the first byte says."""
    (folder / "Packages").write_bytes(data[1:])
    load_debian(debian_files(folder), data[:1] > b"M").graph.check()


def ogb(folder: Path, data: bytes) -> None:
    """Bytes as one of OGB's raw files, which the first byte chooses."""
    chosen = sorted(OGB)[data[0] % len(OGB)] if data else ""
    for name, content in OGB.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data[1:] if name == chosen else content)
    load_ogb(ARXIV, ogb_files(ARXIV, folder)).graph.check()


def pickled(folder: Path, data: bytes) -> None:
    """Bytes as a pickle of PyG's data, or as torch's archive of one, as the first byte says."""
    path = folder / ("cora.pt" if data[:1] > b"\x00" else "cora.pkl")
    path.write_bytes(data[1:])
    load_pyg(Files(folder, {"graph": path})).graph.check()


def settings(folder: Path, data: bytes) -> None:
    """Lines as `--set` takes them."""
    lines = data.decode(errors="replace").splitlines()
    load_config(None, dict(parse_set(line) for line in lines))


def run_directory(folder: Path, data: bytes) -> None:
    """Bytes as one file of a run, which the first byte chooses: its result, a log, its settings."""
    shutil.copytree(written_run(), folder / "run")
    run, name = folder / "run", RUN[data[0] % len(RUN)] if data else RUN[0]
    (run / name).write_bytes(data[1:])
    if name != "result.json":  # whose list of files knows sizes
        held = json.loads((run / "result.json").read_text())
        held["files"] |= {name: [len(data[1:]), ""]}
        (run / "result.json").write_text(json.dumps(held))
    for read in (cost, gamma_curves, lambda path: RunDirectory.open(path).config()):
        try:
            read(run)
        except LabelDeconvError:
            continue


RUN = ("result.json", "steps.jsonl", "config.toml")
TARGETS = {
    "conllu": conllu, "tables": tables, "toml": toml, "saved": saved_graph, "fasta": fasta, "packages": packages,
    "ogb": ogb, "pickled": pickled, "settings": settings, "run": run_directory,
}  # fmt: skip


@cache
def written_run() -> Path:
    """A sound run, once."""
    folder = Path(tempfile.mkdtemp(prefix="labeldeconv-run-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_run(folder / "run", ring(20))
    return folder / "run"


def seeds(name: str, folder: Path) -> None:
    """Write what the mutations start from."""
    with tempfile.TemporaryDirectory() as place:
        if name == "saved":
            files = sorted(path for path in saved(place).iterdir())
        else:
            files = [written_run() / file for file in RUN] if name == "run" else []
        held = [bytes([k]) + path.read_bytes() for k, path in enumerate(files)] or SEEDS[name]
    for k, content in enumerate(held):
        (folder / str(k)).write_bytes(content)


def main() -> None:
    """Fuzz one target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60)
    args = parser.parse_args()
    target, counts = TARGETS[args.target], {"cases": 0, "refused": 0}

    def one(data: bytes) -> None:
        counts["cases"] += 1
        try:
            with tempfile.TemporaryDirectory(prefix="labeldeconv-fuzz-") as folder:
                target(Path(folder), data)
        except LabelDeconvError:
            counts["refused"] += 1

    with tempfile.TemporaryDirectory(prefix="labeldeconv-corpus-") as corpus:
        seeds(args.target, Path(corpus))
        kept = Path(".hypothesis") / f"atheris-{args.target}-"
        kept.parent.mkdir(exist_ok=True)
        options = [
            f"-max_total_time={args.seconds}",
            f"-artifact_prefix={kept}",
            "-rss_limit_mb=4096",
            "-max_len=16384",
        ]
        options += ["-keep_seed=1", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *options, corpus], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
