"""A rank of the sweep: how long does an all-reduce take, by size?

Asked: `sizes` in bytes, multiples of 4; `rounds`. Told: `seconds`, by size those of each
round; `sums` and `wire` of the largest size.
"""

import time
from pathlib import Path

from gpulab_utils.workers import joined, tell

import torch
import torch.distributed as dist

AGREED = 1.02  # two counts of the same step: headers vary, and little else
LEAST = 64  # values of the barrier that lets all ranks start at the same time


def seconds(n_bytes: int, place) -> float:
    """Seconds of one all-reduce of so many bytes, from a common start to its end.

    Raises `RuntimeError` if the clock stopped before the last value was a sum.
    """
    values = torch.ones(n_bytes // 4, device=place)  # [n_bytes / 4] float32
    meet(place)
    start = time.perf_counter()
    dist.all_reduce(values)
    values[0].item()  # a card is waited for
    took = time.perf_counter() - start
    if values[-1].item() != dist.get_world_size():
        raise RuntimeError(f"{n_bytes} bytes were not summed when the clock stopped")
    return took


def meet(place) -> None:
    """Wait until every rank is here."""
    few = torch.ones(LEAST, device=place)
    dist.all_reduce(few)
    few[0].item()


def sweep(sizes: list[int], rounds: int, place) -> dict[str, list[float]]:
    """By size the seconds of each round, sizes in turns, the first round left out."""
    took = [[seconds(n, place) for n in sizes] for _ in range(rounds + 1)][1:]
    return dict(zip(map(str, sizes), zip(*took, strict=True), strict=True))


def sums(n_bytes: int, place) -> list[float]:
    """The different values of a sum over the ranks of rank + 1: one, if all is well."""
    values = torch.full((n_bytes // 4,), dist.get_rank() + 1.0, device=place)
    dist.all_reduce(values)
    return values.unique().tolist()


def sent_bytes() -> int | None:
    """Bytes that the loopback has carried so far, headers too; None where nobody counts."""
    path = Path("/sys/class/net/lo/statistics/tx_bytes")
    return int(path.read_text()) if path.exists() else None


def on_loopback(run, tries: int = 5) -> int | None:
    """Bytes on the loopback while all ranks `run()`, headers too; None on cards.

    The kernel counts those of all processes of the machine, and others can only add: the
    least of the tries counts, and only if a second one agrees; None otherwise.
    """
    place, counts = torch.device("cpu"), []
    if dist.get_backend() != "gloo" or sent_bytes() is None:
        return None
    for _ in range(tries):
        meet(place)
        before = sent_bytes()
        meet(place)  # else another has sent some before this one has read
        run()
        meet(place)
        counts.append(sent_bytes() - before)
    least, second, *_ = sorted(counts)
    return least if second <= AGREED * least else None


if __name__ == "__main__":
    with joined() as (ask, place):
        took, most = sweep(ask["sizes"], ask["rounds"], place), max(ask["sizes"])
        sent = on_loopback(lambda: seconds(most, place))
        tell({"seconds": took, "sums": sums(most, place), "wire": sent})
