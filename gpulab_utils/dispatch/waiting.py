"""How should threads that are done wait? Asleep, or spinning?

libgomp reads `OMP_WAIT_POLICY` once, when torch loads it: hence child processes.
"""

import json
import math
import os
import subprocess
import sys
import time
from statistics import median

from gpulab_utils import device
from gpulab_utils.timing import Ratio, against_itself

ROUNDS, ROUND_S, SIZE = 10, 0.05, 2**17  # of a child whose threads share a core


def spinning() -> tuple[Ratio, dict[str, float]]:
    """What spinning threads cost: an addition on two threads that one core is left to.

    Returns (ACTIVE : PASSIVE, seconds of one addition on one thread, on two with PASSIVE
    and on two with ACTIVE). Two children differ in `OMP_WAIT_POLICY` alone and are measured
    one after the other; libgomp has counted all cores before one is left, as beside busy
    neighbours. Nothing is started, and nothing can be judged, under GPULAB_TINY, on one
    core, and where a process cannot give up cores (not Linux).
    """
    if device.here().tiny or cores() < 2 or not hasattr(os, "sched_setaffinity"):
        return Ratio(1.0, aa=math.inf), {}
    children = [_child(policy) for policy in ("PASSIVE", "ACTIVE")]
    _ = [child.stdout.readline() for child in children]  # torch is loaded
    try:
        told = [json.loads(c.communicate("go\n", timeout=60)[0]) for c in children]
    finally:
        for child in children:
            child.kill()
            child.wait()
    (one, passive), (_, active) = told
    took = {"one thread": one, "two, PASSIVE": passive, "two, ACTIVE": active}
    took = {how: median(rounds) for how, rounds in took.items()}
    spread = max(map(against_itself, (passive, active)))
    return Ratio(median(active) / median(passive), spread), took


def cores() -> int:
    """The cores that this process may use."""
    asked = getattr(os, "sched_getaffinity", None)
    return len(asked(0)) if asked else os.cpu_count() or 1


def _child(policy: str) -> subprocess.Popen:
    env = os.environ | {"OMP_WAIT_POLICY": policy, "GPULAB_DEVICE": "cpu"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [
        sys.executable,
        "-c",
        "from gpulab_utils.dispatch import waiting; waiting.work()",
    ]
    return subprocess.Popen(command, env=env, **pipes)


def work() -> None:
    """The child of `spinning`: waits for a line, then times one addition, in rounds."""
    import torch

    print("ready", flush=True)
    sys.stdin.readline()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # later threads inherit it
    torch.set_num_threads(1)
    x, told = torch.ones(SIZE), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        told.append([_round(x) for _ in range(ROUNDS)])
    print(json.dumps(told))


def _round(x) -> float:
    start, done = time.perf_counter(), 0
    while (took_s := time.perf_counter() - start) < ROUND_S:
        x.add_(1)
        done += 1
    return took_s / done
