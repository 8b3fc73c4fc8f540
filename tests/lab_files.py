"""What the tests of labs share: where they are, their cells, and what a cell names."""

import ast
from pathlib import Path

import jupytext

ROOT = Path(__file__).parent.parent
LABS = sorted((ROOT / "labs").glob("[0-9][0-9]_*.py"))
TAG = "nbval-ignore-output"


def code_cells(text: str) -> list[str]:
    """Sources of the code cells of a lab's text, in order."""
    notebook = jupytext.reads(text, fmt="py:percent")
    return [c.source for c in notebook.cells if c.cell_type == "code"]


def ignored(cell) -> bool:
    """Whether nbval leaves the outputs of `cell` alone."""
    return TAG in cell.metadata.get("tags", [])


def names(source: str) -> tuple[set, set]:
    """What a cell takes from elsewhere (".attr" for an attribute), and what it makes.

    `torch.device("meta")` names a place, not this machine: it is no use of `device`.
    """
    nodes = [n for n in ast.walk(ast.parse(source)) if not _is_torch_device(n)]
    made = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    made |= {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    taken = {n.id for n in nodes if isinstance(n, ast.Name)} - made
    return taken | {f".{n.attr}" for n in nodes if isinstance(n, ast.Attribute)}, made


def _is_torch_device(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.device"


def checks(text: str) -> list[str]:
    """The source of every assertion and every claims.check of a lab."""
    found = []
    for source in code_cells(text):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Assert) or is_claim_check(node):
                found.append(ast.get_source_segment(source, node))
    return found


def is_claim_check(node: ast.AST) -> bool:
    """Whether `node` is a call of `claims.check`."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "claims.check"
