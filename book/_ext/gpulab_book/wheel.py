"""The package as a wheel beside the pages, for a reader who has only the HTML."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gpulab_book.fresh import fingerprint

SOURCES = ("gpulab_utils", "results", "pyproject.toml", "setup.py", "README.md", "LICENSE")
BUILD = "import sys; from setuptools.build_meta import build_wheel as b; b(sys.argv[1])"


def name() -> str:
    """The file name of the wheel."""
    import gpulab_utils

    return f"gpulab_utils-{gpulab_utils.__version__}-py3-none-any.whl"


def build(root: Path, target: Path) -> Path:
    """Make the wheel from a copy: an old `build/` would leave old modules in it."""
    with tempfile.TemporaryDirectory() as copied:
        for path in map(root.joinpath, SOURCES):
            if path.is_dir():
                skip = shutil.ignore_patterns("__pycache__")
                shutil.copytree(path, Path(copied, path.name), ignore=skip)
            elif path.exists():
                shutil.copy(path, copied)
        done = subprocess.run(
            [sys.executable, "-c", BUILD, str(target)],
            cwd=copied,
            env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise RuntimeError(f"no wheel in {target}: {done.stderr[-2000:]}")
    return target / name()


def ship(app, exception) -> None:
    if exception or app.builder.name != "html":
        return
    stamp = Path(app.doctreedir) / "wheel.sha256"
    now = fingerprint(Path(app.srcdir), SOURCES)
    target = Path(app.outdir)
    if not stamp.exists() or stamp.read_text() != now or not (target / name()).exists():
        build(Path(app.srcdir), target)
        stamp.write_text(now)


def setup(app) -> None:
    app.connect("build-finished", ship)
