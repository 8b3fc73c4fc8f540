"""Out of memory: what does the error say, and what does that mean?

`dies` runs a program on tensors without memory, and plays what it asked for into the model
of torch's allocator, on a card of any size; where that ends in an error its text is written
as torch writes it. `read` takes such a text apart, torch's own or ours.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from gpulab_utils import allocations
from gpulab_utils.plan import trace
from gpulab_utils.plan.pieces import OutOfMemory
from gpulab_utils.plan.pool import MIDDLE_SEGMENT
from gpulab_utils.units import GIB, KIB, MIB

UNITS = {"bytes": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
SIZE = r"([\d.]+) (bytes|KiB|MiB|GiB)"
# c10/cuda/CUDACachingAllocator.cpp, malloc; "CUDA" is gone from newer versions
FIELDS = {
    "asked": rf"Tried to allocate {SIZE}",
    "capacity": rf"has a total capacity of {SIZE}",
    "free": rf"of which {SIZE} is free",
    "process": rf"[Tt]his process has {SIZE} memory in use",
    "allowed": rf"{SIZE} allowed;",
    "allocated": rf"Of the allocated memory {SIZE} is allocated by PyTorch",
    "unallocated": rf"{SIZE} is reserved by PyTorch but unallocated",
}
OTHERS = rf"Process \d+ has {SIZE} memory in use"


@dataclass(frozen=True)
class Report:
    """The figures of an error, in bytes; None where the text has none.

    asked: the segment that the driver was asked for, not the tensor; others: what other
    processes hold; allowed: the limit that the program set itself.
    """

    asked: int | None
    capacity: int | None
    free: int | None
    process: int | None
    allowed: int | None
    allocated: int | None
    unallocated: int | None
    others: int

    @property
    def sign(self) -> str:
        """What the figures alone show.

        others: other processes hold more than this one; fragmented: as much as was asked
        for is free, in pieces; one tensor: it is a quarter of the card (20 MiB are a
        segment for smaller ones, and tell nothing); else full.
        """
        room = self.allowed or self.capacity
        if self.others > self.allocated:
            return "others"
        if self.unallocated >= self.asked:
            return "fragmented"
        whole = self.asked > MIDDLE_SEGMENT and 4 * self.asked > room
        return "one tensor" if whole else "full"


def read(text: str) -> Report:
    """The figures of torch's message; `ValueError` where it is no such message.

    >>> text = "Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of "
    >>> text += "which 0 bytes is free. Of the allocated memory 7.5 GiB is allocated by "
    >>> read(text + "PyTorch, and 15.9 MiB is reserved by PyTorch but unallocated.").sign
    'full'
    """
    found = {name: re.search(pattern, text) for name, pattern in FIELDS.items()}
    if not (found["asked"] and found["allocated"]):
        raise ValueError(f"not torch's out-of-memory message: {text[:80]!r}")
    figures = {k: m and _bytes(*m.groups()) for k, m in found.items()}
    others = sorted(_bytes(*m) for m in re.findall(OTHERS, text))
    if others and figures["process"] is None:
        # In a container torch does not know itself by its number: the nearest is this one.
        own = figures["allocated"] + figures["unallocated"]
        figures["process"] = min(others, key=lambda n: abs(n - own))
        others.remove(figures["process"])
    return Report(**figures, others=sum(others))


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * UNITS[unit])


def size(n_bytes: int) -> str:
    """As torch prints it.

    >>> size(20 << 20), size(512)
    ('20.00 MiB', '512 bytes')
    """
    for name in ("GiB", "MiB", "KiB"):
        if n_bytes >= UNITS[name]:
            return f"{n_bytes / UNITS[name]:.2f} {name}"
    return f"{n_bytes} bytes"


def written(error: OutOfMemory, capacity: int, others: int = 0) -> str:
    """The model's error as torch words it, on a card that others use too."""
    told = {name: size(n) for name, n in vars(error).items()}
    process = f"Process 4242 has {size(others)} memory in use. " if others else ""
    return (
        f"CUDA out of memory. Tried to allocate {told['segment']}. GPU 0 has a total "
        f"capacity of {size(capacity)} of which {told['driver_free']} is free. {process}"
        f"Including non-PyTorch memory, this process has {told['reserved']} memory in use. "
        f"Of the allocated memory {told['allocated']} is allocated by PyTorch, and "
        f"{told['free_inside']} is reserved by PyTorch but unallocated."
    )


@dataclass(frozen=True)
class Death:
    """How a program ended: torch's text, the line it was at, bytes allocated at each first
    line of a step.
    """

    text: str
    at: str
    levels: tuple[int, ...]

    @property
    def report(self) -> Report:
        return read(self.text)

    @property
    def cause(self) -> str:
        """The text first, then what grew from step to step, then the line."""
        report, levels = self.report, self.levels
        if report.sign != "full":
            return report.sign
        if len(levels) > 2 and all(a < b for a, b in pairwise(levels)):
            return "kept alive"
        if self.at == "optimizer.step()" and len(levels) == 1:
            return "optimizer states"
        return "activations"


def dies(program: Callable, capacity: int, conf: str = "", others: int = 0) -> Death | None:
    """How `program(at)` ends on a card of `capacity` bytes; None where it lives.

    It runs on tensors without memory and must make its own; it says by `at(line)` where it
    is, as a traceback would. `others` bytes of the card belong to another process.

    >>> import torch
    >>> def program(at):
    ...     hoard = []
    ...     for _ in range(6):
    ...         at("append")
    ...         hoard.append(torch.ones(2**20))  # 4 MiB
    >>> death = dies(program, 30 * MIB)
    >>> len(death.levels), death.report.asked // MIB, death.cause, dies(program, 60 * MIB)
    (6, 20, 'kept alive', None)
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    marks = []
    with FakeTensorMode(), allocations.recording() as entries:
        program(lambda line: marks.append((line, len(entries))))
    done = trace.replay(entries, capacity - others, conf)
    if done.oom is None:
        return None
    past = [(line, n) for line, n in marks if n <= done.points[-1].step]
    levels = [_level(done.points, n) for line, n in past if line == past[0][0]]
    text = written(done.oom, capacity, others)
    return Death(text, past[-1][0] if past else "", tuple(levels))


def _level(points: tuple, entries: int) -> int:
    before = [p.allocated for p in points if p.step < entries]
    return before[-1] if before else 0
