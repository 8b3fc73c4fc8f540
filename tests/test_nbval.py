"""What keeps the stored outputs true: nbval compares them, and finds the labs alone."""

import os
import subprocess
import sys

import nbformat
import pytest
from lab_files import LABS, ROOT, ignored
from side_by_side import chosen, started

PYTEST = [sys.executable, "-m", "pytest", "--nbval"]


def run(*args: str, **env: str) -> subprocess.CompletedProcess:
    """A bare pytest run in the root, without the variables that CI sets."""
    clean = {k: v for k, v in os.environ.items() if k not in ("CI", "PYTEST_VERSION")}
    return subprocess.run(
        [*PYTEST, *args], cwd=ROOT, env=clean | env, capture_output=True, text=True
    )


def test_a_bare_run_collects_the_labs_alone():
    out = run("--collect-only", "-q").stdout
    files = {line.split("::")[0] for line in out.splitlines() if "::" in line}
    assert files == {f"labs/{lab.stem}.ipynb" for lab in LABS}


def test_a_flipped_output_fails(tmp_path):
    notebook = nbformat.read(LABS[0].with_suffix(".ipynb"), as_version=4)
    compared = [c for c in notebook.cells if c.get("outputs") and not ignored(c)]
    texts = [o for c in compared for o in c.outputs if o.output_type == "stream"]
    texts[0].text = texts[0].text.replace("0", "1", 1).replace("3", "4", 1)
    path = tmp_path / "flipped.ipynb"
    nbformat.write(notebook, path)
    done = run(
        str(path), f"--rootdir={tmp_path}", "-p", "no:cacheprovider", GPULAB_TINY="1"
    )
    assert done.returncode == 1, done.stdout[-2000:]
    assert "1 failed" in done.stdout, done.stdout[-2000:]


def script(lab) -> subprocess.CompletedProcess:
    env = os.environ | {"GPULAB_TINY": "1", "MPLBACKEND": "agg", "CI": "true"}
    command = [sys.executable, lab.name]
    return subprocess.run(command, cwd=lab.parent, env=env, capture_output=True, text=True)


@pytest.fixture(scope="module")
def scripts(request):
    labs = chosen(request, "test_a_lab_runs_as_a_plain_script", "lab")
    with started(script, labs) as runs:
        yield runs


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.stem)
def test_a_lab_runs_as_a_plain_script(lab, scripts):
    done = scripts[lab].result()
    assert done.returncode == 0, done.stderr[-2000:]
    assert not done.stderr, "a lab writes nothing to stderr: nbval would compare it"
