"""Small networks, many at a time, one a seed: what is found has an interval.

Their weights lie stacked, so that ten seeds cost ten times the arithmetic and not ten times
the calls.
"""

import math
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F

# The 97.5 % point of Student's t for 1, 2, 3 ... degrees of freedom.
T975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201)
T975 += (2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093)


def interval(values) -> tuple[float, float]:
    """Mean of `values` and half of its 95 % t interval; 2 to 20 of them.

    Raises `ValueError` for fewer or more.

    >>> mean, half = interval([1.0, 2.0, 3.0])  # 4.303 x 1 / sqrt(3)
    >>> round(mean, 3), round(half, 3)
    (2.0, 2.484)
    """
    values = torch.as_tensor(values, dtype=torch.float64)
    n = len(values)
    if not 2 <= n <= len(T975) + 1:
        raise ValueError(f"needs 2 to {len(T975) + 1} values, got {n}")
    return float(values.mean()), T975[n - 2] * float(values.std()) / math.sqrt(n)


class Nets(torch.nn.Module):
    """`seeds` networks of the same sizes, each with random weights of its own.

    Called with x [n, in], or [seeds, n, in], a batch for each, it returns the last hidden
    layer [seeds, n, hidden] and the logits [seeds, n, out]. ReLU between the layers.

    >>> hidden, logits = Nets(3, (8, 5, 2))(torch.ones(4, 8))
    >>> tuple(hidden.shape), tuple(logits.shape)
    ((3, 4, 5), (3, 4, 2))
    """

    def __init__(self, seeds: int, sizes: tuple, first: int = 0):
        super().__init__()
        draw = torch.Generator().manual_seed(first)
        self.weights, self.biases = torch.nn.ParameterList(), torch.nn.ParameterList()
        for rows, columns in pairwise(sizes):
            reach = 1 / math.sqrt(rows)  # as torch.nn.Linear draws them
            for kept, n in ((self.weights, rows), (self.biases, 1)):
                values = torch.rand(seeds, n, columns, generator=draw)
                kept.append(torch.nn.Parameter((2 * values - 1) * reach))

    def forward(self, x):
        x = x if x.dim() == 3 else x.expand(len(self.weights[0]), *x.shape)
        *first, last = zip(self.weights, self.biases, strict=True)
        for weight, bias in first:
            x = F.relu(torch.baddbmm(bias, x, weight))
        return x, torch.baddbmm(last[1], x, last[0])


def subsets(seeds: int, of: int, n: int):
    """For each seed `n` different places of `of`: int64 [seeds, n].

    >>> subsets(2, 5, 5).sort().values.tolist()
    [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]
    """
    draw = torch.Generator().manual_seed(1)
    return torch.stack([torch.randperm(of, generator=draw)[:n] for _ in range(seeds)])


def fit(nets: Nets, places, loss: Callable, *, steps: int, batch: int = 64, extra=()):
    """Train `nets` in place; each network draws from its row of `places` [seeds, n].

    `loss(places)` gets those drawn, [seeds, batch], and returns the mean loss over all; it
    is multiplied by the number of networks, so that each learns as if alone. Adam, whose
    rate falls from 5e-3 along a line; `extra` parameters learn too. Returns `nets`.
    """
    draw = torch.Generator().manual_seed(2)
    adam = torch.optim.Adam([*nets.parameters(), *extra], lr=5e-3)
    fall = torch.optim.lr_scheduler.LinearLR(adam, 1.0, 0.05, total_iters=steps)
    device = places.device
    with torch.enable_grad():
        for _ in range(steps):
            drawn = torch.randint(places.shape[1], (len(places), batch), generator=draw).to(
                device
            )
            told = len(places) * loss(places.gather(1, drawn))
            adam.zero_grad()
            told.backward()
            adam.step()
            fall.step()
    return nets


def accuracy(nets: Nets, x, y):
    """Share of `x` [n, in] that each network calls by its name in `y` [n]: [seeds]."""
    with torch.inference_mode():
        return (nets(x)[1].argmax(-1) == y).float().mean(1).cpu()
