"""Which bytes are alive while a training step runs, and what are they? A ledger over time.

Every storage that torch hands out is booked when an operation returns it and struck out
when it dies, under one of five headings. What an operation takes and gives back within
itself is not seen; on a GPU the allocator's own peak has it. A storage that lies elsewhere
(`shelf`) is not booked.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

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
        return dict(zip(KINDS, self.peak.alive, strict=True))

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


class _Books(TorchDispatchMode):
    def __init__(self, on: str):
        super().__init__()
        self.phase, self.ledger = "forward", Ledger()
        self.alive = dict.fromkeys(KINDS, 0)
        self.held: dict[int, list] = {}  # storage -> [weak reference, kind, bytes]
        self.on = on

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        kind = "activations" if self.phase == "forward" else "scratch"
        for tensor in tree_iter(made):
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
                self.book(tensor, kind)
        return made

    def book(self, tensor: torch.Tensor, kind: str, moves: bool = False) -> None:
        """Note a storage under `kind`; one that is known stays, unless it `moves`."""
        storage = tensor.untyped_storage()
        key, n_bytes = storage._cdata, 0 if _away else storage.nbytes()
        known = self.held.get(key)
        if known and moves and known[1] != kind:
            self.alive[known[1]] -= known[2]
            self.alive[kind] += known[2]
            known[1] = kind
            self._note()
        if known or not storage.nbytes() or storage.device.type != self.on:
            return
        gone = weakref.ref(storage, partial(self._gone, key))
        self.held[key] = [gone, kind, n_bytes]
        self.alive[kind] += n_bytes
        self._note()

    def begin(self) -> None:
        """What lay there before was there all at once."""
        self.ledger.moments.clear()
        self._note()

    def _gone(self, key: int, _) -> None:
        if key in self.held:
            _, kind, n_bytes = self.held.pop(key)
            self.alive[kind] -= n_bytes
            self._note()

    def _note(self) -> None:
        self.ledger.moments.append(Moment(self.phase, tuple(self.alive.values())))


@contextmanager
def elsewhere() -> Iterator[None]:
    """Tensors that are made in this block take no memory of where work is done."""
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
    weights = list(weights)
    before = {"weights": weights, "optimizer": states, "activations": inputs}
    books = _opened({kind: list(tensors) for kind, tensors in before.items()}, away)
    note = lambda p: books.book(p.grad, "gradients", moves=True)  # noqa: E731
    trained = (p for p in weights if p.requires_grad)
    marks = [p.register_post_accumulate_grad_hook(note) for p in trained]
    try:
        with books:
            run(partial(setattr, books, "phase"))
    finally:
        for mark in marks:
            mark.remove()
    books.held.clear()
    return books.ledger


def _opened(before: dict[str, list], away: Iterable[torch.Tensor]) -> _Books:
    """Books that begin with what lies there before, by kind."""
    first = next(tensor for tensors in before.values() for tensor in tensors)
    books = _Books(first.untyped_storage().device.type)
    with torch.no_grad():
        for kind, tensors in before.items():
            for tensor in tensors:
                books.book(tensor, kind)
        with elsewhere():
            for tensor in away:
                books.book(tensor, "scratch")
    books.begin()
    return books
