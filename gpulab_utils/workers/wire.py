"""What do ranks send each other? Every collective of a block, with its bytes.

`Wire` sees each as torch dispatches it, also those that DDP, FSDP2 and DTensor start. Its
bytes are those of the whole tensor: the one that is summed, scattered or put together.
"""

import time

from gpulab_utils.workers.all_reduce import meet

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

#: The parts of the operators' names that tell what they do, in both of torch's families.
KINDS = {
    **{"allreduce": "all_reduce", "all_reduce": "all_reduce"},
    **{"allgather": "all_gather", "all_gather": "all_gather"},
    **{"reduce_scatter": "reduce_scatter", "broadcast": "broadcast"},
}


class Wire(TorchDispatchMode):
    """While it is entered: `calls`, a list of (kind, bytes) in the order of their start.

    Source of the idea: `torch.distributed.tensor.debug.CommDebugMode`, which counts calls
    but no bytes.
    """

    def __init__(self):
        super().__init__()
        self.calls: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # DTensor first: then its collectives come by here
        if func.namespace in ("c10d", "_c10d_functional"):
            name = func._schema.name.partition("::")[2]
            kind = next((k for part, k in KINDS.items() if part in name), None)
            if kind:
                self.calls.append((kind, _whole(kind, args, func.namespace)))
        return func(*args, **(kwargs or {}))


def _whole(kind: str, args: tuple, family: str) -> int:
    if family == "_c10d_functional":  # (own part, ranks, group)
        return args[0].nbytes * (args[1] if kind == "all_gather" else 1)
    # c10d: (output, input, ...), except for sums and broadcasts, which work in place.
    tensor = args[1 if kind == "reduce_scatter" else 0]
    return sum(t.nbytes for t in ([tensor] if isinstance(tensor, torch.Tensor) else tensor))


def collective(kind: str, n_bytes: int, place):
    """A function that runs one collective on a float32 tensor of `n_bytes` in all.

    `n_bytes` must be a multiple of 4 x the ranks; `ValueError` otherwise and for another
    kind than all_reduce, all_gather and reduce_scatter.
    """
    ranks = dist.get_world_size()
    if n_bytes % (4 * ranks):
        raise ValueError(f"{n_bytes} bytes do not divide into float32 for {ranks} ranks")
    whole = torch.ones(n_bytes // 4, device=place)
    part = torch.ones(n_bytes // 4 // ranks, device=place)
    ways = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
    }
    if kind not in ways:
        raise ValueError(f"kind must be one of {', '.join(ways)}, got {kind!r}")
    return ways[kind]


def seconds(run, place) -> float:
    """Seconds of `run()` from a common start to this rank's end."""
    meet(place)
    start = time.perf_counter()
    run()
    if place.type != "cpu":
        torch.accelerator.synchronize()
    return time.perf_counter() - start
