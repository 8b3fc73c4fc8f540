"""What would torch's caching allocator do on a card of this size? `pool`, with a driver.

The rules of `pool`, and what they need on a card that can be full: addresses, streams (a
freed block serves its own stream only), `max_split_size_mb`, what is tried before an
out-of-memory error, `empty_cache`, and torch's own record of it all: the entries of
`torch.cuda.memory._snapshot()`. Read in c10/cuda/CUDACachingAllocator.cpp. Not modelled:
`roundup_power2_divisions`, `garbage_collection_threshold`, the private pools of CUDA
graphs. The driver here never reuses an address and has no fragmentation of its own.
"""

from bisect import bisect_left
from math import inf

from gpulab_utils.plan.pieces import OutOfMemory, Piece
from gpulab_utils.plan.pool import MIB, MIDDLE_SEGMENT, Pool, segment_size

ROUNDING = MIDDLE_SEGMENT  # what an unsplittable block may be too large by


class Allocator(Pool):
    """A `Pool` over a driver that has `capacity` bytes for this process.

    `inactive_split`: bytes of free blocks that are parts of a segment; `requested`: bytes
    asked for, unrounded; `calls`, `returned`: how often the driver was asked for memory
    and given some; `retries`; `trace`: torch's entries. `allocate` raises `OutOfMemory`.

    >>> card = Allocator(capacity=60 * MIB)
    >>> for key in "abc":
    ...     card.allocate(key, 20 * MIB)
    >>> card.release("a")
    >>> card.release("c")
    >>> card.allocate("d", 30 * MIB)  # a and c lie apart, but each fills its segment
    >>> card.reserved // MIB, card.calls, card.retries
    (50, 4, 1)
    """

    def __init__(self, capacity: float = inf, max_split: float = inf):
        super().__init__()
        self.capacity, self.max_split, self.now = capacity, max_split, 0
        self.requested = self.inactive_split = self.calls = self.returned = 0
        self.retries, self.next_at, self.trace, self.waiting = 0, 1 << 40, [], {}
        self.streams: dict[int, dict] = {}

    def allocate(self, key, size: int, stream: int = 0) -> None:
        self._turn_to(stream)
        super().allocate(key, size)
        block = self.taken[key]
        block.requested = int(size)
        self.requested += block.requested
        self._log("alloc", block)

    def release(self, key) -> None:
        self.request_free(key)
        self.complete_free(key)

    def request_free(self, key) -> None:
        """The program lets go of a block; another stream may still be using it."""
        block = self.waiting[key] = self.taken.pop(key)
        self.allocated -= block.size
        self.requested -= block.requested
        block.waiting = True
        self._log("free_requested", block)

    def complete_free(self, key) -> None:
        """From now on the block can be handed out again."""
        block = self.waiting.pop(key)
        self._log("free_completed", block)
        block.requested, block.waiting = 0, False
        self._turn_to(block.stream)
        self._free(block)

    def empty_cache(self) -> None:
        """Give the driver every segment that holds nothing."""
        for small in (False, True):
            for stream in sorted(self.streams):
                self._turn_to(stream)
                for _, _, block in list(self.free[small]):
                    if not block.split:
                        self._give_back(block)

    def blocks(self) -> list[Piece]:
        """All of them, by address."""
        free = (x[2] for s in self.streams.values() for f in s.values() for x in f)
        return sorted(
            [*self.taken.values(), *self.waiting.values(), *free], key=lambda b: b.at
        )

    def _turn_to(self, stream: int) -> None:
        self.free = self.streams.setdefault(stream, {True: [], False: []})
        self.now = stream

    def _find(self, size: int, small: bool) -> Piece | None:
        free = self.free[small]
        i = self._best(free, bisect_left(free, (size,)))
        if i == len(free):
            return None
        block = free[i][2]
        if size < self.max_split <= block.size:
            return None  # too large to be split
        if size >= self.max_split and block.size >= size + ROUNDING:
            return None
        self._remove(block)
        return block

    def _best(self, free: list, i: int) -> int:
        return i

    def _grow(self, size: int, small: bool) -> Piece:
        block = self._ask(size, small)
        if block is None and self._release_oversized(size, small):
            block = self._ask(size, small)
        if block is None:
            stream = self.now
            self.empty_cache()
            self._turn_to(stream)
            self.retries += 1
            block = self._ask(size, small)
        if block is None:
            largest = max((x[0] for x in self.free[small]), default=0)
            error = OutOfMemory(size, segment_size(size), self, largest)
            entry = {"action": "oom", "size": size, "stream": self.now, "frames": []}
            self.trace.append({**entry, "device_free": error.driver_free})
            raise error
        return block

    def _ask(self, size: int, small: bool) -> Piece | None:
        """A segment from the driver, or None."""
        n_bytes = segment_size(size)
        if self.reserved + n_bytes > self.capacity:
            return None
        block = self._piece(n_bytes, small)
        self._reserve(n_bytes)
        self.calls += 1
        self._log("segment_alloc", block, block.size)
        return block

    def _piece(self, size: int, small: bool) -> Piece:
        block = Piece(size, small)
        block.at = block.segment = self.next_at
        block.stream, block.requested, block.waiting = self.now, 0, False
        block.mapped = True
        self.next_at += -(-size // (2 * MIB)) * 2 * MIB
        return block

    def _release_oversized(self, size: int, small: bool) -> bool:
        """Free one oversized block that is large enough, else the largest until enough."""
        if self.max_split == inf:
            return False
        want, free, total = max(size, self.max_split), self.free[small], 0
        i = bisect_left(free, (want,))
        if i < len(free):
            self._give_back(free[i][2])
            return True
        while total < want and free and free[-1][0] >= self.max_split:
            total += free[-1][0]
            self._give_back(free[-1][2])
        return total >= want

    def _give_back(self, block: Piece) -> None:
        self._remove(block)
        self.reserved -= block.size
        self.returned += 1
        self._log("segment_free", block, block.size)

    def _splits(self, block: Piece, size: int) -> bool:
        return super()._splits(block, size) and (block.small or size < self.max_split)

    def _rank(self, block: Piece) -> int:
        return block.at

    def _put(self, block: Piece) -> None:
        super()._put(block)
        self.inactive_split += self._stuck(block)

    def _remove(self, block: Piece) -> None:
        super()._remove(block)
        self.inactive_split -= self._stuck(block)

    def _stuck(self, block: Piece) -> int:
        """Bytes of a free block that no `empty_cache` can give back."""
        return block.size * block.split

    def _log(self, action: str, block: Piece, size: int | None = None) -> None:
        size = block.requested if size is None else size
        entry = {"action": action, "addr": block.at, "size": size, "stream": block.stream}
        self.trace.append({**entry, "frames": []})
