"""What does each of the ranks hold? Bytes of a training's state, divided or not.

Adam in mixed precision keeps 16 bytes a parameter: weights 2, gradients 2, and of the
optimizer 12 (weights, momentum and variance in fp32). In fp32 it is 4, 4 and 8.
Source: ZeRO, Rajbhandari et al., 2020, section 3.1 and figure 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

MIXED, SINGLE = (2, 2, 12), (4, 4, 8)

#: What each way divides by the ranks: (weights, gradients, optimizer).
DIVIDED = {
    "ddp": (False, False, False),
    "zero-1": (False, False, True),
    "zero-2": (False, True, True),
    "fsdp": (True, True, True),
}


@dataclass(frozen=True)
class Held:
    """Bytes that one rank holds; `gathered` only while a layer is at work."""

    parameters: float
    gradients: float
    optimizer: float
    gathered: float = 0.0

    @property
    def state(self) -> float:
        """What stays from step to step."""
        return self.parameters + self.gradients + self.optimizer

    @property
    def total(self) -> float:
        return self.state + self.gathered


def held(parts: Sequence[int], way: str, ranks: int, *, bytes_each=MIXED) -> Held:
    """Bytes of each of `ranks`, for a model of `parts`: parameters of root, layer, layer...

    `bytes_each` are those of a weight, a gradient and the optimizer's share. `gathered`
    under FSDP2 is the root and one layer whole, the buffer that the next is gathered
    into, and the one whose gradients are scattered; under DDP its buckets, a copy of
    all gradients (none with `gradient_as_bucket_view`). Activations come on top. Raises
    `ValueError` for another way and for no ranks.

    >>> held([0, 10**9], "fsdp", 8).state / 1e9
    2.0
    >>> held([0, 10**9], "ddp", 8).state / 1e9
    16.0
    """
    if way not in DIVIDED:
        raise ValueError(f"way must be one of {', '.join(DIVIDED)}, got {way!r}")
    if ranks < 1:
        raise ValueError(f"ranks must be positive, got {ranks}")
    params = sum(parts)
    each = [
        params * size / (ranks if divided else 1)
        for size, divided in zip(bytes_each, DIVIDED[way], strict=True)
    ]
    weight, gradient, _ = bytes_each
    gathered = params * gradient if way == "ddp" and ranks > 1 else 0
    if way == "fsdp" and ranks > 1:
        layer = max(parts[1:], default=0)
        gathered = weight * (parts[0] + 2 * layer) + gradient * layer
    return Held(*each, gathered)


def ranks_needed(parts: Sequence[int], way: str, room: float, *, bytes_each=MIXED) -> int:
    """The fewest ranks, up to 1024, whose `room` bytes each hold state and gathered.

    0 where that is not enough; activations come on top.

    >>> parts = [10**8] * 130
    >>> ranks_needed(parts, "ddp", 24e9), ranks_needed(parts, "fsdp", 24e9)
    (0, 9)
    """
    for ranks in range(1, 1025):
        if held(parts, way, ranks, bytes_each=bytes_each).total <= room:
            return ranks
    return 0
