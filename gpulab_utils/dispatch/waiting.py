"""How should threads that are done wait? Asleep, or spinning, beside a busy core.

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
from gpulab_utils.timing import Ratio, _aa

ROUNDS, ROUND_S, SIZE = 10, 0.05, 2**17  # of a child beside a busy core
HOG = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"


def spinning() -> tuple[Ratio, dict[str, float]]:
    """What spinning threads cost: an addition on all cores beside one busy process.

    Returns (ACTIVE : PASSIVE, seconds of one addition on one thread, on all with PASSIVE
    and on all with ACTIVE). Two children differ in `OMP_WAIT_POLICY` alone and are measured
    one after the other. Under GPULAB_TINY nothing is started, and nothing can be judged.
    """
    if device.here().tiny:
        return Ratio(1.0, aa=math.inf), {}
    children = [_child(policy) for policy in ("PASSIVE", "ACTIVE")]
    _ = [child.stdout.readline() for child in children]  # torch is loaded
    children.append(subprocess.Popen([sys.executable, "-S", "-c", HOG]))
    try:
        told = [json.loads(c.communicate("go\n", timeout=60)[0]) for c in children[:2]]
    finally:
        for child in children:
            child.kill()
            child.wait()
    (one, passive), (_, active) = told
    took = {"one thread": one, "all, PASSIVE": passive, "all, ACTIVE": active}
    took = {how: median(rounds) for how, rounds in took.items()}
    return Ratio(median(active) / median(passive), max(_aa(passive), _aa(active))), took


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

    x = torch.ones(SIZE)
    print("ready", flush=True)
    sys.stdin.readline()
    told = []
    for threads in (1, cores()):
        torch.set_num_threads(threads)
        told.append([_round(x) for _ in range(ROUNDS)])
    print(json.dumps(told))


def _round(x) -> float:
    start, done = time.perf_counter(), 0
    while (took_s := time.perf_counter() - start) < ROUND_S:
        x.add_(1)
        done += 1
    return took_s / done
