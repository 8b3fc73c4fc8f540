"""One layer of which each rank holds a part of every weight: values, bytes, calls.

Asked: `width`, `inner`, `batch`, `time`, `rounds`; `prepared` as in `split`. Told: `far`
by name (the largest distance to the whole layer over its largest value), `bytes` of the
weights held and `whole_bytes`, `forward` and `backward` (the collectives of each), and the
`seconds` of each round, also of one rank `alone` with the whole layer.
"""

import copy

from gpulab_utils.workers.gpt import GatedMLP
from gpulab_utils.workers.wire import Wire, seconds

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

PLAN = {"gate": ColwiseParallel, "up": ColwiseParallel, "down": RowwiseParallel}


def split(model, place, prepared: bool = True):
    """`model` with its weights divided: gate and up by outputs, down by inputs.

    Source: Shoeybi et al., "Megatron-LM", 2019, section 3: one sum forward, one backward.
    Unless the input is `prepared` once for both, gate and up each sum their gradient of it.
    """
    mesh = init_device_mesh(place.type, (dist.get_world_size(),))
    plan, same = {name: kind() for name, kind in PLAN.items()}, (Replicate(),)
    if prepared:
        once = PrepareModuleInput(input_layouts=same, desired_input_layouts=same)
        plan = {"": once} | plan
    return parallelize_module(model, mesh, plan)


def whole(tensor):
    """All of a tensor, put together where it is divided."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def apart(divided, reference) -> float:
    """The largest distance between two tensors over the largest value of the second."""
    far = (whole(divided) - reference).abs().max() / reference.abs().max()
    return far.item()


def compared(ask: dict, place) -> dict:
    """The divided layer against the whole one, on the same input and gradient."""
    torch.manual_seed(0)
    reference = GatedMLP(ask["width"], ask["inner"]).to(place)
    x = torch.randn(ask["batch"], ask["time"], ask["width"], device=place)
    model, ours, theirs = copy.deepcopy(reference), x.clone(), x.clone()
    split(model, place, ask.get("prepared", True))
    ours.requires_grad_(), theirs.requires_grad_()
    with Wire() as forward:
        out = whole(model(ours))
    with Wire() as backward:
        out.pow(2).mean().backward()
    expected = reference(theirs)
    expected.pow(2).mean().backward()
    pairs = {"output": (out, expected), "input.grad": (ours.grad, theirs.grad)}
    grads = zip(model.named_parameters(), reference.parameters(), strict=True)
    pairs |= {f"{name}.grad": (p.grad, q.grad) for (name, p), q in grads}
    held = sum(p.to_local().nbytes for p in model.parameters())
    took = [seconds(lambda: model(x), place) for _ in range(ask["rounds"])]
    alone = [seconds(lambda: reference(x), place) for _ in range(ask["rounds"])]
    return {
        "far": {name: apart(*pair) for name, pair in pairs.items()},
        "bytes": held,
        "whole_bytes": sum(p.nbytes for p in reference.parameters()),
        "forward": forward.calls,
        "backward": backward.calls,
        "seconds": took,
        "alone": alone,
    }
