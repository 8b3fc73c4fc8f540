"""How fast can it be at best? The roofline: memory or arithmetic, whichever ends later.

Seconds, bytes, FLOP. Source: Williams, Waterman, Patterson, "Roofline: an insightful visual
performance model for multicore architectures", CACM 52(4), 2009.
"""

from dataclasses import dataclass

from gpulab_utils.cards import Card


@dataclass(frozen=True)
class Bound:
    """The least time a card needs, and the wall that sets it."""

    memory_s: float
    compute_s: float

    @property
    def seconds(self) -> float:
        return max(self.memory_s, self.compute_s)

    @property
    def wall(self) -> str:
        return "memory" if self.memory_s >= self.compute_s else "compute"


def bound(card: Card, *, flop: float, bytes_moved: float, dtype: str = "fp16") -> Bound:
    """The least seconds for `flop` operations in `dtype` on `bytes_moved` bytes.

    Raises `ValueError` for a count that is negative, for no bytes, and for a dtype whose
    rate the card's data sheet does not give.

    >>> from gpulab_utils.cards import CARDS
    >>> b = bound(CARDS["rtx-3080-ti"], flop=0, bytes_moved=912_000_000_000)
    >>> b.wall, round(b.seconds, 2)
    ('memory', 1.0)
    """
    if bytes_moved <= 0:
        raise ValueError(f"bytes_moved must be positive, got {bytes_moved}")
    if flop < 0:
        raise ValueError(f"flop must not be negative, got {flop}")
    memory_s = bytes_moved / card.mem_bytes_per_s
    return Bound(memory_s, flop / card.rate(dtype) if flop else 0.0)


def ridge(card: Card, dtype: str = "fp16") -> float:
    """FLOP per byte above which arithmetic, not memory, is the wall.

    >>> from gpulab_utils.cards import CARDS
    >>> round(ridge(CARDS["rtx-3080-ti"]))
    75
    """
    return card.rate(dtype) / card.mem_bytes_per_s
