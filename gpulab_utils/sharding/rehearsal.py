"""What would n ranks hold and send? One of them, on fake tensors, with nobody to talk to.

torch's `fake` process group answers every collective at once; nothing is allocated, so
that a 13B model over eight ranks takes seconds on any machine.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gpulab_utils.sharding.wire import Call


@dataclass(frozen=True)
class Rehearsed:
    """Bytes that this rank holds, by what they are, and the collectives of one step.

    `peak` are the bytes at the peak of a step, by category of torch's `FSDPMemTracker`
    (empty unless asked for).
    """

    held: dict[str, int]
    calls: list[Call]
    peak: dict[str, int]


@contextmanager
def one_of(ranks: int, rank: int = 0) -> Iterator[object]:
    """A process group in which this process is one of `ranks`; its device mesh.

    What comes back from others is not defined: for counting only.
    """
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        yield init_device_mesh("cpu", (ranks,))
    finally:
        dist.destroy_process_group()


def rehearse(
    make: Callable, way: str, ranks: int, *, rank: int = 0, tokens: int = 8, peak=False
) -> Rehearsed:
    """One training step of the model that `make()` returns, as `rank` of `ranks`.

    `make` is called under fake tensors and returns a model of `workers.gpt` or one of
    transformers. `way` is one of `fsdp`, `fsdp, kept` and `ddp`. With `peak` a second step
    is followed, which takes longer.

    >>> from gpulab_utils.workers import gpt
    >>> rehearse(gpt.make, "fsdp", 8).held["parameters"]
    90272
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    with one_of(ranks, rank) as mesh, FakeTensorMode(allow_fallback_kernels=False):
        return _step(make(), way, mesh, tokens, peak)


def _step(model, way: str, mesh, tokens: int, peak: bool) -> Rehearsed:
    from gpulab_utils.workers import sharded_steps, wire

    import torch

    options = {"mesh": mesh} if way.startswith("fsdp") else {}
    model = sharded_steps.WAYS[way](model, **options)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    ids = torch.zeros(1, tokens, dtype=torch.int64)

    def step():
        optimizer.zero_grad()
        out = model(ids)
        getattr(out, "logits", out).float().mean().backward()
        optimizer.step()

    with wire.Wire() as seen:
        step()
    held = sharded_steps.held(model, optimizer)
    most = _peak(model, optimizer, step) if peak else {}
    return Rehearsed(held, [Call(*call) for call in seen.calls], most)


def _peak(model, optimizer, step) -> dict[str, int]:
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker

    tracker = FSDPMemTracker(model, optimizer)
    with tracker:
        step()
    (told,) = tracker.get_tracker_snapshot("peak").values()
    return {str(getattr(kind, "value", kind)): int(n) for kind, n in told.items()}
