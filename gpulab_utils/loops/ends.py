"""Where does each rung end? Scores after an equal number of samples, seed by seed.

One seed says little: two seeds of one rung lie as far apart as two rungs do. Runs of one
seed start from the same weights and, at one batch, see the same samples in the same order,
so rungs are compared pair by pair.
"""

import gc
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpulab_utils import alive, distilling, ledger, memory
from gpulab_utils.loops.run import Run
from gpulab_utils.loops.rungs import Rung, Task
from gpulab_utils.loops.scores import Score, evaluate
from gpulab_utils.progress import progress

from torch.utils.data import DataLoader, TensorDataset


@dataclass(frozen=True)
class Apart:
    """How far one rung ends above another: the mean over seeds, and half of its 95 % t
    interval, in what was compared.

    >>> told = Apart(0.004, half=0.016, seeds=3)
    >>> told.equal, told.within(0.03), told.within(0.01)
    (True, True, False)
    """

    mean: float
    half: float
    seeds: int

    @property
    def equal(self) -> bool:
        """Whether the interval has 0 in it: no difference is shown, nor is there none."""
        return abs(self.mean) <= self.half

    @property
    def low(self) -> float:
        """The lower end: accuracy is not worse by m where this lies above -m."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """The upper end: a loss is not worse by m where this lies below m."""
        return self.mean + self.half

    @property
    def open(self) -> float:
        """The largest difference, either way, that the interval leaves open."""
        return abs(self.mean) + self.half

    def within(self, margin: float) -> bool:
        """Whether every difference that it leaves open is smaller than `margin`."""
        return self.open < margin

    def __str__(self) -> str:
        return (
            f"{self.mean:+.3f}, 95 % interval {self.half:.3f} each way, {self.seeds} seeds"
        )


def some(data: TensorDataset, n: int | None) -> TensorDataset:
    """`n` items from all over `data`; all where it has no more, or where n is None.

    >>> import torch
    >>> some(TensorDataset(torch.arange(10)), 3).tensors
    (tensor([0, 3, 6]),)
    """
    size = len(data)
    if n is None or n >= size:
        return data
    return TensorDataset(*(x[:: size // n][:n] for x in data.tensors))


def scored(task: Task, run: Run, items: int | None = None) -> Score:
    """The model of `run` on `items` of the task's test data (all), in fp32."""
    return evaluate(run.model, DataLoader(some(task.data("test"), items), batch_size=50))


def bits(rung: Rung) -> Rung:
    """What of a rung a trained weight depends on: not on how a batch is cut or asked for.

    >>> bits(Rung(gather=True)) == bits(Rung(item_every=100)) != bits(Rung(batch=8))
    True
    """
    return replace(rung, name="", on="", gather=True, item_every=1)


def ends(
    task: Task,
    rungs: Iterable[Rung],
    *,
    samples: int,
    seeds: Iterable[int] = (0, 1, 2),
    items: int | None = None,
) -> list[dict]:
    """Train each rung on `samples` samples for each seed, in whole batches; a row each.

    A row has task, rung, batch, lr, seed, samples (trained), accuracy (0 to 1), loss
    (nats) and items, how many answers were scored. Rungs that differ in no bit (`bits`)
    are trained once; the row of the second names the first as `same_as`. A run
    that diverged has the loss nan. Raises `ValueError` where two rungs have one name.
    """
    rungs, seeds, rows, done = list(rungs), list(seeds), [], {}
    if len({rung.name for rung in rungs}) < len(rungs):
        raise ValueError(f"two rungs of one name: {[rung.name for rung in rungs]}")
    jobs = [(seed, rung) for seed in seeds for rung in rungs]
    for seed, rung in progress(jobs, "runs"):
        first = done.get((seed, bits(rung)))
        if first is None:
            run = Run(task, rung, seed=seed)
            trained = run(samples)
            score = scored(task, run, items)
            first = done[seed, bits(rung)] = rung.name, score, trained
        name, score, trained = first
        told = {"task": task.name, "rung": rung.name, "batch": rung.batch, "lr": rung.lr}
        told |= {"seed": seed, "samples": trained, **vars(score)}
        rows.append(told | ({"same_as": name} if name != rung.name else {}))
    return rows


def apart(rows: list[dict], rung: str, base: str, by: str = "accuracy") -> Apart:
    """By how much `rung` ends above `base` in rows of `ends`, paired seed by seed.

    `by` is "accuracy" or "loss". Of several rungs held against one base about one in
    twenty seems to differ where none does. Raises `ValueError` where a rung is not in the
    rows, where the two have other seeds, and for fewer than 2 or more than 20 seeds.

    >>> ends = {("a", 0): 0.90, ("a", 1): 0.92, ("b", 0): 0.91, ("b", 1): 0.94}
    >>> rows = [{"rung": r, "seed": s, "accuracy": v} for (r, s), v in ends.items()]
    >>> print(apart(rows, "b", "a"))
    +0.015, 95 % interval 0.064 each way, 2 seeds
    """
    above, below = (
        {row["seed"]: row[by] for row in rows if row["rung"] == name}
        for name in (rung, base)
    )
    if not above or above.keys() != below.keys():
        found = f"{rung}: {sorted(above)}, {base}: {sorted(below)}"
        raise ValueError(f"a pair needs the same seeds, found {found}")
    gaps = [above[seed] - below[seed] for seed in above]
    return Apart(*distilling.interval(gaps), len(gaps))


def peak_bytes(task: Task, rung: Rung) -> memory.Peak | None:
    """The most bytes alive in a step: weights, gradients, states, activations.

    On a CPU by the ledger (`alive`), which does not see into compiled code: None there. On
    a GPU by its allocator, for rungs that compute on it.
    """
    gc.collect()  # what an earlier rung left would be freed while this one is watched
    run = Run(task, rung)
    inputs, labels = next(run.batches)
    step = lambda enter=None: run.step(inputs, labels)  # noqa: E731
    if run.place.type == "cuda":
        return memory.peak(step, modules=[run.model], optimizers=[run.optimizer])
    if rung.compiled:
        return None
    step()  # the optimizer's states are made
    kept = ledger.weights(run.model), ledger.states(run.optimizer), [inputs, labels]
    return ledger.largest(alive.keep(step, *kept).peaks())
