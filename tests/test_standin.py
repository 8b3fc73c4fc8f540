"""The GPU stand-in: each promise in a process that entered it, and none where it is not."""

import json
import os
import subprocess
import sys
from pathlib import Path

from gpulab_utils import standin
from gpulab_utils.standin import private

import pytest
import standin_cases
import torch

ROOT = Path(__file__).parent.parent
# A fork after an operation on two threads hangs.
ENTERED = {"GPULAB_DEVICE": "standin", "GPULAB_TINY": "1", "OMP_NUM_THREADS": "1"}

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="cases run in forks")


@pytest.fixture(scope="module")
def outcomes():
    run = subprocess.run(
        [sys.executable, standin_cases.__file__],
        env=os.environ | ENTERED | {"HF_HUB_OFFLINE": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", standin_cases.CASES)
def test_promise(outcomes, name):
    assert outcomes[name] == "", outcomes[name]


def test_nothing_happens_unless_it_is_asked_for():
    here = torch.cuda.is_available
    assert not standin.entered()
    assert here.__module__ == "torch.cuda"
    assert not torch.overrides._get_current_function_mode_stack()


def test_every_private_name_is_there():
    """Seen in torch 2.13.0; the labs run on 2.10 and newer."""
    assert private.SEEN_IN == "2.13.0"
    for key in private.NAMES:
        assert private.get(key) is not None


def test_a_private_name_that_is_gone_says_what_to_do(monkeypatch):
    monkeypatch.setitem(private.NAMES, "modes", "torch.overrides._no_such_name")
    with pytest.raises(private.Gone, match=r"has no torch\.overrides\._no_such_name") as e:
        private.get("modes")
    assert "seen in torch 2.13.0" in str(e.value)
    assert "gpulab_utils.standin.private" in str(e.value)
