"""What `results/` and `labs/` hold, read once for every table that needs it."""

import ast
import json
import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]


def runs() -> list[tuple[str, dict]]:
    """Every recording as (lab, content), by device and lab."""
    paths = sorted((ROOT / "results").glob("*/*.json"))
    return [(p.stem, json.loads(p.read_text(encoding="utf-8"))) for p in paths]


def checks() -> list[tuple[str, dict]]:
    """Every check of every recording as (device, check)."""
    return [(run["where"]["device"], c) for _, run in runs() for c in run["checks"]]


def contents() -> list[str]:
    """Every page that `_toc.yml` names, in its order."""
    text = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    return re.findall(r"(?m)^[\s-]*(?:root|file): (\S+)", text)


def labs() -> list[str]:
    """The labs that the book shows."""
    return [p.removeprefix("labs/") for p in contents() if p.startswith("labs/")]


def compared_cells(lab: str) -> int:
    """How many cells of a lab nbval compares: they have outputs and no exception."""
    cells = json.loads((ROOT / "labs" / f"{lab}.ipynb").read_text(encoding="utf-8"))[
        "cells"
    ]
    code = [c for c in cells if c["cell_type"] == "code" and c["outputs"]]
    return sum("nbval-ignore-output" not in c["metadata"].get("tags", []) for c in code)


def faults(lab: str) -> int:
    """How many planted faults a lab has."""
    path = ROOT / "tests" / "faults" / f"{lab}.py"
    return len(runpy.run_path(str(path))["FAULTS"]) if path.exists() else 0


def asserted(lab: str) -> int:
    """How many assertions and claim checks a lab's source makes."""
    tree = ast.parse((ROOT / "labs" / f"{lab}.py").read_text(encoding="utf-8"))
    called = (n.func for n in ast.walk(tree) if isinstance(n, ast.Call))
    claims = sum(ast.unparse(f) == "claims.check" for f in called)
    return claims + sum(isinstance(n, ast.Assert) for n in ast.walk(tree))
