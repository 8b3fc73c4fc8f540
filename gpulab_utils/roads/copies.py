"""Roads for bytes: of a CPU's memory and files, or between a host and its GPU.

`send(road, n)` is a call that moves n bytes once. On a CPU a call is charged for the time
of its thread; pipes and the disk, whose work others do, by the host's clock. On a GPU it is
the host's clock around a copy and the wait for its end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from pathlib import Path

from gpulab_utils import device, folders
from gpulab_utils.roads import between, pages

MEMORY = ("memory", "first touch", "file, read", "file, mapped", "file, first touch")
LINKS = (
    *("host to device, pageable", "host to device, pinned"),
    *("device to host, pageable", "device to host, pinned", "on device"),
)
#: How a layer may come: into memory that is kept for it, or as it happens to come.
WAYS = {"kept": "file, mapped", "fresh": "file, first touch"}
GPU_WAYS = {"kept": "host to device, pinned", "fresh": "host to device, pageable"}


@dataclass(frozen=True)
class Place:
    """Where the bytes of the roads lie: two buffers and a file, of `n_bytes` each."""

    n_bytes: int
    source: object  # uint8 [n_bytes], on the CPU
    target: object
    folder: Path

    @property
    def file(self) -> Path:
        """A safetensors file: one tensor for each size, named by it."""
        return self.folder / "roads.safetensors"

    def pairs(self, n_bytes: int):
        """Endless (target, source) pieces, one after the other: no cache holds them all."""
        pieces = [
            x[: x.numel() // n_bytes * n_bytes].view(-1, n_bytes).unbind()
            for x in (self.target, self.source)
        ]
        return cycle(zip(*pieces, strict=True))


def sizes() -> list[int]:
    """Bytes of the copies that the lines are fitted to."""
    cpu, gpu = (12, 15, 18, 22, 24, 27), (12, 15, 18, 22, 24, 27, 30)
    return [2**n for n in device.pick(cpu=cpu, gpu=gpu, tiny=(12, 15, 18))]


def names() -> tuple[str, ...]:
    """The roads of this machine that `send` knows.

    >>> "memory" in names() or "on device" in names()
    True
    """
    if device.here().is_gpu:
        return LINKS
    return (*MEMORY, *(between.ROADS if between.here() else ()))


def ways() -> dict[str, str]:
    """The roads that layers of a model come by: `{"kept": ..., "fresh": ...}`."""
    return GPU_WAYS if device.here().is_gpu else WAYS


def send(road: str, n_bytes: int) -> Callable:
    """A call that moves `n_bytes` over `road`; `ValueError` for another road or size.

    Files are of `sizes()`, and in memory: `disk_seconds` empties the page cache.

    >>> send(names()[0], sizes()[0])()
    """
    if road not in names():
        raise ValueError(f"road must be one of {', '.join(names())}, got {road!r}")
    if n_bytes <= 0:
        raise ValueError(f"n_bytes must be positive, got {n_bytes}")
    if road in between.ROADS:
        return between.send(road, n_bytes)
    return _link(road, n_bytes) if device.here().is_gpu else _memory(road, n_bytes)


def _memory(road: str, n: int) -> Callable:
    from safetensors import safe_open

    lies = place()
    pairs, name, file = lies.pairs(n), str(n), lies.file

    def copy(fresh: bool) -> None:
        target, source = next(pairs)
        (pages.fresh(n) if fresh else target).copy_(source)

    def mapped(fresh: bool) -> None:
        with safe_open(file, "pt") as tensors:  # opened anew: a mapping of its own
            (pages.fresh(n) if fresh else next(pairs)[0]).copy_(tensors.get_tensor(name))

    calls = {
        "memory": lambda: copy(False),
        "first touch": lambda: copy(True),
        "file, read": lambda: read(file, next(pairs)[0]),
        "file, mapped": lambda: mapped(False),
        "file, first touch": lambda: mapped(True),
    }
    return calls[road]


def read(path: Path, target) -> None:
    """Fill `target` (uint8 [n]) with the first bytes of a file, by read()."""
    left = memoryview(target.numpy())
    with path.open("rb", buffering=0) as file:
        while len(left):
            left = left[file.readinto(left) :]


def _link(road: str, n: int) -> Callable:
    import torch

    on_card = torch.ones(n, dtype=torch.uint8, device=device.here().device)
    other = torch.empty_like(on_card)
    host = torch.ones(n, dtype=torch.uint8)
    host = host.pin_memory() if road.endswith("pinned") else host
    is_async = road.endswith("pinned")
    if road == "on device":
        return lambda: _nothing(other.copy_(on_card))
    if road.startswith("host"):
        return lambda: _nothing(on_card.copy_(host, non_blocking=is_async))
    return lambda: _nothing(host.copy_(on_card, non_blocking=is_async))


def _nothing(_) -> None:
    return None


@cache
def place() -> Place:
    import torch
    from safetensors.torch import save_file

    least = min(max(2**27, 4 * device.here().cache_bytes), 2**28)
    n_bytes = device.pick(cpu=least, gpu=least, tiny=2**20)
    source, target = (torch.ones(n_bytes, dtype=torch.uint8) for _ in range(2))
    lies = Place(n_bytes, source, target, folders.folder("roads"))
    save_file({str(n): torch.ones(n, dtype=torch.uint8) for n in sizes()}, lies.file)
    return lies
