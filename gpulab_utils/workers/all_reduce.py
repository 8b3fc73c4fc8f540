"""A rank of the sweep: how long does an all-reduce take, by size?

Asked: `sizes` in bytes, multiples of 4; `rounds`. Tells `seconds`: a list of rounds, each
the seconds by size; and `wrong`, how many values of the last sums were not the sum.
"""

import time

from gpulab_utils.workers import joined, tell

import torch
import torch.distributed as dist

LEAST = 64  # values of the barrier that lets all ranks start at the same time


def seconds(n_bytes: int, place) -> float:
    """Seconds of one all-reduce of so many bytes, from a common start to its end."""
    values = torch.ones(n_bytes // 4, device=place)  # [n_bytes / 4] float32
    meet(place)
    start = time.perf_counter()
    dist.all_reduce(values)
    values[0].item()  # a card is waited for
    return time.perf_counter() - start


def meet(place) -> None:
    """Wait until every rank is here."""
    few = torch.ones(LEAST, device=place)
    dist.all_reduce(few)
    few[0].item()


def sweep(sizes: list[int], rounds: int, place) -> list[list[float]]:
    """Seconds by size, sizes in turns, the first round left out."""
    return [[seconds(n, place) for n in sizes] for _ in range(rounds + 1)][1:]


def wrong(n_bytes: int, place) -> int:
    """How many of the values are not the sum over the ranks of rank + 1."""
    ranks = dist.get_world_size()
    values = torch.full((n_bytes // 4,), dist.get_rank() + 1.0, device=place)
    dist.all_reduce(values)
    return int((values != ranks * (ranks + 1) / 2).sum())


if __name__ == "__main__":
    with joined() as (ask, place):
        took = sweep(ask["sizes"], ask["rounds"], place)
        tell({"seconds": took, "wrong": wrong(max(ask["sizes"]), place)})
