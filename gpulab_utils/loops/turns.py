"""How fast is each rung? All of them take turns, so that a busy minute hits all alike."""

import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from gpulab_utils import device
from gpulab_utils.loops.ends import peak_bytes, some
from gpulab_utils.loops.run import Run
from gpulab_utils.loops.rungs import Rung, Task, as_printed
from gpulab_utils.progress import progress
from gpulab_utils.timing import Ratio, in_turns

import torch
from torch.utils.benchmark import set_torch_threads
from torch.utils.data import DataLoader

TEXT = "article's text"
LIBRARY = "convolution", "mm", "linear", "scaled_dot_product"  # in an event's name


@dataclass(frozen=True)
class Turns:
    """Seconds a sample, round by round, and what the first call cost, by rung."""

    seconds: dict[str, list[float]]
    first_s: dict[str, float]  # wall; a compiled rung compiles in it, others warm up
    kernels: dict = field(default_factory=dict)  # µs a sample; compiled, and the one below

    def per_s(self, rung: str) -> float:
        """Samples a second, the median of the rounds.

        >>> Turns({"a": [0.5, 0.1, 0.5]}, {}).per_s("a")
        2.0
        """
        return 1 / median(self.seconds[rung])

    def ratio(self, slow: str, fast: str) -> Ratio:
        """How many times as fast `fast` is as `slow`; fewer than 8 rounds judge nothing."""
        return in_turns(self.seconds[slow], self.seconds[fast])

    def best(self, rungs: Iterable[Rung], batch: int | None = None) -> str:
        """The name of the fastest of `rungs`; of those with one `batch` if given.

        >>> told = Turns({"as printed": [0.2], "large": [0.1]}, {})
        >>> rungs = Rung(), Rung("large", batch=8)
        >>> told.best(rungs), told.best(rungs, 4)
        ('large', 'as printed')
        """
        return max((r.name for r in rungs if batch in (None, r.batch)), key=self.per_s)


def turns(
    task: Task,
    rungs: Sequence[Rung],
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
        kernels = {
            name: _kernels(jobs[name], samples)
            for rung in rungs
            if rung.compiled and not here.is_gpu
            for name in (rung.on, rung.name)
        }
    return Turns(seconds, first, kernels)


def rows(task: Task, rungs: Sequence[Rung], told: Turns) -> list[dict]:
    """A row for each rung, to be recorded: its speed, and the bytes of a step.

    Article B's text comes first where it took turns. Under GPULAB_TINY bytes are counted of
    the lowest and the highest rung alone.
    """
    made = []
    if TEXT in told.seconds:
        made.append({"rung": TEXT, "batch": 4, "lr": 0.001, "bytes": None})
    for rung in rungs:
        skips = device.here().tiny and rung not in (rungs[0], rungs[-1])
        peak = None if skips else peak_bytes(task, rung)
        made.append({"rung": rung.name, "on": rung.on, "batch": rung.batch, "lr": rung.lr})
        made[-1] |= {"bytes": peak and peak.total, "first_s": told.first_s[rung.name]}
        made[-1] |= {"kernels": told.kernels.get(rung.name)}
    same = {"kind": "rung", "task": task.name}
    return [same | row | {"per_s": told.per_s(row["rung"])} for row in made]


def _text(task: Task, samples: int):
    """A call that trains article B's model: two epochs of half the samples."""
    digits = some(task.data("train"), samples // 2)

    def job(_: int) -> int:
        as_printed(DataLoader(digits, batch_size=4, shuffle=True))
        return 2 * len(digits)

    return job


def _kernels(run: Run, samples: int) -> dict[str, float]:
    """Microseconds a sample in the library (`LIBRARY`), and in the rest."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as seen:
        done = run(samples)
    told = {"library": 0.0, "rest": 0.0}
    for event in seen.key_averages():
        library = any(word in event.key for word in LIBRARY)
        told["library" if library else "rest"] += event.self_cpu_time_total / done
    return told


def parts(task: Task, rung: Rung, *, samples: int) -> dict[str, float]:
    """Share of a training on `rung` that its "loader", "update" and "rest" take.

    What makes one of them cheaper gives `1 / (1 - share)` times the speed at most.
    """
    run, spent, marks = Run(task, rung), [], []
    mark = lambda *_: marks.append(_now())  # noqa: E731
    run.optimizer.register_step_pre_hook(mark)
    run.optimizer.register_step_post_hook(mark)
    threads = torch.get_num_threads() if device.here().is_gpu else 1
    with set_torch_threads(threads):
        run(samples)
        for _ in range(0, samples, rung.batch):
            marks[:] = [_now()]
            batch = next(run.batches)
            mark()
            run.step(*batch)
            mark()
            if len(marks) == 5:  # a scaler may leave an update out
                spent.append([b - a for a, b in pairwise(marks)])
    loader, before, update, after = map(median, zip(*spent, strict=True))
    whole = loader + before + update + after
    named = {"loader": loader, "update": update, "rest": before + after}
    return {name: took / whole for name, took in named.items()}


def _now() -> float:
    """Seconds: of this thread on a CPU, of the host when a GPU has done its work."""
    if not device.here().is_gpu:
        return time.thread_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def _timed(job, samples: int) -> float:
    """Seconds a sample of one call."""
    begun = _now()
    done = job(samples)
    return (_now() - begun) / done


def _no_cache(job):
    if not (isinstance(job, Run) and job.rung.compiled):
        return nullcontext()
    from torch._inductor.utils import fresh_cache

    return fresh_cache()
