"""Settings that every pytest run shares, bare `pytest --nbval` among them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

# Kernels and other children of a run: quiet, offline, and never spinning.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

ROOT = Path(__file__).parent
REQUIRED = set(filter(None, os.environ.get("GPULAB_REQUIRE", "").split(",")))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Under --nbval only notebooks are run; the tests are another command."""
    if config.getoption("nbval", False) and collection_path.suffix == ".py":
        return True
    return None


def missing(what: str, why: str) -> None:
    """Skip where `what` is missing, but fail where GPULAB_REQUIRE names it."""
    if what in REQUIRED:
        pytest.fail(f"GPULAB_REQUIRE={what}, but {why}", pytrace=False)
    pytest.skip(why)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.accelerator.is_available():
            missing("gpu", "this machine has no GPU that torch can use")


@pytest.fixture(scope="session", name="missing")
def missing_fixture():
    """`missing("browser", why)`: a visible skip, or a failure where it is required."""
    return missing


def build_book(folder: Path) -> subprocess.CompletedProcess:
    """Run the command of `make book` in `folder`, with the tools of this Python."""
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8")
    command = re.search(r"\$\(BIN\)/(jupyter-book build .*)", recipe)[1].split()
    command[0] = str(Path(sys.executable).with_name(command[0]))
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="session")
def html() -> Path:
    """The folder of the built book; a build is quick where nothing changed."""
    done = build_book(ROOT)
    said = (done.stdout + done.stderr).splitlines()
    bad = [line for line in said if re.search(r"WARNING|ERROR|[Ee]rror", line)]
    if done.returncode:
        pytest.fail("make book fails:\n" + "\n".join(bad), pytrace=False)
    return ROOT / "_build" / "html"


@pytest.fixture(scope="session", name="build_book")
def build_book_fixture():
    return build_book
