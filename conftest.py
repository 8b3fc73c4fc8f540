"""Settings that every pytest run shares, bare `pytest --nbval` among them."""

import os
from pathlib import Path

import pytest

# Kernels and other children of a run: quiet, offline, and never spinning.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

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


@pytest.fixture(name="missing")
def missing_fixture():
    """`missing("browser", why)`: a visible skip, or a failure where it is required."""
    return missing
