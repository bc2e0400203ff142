"""Run the notebooks of docs/notebooks and keep what their cells print.

    python docs/run_notebooks.py            # all; or the paths of some

Cells run one after the other in this process, in a temporary folder with a cache of its own, and all of their output is
what they print: no kernel is needed, and no path of a machine gets into a notebook.
"""

import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOKS = sorted((Path(__file__).parent / "notebooks").glob("*.ipynb"))


def executed(path: Path) -> dict[str, Any]:
    """A notebook with the output of its cells, run in the current folder."""
    book = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "notebook"}
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), names)
        text = printed.getvalue().splitlines(keepends=True)
        cell["execution_count"] = number
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": text}] if text else []
    return book


def main(paths: list[Path]) -> None:
    """Run notebooks and write them back with their outputs."""
    home = Path.cwd()
    for path in paths:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["LABELDECONV_CACHE"] = f"{folder}/cache"
            os.chdir(folder)
            book = executed(path)
            os.chdir(home)
        path.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{path.name}: {len(book['cells'])} cells")


if __name__ == "__main__":
    main([Path(name).absolute() for name in sys.argv[1:]] or NOTEBOOKS)
