"""Out of memory: what does the error say, and what does that mean?

`dies` runs a program on tensors without memory, and plays what it asked for into the model
of torch's allocator, on a card of any size; where that ends in an error its text is written
as torch writes it. `read` takes such a text apart, torch's own or ours.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from gpulab_utils import allocations
from gpulab_utils.plan import trace
from gpulab_utils.plan.pieces import OutOfMemory
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
        """What the figures alone show: "others", "fragmented", "one tensor" or "full"."""
        room = self.allowed or self.capacity
        if self.others > self.allocated:
            return "others"
        if self.asked > room:
            return "one tensor"
        return "fragmented" if self.unallocated >= self.asked else "full"


def read(text: str) -> Report:
    """The figures of torch's message; `ValueError` where it is no such message.

    >>> text = "Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which"
    >>> read(text + " 0 bytes is free. Of the allocated memory 7.5 GiB is allocated by Py"
    ...      "Torch, and 15.90 MiB is reserved by PyTorch but unallocated.").sign
    'full'
    """
    found = {name: re.search(pattern, text) for name, pattern in FIELDS.items()}
    if not (found["asked"] and found["allocated"]):
        raise ValueError(f"not torch's out-of-memory message: {text[:80]!r}")
    others = sum(_bytes(*m) for m in re.findall(OTHERS, text))
    return Report(**{k: m and _bytes(*m.groups()) for k, m in found.items()}, others=others)


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
    process = f"Process 4242 has {size(others)} memory in use. " if others else ""
    process += (
        f"Including non-PyTorch memory, this process has {size(error.reserved)} memory in use. "
    )
    return (
        f"CUDA out of memory. Tried to allocate {size(error.segment)}. GPU 0 has a total "
        f"capacity of {size(capacity)} of which {size(error.driver_free)} is free. {process}"
        f"Of the allocated memory {size(error.allocated)} is allocated by PyTorch, and "
        f"{size(error.free_inside)} is reserved by PyTorch but unallocated."
    )


@dataclass(frozen=True)
class Death:
    """How a program ended: torch's text, and bytes allocated at the end of each `beat`."""

    text: str
    done: int  # steps that it finished
    allocated: tuple[int, ...]  # at the end of each of them

    @property
    def report(self) -> Report:
        return read(self.text)


def dies(
    program: Callable, capacity: int, conf: str = "", others: int = 0
) -> Death | None:
    """How `program(beat)` ends on a card of `capacity` bytes; None where it lives.

    It runs on tensors without memory and must make its own; it calls `beat()` at the end
    of each step. `others` bytes of the card belong to another process.

    >>> import torch
    >>> hoard = []
    >>> def program(beat):
    ...     for _ in range(6):
    ...         hoard.append(torch.ones(2**20))  # 4 MiB
    ...         beat()
    >>> death = dies(program, 30 * MIB)
    >>> death.done, death.report.asked // MIB, dies(program, 60 * MIB)
    (5, 20, None)
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    beats = []
    with FakeTensorMode(), allocations.recording() as entries:
        program(lambda: beats.append(len(entries)))
    done = trace.replay(entries, capacity - others, conf)
    if done.oom is None:
        return None
    last = done.points[-1].step
    past = [n for n in beats if n <= last]
    levels = [_level(done.points, n) for n in past]
    return Death(written(done.oom, capacity, others), len(past), tuple(levels))


def _level(points: tuple, entries: int) -> int:
    before = [p.allocated for p in points if p.step < entries]
    return before[-1] if before else 0
