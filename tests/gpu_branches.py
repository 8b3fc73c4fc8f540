"""Which lines stand behind a GPU branch, and did the stand-in execute them?

    python tests/gpu_branches.py          runs every lab, the examples and the doctor, tiny
    python tests/gpu_branches.py 02_bottlenecks    that lab alone, besides the package

A branch is GPU when its condition reads `is_gpu`: the arm itself, what follows a
`if not here.is_gpu: return`, and the functions of the same module that such lines name. A
line that called a stub counts as not executed, and the stub's reason is shown.
"""

import ast
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from gpulab_utils.standin.stubs import STUBS

import coverage

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "gpulab_utils"
LABS = sorted((ROOT / "labs").glob("[0-9][0-9]_*.py"))
LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
# A fork after an operation on two threads hangs, and times are nobody's business here.
QUIET = {
    **{"GPULAB_DEVICE": "standin", "GPULAB_TINY": "1", "OMP_NUM_THREADS": "1", "CI": "1"},
    **{"HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg"},
}
CARDS = ("8.6", "7.5")  # with bf16 and without: their branches differ


@dataclass
class Branches:
    """Lines of one file that stand behind a GPU branch, and what became of them."""

    path: Path
    lines: set[int]
    executed: set[int] = field(default_factory=set)
    stubbed: dict[int, str] = field(default_factory=dict)  # line: name of the stub

    @property
    def missing(self) -> list[int]:
        return sorted(self.lines - self.executed - self.stubbed.keys())


def gpu_lines(source: str) -> set[int]:
    """First lines of the statements behind a GPU branch.

    >>> sorted(gpu_lines("if here.is_gpu:\\n    a()\\nelse:\\n    b()"))
    [2]
    >>> sorted(gpu_lines("def f():\\n    if not here.is_gpu:\\n        return\\n    a()"))
    [4]
    """
    return _Finder(ast.parse(source)).lines()


class _Finder:
    def __init__(self, tree: ast.Module):
        self.tree, self.found, self.named = tree, set(), set()
        defs = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
        self.functions = {f.name: f for f in defs}
        self.aliases = {
            target.id
            for n in ast.walk(tree)
            if isinstance(n, ast.Assign) and isinstance(n.value, ast.Attribute)
            for target in n.targets
            if n.value.attr == "is_gpu" and isinstance(target, ast.Name)
        }

    def lines(self) -> set[int]:
        self.block(self.tree.body, False)
        done = set()
        while todo := (self.named & self.functions.keys()) - done:
            for name in todo:
                self.block(self.functions[name].body, True)
            done |= todo
        return self.found

    def block(self, statements: list, behind: bool) -> None:
        for statement in statements:
            is_text = isinstance(statement, ast.Expr) and isinstance(
                statement.value, ast.Constant
            )
            if behind and not is_text:
                self.found.add(statement.lineno)
                self.named |= _names(statement, own_only=True)
            self.named |= self.chosen(statement)
            if isinstance(statement, ast.If) and (arm := self.side(statement.test)):
                self.block(statement.body, arm == "gpu")
                self.block(statement.orelse, arm == "cpu")
                if arm == "cpu" and isinstance(statement.body[-1], LEAVES):
                    behind = True
                elif arm == "gpu" and isinstance(statement.body[-1], LEAVES):
                    return  # what follows is for a CPU
            else:
                for inner in _blocks(statement):
                    self.block(inner, behind)

    def side(self, test: ast.expr) -> str | None:
        """Whose arm the body of a condition is: "gpu", "cpu" or nobody's."""
        if not _reads_is_gpu(test, self.aliases):
            return None
        parts = test.values if isinstance(test, ast.BoolOp) else [test]
        part = next(p for p in parts if _reads_is_gpu(p, self.aliases))
        negated = isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not)
        return "cpu" if negated else "gpu"

    def chosen(self, statement: ast.stmt) -> set[str]:
        """Names in the GPU arm of a conditional expression of this statement itself."""
        names = set()
        for node in _own_nodes(statement):
            if isinstance(node, ast.IfExp) and (arm := self.side(node.test)):
                names |= _names(node.body if arm == "gpu" else node.orelse)
        return names


