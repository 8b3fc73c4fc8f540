"""Can `torch.compile` build its kernels? It needs a C++ compiler and Python's headers."""

import os
import subprocess
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path

_SOURCE = "#include <Python.h>\n#include <cmath>\n#include <vector>\n"
_OPENMP = "#include <omp.h>\n"


def has_compiler() -> bool:
    """Whether a small extension compiles with the compiler that torch would take.

    >>> has_compiler() in (True, False)
    True
    """
    return compiler()[0] is not None


@cache
def compiler() -> tuple[str | None, str]:
    """(name and version, "") or (None, why not); `CXX` overrides, as it does for torch."""
    usual = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    command = os.environ.get("CXX") or usual
    try:
        if sys.platform == "win32":  # prints its version and asks for a file
            said = subprocess.run([command], capture_output=True, text=True, timeout=60)
            return f"{command} {said.stderr.splitlines()[0]}".strip(), ""
        wrong = _compile(command)
        return (None, wrong) if wrong else (f"{command} {_version(command)}", "")
    except FileNotFoundError:
        return None, f"{command} is not installed"
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        return None, f"{command}: {error}"


def _compile(command: str) -> str:
    """Build a shared library; the compiler's first error, or nothing."""
    linux = sys.platform == "linux"
    flags = ["-shared", "-fPIC", "-fopenmp"] if linux else ["-c"]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.cpp"
        source.write_text(_SOURCE + (_OPENMP if linux else ""))
        include = f"-I{sysconfig.get_path('include')}"
        built = subprocess.run(
            [command, *flags, include, str(source), "-o", f"{source}.out"],
            capture_output=True,
            text=True,
            timeout=60,
        )
    if built.returncode == 0:
        return ""
    lines = [x for x in built.stderr.splitlines() if "error" in x] or ["it fails"]
    return f"{command}: {lines[0].split('error:')[-1].strip()}"


def _version(command: str) -> str:
    asked = [command, "-dumpfullversion", "-dumpversion"]
    return subprocess.run(asked, capture_output=True, text=True, timeout=60).stdout.strip()
