"""Which learning rate does a rung need? Asked of data that no score is read from.

The rule: every fifth item of the training data is held out. The rung trains on the others
at each rate of a grid of doublings, over seeds that the ladder does not use. The rate with
the least mean loss on the held-out items wins. `python -m gpulab_utils.loops cnn` (or gpt)
does it for the rates of `rungs`: the CNN trains on as many samples as the ladder does, the
GPT of the CPU's size on 400 windows.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import mean

from gpulab_utils.loops.ends import ends
from gpulab_utils.loops.rungs import Rung, Task

import torch
from torch.utils.data import TensorDataset

SEEDS = (10, 11, 12)


@dataclass(frozen=True)
class Choice:
    """A rate, and what decided: its rows of `ends`, of all rates and seeds."""

    rate: float
    losses: dict[
        float, float
    ]  # rate -> mean held-out loss in nats, infinite if one diverged
    rows: list[dict]

    @property
    def at_edge(self) -> bool:
        """Whether the grid ends where the best rate lies: it should have been wider."""
        return self.rate in (min(self.losses), max(self.losses))

    def accuracy(self, rate: float) -> float:
        """Mean held-out accuracy of one rate."""
        return mean(row["accuracy"] for row in self.rows if row["lr"] == rate)


def held_out(task: Task) -> Task:
    """`task` with every fifth of its training items as "test", the others as "train".

    The test data are not touched.
    """

    def data(split: str) -> TensorDataset:
        tensors = task.data("train").tensors
        chosen = (torch.arange(len(tensors[0])) % 5 == 4) == (split == "test")
        return TensorDataset(*(x[chosen] for x in tensors))

    return replace(task, data=data)


def doublings(rate: float, low: int, high: int) -> list[float]:
    """`rate` times 2 to the power of `low` to `high`.

    >>> doublings(1.0, -1, 2)
    [0.5, 1.0, 2.0, 4.0]
    """
    return [rate * 2.0**power for power in range(low, high + 1)]


def choose_rate(
    task: Task,
    rung: Rung,
    rates: Iterable[float],
    *,
    samples: int,
    seeds: Iterable[int] = SEEDS,
    items: int | None = None,
) -> Choice:
    """The rate of `rates` at which `rung` has the least held-out loss after `samples`.

    `items` limits how many held-out items are scored. Raises `ValueError` where every
    rate diverges.
    """
    tried = [replace(rung, name=f"rate {lr:g}", lr=lr) for lr in rates]
    rows = ends(held_out(task), tried, samples=samples, seeds=seeds, items=items)
    losses = {}
    for lr in sorted(one.lr for one in tried):
        told = mean(row["loss"] for row in rows if row["lr"] == lr)
        losses[lr] = told if math.isfinite(told) else math.inf
    best = min(losses, key=losses.get)
    if math.isinf(losses[best]):
        raise ValueError(f"every rate diverges: {sorted(losses)}; try smaller ones")
    return Choice(best, losses, rows)
