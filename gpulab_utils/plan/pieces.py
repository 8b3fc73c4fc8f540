"""What does the allocator's model hold, and what does it say when it can hold no more?"""

from collections.abc import Iterable, Iterator

from gpulab_utils.plan.pool import MIB, Block, Pool


class OutOfMemory(MemoryError):
    """No segment could be had. All attributes are bytes.

    asked: the request, rounded; segment: what the driver was asked for; driver_free: what
    it had; allocated, reserved; largest: the largest free block of the same pool.
    """

    def __init__(self, asked: int, segment: int, pool: Pool, largest: int):
        self.asked, self.segment, self.largest = asked, segment, largest
        self.allocated, self.reserved = pool.allocated, pool.reserved
        self.driver_free = pool.capacity - pool.reserved
        self.free_inside = self.reserved - self.allocated
        mib = {name: f"{n / MIB:.2f} MiB" for name, n in vars(self).items()}
        super().__init__(
            f"tried to allocate {mib['segment']} of {pool.capacity / MIB:.2f} MiB: "
            f"{mib['driver_free']} are free, {mib['allocated']} are allocated, "
            f"{mib['free_inside']} are reserved but unallocated, the largest such block "
            f"{mib['largest']}"
        )


class Piece(Block):
    """A block with an address; `mapped` is false where no memory lies behind it."""

    __slots__ = ("at", "mapped", "requested", "segment", "stream", "waiting")

    def cut(self, size: int) -> "Piece":
        rest = super().cut(size)
        rest.at, rest.mapped = self.at + size, self.mapped
        rest.segment, rest.stream = self.segment, self.stream
        rest.requested, rest.waiting = 0, False
        return rest

    def absorb(self, near: "Piece") -> None:
        self.at = min(self.at, near.at)
        super().absorb(near)

    @property
    def split(self) -> bool:
        """Is it a part of a segment?"""
        return self.before is not None or self.after is not None


def segments(blocks: Iterable[Piece]) -> Iterator[dict]:
    """Runs of neighbouring blocks, as `torch.cuda.memory._snapshot()` lists segments."""
    for block in blocks:
        if block.before is not None and block.before.mapped:
            continue
        run = [block]
        while run[-1].after is not None and run[-1].after.mapped:
            run.append(run[-1].after)
        used = sum(b.size for b in run if _state(b) == "active_allocated")
        yield {
            **{"address": block.at, "total_size": sum(b.size for b in run)},
            **{"stream": block.stream, "segment_type": "small" if block.small else "large"},
            **{"segment_pool_id": (0, 0), "allocated_size": used},
            "active_size": sum(b.size for b in run if not b.free),
            "blocks": [_block(b) for b in run],
        }


def _block(b: Piece) -> dict:
    place = {"address": b.at, "size": b.size, "requested_size": b.requested, "frames": []}
    return {**place, "state": _state(b)}


def _state(b: Piece) -> str:
    if b.free:
        return "inactive"
    return "active_awaiting_free" if b.waiting else "active_allocated"
