"""Where do the bytes go? Four figures that are easily mixed up, told apart by name.

allocated  bytes of tensors alive, as torch's allocator counts them
reserved   bytes that the allocator holds, slack included
process    resident memory of this process
device     what the driver sees in use on the card, other processes included
"""

import gc
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass

from gpulab_utils import device
from gpulab_utils.process import peak_rss_bytes, rss_bytes, run_peak_rss, trim
from gpulab_utils.units import gib

__all__ = ["Peak", "cap", "growth", "peak", "peak_rss_bytes", "report", "require"]
__all__ += ["rss_bytes", "run_peak_rss", "trim"]


@dataclass(frozen=True)
class Peak:
    """Most bytes alive at once, and what they were."""

    total: int
    by_category: dict[str, int]


def require(n_bytes: int, what: str) -> None:
    """Raise `MemoryError`, with the way out, where `what` finds less than `n_bytes` free.

    Asked of the memory that tensors of this lab go to: the card's, or this machine's.

    >>> require(1, "a byte")
    """
    here = device.here()
    if here.is_gpu:
        import torch

        free = torch.cuda.mem_get_info()[0]
    else:
        import psutil

        free = min(psutil.virtual_memory().available, here.mem_bytes - rss_bytes())
    if free < n_bytes:
        raise MemoryError(
            f"{what} needs {gib(n_bytes):.1f} GiB, {gib(free):.1f} GiB are free on "
            f"{here.name}: close other programs, or set GPULAB_TINY=1 for a small run"
        )


def growth(make: Callable) -> tuple[object, int]:
    """What `make()` returns, and by how many bytes holding it makes this process grow.

    On a GPU the allocator is asked, on a CPU the operating system (resident memory), which
    counts pages that were written: not what tensors say of themselves. Freed memory that
    the process still holds is given back first, else a block may come out of it unseen.

    >>> import torch
    >>> block, grown = growth(lambda: torch.ones(2**24, device=device.here().device))
    >>> round(grown / block.nbytes, 1)
    1.0
    """
    if not device.here().is_gpu:
        gc.collect()
        trim()
    before = _held_bytes()
    made = make()
    return made, _held_bytes() - before


def _held_bytes() -> int:
    if not device.here().is_gpu:
        return rss_bytes()
    import torch

    return torch.cuda.memory_allocated()


def peak(step: Callable, *, modules: list, optimizers: list = ()) -> Peak:
    """Peak bytes of tensors while `step()` runs, by category.

    On a CPU torch's `MemTracker` follows every tensor of `modules` and `optimizers`; on a
    GPU the allocator's own peak is read, which knows no categories, less what lay there
    before. `step` runs once in advance, so that lazily made states exist.
    Time is never taken in the same run.
    """
    import torch

    if device.here().is_gpu:
        own = sum(x.nbytes for m in modules for x in (*m.parameters(), *m.buffers()))
        others = torch.cuda.memory_allocated() - own
        step()
        torch.cuda.reset_peak_memory_stats()
        step()
        return Peak(torch.cuda.max_memory_allocated() - others, {})
    from torch.distributed._tools.mem_tracker import MemTracker

    tracker = MemTracker()
    tracker.track_external(*modules, *optimizers)
    with tracker:
        step()
        tracker.reset_mod_stats()  # else the second iteration raises
        step()
    seen = tracker.get_tracker_snapshot("peak")
    (told,) = seen.values()
    kinds = {str(getattr(k, "value", k)).lower(): int(v) for k, v in told.items() if v}
    return Peak(kinds.pop("total"), kinds)


def report() -> str:
    """The four figures, labelled, one a line.

    >>> print(report().splitlines()[-1].split(":")[0])
    process
    """
    import torch

    lines = []
    if device.here().is_gpu:
        free, total = torch.cuda.mem_get_info()
        figures = {
            "allocated": torch.cuda.memory_allocated(),
            "reserved": torch.cuda.memory_reserved(),
            "device": total - free,
        }
        lines = [f"{name}: {gib(n):.2f} GiB" for name, n in figures.items()]
    return "\n".join([*lines, f"process: {gib(rss_bytes()):.2f} GiB"])


@contextmanager
def cap(n_bytes: int):
    """Let torch's allocator have `n_bytes` of this card and no more; nothing on a CPU.

    The cap binds the caching allocator alone: the CUDA context lies outside. Raises
    `ValueError` where the card is smaller than the cap.
    """
    if n_bytes <= 0:
        raise ValueError(f"n_bytes must be positive, got {n_bytes}")
    here = device.here()
    if not here.is_gpu:
        yield
        return
    import torch

    if n_bytes > here.mem_bytes:
        raise ValueError(
            f"a cap of {gib(n_bytes):.1f} GiB on {gib(here.mem_bytes):.1f} GiB"
        )
    torch.cuda.set_per_process_memory_fraction(n_bytes / here.mem_bytes)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
