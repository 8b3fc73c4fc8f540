"""Recordings: written at the end of a lab that asked for it, and only then."""

import json
import subprocess
import sys
from pathlib import Path

from gpulab_utils import results

import pytest
from lab_files import ROOT

LAB = """
from gpulab_utils import claims, results
results.record("99_test", [{"n": 1}])
claims.check("A-0.1", True, {"n": 1})
results.record("99_test", [{"n": 2}])
"""


def run(code: str, folder: Path, **env: str) -> subprocess.CompletedProcess:
    import os

    code = f"from gpulab_utils import results\nresults.folder = lambda: {folder!r}\n" + code
    code = f"from pathlib import PosixPath, WindowsPath\n{code}"
    env = os.environ | {"GPULAB_RECORD": "1"} | env
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)


def test_a_recording_holds_where_rows_and_checks(tmp_path):
    done = run(LAB, tmp_path)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*/99_test.json")
    told = json.loads(path.read_text())
    assert [row["n"] for row in told["rows"]] == [1, 2]
    assert [c["state"] for c in told["checks"]] == ["stands"]
    needed = {"device", "driver", "torch", "commit", "date", "wall_s", "peak_rss_bytes"}
    assert needed | {"peak_vram_bytes"} <= told["where"].keys()


@pytest.mark.parametrize(
    ("code", "env"),
    [
        (LAB, {"GPULAB_RECORD": "0"}),
        (LAB + "raise SystemError\n", {}),
        (LAB + 'claims.check("A-0.1", False, {})\n', {}),
    ],
    ids=["not asked", "crashed", "claim failed"],
)
def test_nothing_is_written(code, env, tmp_path):
    run(code, tmp_path, **env)
    assert not list(tmp_path.iterdir())


def test_the_stand_in_is_refused(tmp_path):
    done = run(LAB, tmp_path, GPULAB_DEVICE="standin")
    assert "nothing to record there" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_missing_recording_says_how_to_make_one():
    with pytest.raises(FileNotFoundError, match="make record NAME=98_none"):
        results.load("98_none")


def test_a_figure_in_ci_shows_recordings_alone(monkeypatch):
    monkeypatch.setenv("CI", "true")
    runs = results.shown("01_model_size", [{"n": 1}])
    assert runs
    assert not any("this run" in r.label for r in runs)


def test_a_person_sees_their_own_run_too(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("PYTEST_VERSION", raising=False)
    assert "this run" in results.shown("01_model_size", [{"n": 1}])[-1].label


def test_recordings_in_the_checkout_are_complete():
    for path in results.folder().glob("*/*.json"):
        told = json.loads(path.read_text())
        assert told["where"]["slug"] == path.parent.name
        assert told["where"]["commit"], path
        assert told["rows"], path
        assert "stand-in" not in told["where"]["device"]
