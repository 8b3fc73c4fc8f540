"""What would a data sheet of this machine say? Clock, width, and what they multiply to.

clock_hz        cycles a second of one busy core
flop_per_cycle  fp32 operations of one core in a cycle
flop_per_s      their product with a number of cores

An x86 core with two units for fused multiply-adds does 2 (units) x 2 (multiply, add) x
lanes a cycle: 16 with AVX-512, 8 with AVX2. Zen 4 sends 512 bits through units of 256.
Source: A. Yee, "Zen5's AVX512 Teardown", numberworld.org, 2024.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median

from gpulab_utils import device
from gpulab_utils.probes import seconds
from gpulab_utils.timing import Ratio, compare

ROUNDS, CYCLES = 20_000, 6  # three shifts and three exclusive ors, each waits for the last


@cache
def clock_hz() -> float:
    """Cycles a second of this core: a chain of one-cycle operations, timed.

    >>> 1e8 < clock_hz() < 1e10
    True
    """
    chain = _chain()
    return CYCLES * ROUNDS / seconds(lambda: chain(88_172_645_463_325_252, ROUNDS))


def flop_per_cycle(cpuinfo: str | None = None) -> int | None:
    """fp32 operations a core can do in a cycle; None for a processor that is not x86.

    >>> flop_per_cycle("cpu family : 25\\nflags : fma avx2 avx512f")  # Zen 4
    32
    >>> flop_per_cycle("cpu family : 6\\nflags : fma avx2 avx512f")
    64
    """
    path = Path("/proc/cpuinfo")
    if cpuinfo is None:
        cpuinfo = path.read_text() if path.exists() else ""
    told = dict(
        [part.strip() for part in line.split(":", 1)]
        for line in cpuinfo.splitlines()
        if ":" in line
    )
    flags = told.get("flags", "").split()
    if "fma" not in flags:
        return None
    wide = "avx512f" in flags and told.get("cpu family") != "25"
    return 2 * 2 * (16 if wide else 8)


def flop_per_s(cores: int = 1) -> float | None:
    """fp32 operations a second that `cores` of this CPU promise; None: width unknown.

    >>> flop_per_s() is None or flop_per_s() > 1e9
    True
    """
    if cores < 1:
        raise ValueError(f"cores must be positive, got {cores}")
    width = flop_per_cycle()
    return width and cores * width * clock_hz()


@cache
def _chain() -> Callable:
    try:
        import numba
    except ImportError as error:
        raise ImportError(
            f"the clock needs numba ({error}): pip install numba, or run `make`, "
            "whose lock has it"
        ) from error

    @numba.njit(nogil=True)
    def chain(x, rounds):  # Marsaglia's xorshift: no step can start before the last ended
        for _ in range(rounds):
            x ^= x << 13
            x ^= x >> 7
            x ^= x << 17
        return x

    return chain


def second_core(job: Callable, *, budget_s: float = 1.0) -> Ratio:
    """How many times as long `job()` keeps the calling thread busy alone as with another.

    A job that only one thread works on comes to 1. Where torch has no second thread to give
    (`splits`), or both were busy a quarter longer than one alone, so that they waited for
    each other, `aa` is infinite: the ratio is not judged. Half a GPU cannot be switched
    off: there twice the work stands for one thread.

    >>> second_core(lambda: sum(range(10_000)), budget_s=0.1).lies_in(1.25) is not True
    True
    """
    import torch

    if device.here().is_gpu:
        return compare(lambda: (job(), job()), job, budget_s=budget_s)
    single, both = [], []

    def alone():
        torch.set_num_threads(1)
        mine = time.thread_time()
        job()
        single.append(time.thread_time() - mine)

    def shared():
        torch.set_num_threads(2)
        ours = time.process_time()
        job()
        both.append(time.process_time() - ours)

    ratio = compare(alone, shared, budget_s=budget_s)
    waited = median(both) > 1.25 * median(single)
    return replace(ratio, aa=math.inf) if waited or not splits() else ratio


def splits() -> bool:
    """Whether a second torch thread takes a third or more of a sine, which is cut in two.

    Not where OpenMP was told to keep to one thread, or finds that it may use no more.

    >>> splits() in (True, False)
    True
    """
    import torch
    from torch.utils.benchmark import set_torch_threads

    values = torch.ones(2**20)  # [values] float32
    with set_torch_threads(2):
        values.sin()  # the thread is made
        mine, ours = time.thread_time(), time.process_time()
        _ = [values.sin() for _ in range(8)]
        return time.thread_time() - mine < 2 / 3 * (time.process_time() - ours)
