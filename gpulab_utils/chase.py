"""How long does one read wait that needs the read before it? A chase of pointers.

step_s  seconds between two dependent reads of one chain

On a CPU a compiled loop follows a random cycle through cache lines, one chain after the
other by turns, so that k chains have k reads under way. A loop in Python would measure
Python. On a GPU a binary search does it: each halving needs the value just read.
"""

from collections.abc import Callable
from functools import cache

from gpulab_utils import device

WORDS = 8  # int64 in a cache line of 64 bytes


def chase(lines: int, chains: int, steps: int = 20_000) -> tuple[Callable, int]:
    """(call, dependent reads in each chain): `chains` independent chains over `lines`.

    Raises `ValueError` for more chains than lines, `ImportError` where numba is missing.

    >>> walk, steps = chase(lines=1024, chains=2, steps=10)
    >>> steps in (10, 14)  # on a CPU; on a GPU, which searches 1,024 lines of 16 values
    True
    """
    if not 0 < chains <= lines:
        raise ValueError(f"chains must be 1 to {lines} (lines), got {chains}")
    if device.here().is_gpu:
        return _search(lines, chains)
    table, order = cycle(lines)
    starts = order[:: lines // chains][:chains].numpy() * WORDS
    words, walk = table.numpy(), _compiled()[0]
    return lambda: walk(words, starts, steps), steps


@cache
def cycle(lines: int):
    """A table [lines x 8] int64 whose every eighth word names the next, and the order.

    Following it from anywhere visits each line once before it returns.

    >>> table, order = cycle(16)
    >>> at, seen = 0, set()
    >>> for _ in range(16):
    ...     at = int(table[at]); seen.add(at)
    >>> len(seen), at
    (16, 0)
    """
    import torch

    order = torch.randperm(lines, generator=torch.Generator().manual_seed(0))
    table = torch.zeros(lines * WORDS, dtype=torch.int64)
    table[order * WORDS] = order.roll(-1) * WORDS
    return table, order


def read_all(words) -> int:
    """Read an array of int64 once, in order, with one thread: the exclusive or of all."""
    return _compiled()[1](words)


def stream(lines: int) -> Callable:
    """Read the same lines once, in order: the next address needs no answer."""
    if device.here().is_gpu:
        return _sorted_values(lines).sum
    words = cycle(lines)[0].numpy()
    return lambda: read_all(words)


def _search(lines: int, chains: int) -> tuple[Callable, int]:
    """`chains` binary searches at once, each of log2 dependent reads."""
    import torch

    values = _sorted_values(lines)
    n, where = len(values), values.device
    asked = torch.randint(n, (chains,), dtype=torch.int32, device=where)  # [chains]
    return lambda: torch.searchsorted(values, asked), n.bit_length() - 1


@cache
def _sorted_values(lines: int):
    """As many bytes as `lines` cache lines, sorted: int32 [lines x 16]."""
    import torch

    return torch.arange(2 * WORDS * lines, dtype=torch.int32, device=device.here().device)


@cache
def _compiled() -> tuple[Callable, Callable]:
    try:
        import numba
        import numpy as np
    except ImportError as error:
        raise ImportError(
            f"the pointer chase needs numba ({error}): pip install numba, or run `make`, "
            "whose lock has it"
        ) from error

    @numba.njit(nogil=True)
    def walk(table, starts, steps):
        at = starts.copy()  # [chains]
        for _ in range(steps):
            for chain in range(at.size):
                at[chain] = table[at[chain]]
        return at

    @numba.njit(nogil=True)
    def read(words):
        seen = np.int64(0)
        for i in range(words.size):
            seen ^= words[i]
        return seen

    return walk, read
