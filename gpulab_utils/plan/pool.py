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
SMALL, MIN_LARGE = MIB, 10 * MIB
SMALL_SEGMENT, MIDDLE_SEGMENT, ROUND_LARGE = 2 * MIB, 20 * MIB, 2 * MIB


def rounded(size: int) -> int:
    """Bytes that a request takes at least."""
    return max(512, -(-size // 512) * 512)


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
        left = block.size - size
        if left >= 512 if small else left > SMALL:
            self._split(block, size)
        block.free = False
        self.taken[key] = block
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)

    def _find(self, size: int, small: bool) -> Block | None:
        free = self.free[small]
        i = bisect_left(free, (size,))
        return free.pop(i)[2] if i < len(free) else None

    def _grow(self, size: int, small: bool) -> Block:
        block = Block(segment_size(size), small)
        self.reserved += block.size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return block

    def _split(self, block: Block, size: int) -> None:
        rest = Block(block.size - size, block.small)
        block.size = size
        rest.before, rest.after, block.after = block, block.after, rest
        if rest.after:
            rest.after.before = rest
        self._put(rest)

    def _put(self, block: Block) -> None:
        self.serial += 1
        insort(
            self.free[block.small], (block.size, self.serial, block), key=lambda x: x[:2]
        )

    def release(self, key) -> None:
        block = self.taken.pop(key)
        self.allocated -= block.size
        block.free = True
        for near in (block.before, block.after):
            if near is not None and near.free:
                self._join(block, near)
        self._put(block)

    def _join(self, block: Block, near: Block) -> None:
        free = self.free[near.small]
        i = bisect_left(free, (near.size,))
        while free[i][2] is not near:
            i += 1
        del free[i]
        block.size += near.size
        if near is block.before:
            block.before = near.before
            if block.before:
                block.before.after = block
        else:
            block.after = near.after
            if block.after:
                block.after.before = block
