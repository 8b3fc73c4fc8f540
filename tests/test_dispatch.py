"""Busy shares, counted calls and waits, Amdahl's law."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from gpulab_utils import dispatch
from gpulab_utils.dispatch import waiting

import pytest
import torch


@pytest.mark.parametrize(
    ("shares", "gains", "total"),
    [
        ([0.5], [2], 4 / 3),  # 1 / (0.5 + 0.25)
        ([0.2, 0.8], [4, 1], 1 / 0.85),  # 0.05 + 0.8
        ([0.05], [1e12], 1 / 0.95),
        ([1.0], [3], 3),
        ([0.3], [0.5], 1 / 1.3),  # half as fast: 0.7 + 0.6
    ],
)
def test_amdahl_by_hand(shares, gains, total):
    assert dispatch.amdahl(shares, gains) == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize(
    ("shares", "gains", "message"),
    [
        ([0.7, 0.7], [2, 2], r"shares must lie in 0 to 1 together, got \[0.7, 0.7\]"),
        ([-0.1], [2], r"shares must lie in 0 to 1 together"),
        ([0.1], [0], r"gains must be positive, got \[0\]"),
    ],
)
def test_amdahl_refuses(shares, gains, message):
    with pytest.raises(ValueError, match=message):
        dispatch.amdahl(shares, gains)


def test_busy_is_told_from_asleep(monkeypatch):
    monkeypatch.setenv("GPULAB_DEVICE", "cpu")
    busy = dispatch.busy_share(lambda: sum(range(2000)), budget_s=0.1)
    idle = dispatch.busy_share(lambda: time.sleep(0.01), budget_s=0.1)
    if Path("/proc/thread-self/schedstat").exists():  # else a neighbour takes its share
        assert busy > 0.8
    assert idle < busy


def test_a_lost_turn_is_no_idleness(monkeypatch):
    """The clocks are read one after the other, and a neighbour may run in between."""
    monkeypatch.setenv("GPULAB_DEVICE", "cpu")
    now = iter(range(0, 10_000, 10))  # every reading of the clock takes ten seconds
    monkeypatch.setattr(dispatch.time, "perf_counter", lambda: next(now))
    monkeypatch.setattr(dispatch, "_ran_s", lambda: float(next(now)))
    assert dispatch.busy_share(lambda: None, budget_s=30) == 1


def test_waits_are_counted():
    x = torch.ones(3)

    def loop():
        for _ in range(4):
            x.sum().item()
        if x[0] > 0:
            x.add_(1)

    assert dispatch.waits(loop) == 5
    assert dispatch.waits(lambda: x.sum()) == 0


def test_the_profiler_says_nothing():
    code = (
        "import gpulab_utils, torch\n"
        "with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):\n"
        "    torch.ones(1).item()"
    )
    env = {k: v for k, v in os.environ.items() if k != "KINETO_LOG_LEVEL"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert (done.returncode, done.stderr) == (0, "")


def test_calls_leave_out_views():
    x, w = torch.ones(2, 4), torch.ones(4, 4)
    assert dispatch.calls(lambda: x @ w) == 1
    assert dispatch.calls(lambda: (x @ w.T).view(8).relu()) == 2
    assert dispatch.calls(lambda: x.view(1, 2, 4) @ w) == 1  # its result is viewed as 3-D
    assert dispatch.calls(lambda: torch.empty(2).fill_(1).detach()) == 1


def test_a_graph_needs_a_gpu(monkeypatch):
    monkeypatch.setenv("GPULAB_DEVICE", "cpu")
    with pytest.raises(RuntimeError, match="a CUDA graph needs a GPU, this is "):
        dispatch.graphed(lambda: None)


def test_tiny_starts_no_processes(monkeypatch):
    monkeypatch.setenv("GPULAB_TINY", "1")
    monkeypatch.setattr(waiting, "_child", lambda policy: 1 / 0)
    ratio, took = dispatch.spinning()
    assert took == {}
    assert ratio.lies_in(3) is None


def test_active_is_over_passive(monkeypatch):
    """Children that tell fixed rounds: 1 s on one thread, then 2 s or 8 s on all."""
    monkeypatch.delenv("GPULAB_TINY", raising=False)
    monkeypatch.setenv("GPULAB_DEVICE", "cpu")

    def child(policy):
        told = [[1.0] * 10, [{"PASSIVE": 2.0, "ACTIVE": 8.0}[policy]] * 10]
        code = f"print('ready', flush=True); input(); print({json.dumps(told)!r})"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, "-S", "-c", code], **pipes)

    monkeypatch.setattr(waiting, "_child", child)
    ratio, took = dispatch.spinning()
    assert (ratio.value, ratio.aa) == (4.0, 1.0)
    assert took == {"one thread": 1.0, "two, PASSIVE": 2.0, "two, ACTIVE": 8.0}


def test_a_child_prints_its_rounds():
    code = (
        "from gpulab_utils.dispatch import waiting; waiting.ROUND_S = 0.001; waiting.work()"
    )
    env = os.environ | {"GPULAB_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input="go\n", capture_output=True, text=True, env=env)
    ready, told = done.stdout.splitlines()
    assert ready == "ready"
    assert [len(rounds) for rounds in json.loads(told)] == [waiting.ROUNDS] * 2
