"""What does torch's caching allocator hold? A model of c10/cuda/CUDACachingAllocator.cpp.

Requests are rounded to 512 bytes. Up to 1 MiB they come out of segments of 2 MiB, up to
10 MiB out of segments of 20 MiB, larger ones get a segment of their own, rounded up to 2
MiB. The smallest free block that is large enough is taken, and split where 512 bytes
(small) or more than 1 MiB (large) would be left; neighbours that are free are joined.
"""

from bisect import bisect_left, insort
from functools import lru_cache

from gpulab_utils.models import Shape
from gpulab_utils.plan.formats import Format

KIB, MIB = 1 << 10, 1 << 20
MIN_BLOCK, SMALL, MIN_LARGE = 512, MIB, 10 * MIB
SMALL_SEGMENT, MIDDLE_SEGMENT, ROUND_LARGE = 2 * MIB, 20 * MIB, 2 * MIB


def rounded(size: int) -> int:
    """Bytes that a request takes at least."""
    return max(MIN_BLOCK, -(-size // MIN_BLOCK) * MIN_BLOCK)


def segment_size(size: int) -> int:
    """Bytes that the driver is asked for when no free block will do."""
    if size <= SMALL:
        return SMALL_SEGMENT
    return MIDDLE_SEGMENT if size < MIN_LARGE else -(-size // ROUND_LARGE) * ROUND_LARGE


def unsplit(size: int) -> int:
    """Bytes counted as allocated beyond the request, for a large tensor in its own segment.

    >>> unsplit(43 * MIB) // MIB  # 44 MiB segment, and 1 MiB left is not split off
    1
    """
    left = segment_size(size) - size
    return left if size >= MIN_LARGE and left <= SMALL else 0


@lru_cache
def rounding(fmt: Format, shape: Shape) -> int:
    """What the blocks of all weights hold beyond the weights."""
    total = 0
    for _, rows, columns, many in shape.linears:
        total += many * unsplit(rounded(int(rows * columns * fmt.bits / 8)))
    return total


class Block:
    """A stretch of a segment; `before` and `after` are its neighbours there."""

    __slots__ = ("after", "before", "free", "size", "small")

    def __init__(self, size: int, small: bool):
        self.size, self.small, self.free = size, small, True
        self.before = self.after = None

    def cut(self, size: int) -> "Block":
        """Keep the first `size` bytes; the rest is a block of its own behind them."""
        rest = type(self)(self.size - size, self.small)
        self.size = size
        rest.before, rest.after, self.after = self, self.after, rest
        if rest.after:
            rest.after.before = rest
        return rest

    def absorb(self, near: "Block") -> None:
        """Take in the neighbour `near`."""
        self.size += near.size
        if near is self.before:
            self.before = near.before
            if self.before:
                self.before.after = self
        else:
            self.after = near.after
            if self.after:
                self.after.before = self


class Pool:
    """Allocate and free by key; `allocated` and `reserved` and their peaks, in bytes.

    >>> pool = Pool()
    >>> pool.allocate("a", 3 * MIB)
    >>> pool.reserved // MIB, pool.allocated // MIB
    (20, 3)
    """

    def __init__(self):
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0
        self.free: dict[bool, list] = {True: [], False: []}
        self.taken: dict = {}
        self.serial = 0

    def allocate(self, key, size: int) -> None:
        size = rounded(int(size))
        small = size <= SMALL
        block = self._find(size, small) or self._grow(size, small)
        if self._splits(block, size):
            self._put(block.cut(size))
        block.free = False
        self.taken[key] = block
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)

    def release(self, key) -> None:
        block = self.taken.pop(key)
        self.allocated -= block.size
        self._free(block)

    def _find(self, size: int, small: bool) -> Block | None:
        free = self.free[small]
        i = bisect_left(free, (size,))
        return free.pop(i)[2] if i < len(free) else None

    def _grow(self, size: int, small: bool) -> Block:
        block = Block(segment_size(size), small)
        self._reserve(block.size)
        return block

    def _reserve(self, n_bytes: int) -> None:
        self.reserved += n_bytes
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def _splits(self, block: Block, size: int) -> bool:
        left = block.size - size
        return left >= MIN_BLOCK if block.small else left > SMALL

    def _rank(self, block: Block) -> int:
        """Which of two free blocks of a size goes first: here the one freed first."""
        self.serial += 1
        return self.serial

    def _put(self, block: Block) -> None:
        entry = (block.size, self._rank(block), block)
        insort(self.free[block.small], entry, key=lambda x: x[:2])

    def _remove(self, block: Block) -> None:
        free = self.free[block.small]
        i = bisect_left(free, (block.size,))
        while free[i][2] is not block:
            i += 1
        del free[i]

    def _free(self, block: Block) -> None:
        block.free = True
        for near in (block.before, block.after):
            if near is not None and near.free:
                self._remove(near)
                block.absorb(near)
        self._put(block)
