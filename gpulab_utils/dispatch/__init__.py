"""Who waits for whom? Busy time, calls, waits for a value, and what mending a part gives.

busy share   part of the time in which something ran: NVML's figure on a GPU, on a CPU the
             calling thread's. It says nothing about how much was done.
call         one operation that the host issues: dispatch on a CPU, a launch on a GPU
"""

import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from gpulab_utils import device
from gpulab_utils.dispatch.waiting import spinning

__all__ = ["amdahl", "busy_share", "calls", "graphed", "spinning", "waits"]
SCALAR = "aten::_local_scalar_dense"  # a value is brought to the host: `.item()`, `if x:`
NO_WORK = {"detach", "_unsafe_view", "empty", "empty_strided", "empty_like"}  # beside views


def amdahl(shares: Sequence[float], gains: Sequence[float]) -> float:
    """How many times as fast the whole is when part i, `shares[i]` of it, is `gains[i]`.

    What no share covers stays as it was. Raises `ValueError` for shares above 1 together,
    or a gain that is not positive. Source: G. M. Amdahl, AFIPS 1967.

    >>> round(amdahl([0.05], [1000]), 3)
    1.053
    """
    if min(shares) < 0 or sum(shares) > 1 + 1e-9:
        raise ValueError(f"shares must lie in 0 to 1 together, got {list(shares)}")
    if min(gains) <= 0:
        raise ValueError(f"gains must be positive, got {list(gains)}")
    rest = 1 - sum(shares)
    return 1 / (rest + sum(s / g for s, g in zip(shares, gains, strict=True)))


def busy_share(fn: Callable, *, budget_s: float = 1.0) -> float | None:
    """Share of the time, 0 to 1, in which `fn()`, again and again, kept the machine busy.

    On a CPU time in the queue for a core counts: neighbours are no idleness. On a GPU it is
    what NVML says; None without nvidia-ml-py, and where tiny is too short for it.

    >>> share = busy_share(lambda: sum(range(1000)), budget_s=0.05)
    >>> share is None or 0 < share <= 1
    True
    """
    if device.here().is_gpu:
        return _nvml_share(fn, budget_s)
    from torch.utils.benchmark import set_torch_threads

    with set_torch_threads(1):  # with more this one would sleep until the others are done
        ran, start = _ran_s(), time.perf_counter()  # a turn lost in between: busy, not idle
        while (took_s := time.perf_counter() - start) < budget_s:
            fn()
        return min(1.0, (_ran_s() - ran) / took_s)


def _ran_s() -> float:
    """Seconds in which this thread ran or stood in the queue for a core."""
    told = Path("/proc/thread-self/schedstat")  # ns on a core, ns in the queue, turns
    queued = int(told.read_text().split()[1]) / 1e9 if told.exists() else 0.0
    return time.thread_time() + queued


def _nvml_share(fn: Callable, budget_s: float) -> float | None:
    import torch

    stop = time.perf_counter() + (0.02 if device.here().tiny else budget_s)
    while time.perf_counter() < stop:
        for _ in range(8):
            fn()
        torch.cuda.synchronize()
    reader = "amdsmi" if torch.version.hip else "pynvml"  # a borrowed machine may lack it
    told = torch.cuda.utilization() if find_spec(reader) else None
    return None if told is None or device.here().tiny else told / 100


def waits(fn: Callable) -> int:
    """How often `fn()` brings a value to the host, counted by the profiler.

    On a GPU each is a wait: the host stands until the queue has run empty.

    >>> import torch
    >>> waits(lambda: [torch.ones(1).item() for _ in range(3)])
    3
    """
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as seen:
        fn()
    return sum(e.count for e in seen.key_averages() if e.key == SCALAR)


def calls(fn: Callable) -> int:
    """How many operations `fn()` hands to the device, views and empty memory left out.

    >>> import torch
    >>> calls(lambda: torch.ones(2).add_(1).view(1, 2))
    2
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if not func.is_view and func.overloadpacket.__name__ not in NO_WORK:
                seen.append(func)
            return func(*args, **(kwargs or {}))

    with Count():
        fn()
    return len(seen)


def graphed(fn: Callable) -> Callable:
    """`fn` captured once as a CUDA graph: one launch replays all its calls. GPU only.

    `fn` takes nothing and writes to the same tensors every time. Source: PyTorch, "CUDA
    semantics", CUDA graphs: warm up on another stream, then capture.
    """
    import torch

    if not device.here().is_gpu:
        raise RuntimeError(f"a CUDA graph needs a GPU, this is {device.here().name}")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            fn()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fn()
    return graph.replay
