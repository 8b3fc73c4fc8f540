"""How fast is each rung? All of them take turns, so that a busy minute hits all alike."""

import time
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from statistics import median

from gpulab_utils import device
from gpulab_utils.loops.ends import some
from gpulab_utils.loops.run import Run
from gpulab_utils.loops.rungs import Rung, Task, as_printed
from gpulab_utils.progress import progress
from gpulab_utils.timing import Ratio, in_turns

import torch
from torch.utils.benchmark import set_torch_threads
from torch.utils.data import DataLoader

TEXT = "article's text"


@dataclass(frozen=True)
class Turns:
    """Seconds a sample, round by round, and what the first call cost, by rung."""

    seconds: dict[str, list[float]]
    first_s: dict[str, float]  # wall; a compiled rung compiles in it, others warm up

    def per_s(self, rung: str) -> float:
        """Samples a second, the median of the rounds.

        >>> Turns({"a": [0.5, 0.1, 0.5]}, {}).per_s("a")
        2.0
        """
        return 1 / median(self.seconds[rung])

    def ratio(self, slow: str, fast: str) -> Ratio:
        """How many times as fast `fast` is as `slow`; fewer than 8 rounds judge nothing."""
        return in_turns(self.seconds[slow], self.seconds[fast])


def turns(
    task: Task,
    rungs: Iterable[Rung],
    *,
    samples: int,
    rounds: int = 8,
    printed: bool = False,
) -> Turns:
    """Train each rung on `samples` samples a round; whole batches, so it may be more.

    On a CPU torch keeps to one thread, and that thread's own time counts: neighbours
    cannot take it. On a GPU the host clock counts, to the end of what was enqueued. With
    `printed` article B's own text runs too, under the name `TEXT`, on as many samples of
    the CNN's training data. A compiled rung compiles anew, whatever a cache holds.
    """
    here = device.here()
    threads = torch.get_num_threads() if here.is_gpu else 1
    with set_torch_threads(threads):
        jobs = {rung.name: Run(task, rung) for rung in rungs}
        jobs |= {TEXT: _text(task, samples)} if printed else {}
        first, seconds = {}, {name: [] for name in jobs}
        for name, job in progress(jobs.items(), "first calls"):
            begun = time.perf_counter()
            with _no_cache(job):
                _timed(job, samples)
            first[name] = time.perf_counter() - begun
        for _ in progress(range(rounds), "rounds"):
            for name, job in jobs.items():
                seconds[name].append(_timed(job, samples))
    return Turns(seconds, first)


def _text(task: Task, samples: int):
    """A call that trains article B's model: two epochs of half the samples."""
    digits = some(task.data("train"), samples // 2)

    def job(_: int) -> int:
        as_printed(DataLoader(digits, batch_size=4, shuffle=True))
        return 2 * len(digits)

    return job


def _timed(job, samples: int) -> float:
    """Seconds a sample of one call."""
    gpu = device.here().is_gpu
    clock = time.perf_counter if gpu else time.thread_time
    wait = torch.cuda.synchronize if gpu else lambda: None
    wait()
    begun = clock()
    done = job(samples)
    wait()
    return (clock() - begun) / done


def _no_cache(job):
    if not (isinstance(job, Run) and job.rung.compiled):
        return nullcontext()
    from torch._inductor.utils import fresh_cache

    return fresh_cache()