def _reads_is_gpu(node: ast.AST, aliases: set[str]) -> bool:
    return any(
        (isinstance(n, ast.Attribute) and n.attr == "is_gpu")
        or (isinstance(n, ast.Name) and n.id in aliases)
        for n in ast.walk(node)
    )


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The lists of statements inside a statement."""
    lists = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    return lists + [h.body for h in getattr(statement, "handlers", [])]


def _own_nodes(statement: ast.stmt):
    """The nodes of a statement without those of the statements inside."""
    todo = [statement]
    while todo:
        node = todo.pop()
        yield node
        todo += [n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.stmt)]


def _names(node: ast.AST, own_only: bool = False) -> set[str]:
    nodes = _own_nodes(node) if own_only else ast.walk(node)
    return {n.id for n in nodes if isinstance(n, ast.Name)}


def sources() -> list[Path]:
    """The files that may have GPU branches: package and labs, without the stand-in."""
    package = [p for p in sorted(PACKAGE.rglob("*.py")) if p.parent.name != "standin"]
    return [*package, *LABS]


def measure(labs: list[Path]) -> list[Branches]:
    """Run the labs and the package on the stand-in, and see which lines were executed."""
    with tempfile.TemporaryDirectory() as folder:
        stubs, data = Path(folder, "stubs"), Path(folder, "data")
        stubs.touch()
        examples = ["-m", "pytest", "-q", "tests/test_doctests.py"]
        runs = [(examples, card) for card in CARDS]
        runs += [(["-m", "gpulab_utils", "doctor"], CARDS[0])]
        runs += [(["tests/gpu_refusals.py"], CARDS[0])]
        runs += [([str(lab)], CARDS[0]) for lab in labs]
        for command, card in runs:
            _run(command, {"GPULAB_STANDIN": card, "GPULAB_STUBS": str(stubs)}, data)
        seen = coverage.CoverageData(no_disk=True)
        for part in Path(folder).glob("data.*"):
            other = coverage.CoverageData(str(part))
            other.read()
            seen.update(other)
        called = [json.loads(line) for line in stubs.read_text().splitlines()]
    return [_branches(path, seen, called) for path in sources()]


def _run(command: list[str], settings: dict[str, str], data: Path) -> None:
    told = ["-m", "coverage", "run", "-p", f"--data-file={data}"]
    run = subprocess.run(
        [sys.executable, *told, "--source=gpulab_utils,labs", *command],
        env=os.environ | QUIET | settings,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if run.returncode:
        raise RuntimeError(f"{' '.join(command)}: {(run.stdout + run.stderr)[-3000:]}")


def _branches(path: Path, seen: coverage.CoverageData, called: list) -> Branches:
    lines = gpu_lines(path.read_text(encoding="utf-8"))
    stubbed = {line: name for file, line, name in called if file == str(path)}
    executed = set(seen.lines(str(path)) or ()) - stubbed.keys()
    at = {line: stubbed[line] for line in lines & stubbed.keys()}
    return Branches(path, lines, lines & executed, at)


def report(found: list[Branches]) -> str:
    """A line a file, then each stubbed and each missing line."""
    reasons, rows, rest = {s.name: s.reason for s in STUBS}, [], []
    for b in (b for b in found if b.lines):
        name = b.path.relative_to(ROOT)
        counts = len(b.lines), len(b.executed), len(b.stubbed), len(b.missing)
        rows.append(
            "{:34}{:5} lines{:5} executed{:4} stubbed{:4} missing".format(
                str(name), *counts
            )
        )
        text = b.path.read_text(encoding="utf-8").splitlines()
        rest += [
            f"stubbed  {name}:{n}  {stub}: {reasons[stub]}" for n, stub in b.stubbed.items()
        ]
        rest += [f"missing  {name}:{n}  {text[n - 1].strip()}" for n in b.missing]
    return "\n".join([*rows, *rest])


if __name__ == "__main__":
    result = measure([lab for lab in LABS if not sys.argv[1:] or lab.stem in sys.argv[1:]])
    print(report(result))
    sys.exit(any(b.missing for b in result))
