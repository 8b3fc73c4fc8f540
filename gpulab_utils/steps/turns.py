"""How long does each way of a step take? All take turns, a fixed number of rounds."""

import time
from collections.abc import Callable

from gpulab_utils import device
from gpulab_utils.timing import Ratio, in_turns

import torch

ROUNDS = 9  # `in_turns` wants eight; more would be a lab of its own


def times(jobs: dict[str, Callable], base: str) -> dict[str, Ratio]:
    """How many times as long each job takes as `base`, on one thread, or a whole GPU.

    In turns, so that a load that comes and goes meets all alike; tiny runs take three.

    >>> told = times({"a": lambda: sum(range(3000)), "b": lambda: sum(range(1000))}, "b")
    >>> told["b"].value
    1.0
    """
    from torch.utils.benchmark import set_torch_threads

    here, taken = device.here(), {name: [] for name in jobs}
    with set_torch_threads(1):
        for job in jobs.values():
            job()
        for _ in range(3 if here.tiny else ROUNDS):
            for name, job in jobs.items():
                taken[name].append(_seconds(job, here.is_gpu))
    return {name: in_turns(seconds, taken[base]) for name, seconds in taken.items()}


def _seconds(job: Callable, on_gpu: bool) -> float:
    clock = time.perf_counter if on_gpu else time.thread_time
    if on_gpu:
        torch.cuda.synchronize()
    start = clock()
    job()
    if on_gpu:
        torch.cuda.synchronize()
    return clock() - start
