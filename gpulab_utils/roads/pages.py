"""Pages: fresh ones, the faults they cost, and what of a file is kept in memory.

Linux tells all of it; elsewhere a figure that cannot be had is None.
"""

import ctypes
import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path

PAGE = mmap.PAGESIZE


def fresh(n_bytes: int):
    """Memory that nobody has touched: uint8 [n_bytes], a page fault for every page of it.

    Pages of the smallest size, so that faults can be counted: with huge pages they are
    fewer, and each has more to clear.

    >>> fresh(2 * PAGE).sum().item()
    0
    """
    import torch

    if n_bytes <= 0:
        raise ValueError(f"n_bytes must be positive, got {n_bytes}")
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if os.name == "posix" else {}
    block = mmap.mmap(-1, n_bytes, **private)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        block.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(block, dtype=torch.uint8)


def faults() -> int | None:
    """Pages this process had mapped for it so far, without a disk; None on Windows.

    >>> before = faults()
    >>> _ = fresh(64 * PAGE).fill_(1)
    >>> before is None or faults() - before >= 64
    True
    """
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def faulted(fn: Callable) -> int | None:
    """How many page faults `fn()` took; None on Windows.

    >>> target = fresh(64 * PAGE)
    >>> faulted(lambda: target.fill_(1)) in (None, *range(64, 80))
    True
    """
    before = faults()
    fn()
    return before if before is None else faults() - before


def cached(path: Path) -> float | None:
    """Share of a file's pages that are in memory; None where nobody tells (not Linux).

    Source: mincore(2). The page cache of a file in memory (tmpfs) is the file: always 1.
    """
    import numpy as np

    if not sys.platform.startswith("linux"):
        return None
    n_bytes = path.stat().st_size
    told = (ctypes.c_ubyte * -(-n_bytes // PAGE))()
    with path.open("rb") as file:
        view = np.frombuffer(mmap.mmap(file.fileno(), n_bytes, prot=mmap.PROT_READ), "u1")
    where = ctypes.c_void_p(view.ctypes.data)
    if ctypes.CDLL(None).mincore(where, ctypes.c_size_t(n_bytes), told):
        return None
    return float((np.frombuffer(told, "u1") & 1).mean())


def evict(path: Path) -> None:
    """Ask that the pages of a file leave memory: written out first, then advised away.

    Advice is not an order: `cached` says what became of it. Nothing where posix_fadvise is
    missing. Source: posix_fadvise(2), POSIX_FADV_DONTNEED, unwritten pages stay.
    """
    if not hasattr(os, "posix_fadvise"):
        return
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
