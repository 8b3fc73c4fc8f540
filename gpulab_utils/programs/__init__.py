"""The Python programs of the three articles: as printed, run, and repaired step by step.

"a", "b" and "c" are the cases of articles A, B and C. Each run is a process of its own with
a time limit; it tells how the program ended. Times are seconds, memory is bytes.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from gpulab_utils.jpegs import start_method

FOLDER = Path(str(files("gpulab_utils"))) / "data" / "programs"
START_S = 120  # for imports, on a busy machine; the programs' own time comes on top


@dataclass(frozen=True)
class Step:
    """A program after one more edit: `why` it was made, "as printed" for none."""

    why: str
    source: str


@dataclass(frozen=True)
class End:
    """How a program ended; `error` is None where it ran to its last line."""

    error: str | None  # class of the exception, "TimeLimit", or the signal that killed it
    message: str
    line: int | None  # of the program, from 1; None where no line of it is to blame
    printed: str
    devices: tuple[str, ...]  # where the parameters of its models lie, e.g. ("cpu",)
    gpu_bytes: int  # most that torch's allocator held on a GPU; 0: none was used

    def __str__(self) -> str:
        if self.error is None:
            return "ran to the end"
        place = "" if self.line is None else f", line {self.line}"
        return f"{self.error}{place}: {self.message}"


def text(name: str) -> str:
    """The program as its article prints it. `ValueError` for any other name.

    >>> text("c").count("12"), text("a").splitlines()[5]
    (0, 'model = MyModel()')
    """
    path = FOLDER / f"article_{name}.txt"
    if not path.exists():
        raise ValueError(f"a program is 'a', 'b' or 'c', got {name!r}")
    return path.read_text(encoding="utf-8")


def steps(name: str, every: int = 1) -> list[Step]:
    """The program as printed, then after each edit of its smallest repair.

    It trains on each `every`-th of the 4000 digits, which lie in order of their label.
    Raises `ValueError` for another name, or where `every` is less than 1.

    >>> [step.why for step in steps("c")]  # doctest: +NORMALIZE_WHITESPACE
    ['as printed', 'forward has a body', 'the model has layers', 'the loader has data',
    'something to test on']
    """
    if every < 1:
        raise ValueError(f"every must be 1 or more, got {every}")
    made = [Step("as printed", text(name))]
    for edit in _repairs()[name]:
        source = made[-1].source
        if source.count(edit["old"]) != 1:
            raise ValueError(f"{edit['why']}: {edit['old']!r} does not stand there once")
        new = edit["new"].replace("@EVERY@", str(every))
        made.append(Step(edit["why"], source.replace(edit["old"], new)))
    return made


@cache
def _repairs() -> dict:
    return tomllib.loads((FOLDER / "repairs.toml").read_text(encoding="utf-8"))


def run(source: str, limit_s: float = 60) -> End:
    """Run one program in a process of its own; see `run_each`."""
    return run_each([source], limit_s)[0]


def run_each(sources: Sequence[str], limit_s: float = 60) -> list[End]:
    """How each program ends, each in a process of its own, one after the other.

    A program that takes `limit_s` or more is ended. On Linux the processes are forked from
    one that has imported torch, which takes seconds; elsewhere each imports it. Raises
    `RuntimeError` with what was said where the runner itself fails.

    >>> print(run_each(["print(1)\\nx"])[0])
    NameError, line 2: name 'x' is not defined
    """
    if limit_s <= 0:
        raise ValueError(f"limit_s must be positive, got {limit_s}")
    if not sources:
        return []
    if start_method() == "fork":
        return _batch(list(sources), limit_s)
    return [_batch([source], limit_s)[0] for source in sources]


def _batch(sources: list[str], limit_s: float) -> list[End]:
    """The ends of `sources`, from one runner; it forks once a program, where it can."""
    env = os.environ | _path()
    env["OMP_NUM_THREADS"] = "1"  # a fork after an operation on two threads hangs
    with tempfile.TemporaryDirectory() as folder:
        ask = json.dumps({"sources": sources, "limit_s": limit_s, "folder": folder})
        command = [sys.executable, "-m", "gpulab_utils.programs.child"]
        asked = {"input": ask, "text": True, "capture_output": True, "env": env}
        limit = START_S + len(sources) * limit_s
        try:
            done = subprocess.run(command, timeout=limit, cwd=folder, **asked)
        except subprocess.TimeoutExpired:
            raise RuntimeError(
                f"{len(sources)} programs were not through after {limit:.0f} s"
            ) from None
        told = [Path(folder) / f"{i}.json" for i in range(len(sources))]
        if not all(path.exists() for path in told):
            raise RuntimeError(f"the runner ended with {done.returncode}: {done.stderr}")
        ends = [json.loads(path.read_text(encoding="utf-8")) for path in told]
    return [End(**end | {"devices": tuple(end["devices"])}) for end in ends]


def launch(path: str | Path, *arguments, limit_s: float = 120):
    """Run a file in a process of its own, where this package is found; bars are shown.

    Returns `subprocess.CompletedProcess` with what it said as text. Raises
    `subprocess.TimeoutExpired` after `limit_s` seconds.
    """
    env = {k: v for k, v in os.environ.items() if k not in ("CI", "PYTEST_VERSION")}
    command = [sys.executable, str(path), *map(str, arguments)]
    told = {"capture_output": True, "text": True, "timeout": limit_s}
    return subprocess.run(command, env=env | _path(), **told)


def _path() -> dict[str, str]:
    """What a process is to know to import this package."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def executed(source: str, **names) -> dict:
    """Run `source` in this process with `names` defined and its prints dropped.

    Its globals, afterwards. What it raises passes.

    >>> executed("y = x + 1", x=1)["y"]
    2
    """
    scope = {"__name__": "program"} | names
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(source, "<program>", "exec"), scope)
    return scope


def function(name: str, called: str) -> Callable:
    """A function of a program, exactly as printed, to be called here.

    Program c has `train` and `inference`; it does not parse as a whole, they do. Raises
    `ValueError` where the program has no such function.

    >>> function("c", "inference").__name__
    'inference'
    """
    import torch

    lines = text(name).splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith(f"def {called}(")]
    if not starts:
        raise ValueError(f"program {name} has no function {called!r}")
    (start,) = starts
    ends = (i for i in range(start + 1, len(lines)) if lines[i][:1].strip())
    body = "\n".join(lines[start : next(ends, len(lines))])
    return executed(body, torch=torch)[called]
