"""What is written survives a kill at any moment: half a model is never taken for one."""

import os
import random
import subprocess
import sys
import time

from gpulab_utils import load

import pytest

pytestmark = pytest.mark.long

LOAD = (
    "from gpulab_utils import load; m, _ = load.language_model(); print(m.num_parameters())"
)


def start(cache) -> subprocess.Popen:
    env = os.environ | {"GPULAB_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", LOAD], env=env, stdout=subprocess.PIPE, text=True
    )


def test_a_killed_conversion_leaves_no_model(tmp_path):
    began = time.monotonic()
    assert start(tmp_path / "whole").communicate()[0].strip() == "134515008"
    whole_s = time.monotonic() - began
    draw = random.Random(int(time.time()))  # another moment each time
    for kill_s in [draw.uniform(0.2, 1.0) * whole_s for _ in range(3)]:
        child = start(tmp_path / "killed")
        time.sleep(kill_s)
        child.kill()
        child.wait()
        for kept in (tmp_path / "killed").glob("smollm2-135m-????????????????"):
            complete = tmp_path / "whole" / kept.name / "model.safetensors"
            assert (kept / complete.name).stat().st_size == complete.stat().st_size, kill_s
    assert start(tmp_path / "killed").communicate()[0].strip() == "134515008"
    assert load.smollm2_file().exists()
