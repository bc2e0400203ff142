"""Coverage-guided fuzzing by atheris, which mutates bytes towards code that no input has reached yet.

    python -m tests.fuzz.coverage_guided conllu --seconds 60      # or tables, toml, saved; inputs that fail are kept
    make fuzz COVERAGE=60                                         # all of them, after Hypothesis

An input passes if it is refused in words, or gives a graph that passes its checks. Only modules that read data are
instrumented: numba cannot compile instrumented kernels. Needs `pip install atheris` (Linux, no extra of the package).
"""

import argparse
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["labeldeconv.data", "labeldeconv.graph"]):
    from labeldeconv.data.sets.conllu import load_treebank, treebank_files
    from labeldeconv.data.tables.folder import load_tables
    from labeldeconv.graph.attributed import AttributedGraph

from labeldeconv.errors import LabelDeconvError
from tests.data.table_writing import write
from tests.fuzz.test_fuzz_data import saved

ROW = b"1\tdo\t_\t_\t_\t_\t2\taux\t_\t_\n2\tgo\t_\t_\t_\t_\t0\troot\t_\t_\n\n"
SEEDS = {
    "conllu": [ROW + ROW.replace(b"aux", b"obj"), b"# text = a\n1-2\tx" + b"\t_" * 8 + b"\n" + ROW],
    "tables": [b"id,text,label,split\n10,a,x,train\n11,b,y,train\n12,c,x,val\n13,d,y,test\n14,e,x,test\n15,f,y,val\n"],
    "toml": [b'name = "x"\nlabel = "label"\nfeatures = ["x"]\n', b'attributes = "record"\njoin = ", "\n'],
    "saved": [],
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


TARGETS = {"conllu": conllu, "tables": tables, "toml": toml, "saved": saved_graph}


def seeds(name: str, folder: Path) -> None:
    """Write what the mutations start from."""
    held = list(SEEDS[name])
    if name == "saved":
        with tempfile.TemporaryDirectory() as place:
            files = sorted(path for path in saved(place).iterdir())
            held = [bytes([k]) + path.read_bytes() for k, path in enumerate(files)]
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
        options = [f"-max_total_time={args.seconds}", f"-artifact_prefix={kept}", "-rss_limit_mb=4096", "-max_len=4096"]
        options += ["-keep_seed=1", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *options, corpus], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
