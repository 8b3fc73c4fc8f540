"""Which bytes are alive while a training step runs, and what are they? A ledger over time.

Every storage that torch hands out is booked when an operation returns it and struck out
when it dies, under one of five headings. What an operation takes and gives back within
itself is not seen; on a GPU the allocator's own peak has it. A storage that lies elsewhere
(`elsewhere`) counts as nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from gpulab_utils.memory import Peak
from gpulab_utils.storages import Follower

import torch

_away: list[None] = []  # not empty while tensors are made that lie elsewhere
KINDS = ("weights", "optimizer", "gradients", "activations", "scratch")


@dataclass
class Moment:
    """Bytes alive by kind, in which phase of the step."""

    phase: str
    alive: tuple[int, ...]  # in the order of KINDS

    @property
    def total(self) -> int:
        return sum(self.alive)

    def terms(self) -> dict[str, int]:
        """Bytes by kind."""
        return dict(zip(KINDS, self.alive, strict=True))


@dataclass
class Ledger:
    """Every moment at which something was booked or struck out."""

    moments: list[Moment] = field(default_factory=list)

    @property
    def peak(self) -> Moment:
        """The moment with the most bytes alive; of equal ones the last."""
        return max(reversed(self.moments), key=lambda m: m.total)

    def terms(self) -> dict[str, int]:
        """Bytes by kind at the peak."""
        return self.peak.terms()

    def peaks(self) -> dict[str, Peak]:
        """The most bytes alive in each phase, by kind; what it began with counts.

        >>> began, end = Moment("forward", (8, 0, 0, 4, 0)), Moment("step", (8, 0, 0, 0, 0))
        >>> Ledger([began, end]).peaks()
        {'step': Peak(total=12, by_category={'weights': 8, 'activations': 4})}
        """
        best = {}
        for before, m in pairwise(self.moments):
            three = best.get(m.phase, before), before, m
            best[m.phase] = max(three, key=lambda m: m.total)
        return {
            phase: Peak(m.total, {kind: n for kind, n in m.terms().items() if n})
            for phase, m in best.items()
        }

    def most(self, kind: str) -> int:
        """The largest figure of one kind, whenever it was."""
        return max(m.alive[KINDS.index(kind)] for m in self.moments)

    def drawn(self, n: int) -> dict:
        """What a figure needs: of at most `n` stretches the moment with the most bytes.

        at: their places; alive: bytes by kind, a list each; begins: (phase, place).

        >>> told = Ledger([Moment("forward", (i % 7,)) for i in range(100)]).drawn(2)
        >>> told["at"], told["alive"], told["begins"]
        ([48, 97], [[6, 6]], [('forward', 0)])
        """
        width = -(-len(self.moments) // n)
        places = [
            max(range(i, min(i + width, len(self.moments))), key=self._total)
            for i in range(0, len(self.moments), width)
        ]
        phases = [m.phase for m in self.moments]
        begins = [(p, i) for i, p in enumerate(phases) if i == 0 or phases[i - 1] != p]
        alive = zip(*(self.moments[i].alive for i in places), strict=True)
        return {"at": places, "alive": [list(kind) for kind in alive], "begins": begins}

    def _total(self, place: int) -> tuple[int, int]:
        return self.moments[place].total, place


class _Books(Follower):
    """Books storages that lie `on` this type of device, others as nothing."""

    def __init__(self, on: str):
        super().__init__(self._book, self._strike)
        self.phase, self.ledger, self.on = "forward", Ledger(), on
        self.alive = dict.fromkeys(KINDS, 0)

    def name(self, kind: str, tensors: Iterable[torch.Tensor]) -> None:
        """The storages of `tensors` are of this kind, whatever they were before."""
        for entry in self.meet(list(tensors)):
            old, n_bytes = entry
            if old != kind:
                self.alive[old] -= n_bytes
                entry[0] = kind
                self._add(kind, n_bytes)

    def begin(self) -> None:
        """What lay there before was there all at once."""
        self.ledger.moments.clear()
        self._add("weights", 0)

    def _book(self, storage) -> list:
        """Its kind and bytes."""
        kind = "activations" if self.phase == "forward" else "scratch"
        counts = storage.device.type == self.on and not _away
        entry = [kind, storage.nbytes() if counts else 0]
        self._add(*entry)
        return entry

    def _strike(self, entry: list) -> None:
        self._add(entry[0], -entry[1])

    def _add(self, kind: str, n_bytes: int) -> None:
        self.alive[kind] += n_bytes
        self.ledger.moments.append(Moment(self.phase, tuple(self.alive.values())))


@contextmanager
def elsewhere() -> Iterator[None]:
    """Tensors that are made in this block take no memory of where work is done.

    >>> x = torch.ones(256)
    >>> def run(enter):
    ...     with elsewhere():
    ...         return x + 1
    >>> keep(run, [], inputs=[x]).peak.total == x.nbytes
    True
    """
    _away.append(None)
    try:
        yield
    finally:
        _away.pop()


def keep(
    run: Callable,
    weights: Iterable[torch.nn.Parameter],
    states: Iterable[torch.Tensor] = (),
    inputs: Iterable[torch.Tensor] = (),
    away: Iterable[torch.Tensor] = (),
) -> Ledger:
    """The ledger of `run(enter)`, which calls `enter(phase)` where a phase begins.

    `weights` and `states` lie there before; a gradient counts as one from the moment that
    autograd has summed it up. `inputs` are booked as activations, `away` not at all. There
    has to be one weight or input.

    >>> weight = torch.nn.Parameter(torch.ones(256))
    >>> def run(enter):
    ...     loss = (weight * 2).sum()  # 1 KiB of product, 4 bytes of sum
    ...     enter("backward")
    ...     loss.backward()
    >>> keep(run, [weight]).terms()["gradients"] == weight.nbytes
    True
    """
    weights, inputs = list(weights), list(inputs)
    books = _Books((weights + inputs)[0].untyped_storage().device.type)
    books.name("weights", weights)
    books.name("optimizer", states)
    books.name("activations", inputs)
    with elsewhere():
        books.meet(list(away))
    books.begin()
    note = lambda p: books.name("gradients", [p.grad])  # noqa: E731
    trained = (p for p in weights if p.requires_grad)
    marks = [p.register_post_accumulate_grad_hook(note) for p in trained]
    try:
        with books:
            run(partial(setattr, books, "phase"))
    finally:
        for mark in marks:
            mark.remove()
    return books.ledger
