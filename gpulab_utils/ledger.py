"""Whose bytes are alive in a training step? Weights, gradients, states and the rest.

Every tensor's storage is followed from its birth to its death, on real tensors or on fake
ones that have no memory. torch's `MemTracker` does the same by module; it refuses weights
that are frozen, and its hooks keep what checkpointing has freed. What an operation
allocates and frees within itself is not seen.
"""

import weakref
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from gpulab_utils.memory import Peak

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

PLAIN = nullcontext()
PHASES = ("forward", "backward", "optimizer")


class Ledger(TorchDispatchMode):
    """Bytes alive by category, and the most of them in each phase.

    A storage met first belongs to `self.making`; `name` tells of another category.
    """

    def __init__(self):
        super().__init__()
        self.alive: Counter = Counter()
        self.peaks: dict[str, Peak] = {}
        self.phase, self.making = "before", "activations"
        self._seen: dict[int, list] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        self._meet((args, kwargs))
        made = func(*args, **kwargs)
        self._meet(made)
        return made

    def begin(self, phase: str, making: str) -> None:
        """From here on peaks are `phase`'s, and new storages belong to `making`."""
        self.phase, self.making = phase, making
        self._mark()

    def name(self, category: str, tensors: Iterable[torch.Tensor]) -> None:
        """The storages of `tensors` belong to `category`, whatever they were before."""
        for storage in _storages(tensors):
            self._add(storage)
            entry = self._seen[storage._cdata]
            self.alive[entry[0]] -= entry[1]
            self.alive[category] += entry[1]
            entry[0] = category

    def _meet(self, tree) -> None:
        for storage in _storages(tree):
            if storage._cdata not in self._seen:
                self._add(storage)
                self._mark()

    def _add(self, storage) -> None:
        key = storage._cdata
        if key in self._seen:
            return
        entry = [self.making, storage.nbytes()]
        self._seen[key] = [*entry, weakref.ref(storage, partial(self._gone, key))]
        self.alive[self.making] += storage.nbytes()

    def _gone(self, key: int, _) -> None:
        category, n_bytes, _ = self._seen.pop(key)
        self.alive[category] -= n_bytes

    def _mark(self) -> None:
        total = sum(self.alive.values())
        best = self.peaks.get(self.phase)
        if best is None or total > best.total:
            kinds = {kind: n for kind, n in self.alive.items() if n}
            self.peaks[self.phase] = Peak(total, kinds)


def _storages(tree):
    for tensor in tree_iter(tree):
        if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
            storage = tensor.untyped_storage()
            if storage.nbytes():
                yield storage


def weights(model) -> list[torch.Tensor]:
    """Parameters and buffers, and the scales that bitsandbytes keeps beside its codes."""
    found = [*model.parameters(), *model.buffers()]
    for parameter in model.parameters():
        state = getattr(parameter, "quant_state", None)
        for part in filter(None, (state, getattr(state, "state2", None))):
            found += [part.absmax, part.code]
        if getattr(state, "offset", None) is not None:
            found.append(state.offset)
    return found


def states(optimizer) -> list[torch.Tensor]:
    """What the optimizer keeps from step to step; nothing before its first step."""
    kept = (value for of in optimizer.state.values() for value in of.values())
    return [value for value in kept if isinstance(value, torch.Tensor)]


def step(model, optimizer, ids, lower: AbstractContextManager = PLAIN, before=None):
    """One training step of a causal language model on `ids` [batch, time]: its loss,
    a tensor that needs no gradient.

    `lower` is an autocast context for the forward; `before(phase)` is called at the start
    of each phase.
    """
    before = before or (lambda phase: None)
    before("forward")
    with lower:
        loss = model(ids, labels=ids).loss
    before("backward")
    loss.backward()
    loss = loss.detach()
    before("optimizer")
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


def peaks(model, optimizer, ids, lower: AbstractContextManager = PLAIN) -> dict[str, Peak]:
    """The most bytes alive in each phase of a step, by category.

    A step is made before if the optimizer has no states yet. Time is never taken here.

    >>> layer = torch.nn.Linear(256, 256, bias=False)
    >>> class Model(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layer = layer
    ...     def forward(self, x, labels):
    ...         return type("", (), {"loss": self.layer(x).square().mean()})
    >>> adam = torch.optim.AdamW(layer.parameters(), foreach=True)
    >>> told = peaks(Model(), adam, torch.ones(1, 256))["optimizer"].by_category
    >>> kinds = "weights", "gradients", "optimizer"
    >>> [told[kind] // layer.weight.nbytes for kind in kinds]
    [1, 1, 2]
    """
    if not optimizer.state:
        step(model, optimizer, ids, lower)
    ids = ids.clone()  # a window may be a view of a whole text
    ledger = Ledger()
    ledger.name("weights", weights(model))
    ledger.name("optimizer", states(optimizer))
    ledger.name("activations", [ids])
    trained = [p for p in model.parameters() if p.requires_grad]
    kept = lambda p: ledger.name("gradients", [p.grad])  # noqa: E731
    hooks = [p.register_post_accumulate_grad_hook(kept) for p in trained]

    def begin(phase):
        ledger.begin(phase, "activations" if phase == "forward" else "scratch")

    try:
        with ledger:
            step(model, optimizer, ids, lower, begin)
    finally:
        for hook in hooks:
            hook.remove()
    return {phase: ledger.peaks[phase] for phase in PHASES}


def largest(found: dict[str, Peak]) -> Peak:
    """The peak of the whole step.

    >>> largest({"forward": Peak(1, {}), "backward": Peak(2, {})}).total
    2
    """
    return max(found.values(), key=lambda peak: peak.total)
