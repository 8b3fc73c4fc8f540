"""Run one lab, tiny, and plant its faults: `python tests/run_faults.py 01_model_size`.

The lab runs once. Before a cell that a fault edits the process forks; the fork runs the
edited cell and the rest, and the named check must raise `AssertionError`. A crash, a
time-out or another statement counts as not caught. One JSON line per fault, then one for
the lab.
"""

import ast
import io
import json
import os
import signal
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

SET = {"GPULAB_TINY": "1", "GPULAB_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}
SET |= {"MPLBACKEND": "agg", "CI": "true", "HF_HUB_OFFLINE": "1"}
os.environ.update(SET)  # before torch: a fork after a two-thread operation hangs

from gpulab_utils.timing import Ratio  # noqa: E402

from lab_files import ROOT, code_cells  # noqa: E402

LIMIT_S = 120


def failed_statement(cells: list[str], namespace: dict) -> str:
    """The statement whose assertion failed, or what happened instead."""
    for cell in cells:
        try:
            exec(compile(cell, "cell", "exec"), namespace)
        except AssertionError as error:
            line = traceback.extract_tb(error.__traceback__)[1].lineno
            nodes = [n for n in ast.walk(ast.parse(cell)) if isinstance(n, ast.stmt)]
            inside = [n for n in nodes if n.lineno <= line <= n.end_lineno]
            return ast.get_source_segment(cell, max(inside, key=lambda n: n.lineno))
        except BaseException as error:
            return f"no assertion but {error!r}"
    return "nothing failed"


def flat(source: str) -> str:
    """Without white space, so that a statement matches however it is wrapped."""
    return "".join(source.split())


def in_fork(cells: list[str], namespace: dict, want: str) -> str:
    """Run `cells` in a fork: "" where they end in `want`, else what was seen."""
    read, write = os.pipe()
    if pid := os.fork():
        os.close(write)
        seen = os.fdopen(read).read()
        _, status = os.waitpid(pid, 0)
        return f"killed by signal {status}" if status else seen
    os.close(read)
    signal.alarm(LIMIT_S)  # kills the fork: not caught
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        seen = failed_statement(cells, namespace)
    os.write(write, b"" if flat(want) in flat(seen) else seen.encode()[:2000])
    os._exit(0)


def run(slug: str, faults: list[tuple[str, str, str]]) -> None:
    """Print a JSON line for each fault and a last one for the lab itself."""
    cells = code_cells((ROOT / "labs" / f"{slug}.py").read_text(encoding="utf-8"))
    places = {
        i: [k for k, c in enumerate(cells) if f[0] in c] for i, f in enumerate(faults)
    }
    namespace = {"__name__": "__main__", "Ratio": Ratio}
    for k, cell in enumerate(cells):
        for i in (i for i, at in places.items() if at[:1] == [k]):
            old, new, want = faults[i]
            if len(places[i]) > 1 or cell.count(old) > 1:
                print(json.dumps({"fault": i, "seen": f"{old!r} is there more than once"}))
                continue
            seen = in_fork([cell.replace(old, new), *cells[k + 1 :]], namespace, want)
            print(json.dumps({"fault": i, "seen": seen}), flush=True)
        with redirect_stdout(io.StringIO()):
            seen = failed_statement([cell], namespace)
        if seen != "nothing failed":
            break
    for i in (i for i, at in places.items() if not at):
        print(json.dumps({"fault": i, "seen": f"{faults[i][0]!r} is not in the lab"}))
    print(json.dumps({"lab": seen}))


if __name__ == "__main__":
    told: dict = {}
    os.chdir(ROOT / "labs")
    exec((Path(__file__).parent / "faults" / f"{sys.argv[1]}.py").read_text(), told)
    run(sys.argv[1], told["FAULTS"])
