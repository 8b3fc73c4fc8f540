"""Which lines stand behind a GPU branch, and did the stand-in execute them?

    python tests/gpu_branches.py          runs every lab, the examples and the doctor, tiny
    python tests/gpu_branches.py 02_bottlenecks    that lab alone, besides the package

`gpu_syntax` says which lines those are. A line that called a stub counts as not executed,
and the stub's reason is shown.
"""

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from gpulab_utils.standin.stubs import STUBS

import coverage
from gpu_syntax import gpu_lines
from side_by_side import workers

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "gpulab_utils"
LABS = sorted((ROOT / "labs").glob("[0-9][0-9]_*.py"))
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


def sources() -> list[Path]:
    """The files that may have GPU branches: package and labs, without the stand-in."""
    package = [p for p in sorted(PACKAGE.rglob("*.py")) if p.parent.name != "standin"]
    return [*package, *LABS]


def measure(labs: list[Path]) -> list[Branches]:
    """Run the labs and the package on the stand-in, and see which lines were executed."""
    with tempfile.TemporaryDirectory() as folder:
        examples = ["-m", "pytest", "-q", "tests/test_doctests.py"]
        runs = [(examples, card) for card in CARDS]
        runs += [(["-m", "gpulab_utils", "doctor"], CARDS[0])]
        runs += [(["tests/gpu_refusals.py"], CARDS[0])]
        runs += [([str(lab)], CARDS[0]) for lab in labs]
        with ThreadPoolExecutor(workers()) as pool:
            stubs = list(
                pool.map(lambda i: _run(*runs[i], Path(folder), i), range(len(runs)))
            )
        seen = coverage.CoverageData(no_disk=True)
        for part in Path(folder).glob("data.*"):
            other = coverage.CoverageData(str(part))
            other.read()
            seen.update(other)
        lines = "".join(path.read_text() for path in stubs if path.exists()).splitlines()
    called = list(map(json.loads, lines))
    return [_branches(path, seen, called) for path in sources()]


def _run(command: list[str], card: str, folder: Path, i: int) -> Path:
    """Run number `i` under coverage; the file with the stubs that it called, if any."""
    told = ["-m", "coverage", "run", "-p", f"--data-file={folder / 'data'}"]
    stubs = folder / f"stubs{i}"
    run = subprocess.run(
        [sys.executable, *told, "--source=gpulab_utils,labs", *command],
        env=os.environ | QUIET | {"GPULAB_STANDIN": card, "GPULAB_STUBS": str(stubs)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    if run.returncode:
        raise RuntimeError(f"{' '.join(command)}: {(run.stdout + run.stderr)[-3000:]}")
    return stubs


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
