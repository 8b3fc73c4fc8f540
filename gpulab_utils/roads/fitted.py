"""The roads of this machine, measured and fitted: seconds = latency + bytes / rate."""

import math
import time
from collections.abc import Callable
from functools import cache
from statistics import median
from timeit import timeit

from gpulab_utils import device, fit
from gpulab_utils.probes import seconds
from gpulab_utils.progress import progress
from gpulab_utils.roads import between, copies, pages
from gpulab_utils.timing import Ratio, bench, compare, in_turns

DISK = "disk"
OFTEN_FRESH = 2**25  # glibc maps larger blocks anew, whatever it learned from smaller ones
COLD = 0.1  # share of a file that may still be in memory for a read to count as the disk's


@cache
def survey() -> list[dict]:
    """Rows of kind "road": `road`, `bytes`, `took_s`; measured once a process, seconds."""
    todo = [(road, n) for road in copies.names() for n in copies.sizes()]
    rows = [_row(road, n, took(road, n)) for road, n in progress(todo, "roads")]
    if not device.here().is_gpu:
        cold = [_row(DISK, n, disk_seconds(n)) for n in copies.sizes()]
        rows += [row for row in cold if row["took_s"]]
    return rows


def lines(rows: list[dict] | None = None) -> dict[str, fit.Line]:
    """The line of each road in `rows`, or in `survey()`; bytes and seconds.

    >>> rows = [_row("a road", n, 1e-6 + n / 1e9) for n in (10**3, 10**6, 10**9)]
    >>> round(lines(rows)["a road"].bytes_per_s / 1e9, 3)
    1.0
    """
    rows = survey() if rows is None else rows
    roads = dict.fromkeys(r["road"] for r in rows)  # in order
    of = {road: [r for r in rows if r["road"] == road] for road in roads}
    fitted = {road: _fit(road, told) for road, told in of.items() if len(told) > 2}
    return {road: line for road, line in fitted.items() if line}


def _fit(road: str, told: list[dict]) -> fit.Line | None:
    """The line of one road; None for a disk whose few reads do not show one."""
    line = fit.line([r["bytes"] for r in told], [r["took_s"] for r in told])
    return None if road == DISK and math.isinf(line.bytes_per_s) else line


def took(road: str, n_bytes: int) -> float:
    """Seconds of one copy: the thread's own on a CPU, the host's where others work too."""
    fn = copies.send(road, n_bytes)
    if device.here().is_gpu:
        return bench(fn, budget_s=0.1).wall_s
    return _wall(fn) if road in between.ROADS else seconds(fn, budget_s=0.06)


def disk_seconds(n_bytes: int, runs: int = 3) -> float | None:
    """Seconds to read the first bytes of a file that no memory holds; None if one does."""
    walls = [_cold_read(n_bytes) for _ in range(1 if device.here().tiny else runs)]
    return None if None in walls else median(walls)


def _cold_read(n_bytes: int) -> float | None:
    file, (target, _) = copies.place().file, next(copies.place().pairs(n_bytes))
    return _once(lambda: copies.read(file, target)) if cold() else None


def cold() -> bool:
    """Whether the file of the roads is out of memory now, after asking for that."""
    pages.evict(copies.place().file)
    share = pages.cached(copies.place().file)
    return share is not None and share < COLD


def gap(n_bytes: int) -> tuple[Ratio, str]:
    """How many times as long the same bytes take from afar as nearby; or why not.

    On a GPU: from the host, against a copy on the card. On a CPU: from a disk (the page
    cache is emptied before each read, off the clock), against a copy in memory.

    >>> gap(copies.sizes()[0])[0].value > 0
    True
    """
    if device.here().is_gpu:
        links = [copies.send(r, n_bytes) for r in ("host to device, pinned", "on device")]
        return compare(*links), ""
    near, far_s, near_s = copies.send("memory", n_bytes), [], []
    stop = time.perf_counter() + (0 if device.here().tiny else 1.5)
    while len(far_s) < 3 or time.perf_counter() < stop:
        if (took_s := _cold_read(n_bytes)) is None:
            return Ratio(1.0, aa=math.inf), "the page cache cannot be emptied here"
        far_s.append(took_s)
        near_s.append(_once(near))
    return in_turns(far_s, near_s), ""


def fetch_rate(n_bytes: int) -> float:
    """Bytes/s, by the fit, of one tensor that a framework fetches when it is needed.

    Host memory of a GPU is pageable. On a CPU a block has fresh pages where malloc maps it
    anew: above 32 MiB. Source: glibc, malloc.c, DEFAULT_MMAP_THRESHOLD_MAX.

    >>> fetch_rate(2**20) > 0
    True
    """
    is_fresh = device.here().is_gpu or n_bytes > OFTEN_FRESH
    return lines()[copies.ways()["fresh" if is_fresh else "kept"]].bytes_per_s


def _wall(fn: Callable) -> float:
    fn()
    walls, stop = [], time.perf_counter() + (0 if device.here().tiny else 0.06)
    while len(walls) < 3 or time.perf_counter() < stop:
        walls.append(_once(fn))
    return sorted(walls)[len(walls) // 5]


def _once(fn: Callable) -> float:
    return timeit(fn, number=1)


def _row(road: str, n_bytes: int, took_s: float | None) -> dict:
    return {"kind": "road", "road": road, "bytes": n_bytes, "took_s": took_s}
