"""A check that cannot fail is no check: each planted fault is caught by the one named."""

import json
import runpy
import subprocess
import sys

import pytest
from lab_files import LABS, ROOT
from side_by_side import chosen, started


def faults(slug: str) -> list[tuple[str, str, str]]:
    """(text of the lab, its replacement, the check that must fail) for each fault."""
    path = ROOT / "tests" / "faults" / f"{slug}.py"
    return runpy.run_path(str(path))["FAULTS"] if path.exists() else []


def outcome(slug: str) -> list[dict]:
    """What `run_faults` printed for the lab and its faults."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "run_faults.py"), slug],
        capture_output=True,
        text=True,
        timeout=900,  # beside other runs
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.fixture(scope="module")
def outcomes(request):
    """By lab what `outcome` returns; a lab is run once for all its faults."""
    slugs = chosen(request, "test_unedited_lab_passes", "slug")
    slugs += chosen(request, "test_fault_is_caught", "slug")
    with started(outcome, list(dict.fromkeys(slugs))) as runs:
        yield runs


@pytest.mark.parametrize("slug", [lab.stem for lab in LABS])
def test_unedited_lab_passes(slug, outcomes):
    assert outcomes[slug].result()[-1] == {"lab": "nothing failed"}


@pytest.mark.parametrize(
    ("slug", "i"), [(lab.stem, i) for lab in LABS for i in range(len(faults(lab.stem)))]
)
def test_fault_is_caught(slug, i, outcomes):
    told = outcomes[slug].result()
    (seen,) = [o["seen"] for o in told if o.get("fault") == i]
    old, new, want = faults(slug)[i]
    assert seen == "", f"{old!r} -> {new!r}: {want!r} was to fail, seen: {seen}"
