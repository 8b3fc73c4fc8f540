"""What stays reserved? Whole steps, layer by layer, played into a model allocator."""

import random
from dataclasses import replace
from functools import lru_cache
from statistics import fmean, median

from gpulab_utils.plan.bill import CUBLAS, bill, trained, trained_width, weight_bytes
from gpulab_utils.plan.ops import Ops
from gpulab_utils.plan.phases import prefill, train_step
from gpulab_utils.plan.pool import MIB, Pool
from gpulab_utils.plan.setting import Setting

STEPS, ORDERS, FEW = 100, 3, 2


class Played(Ops):
    """A tape whose every booking also goes to a pool."""

    def __init__(self, pool: Pool, **options):
        super().__init__(**options)
        self.pool, self.quiet = pool, True

    def book(self, size, cat, layer, store):
        super().book(size, cat, layer, store)
        if size:
            self.pool.allocate(id(store), size)

    def drop(self, store):
        super().drop(store)
        if store.size:
            self.pool.release(id(store))


def load(pool: Pool, s: Setting) -> None:
    """Weights one by one, then adapters and the workspace of the main thread."""
    parts = weight_bytes(s)
    pool.allocate("embedding", parts["embedding"])
    if parts["head"]:
        pool.allocate("head", parts["head"])
    linears = s.shape.linears
    total = sum(s.fmt.tensor_bytes(r, c) * many for _, r, c, many in linears) or 1
    share = parts["linears"] / total
    for name, rows, columns, many in linears:
        for i in range(many):
            pool.allocate((name, i), share * s.fmt.tensor_bytes(rows, columns))
    pool.allocate("small", parts["small"])
    if s.adapter:
        pool.allocate("adapters", trained(s) * trained_width(s))
    pool.allocate("cublas", CUBLAS)


def gradients(pool: Pool, s: Setting) -> None:
    """Where they are kept from step to step: one a weight, after the first backward."""
    if not s.accumulates or s.adapter:
        return
    for name, rows, columns, many in s.shape.linears:
        for i in range(many):
            pool.allocate(("gradient", name, i), rows * columns * s.width)
    pool.allocate("gradients", (trained(s) - s.shape.linear_params) * s.width)


def states(pool: Pool, s: Setting) -> None:
    """The optimizer's first step: two states a weight, in the weights' order."""
    o, n = s.optimizer, trained(s)
    if o.on_host or not o.state_bytes:
        return
    if s.adapter:
        pool.allocate("states", n * o.state_bytes)
        return
    for name, rows, columns, many in s.shape.linears:
        for i in range(many):
            for half in (0, 1):
                pool.allocate(("state", name, i, half), rows * columns * o.state_bytes / 2)
    rest = n - s.shape.linear_params
    pool.allocate("states", rest * o.state_bytes)


def step_copies(pool: Pool, s: Setting) -> None:
    """What the step holds beside the states: foreach a copy of one, a loop one tensor's."""
    n = trained(s)
    if s.optimizer.copy_bytes:
        for _, rows, columns, many in s.shape.linears if not s.adapter else ():
            for i in range(many):
                pool.allocate(("copy", _, i), rows * columns * s.optimizer.copy_bytes)
        rest = n if s.adapter else n - s.shape.linear_params
        pool.allocate("copies", rest * s.optimizer.copy_bytes)
        for key in [k for k in pool.taken if k == "copies" or k[0] == "copy"]:
            pool.release(key)
        return
    largest = s.shape.vocab * s.shape.hidden if not s.adapter else 0
    if largest:
        for i in range(s.optimizer.loop_copies):
            pool.allocate(("loop", i), largest * 4)
        for i in range(s.optimizer.loop_copies):
            pool.release(("loop", i))


def lengths(s: Setting, rng: random.Random) -> list[int]:
    """Padded lengths of batches in one order: the longest of each batch's samples.

    Samples longer than `seq` are cut to it or dropped, as the loader does.
    """
    spread = s.extra.get("lengths")
    if not spread:
        return [s.forward] * 2
    *shape, over = spread
    steps = STEPS if s.mode != "full_train" else STEPS // 5
    found = []
    while len(found) < steps * s.batch:
        n = round(power_law(rng.random(), *shape))
        if n <= s.forward or over != "dropped":
            found.append(min(n, s.forward))
    return [max(found[i : i + s.batch]) for i in range(0, len(found), s.batch)]


@lru_cache
def exponent(low: float, mean: float, high: float) -> float:
    """The a of a density x^-a from `low` to `high` that has this mean, by bisection.

    >>> round(exponent(91, 3234, 19548), 2)  # nearly uniform in the logarithm
    1.06
    """
    left, right = -20.0, 20.0
    for _ in range(60):
        a = (left + right) / 2
        grid = [power_law((i + 0.5) / 400, low, mean, high, a) for i in range(400)]
        left, right = (a, right) if fmean(grid) > mean else (left, a)
    return (left + right) / 2


def power_law(
    u: float, low: float, mean: float, high: float, a: float | None = None
) -> float:
    """The sample length at quantile `u` where shortest, mean and longest are known."""
    b = 1 - (exponent(low, mean, high) if a is None else a)
    if abs(b) < 1e-9:
        return low * (high / low) ** u
    return low * (1 + u * ((high / low) ** b - 1)) ** (1 / b)


def played(s: Setting, seed: int = 0) -> Pool:
    """One order of batches, from the weights to the last step."""
    pool = Pool()
    load(pool, s)
    rng = random.Random(seed)
    whole = replace(s, extra=s.extra | {"whole": True})
    if s.mode == "inference":
        t = Played(pool)
        run = whole.run(t)
        run.kv = [] if s.cache else None
        prefill(run, run.tokens if s.rows == "all" else run.batch)
        return pool
    pool.allocate("cublas backward", CUBLAS)
    for i, n in enumerate(lengths(s, rng)):
        t = Played(pool)
        train_step(replace(whole, prefill=n).run(t), s.checkpoint, s.autocast)
        if i == 0:
            gradients(pool, s)
            states(pool, s)
        step_copies(pool, s)
        del t
    return pool


def reserved(s: Setting) -> int:
    """Peak bytes reserved, the median of some orders of batches where their lengths differ.

    Where adapters train, FEW layers are played, and the others add what they add to the
    allocated peak: the fragments come from tensors as large as the vocabulary.
    """
    orders, more = ORDERS if s.extra.get("lengths") else 1, 0
    if s.adapter and s.shape.layers > FEW:
        few = replace(s.shape, layers=FEW, moe_layers=min(s.shape.moe_layers, FEW))
        part = replace(s, shape=few)
        more, s = bill(s).allocated - bill(part).allocated, part
    return int(median(played(s, seed).peak_reserved for seed in range(orders)) + more)


def longest(s: Setting, room: float) -> int:
    """The longest sequence whose reserved bytes stay below `room`, to one part in 64."""
    held = lambda n: reserved(replace(s, seq=n, prefill=n))  # noqa: E731
    if held(64) > room:
        return 0
    low, high = 64, 128
    while held(high) <= room and high < 1 << 21:
        low, high = high, 2 * high
    for _ in range(6):
        middle = (low + high) // 2
        low, high = (middle, high) if held(middle) <= room else (low, middle)
    return (low + high) // 2


__all__ = ["MIB", "Played", "longest", "reserved"]
