"""Which blocks does a program ask for, in which order? Tensors' storages, as a trace.

Entries are those of `torch.cuda.memory._snapshot()["device_traces"]`, so that what ran on
a CPU, or on fake tensors that have no memory at all, can be replayed for any card by
`gpulab_utils.plan.trace`. An address is a number that is used once. What an operation
allocates and frees within itself, its workspace, is not seen; a GPU's own recording
(`torch.cuda.memory._record_memory_history`) has it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count

from gpulab_utils.storages import Follower

import torch


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
    with recording(holding) as entries:
        kept = run()
    del kept  # what it returns outlives the trace
    return entries


@contextmanager
def recording(holding: Iterable[torch.Tensor] = ()) -> Iterator[list[dict]]:
    """The list in which the trace of a block grows, for those who look at it meanwhile.

    >>> with recording() as entries:
    ...     y = torch.ones(1024)
    >>> [(e["action"], e["size"]) for e in entries]
    [('alloc', 4096)]
    """
    entries, addresses = [], count(1)

    def born(storage) -> dict:
        size = storage.nbytes()
        block = {"addr": next(addresses), "size": size, "stream": 0, "frames": []}
        entries.append({"action": "alloc", **block})
        return block

    def died(block: dict) -> None:
        for action in ("free_requested", "free_completed"):
            entries.append({"action": action, **block})

    follower = Follower(born, died, older=True)
    follower.meet(list(holding))
    with follower:
        yield entries
