"""What do expandable segments change? One segment a stream and pool, that grows by pages.

`expandable_segments:True` reserves addresses for more than the card, and lays memory
behind them as it is needed: pages of 2 MiB in the small pool, of 20 MiB in the large one.
Blocks in it are split to 512 bytes, and whole free pages go back to the driver wherever
they lie. Read in c10/cuda/CUDACachingAllocator.cpp, Note [Expandable Segments].
"""

from bisect import insort
from math import inf

from gpulab_utils.plan.allocator import Allocator
from gpulab_utils.plan.pieces import Piece
from gpulab_utils.plan.pool import MIDDLE_SEGMENT, MIN_BLOCK, SMALL_SEGMENT

PAGE = {True: SMALL_SEGMENT, False: MIDDLE_SEGMENT}
_ENDLESS = 1 << 44  # addresses where no capacity is given


class Expandable(Allocator):
    """An `Allocator` with `expandable_segments:True`; `calls` counts mappings.

    >>> from gpulab_utils.units import MIB
    >>> card = Expandable(capacity=60 * MIB)
    >>> for key in "abc":
    ...     card.allocate(key, 20 * MIB)
    >>> card.release("b")
    >>> card.release("c")
    >>> card.allocate("d", 40 * MIB)  # b and c are neighbours here
    >>> card.reserved // MIB, card.retries
    (60, 0)
    """

    def __init__(self, capacity: float = inf, max_split: float = inf):
        super().__init__(capacity, max_split)
        self.unmapped: dict[tuple, list] = {}

    def empty_cache(self) -> None:
        """Give the driver every whole page that holds nothing."""
        for small in (False, True):
            for stream in sorted(self.streams):
                self._turn_to(stream)
                for _, _, block in list(self.free[small]):
                    self._unmap(block)

    def _best(self, free: list, i: int) -> int:
        """A block that can grow counts as large as it can become."""
        while i + 1 < len(free) and self._reach(free[i + 1][2]) < self._reach(free[i][2]):
            i += 1
        return i

    @staticmethod
    def _reach(block: Piece) -> int:
        after = block.after
        return block.size + (after.size if after is not None and not after.mapped else 0)

    def _ask(self, size: int, small: bool) -> Piece | None:
        """Map pages at the lowest address where `size` bytes fit."""
        block = self._room(size, small)
        if not block.mapped and not self._map(block, min(block.size, size)):
            return None
        while block.size < size:
            more = block.after
            if not self._map(more, min(size - block.size, more.size)):
                return None
            block = more  # it has taken in what lay before it
        self._remove(block)
        return block

    def _room(self, size: int, small: bool) -> Piece:
        """The first block of a run of free and unmapped ones that holds `size` bytes."""
        for block in self._gaps(small):
            if block.before is not None and block.before.free:
                block = block.before
            if self._run(block, size) >= size:
                return block
        page = PAGE[small]
        whole = _ENDLESS if self.capacity == inf else int(self.capacity * 9 / 8)
        block = self._piece(-(-whole // page) * page, small)
        block.free = block.mapped = False
        self._gaps(small).append(block)
        return block

    @staticmethod
    def _run(block: Piece | None, size: int) -> int:
        n_bytes = 0
        while n_bytes < size and block is not None and (block.free or not block.mapped):
            n_bytes += block.size
            block = block.after
        return n_bytes

    def _gaps(self, small: bool) -> list:
        """Blocks without memory, by address."""
        return self.unmapped.setdefault((self.now, small), [])

    def _map(self, block: Piece, size: int) -> bool:
        """Lay whole pages behind the first `size` bytes of an unmapped block."""
        page = PAGE[block.small]
        n_bytes = -(-size // page) * page
        if self.reserved + n_bytes > self.capacity:
            return False
        gaps = self._gaps(block.small)
        gaps.remove(block)
        if n_bytes < block.size:
            rest = block.cut(n_bytes)
            rest.free = False
            insort(gaps, rest, key=lambda b: b.at)
        block.mapped = True
        self._reserve(n_bytes)
        self.calls += 1
        self._log("segment_map", block, n_bytes)
        self._free(block)
        return True

    def _unmap(self, block: Piece) -> None:
        """Give back the whole pages within a free block."""
        page, base = PAGE[block.small], block.segment
        begin = base + -(-(block.at - base) // page) * page
        end = base + (block.at + block.size - base) // page * page
        if begin >= end:
            return
        self._remove(block)
        if begin > block.at:
            head, block = block, block.cut(begin - block.at)
            self._put(head)
        if end < block.at + block.size:
            self._put(block.cut(end - begin))
        block.free = block.mapped = False
        self.reserved -= block.size
        self.returned += 1
        self._log("segment_unmap", block, block.size)
        gaps = self._gaps(block.small)
        for near in (block.before, block.after):
            if near is not None and not near.mapped:
                gaps.remove(near)
                block.absorb(near)
        if block.split:  # else the segment is empty: its addresses go too
            insort(gaps, block, key=lambda b: b.at)

    def _release_oversized(self, size: int, small: bool) -> bool:
        return False

    def _splits(self, block: Piece, size: int) -> bool:
        return block.size - size >= MIN_BLOCK

    def _stuck(self, block: Piece) -> int:
        return 0  # torch leaves expandable segments out of this figure
