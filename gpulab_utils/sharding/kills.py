"""Does a killed training end where an undisturbed one does? Kill a rank, and look.

`gpulab_utils/workers/elastic.py` is what is trained; the launcher starts it anew.
"""

import os
import random
import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from gpulab_utils import ranks
from gpulab_utils.workers.elastic import notes


@dataclass(frozen=True)
class Kill:
    """SIGKILL for `rank`, `delay_s` after the first of the ranks began `step`."""

    rank: int
    step: int
    delay_s: float = 0.0


@dataclass(frozen=True)
class Ended:
    """How a training ended: its loss, how many lives, which windows in which order.

    `seen` is how often each window went into the weights, `begun` the (life, step) of each
    step that was begun, those that a kill undid too, `wall_s` the seconds from the start
    to the end.
    """

    loss: float
    lives: int
    seen: tuple[int, ...]
    used: tuple[int, ...]
    begun: tuple[tuple[int, int], ...]
    wall_s: float

    @property
    def steps(self) -> int:
        """How many steps were begun."""
        return len(self.begun)


def draw(seed: int, *, steps: int, ranks: int, pause_s: float) -> Kill:
    """A random kill of one of `ranks`, within a training of `steps` of `pause_s` or more.

    The last two steps are left out: a rank that has ended cannot be killed.

    >>> draw(0, steps=60, ranks=2, pause_s=0.02).step < 58
    True
    """
    chance = random.Random(seed)
    delay_s = chance.uniform(0, 1.5 * pause_s)
    return Kill(chance.randrange(ranks), chance.randrange(steps - 2), delay_s)


def used(lines: Sequence[dict]) -> tuple[int, ...]:
    """The windows that made the final weights, step by step, from the ranks' notes.

    Of a step that was begun in more than one life the last counts: a kill undid the rest.

    >>> first = {"rank": 0, "life": 0, "step": 0, "windows": [7]}
    >>> again = {"rank": 0, "life": 1, "step": 0, "windows": [8]}
    >>> used([again, first])
    (8,)
    """
    last = {}
    for line in sorted(lines, key=lambda one: one["life"]):
        last[line["step"], line["rank"]] = line["windows"]
    return tuple(window for key in sorted(last) for window in last[key])


def train(
    ask: dict, kills: Sequence[Kill] = (), *, many: int = 2, limit_s: float = 90
) -> Ended:
    """Train with `many` ranks, kill as told (one kill a life), and wait for the end.

    `ask` goes to `workers.elastic.Run`, less its folder. Raises what `ranks.launch` does,
    and `ValueError` for a kill whose rank had ended before.
    """
    start = time.monotonic()
    options = [f"--max-restarts={len(kills)}"]
    with tempfile.TemporaryDirectory(prefix="elastic-") as folder:
        running = ranks.start(
            "elastic",
            ask | {"folder": folder},
            ranks=many,
            limit_s=limit_s,
            options=options,
        )
        try:
            for life, kill in enumerate(kills):
                _kill(kill, life, folder, running, start + limit_s)
        except BaseException:
            running.stop()
            raise
        told, lines = running.wait(), notes(folder)
    last = told[0]
    wall_s = time.monotonic() - start
    begun = tuple(sorted({(line["life"], line["step"]) for line in lines}))
    seen = tuple(last["seen"])
    return Ended(last["loss"], last["life"] + 1, seen, used(lines), begun, wall_s)


def _kill(kill: Kill, life: int, folder: str, running, end: float) -> None:
    """Wait until the life is at the step, then end the rank's process."""
    while running.process.poll() is None and time.monotonic() < end:
        lives = [line for line in notes(folder) if line["life"] == life]
        pids = [line["pid"] for line in lives if line["rank"] == kill.rank]
        if pids and max(line["step"] for line in lives) >= kill.step:
            time.sleep(kill.delay_s)
            with suppress(ProcessLookupError):
                os.kill(pids[-1], getattr(signal, "SIGKILL", signal.SIGTERM))
                return
            break
        time.sleep(0.02)
    raise ValueError(f"{kill} of life {life} found no such rank any more")
