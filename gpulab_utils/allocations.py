"""Which blocks does a program ask for, in which order? Tensors' storages, as a trace.

Entries are those of `torch.cuda.memory._snapshot()["device_traces"]`, so that what ran on
a CPU, or on fake tensors that have no memory at all, can be replayed for any card by
`gpulab_utils.plan.trace`. An address is a number that is used once. What an operation
allocates and frees within itself, its workspace, is not seen; a GPU's own recording
(`torch.cuda.memory._record_memory_history`) has it.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class _Recorder(TorchDispatchMode):
    """Writes an entry for each storage that is met first, and for each that dies."""

    def __init__(self):
        super().__init__()
        self.entries: list[dict] = []
        self.seen: dict[int, weakref.ref] = {}
        self.serial = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        self.meet((args, kwargs))
        made = func(*args, **kwargs)
        self.meet(made)
        return made

    def meet(self, tree) -> None:
        for tensor in tree_iter(tree):
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
                self._meet(tensor.untyped_storage())

    def _meet(self, storage) -> None:
        key = storage._cdata
        if key in self.seen or not storage.nbytes():
            return
        self.serial += 1
        entry = {"addr": self.serial, "size": storage.nbytes(), "stream": 0, "frames": []}
        self.seen[key] = weakref.ref(storage, partial(self._gone, key, entry))
        self.entries.append({"action": "alloc", **entry})

    def _gone(self, key: int, entry: dict, _) -> None:
        self.seen.pop(key, None)
        for action in ("free_requested", "free_completed"):
            self.entries.append({"action": action, **entry})


def record(run: Callable, holding: Iterable[torch.Tensor] = ()) -> list[dict]:
    """The trace of `run()`. Tensors in `holding` lie there before it, and come first.

    Other tensors from before are met when an operation first uses them. In a dispatch
    mode, as here, autograd does not sum gradients in place.

    >>> def twice():
    ...     y = torch.ones(1024) + 1  # two of 4 KiB, one of them freed at once
    ...     return y.sum()
    >>> [(e["action"], e["size"]) for e in record(twice) if e["action"] != "free_completed"]
    ... # doctest: +NORMALIZE_WHITESPACE
    [('alloc', 4096), ('alloc', 4096), ('free_requested', 4096), ('alloc', 4),
     ('free_requested', 4096)]
    """
    recorder = _Recorder()
    with torch.no_grad():
        recorder.meet(list(holding))
    with recorder:
        kept = run()
    entries = list(recorder.entries)
    del kept
    recorder.seen.clear()
    return entries


@contextmanager
def recording() -> Iterator[list[dict]]:
    """The list in which the trace of a block grows, for those who look at it meanwhile.

    >>> with recording() as entries:
    ...     y = torch.ones(1024)
    >>> [(e["action"], e["size"]) for e in entries]
    [('alloc', 4096)]
    """
    recorder = _Recorder()
    with recorder:
        yield recorder.entries
    recorder.seen.clear()
