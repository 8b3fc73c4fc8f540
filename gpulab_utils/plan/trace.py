"""What would another allocator have done with the same requests? Recorded ones, replayed.

A trace is `torch.cuda.memory._snapshot()["device_traces"][device]`: entries with `action`,
`addr`, `size` and `stream`, in the order of time. Requests and frees are played into a
model; what the driver was asked for then is the model's answer, and what it was asked for
in the recording is `recorded`, to hold the one against the other. Models record in the
same format, and `snapshot` makes what torch's own `torch.cuda._memory_viz` reads.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from gpulab_utils.plan.allocator import Allocator
from gpulab_utils.plan.expandable import Expandable
from gpulab_utils.plan.pieces import OutOfMemory, segments
from gpulab_utils.plan.pool import MIB, MIDDLE_SEGMENT

PLAYED = ("alloc", "free_requested", "free_completed")
GROWS, SHRINKS = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")


@dataclass(frozen=True)
class Point:
    """After entry `step` of a trace, in bytes; `calls` to the driver so far."""

    step: int
    requested: int
    allocated: int
    reserved: int
    inactive_split: int
    calls: int


@dataclass(frozen=True)
class Replay:
    """A trace, replayed: a `Point` for each request and free, and the model at its end.

    requests: allocations played; unseen: frees of blocks from before the recording; oom:
    the error at which it ended, or None.
    """

    points: tuple[Point, ...]
    requests: int
    unseen: int
    oom: OutOfMemory | None
    allocator: Allocator

    @property
    def saved(self) -> int:
        """Calls to the driver for memory that the pool spared."""
        return self.requests - self.allocator.calls

    def peak(self, name: str) -> int:
        """The largest value of a field of `Point`."""
        return max(getattr(point, name) for point in self.points)


def model(capacity: float = inf, conf: str = "") -> Allocator:
    """An empty allocator for `capacity` bytes; `conf` is written as PYTORCH_ALLOC_CONF.

    Raises `ValueError` for an option that is not modelled, or a value that torch refuses.

    >>> type(model(conf="expandable_segments:True,max_split_size_mb:128")).__name__
    'Expandable'
    """
    kind, options = Allocator, {}
    for part in filter(None, conf.replace(" ", "").split(",")):
        name, _, value = part.partition(":")
        if name == "expandable_segments" and value in ("True", "False"):
            kind = Expandable if value == "True" else Allocator
        elif name == "max_split_size_mb" and value.isdecimal():
            if int(value) * MIB < MIDDLE_SEGMENT:
                raise ValueError(f"max_split_size_mb must be at least 20, got {value}")
            options["max_split"] = int(value) * MIB
        else:
            raise ValueError(
                "conf may hold expandable_segments:True or False and max_split_size_mb:N, "
                f"got {part!r}"
            )
    return kind(capacity, **options)


def replay(
    entries: Iterable[dict], capacity: float = inf, conf: str = "", empty_cache: bool = True
) -> Replay:
    """Play a trace into `model(capacity, conf)`, up to its first out-of-memory error.

    A run of frees of segments in the trace is taken for a call of `empty_cache()`, which
    torch does not record by name; `empty_cache=False` passes over it. Raises `ValueError`
    for an address that is allocated twice.

    >>> trace = [{"action": "alloc", "addr": i, "size": 3 * MIB} for i in range(6)]
    >>> done = replay(trace)
    >>> done.saved, done.peak("reserved") // MIB  # six requests, one segment of 20 MiB
    (5, 20)
    """
    pool, points, counts = model(capacity, conf), [], {"alloc": 0, "unseen": 0}
    oom = None
    for step, entry in enumerate(entries):
        action = entry["action"]
        if action in SHRINKS and empty_cache:
            pool.empty_cache()
        try:
            _play(pool, entry, step, counts)
        except OutOfMemory as error:
            oom = error
        if action in PLAYED or oom:
            points.append(_point(pool, step))
        if oom:
            break
    return Replay(tuple(points), counts["alloc"], counts["unseen"], oom, pool)


def recorded(entries: Iterable[dict]) -> list[tuple[int, int, int]]:
    """What a trace itself tells: (step, bytes requested, bytes reserved), as `Replay` does.

    >>> recorded([{"action": "segment_alloc", "addr": 0, "size": 2 * MIB},
    ...           {"action": "alloc", "addr": 0, "size": 100}])
    [(1, 100, 2097152)]
    """
    requested = reserved = 0
    live, lines = {}, []
    for step, entry in enumerate(entries):
        action = entry["action"]
        if action == "alloc":
            live[entry["addr"]] = entry["size"]
            requested += entry["size"]
        elif action == "free_requested":
            requested -= live.pop(entry["addr"], 0)
        elif action in GROWS + SHRINKS:
            reserved += entry["size"] * (1 if action in GROWS else -1)
        if action in PLAYED:
            lines.append((step, requested, reserved))
    return lines


def snapshot(pool: Allocator) -> dict:
    """The model as `torch.cuda.memory._snapshot()` would describe it.

    >>> pool = model()
    >>> pool.allocate("a", 100)
    >>> [block["state"] for block in snapshot(pool)["segments"][0]["blocks"]]
    ['active_allocated', 'inactive']
    """
    return {"segments": list(segments(pool.blocks())), "device_traces": [pool.trace]}


def _play(pool: Allocator, entry: dict, step: int, counts: dict) -> None:
    action, key = entry["action"], entry.get("addr")
    if action == "alloc":
        if key in pool.taken or key in pool.waiting:
            raise ValueError(f"entry {step} allocates address {key:#x}, which is taken")
        pool.allocate(key, entry["size"], entry.get("stream", 0))
        counts["alloc"] += 1
    elif action == "free_requested":
        if key in pool.taken:
            pool.request_free(key)
        else:
            counts["unseen"] += 1
    elif action == "free_completed" and key in pool.waiting:
        pool.complete_free(key)
    elif action == "oom":
        pool.allocate(("oom", step), entry["size"], entry.get("stream", 0))
        pool.release(("oom", step))


def _point(pool: Allocator, step: int) -> Point:
    sizes = (pool.requested, pool.allocated, pool.reserved, pool.inactive_split)
    return Point(step, *sizes, pool.calls)
