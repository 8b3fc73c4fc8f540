"""Execute a lab and store its outputs beside its source: `make lab NAME=01_model_size`.

Compared cells are always rewritten. A tagged cell (its output differs from run to run)
keeps what is stored unless it, a cell before it, the package or a recording of the lab
changed, so that a new run of the same lab is no change to review.
"""

import hashlib
import os
import sys
from pathlib import Path

from gpulab_utils.plots import readme

import jupytext
import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
LABS = ROOT / "labs"
TAG = "nbval-ignore-output"
QUIET = {"CI": "true", "HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def inputs_hash(slug: str) -> str:
    """One hash of the package and of the recordings of lab `slug`."""
    read = (".py", ".json", ".cu")
    paths = [p for p in (ROOT / "gpulab_utils").rglob("*") if p.suffix in read]
    paths += (ROOT / "results").glob(f"*/{slug}.json")
    told = hashlib.sha256()
    for path in sorted(paths):
        told.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return told.hexdigest()[:16]


def fresh(slug: str) -> nbformat.NotebookNode:
    """The notebook of the source, without outputs; ids by position keep the diff small."""
    notebook = jupytext.read(LABS / f"{slug}.py")
    for i, cell in enumerate(notebook.cells):
        cell.id = f"cell-{i:02d}"
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata.gpulab = {"inputs": inputs_hash(slug)}
    notebook.metadata.pop("jupytext", None)
    return notebook


def keep_outputs(new: nbformat.NotebookNode, old: nbformat.NotebookNode) -> None:
    """Give unchanged tagged cells of `new` the outputs that `old` stored for them."""
    if new.metadata.gpulab != old.metadata.get("gpulab"):
        return
    for cell, before in zip(new.cells, old.cells, strict=False):
        if cell.source != before.source or cell.metadata != before.metadata:
            return
        if TAG in cell.metadata.get("tags", []) and before.outputs:
            cell.outputs = before.outputs


def undrawn(notebook: nbformat.NotebookNode) -> None:
    """Stop where a figure failed while being drawn: its cell passes all the same."""
    for cell in (c for c in notebook.cells if c.metadata.get("mystnb", {}).get("image")):
        if not any("image/png" in o.get("data", {}) for o in cell.outputs):
            told = [o.get("text", o.output_type) for o in cell.outputs]
            sys.exit(f"no figure came out of this cell:\n{cell.source}\n{told}")


def make(slug: str) -> Path:
    """Run lab `slug` from top to bottom and write its pair."""
    if not (LABS / f"{slug}.py").exists():
        known = ", ".join(p.stem for p in sorted(LABS.glob("[0-9]*.py")))
        sys.exit(f"no lab {slug!r} in labs/: NAME is one of {known}")
    path = LABS / f"{slug}.ipynb"
    notebook = fresh(slug)
    client = NotebookClient(notebook, timeout=600, record_timing=False)
    client.execute(cwd=LABS, env=os.environ | QUIET)
    undrawn(notebook)
    notebook.metadata.pop("language_info", None)
    if path.exists():
        keep_outputs(notebook, nbformat.read(path, as_version=4))
    nbformat.write(notebook, path)
    if slug == readme.LAB:
        readme.save(ROOT / "book" / "_static" / "readme.png")
    return path


if __name__ == "__main__":
    if len(sys.argv) < 2 or not all(sys.argv[1:]):
        sys.exit("which lab? make lab NAME=01_model_size")
    for name in sys.argv[1:]:
        print(make(name))
