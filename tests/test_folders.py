"""Folders go with their process, however it ends, and with no other."""

import os
import signal
import subprocess
import sys

from gpulab_utils import folders

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks, and kills")

#: Fills a folder, says where it lies, and waits.
FILLS = """
from gpulab_utils import folders
made = folders.folder("filled")
(made / "file").write_text("much")
print(made, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def none_before(monkeypatch, tmp_path):
    """This process has no folder yet, and makes them in an empty place."""
    monkeypatch.setattr(folders, "_base", [])
    monkeypatch.setattr(folders.tempfile, "tempdir", str(tmp_path))
    yield
    folders.remove()


def filled(tmp_path):
    """A process that holds a folder with a file, and the folder."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    env = os.environ | {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", FILLS], env=env, **pipes)
    return process, process.stdout.readline().strip()


def test_a_fork_removes_no_folder():
    made = folders.folder("fork")
    if (pid := os.fork()) == 0:
        folders.remove()
        os._exit(0)
    os.waitpid(pid, 0)
    assert made.is_dir()
    folders.remove()
    assert not made.exists()


def test_a_process_that_ends_takes_its_folder_along(tmp_path):
    process, where = filled(tmp_path)
    assert os.path.exists(f"{where}/file")
    process.communicate("\n", timeout=60)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_goes_at_the_next_start_and_nothing_else(tmp_path):
    (tmp_path / "gpulab-mine").mkdir()  # without a lock: nobody knows whose
    (killed, left), (alive, kept) = filled(tmp_path), filled(tmp_path)
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=60)
    assert os.path.exists(f"{left}/file"), "no exit handler ran"
    made = folders.folder("next")
    assert not os.path.exists(os.path.dirname(left))
    assert made.is_dir()
    assert os.path.exists(f"{kept}/file")
    alive.communicate("\n", timeout=60)
    assert {p.name for p in tmp_path.iterdir()} == {"gpulab-mine", made.parent.name}
