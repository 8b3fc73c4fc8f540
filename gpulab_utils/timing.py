"""How long does it take? Three times, told apart by name, in seconds.

device_s  CUDA events around a call with a cold L2; None on a CPU
wall_s    host clock around a call and the wait for its end, caches warm
launch_s  host clock of the enqueue alone; None on a CPU, which has no queue

`bench` is for display. A conclusion rests on `compare`: two calls that take turns.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from timeit import timeit

from gpulab_utils import device

BAND = 1.25  # no band is tighter: a busy machine repeats itself no better
CLOCKS = {"thread": time.thread_time, "wall": time.perf_counter}


@dataclass(frozen=True)
class Timing:
    """Medians over `runs` calls, and how far the calls disagree."""

    wall_s: float
    p20_s: float  # of device_s if there is one, else of wall_s
    p80_s: float
    aa: float  # the call against itself, from 1 up
    runs: int
    device_s: float | None = None
    launch_s: float | None = None


@dataclass(frozen=True)
class Ratio:
    """How many times as long one call takes as another."""

    value: float
    aa: float  # the worse of the two against itself

    def lies_in(self, low: float, high: float = math.inf) -> bool | None:
        """Whether it is in the band; None if it is too noisy here to judge.

        Raises `ValueError` for a band tighter than 1.25 each way.

        >>> Ratio(8, aa=1.1).lies_in(5, 12), Ratio(2, aa=1.1).lies_in(5, 12)
        (True, False)
        >>> Ratio(8, aa=1.3).lies_in(5, 12) is None
        True
        """
        if high < low * BAND**2:
            raise ValueError(f"band {low} to {high} is tighter than {BAND} each way")
        if self.aa > BAND or self.aa**4 > high / low:  # twice the spread each way
            return None
        return low <= self.value <= high


def bench(fn: Callable, *, budget_s: float = 0.5, cold: bool = False) -> Timing:
    """Time `fn()` for about `budget_s`; on a CPU `cold` empties the caches before each.

    >>> t = bench(lambda: sum(range(1000)), budget_s=0.02)
    >>> 0 < t.p20_s <= t.p80_s and t.aa >= 1
    True
    """
    if budget_s <= 0:
        raise ValueError(f"budget_s must be positive, got {budget_s}")
    here = device.here()
    budget_s = 0.01 if here.tiny else budget_s
    fn()  # the first call compiles and allocates: it never counts
    if not here.is_gpu:
        walls = _cold_walls(fn, budget_s) if cold else _cpu_walls(fn, budget_s)
        return Timing(median(walls), *_spread(walls))
    pairs = _until(budget_s / 2, lambda: _launch_and_wall(fn))
    launch_s, wall_s = map(median, zip(*pairs, strict=True))
    events = _until(budget_s / 2, lambda: _event_time(fn))
    return Timing(wall_s, *_spread(events), median(events), launch_s)


def compare(
    a: Callable, b: Callable, *, budget_s: float = 1.0, clock: str = "thread"
) -> Ratio:
    """How many times as long `a()` takes as `b()`, in turns, each 0.1 ms or more.

    On a CPU one thread is charged for its own time, on a GPU events are read.
    `clock="wall"` keeps all threads and reads the host clock: for claims about threads,
    processes and I/O. Under GPULAB_TINY the runs are too few to judge.

    >>> compare(lambda: sum(range(9000)), lambda: sum(range(3000)), budget_s=0.1).value > 1
    True
    """
    from torch.utils.benchmark import set_torch_threads

    if clock not in CLOCKS:
        raise ValueError(f"clock must be one of {', '.join(CLOCKS)}, got {clock!r}")
    import torch

    here, on_host = device.here(), partial(timeit, timer=CLOCKS[clock], number=1)
    read = _event_time if here.is_gpu and clock == "thread" else on_host
    with set_torch_threads(1 if clock == "thread" else torch.get_num_threads()):
        a(), b()
        pairs = _until(0 if here.tiny else budget_s, lambda: (read(a), read(b)))
    return in_turns(*zip(*pairs, strict=True))


def in_turns(xs: Sequence[float], ys: Sequence[float]) -> Ratio:
    """How many times as long `xs` took as `ys`, which took turns: seconds, round by round.

    For times that come from elsewhere, such as other processes; `compare` takes its own.

    >>> in_turns([2.0] * 8, [1.0] * 8)
    Ratio(value=2.0, aa=1.0)
    """
    value = median(x / y for x, y in zip(xs, ys, strict=True))
    return Ratio(value, max(against_itself(xs), against_itself(ys)))


def against_itself(times: Sequence[float]) -> float:
    """How many times as long every second of these seconds is as the others, from 1 up.

    Infinite where there are fewer than 8: too few to judge.

    >>> against_itself([1.0, 2.0] * 4), against_itself([1.0] * 7)
    (2.0, inf)
    """
    if len(times) < 8:
        return math.inf
    ratio = median(times[::2]) / median(times[1::2])
    return max(ratio, 1 / ratio)


def _cpu_walls(fn: Callable, budget_s: float) -> list[float]:
    import torch  # here: planning and the book need no torch
    from torch.utils.benchmark import Timer

    threads = torch.get_num_threads()  # Timer's own default is 1
    timer = Timer("fn()", globals={"fn": fn}, num_threads=threads)
    return timer.blocked_autorange(min_run_time=budget_s).times


def _cold_walls(fn: Callable, budget_s: float) -> list[float]:
    import torch

    flush = torch.empty(2 * device.here().cache_bytes, dtype=torch.int8)

    def once() -> float:
        flush.zero_()
        return timeit(fn, number=1)

    return _until(budget_s, once)


def _launch_and_wall(fn: Callable) -> tuple[float, float]:
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    fn()
    launched = time.perf_counter()
    torch.cuda.synchronize()
    return launched - start, time.perf_counter() - start


def _event_time(fn: Callable) -> float:
    import torch

    here = device.here()
    flush = torch.empty(2 * here.cache_bytes, dtype=torch.int8, device=here.device)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    flush.zero_()  # empties the L2, and runs while the host enqueues the rest
    start.record()
    fn()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def _until(budget_s: float, sample: Callable) -> list:
    samples, stop = [], time.perf_counter() + budget_s
    while len(samples) < 3 or time.perf_counter() < stop:
        samples.append(sample())
    return samples


def _spread(times: list[float]) -> tuple:
    ranked, last = sorted(times), len(times) - 1
    return ranked[last // 5], ranked[last - last // 5], against_itself(times), len(times)
