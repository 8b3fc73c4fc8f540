"""Which walls does this machine have? Its roofline, measured.

bytes_per_s  read by one call; a copy counts what it reads and what it writes
flop_per_s   multiplications and additions of a square matmul
call_s       one call that has nothing to do: dispatch on a CPU, launch on a GPU

One thread of a CPU, charged for its own time, or the whole GPU with a cold L2.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from timeit import timeit

from gpulab_utils import device, memory
from gpulab_utils.progress import progress
from gpulab_utils.roofline import Bound
from gpulab_utils.timing import bench

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
SHORTEST_S = 1e-4  # reading a clock costs: shorter calls are timed in groups


@dataclass(frozen=True)
class Machine:
    """The measured walls: rows of kind "read", "copy" and "rate", and `call_s`."""

    rows: list[dict] = field(repr=False)
    bytes_per_s: float  # from memory: the best of the buffers that no cache holds
    flop_per_s: dict[str, float]  # by dtype: of the matmul size that runs best
    call_s: float

    def bound(self, *, flop: float, bytes_moved: float, dtype: str = "fp32") -> Bound:
        """The least seconds for this work, as `roofline.bound` gives them for a card."""
        if bytes_moved <= 0:
            raise ValueError(f"bytes_moved must be positive, got {bytes_moved}")
        return Bound(bytes_moved / self.bytes_per_s, flop / self.flop_per_s[dtype])

    def ridge(self, dtype: str) -> float:
        """FLOP per byte above which arithmetic is the wall of this machine."""
        return self.flop_per_s[dtype] / self.bytes_per_s

    def fastest(self) -> str:
        """The dtype with the highest matmul rate; fp32 where 16 bit has no unit.

        >>> Machine([], 1.0, {"fp32": 3.0, "bf16": 2.0}, 0.0).fastest()
        'fp32'
        """
        return max(self.flop_per_s, key=self.flop_per_s.get)


def seconds(fn: Callable, *, budget_s: float = 0.1, threads: int = 1) -> float:
    """A fast `fn()`: a fifth of the calls beat it. Events, or the calling thread's time.

    With more `threads` that is its share of the work, and what it does alone.
    """
    here = device.here()
    if here.is_gpu:
        return bench(fn, budget_s=budget_s).p20_s
    from torch.utils.benchmark import set_torch_threads

    with set_torch_threads(threads):
        fn()
        number = max(1, int(SHORTEST_S / max(_own(fn, 1), 1e-7)))
        times, stop = [], time.perf_counter() + (0 if here.tiny else budget_s)
        while len(times) < 3 or time.perf_counter() < stop:
            times.append(_own(fn, number))
    return sorted(times)[len(times) // 5]


@cache
def machine() -> Machine:
    """This machine, measured once a process: a few seconds."""
    sizes = device.pick(cpu=range(12, 29, 2), gpu=range(14, 31, 2), tiny=(12, 16))
    sides = device.pick(cpu=range(6, 11), gpu=range(8, 14), tiny=(5, 6))
    reads = [read_row(2**n) for n in progress(sizes, "bandwidth by size")]
    copies = [copy_row(2**n) for n in progress(sizes, "copies by size")]
    rates = [r for d in progress(DTYPES, "matmul by dtype") for r in _rates(d, sides)]
    peaks = {d: max(r["flop_per_s"] for r in rates if r["dtype"] == d) for d in DTYPES}
    return Machine(
        rows=[*reads, *copies, *rates],
        bytes_per_s=_from_memory([*reads, *copies]),
        flop_per_s=peaks,
        call_s=call_s(),
    )


def read_row(n_bytes: int) -> dict:
    """The best of several readers over a buffer of `n_bytes`: no one reader is best.

    >>> row = read_row(4096)
    >>> row["bytes"], row["bytes_per_s"] > 0
    (4096, True)
    """
    x = _buffer(n_bytes)
    took = {name: seconds(fn, budget_s=0.05) for name, fn in _readers(x).items()}
    reader = min(took, key=took.get)
    rate = n_bytes / took[reader]
    return {"kind": "read", "bytes": n_bytes, "bytes_per_s": rate, "reader": reader}


def copy_row(n_bytes: int) -> dict:
    """A copy from one half of `n_bytes` to the other: each byte read or written once."""
    x, y = _buffer(n_bytes).chunk(2)
    took_s = seconds(lambda: y.copy_(x), budget_s=0.05)
    return {"kind": "copy", "bytes": n_bytes, "bytes_per_s": n_bytes / took_s}


def rate_row(n: int, dtype: str) -> dict:
    """FLOP/s of [n, n] x [n, n] in `dtype`: 2 n^3 operations."""
    import torch

    a = torch.randn(n, n, device=device.here().device).to(getattr(torch, DTYPES[dtype]))
    took_s = seconds(lambda: a @ a)
    row = {"kind": "rate", "n": n, "dtype": dtype, "took_s": took_s}
    return row | {"flop_per_s": 2 * n**3 / took_s}


def call_s() -> float:
    """What one call costs that has nothing to do: [1] + [1]."""
    import torch

    x = torch.zeros(1, device=device.here().device)
    nothing = partial(torch.add, x, x, out=x)
    return bench(nothing).launch_s if device.here().is_gpu else seconds(nothing)


def fits_under(cap_bytes: int, n_bytes: int) -> bool | None:
    """Whether `n_bytes` can be had under a cap of `cap_bytes`; None if no cap binds here.

    A process of its own under an address-space limit (Linux), or a capped allocator (GPU).
    """
    if device.here().is_gpu:
        return _fits_on_card(cap_bytes, n_bytes)
    if sys.platform != "linux":
        return None
    child = [sys.executable, "-S", "-c", _HOLD, str(cap_bytes), str(n_bytes)]
    return not subprocess.run(child, capture_output=True, check=False).returncode


_HOLD = """
import mmap, resource, sys
cap, n = map(int, sys.argv[1:])
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + cap + 2**20,) * 2)
mmap.mmap(-1, n)
"""


def _fits_on_card(cap_bytes: int, n_bytes: int) -> bool:
    import torch

    torch.cuda.empty_cache()
    with memory.cap(torch.cuda.memory_reserved() + cap_bytes + 2**21):  # segments of 2 MiB
        try:
            return torch.empty(n_bytes, dtype=torch.int8, device="cuda").nbytes == n_bytes
        except torch.OutOfMemoryError:
            return False


def _from_memory(rows: list[dict]) -> float:
    """The best rate of buffers twice the size of the cache: where pages lie matters too."""
    largest = max(r["bytes"] for r in rows)
    least = min(2 * device.here().cache_bytes, largest)
    return max(r["bytes_per_s"] for r in rows if r["bytes"] >= least)


def _own(fn: Callable, number: int) -> float:
    return timeit(fn, timer=time.thread_time, number=number) / number


def _buffer(n_bytes: int):
    import torch

    return torch.ones(n_bytes // 4, device=device.here().device)  # [n / 4] float32


def _readers(x) -> dict[str, Callable]:
    import torch

    readers = {"sum": x.sum, "max": x.max, "dot": lambda: torch.dot(x, x)}
    if device.here().is_gpu:
        return readers
    from gpulab_utils.chase import read_all

    words = x.view(torch.int64).numpy()
    return readers | {"xor": lambda: read_all(words)}


def _rates(dtype: str, sides) -> list[dict]:
    """Larger matmuls until one takes long: a dtype without a unit of its own is slow."""
    rows = [rate_row(2 ** sides[0], dtype)]
    for side in sides[1:]:
        if rows[-1]["took_s"] < 0.02:
            rows.append(rate_row(2**side, dtype))
    return rows
