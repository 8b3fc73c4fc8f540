"""One small GPT in one rank of several, alone, with DDP and with FSDP2.

`trained` finds losses, bytes and calls, `clocked` seconds. Asked: `shape`, `batch`, `time`;
`steps` for the one, `sizes` and `rounds` for the other; `ways`, all or four by default.
"""

import time
from functools import partial
from itertools import islice

from gpulab_utils import small_gpt
from gpulab_utils.workers import gpt
from gpulab_utils.workers.all_reduce import meet, on_loopback
from gpulab_utils.workers.wire import Wire, collective, seconds

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

RATE = 3e-3
DTYPES = {"float32": torch.float32, "float64": torch.float64}
KINDS = ("all_reduce", "all_gather", "reduce_scatter")


def sharded(model, **options):
    """`model` under FSDP2: each layer a group of its own, the rest in the root's.

    The layers are `model.layers`, or as in transformers `model.model.layers`.
    """
    for layer in getattr(model, "model", model).layers:
        fully_shard(layer, **options)
    return fully_shard(model, **options)


WAYS = {
    "alone": lambda model: model,
    "ddp": DistributedDataParallel,
    "fsdp": sharded,
    "fsdp, kept": partial(sharded, reshard_after_forward=False),
}


def setup(way: str, shape: dict, place, dtype=torch.float32):
    """A new model, the same each time, in this way; and AdamW for it.

    The way `fsdp, apart` is FSDP2 over groups of one rank each: its bookkeeping and most of
    its copying (a group of one copies a layer once, where a gather copies it twice), and
    nobody to send to. Without a mesh FSDP2 would take the machine's accelerator, also where
    the ranks are on the CPU.
    """
    model, options = gpt.make(**shape).to(place, dtype), {}
    if way == "fsdp, apart":
        names = {"mesh_dim_names": ("others", "own")}
        mesh = init_device_mesh(place.type, (dist.get_world_size(), 1), **names)
        options["mesh"] = mesh["own"]
    elif way.startswith("fsdp"):
        options["mesh"] = init_device_mesh(place.type, (dist.get_world_size(),))
    model = WAYS[way.removesuffix(", apart")](model, **options)
    return model, torch.optim.AdamW(model.parameters(), lr=RATE)


def step(model, optimizer, tokens) -> float:
    """One step on `tokens` [batch, time]; the loss."""
    optimizer.zero_grad()
    logits = model(tokens)  # [batch, time, 256]
    loss = cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    return loss.item()


def batches(ask: dict, way: str, place) -> list:
    """`steps` batches of real text: the whole for `alone`, else this rank's part."""
    drawn = small_gpt.batches("train", batch=ask["batch"], time=ask["time"])
    parts, rank = (1, 0) if way == "alone" else (dist.get_world_size(), dist.get_rank())
    return [b.chunk(parts)[rank].to(place) for b in islice(drawn, ask["steps"])]


def local(tensor):
    """What of a tensor lies in this rank."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def held(model, optimizer) -> dict[str, int]:
    """Bytes of parameters, gradients and optimizer state that this rank keeps.

    Adam's step counters, 4 bytes a parameter tensor, are left out.
    """
    params = list(model.parameters())
    states = [s for p in params for k, s in optimizer.state[p].items() if k != "step"]
    groups = {"parameters": params, "gradients": [p.grad for p in params]}
    groups |= {"optimizer": states}
    return {name: sum(local(t).nbytes for t in group) for name, group in groups.items()}


def trained(ask: dict, place) -> dict:
    """By way and dtype: losses averaged over the ranks, what is held, what was sent.

    `calls` are those of the last step, `loopback` the bytes of one more, headers too (in
    float32 only).
    """
    return {
        way: {name: _trained(ask, way, dtype, place) for name, dtype in DTYPES.items()}
        for way in ask.get("ways", WAYS)
    }


def _trained(ask: dict, way: str, dtype, place) -> dict:
    model, optimizer = setup(way, ask["shape"], place, dtype)
    losses, tokens = [], batches(ask, way, place)
    for batch in tokens:
        with Wire() as wire:
            losses.append(step(model, optimizer, batch))
    mean = torch.tensor(losses, dtype=torch.float64, device=place)
    dist.all_reduce(mean)
    found = {"losses": (mean / dist.get_world_size()).tolist(), "calls": wire.calls}
    found |= held(model, optimizer)
    if dtype == torch.float32:
        found["loopback"] = on_loopback(lambda: step(model, optimizer, tokens[-1]))
    return found


def clocked(ask: dict, place) -> dict:
    """By way the seconds of each round's step, in turns; by kind and size a collective's.

    Every way takes this rank's part of the batch; `alone` and `fsdp, apart` no one speaks.
    """
    ways = ask.get("ways", ("alone", "ddp", "fsdp, apart", "fsdp"))
    jobs = {way: setup(way, ask["shape"], place) for way in ways}
    tokens = batches(ask | {"steps": 1}, "part", place)[0]
    runs = [(kind, n) for kind in KINDS for n in ask["sizes"]]
    steps, roads = [], []
    for _ in range(ask["rounds"] + 1):
        steps.append([_took(*job, tokens, place) for job in jobs.values()])
        roads.append([seconds(collective(*run, place), place) for run in runs])
    by_run = zip(runs, zip(*roads[1:], strict=True), strict=True)
    return {
        "steps": dict(zip(jobs, zip(*steps[1:], strict=True), strict=True)),
        "roads": {f"{kind} {n}": took for (kind, n), took in by_run},
    }


def _took(model, optimizer, tokens, place) -> float:
    meet(place)
    start = time.perf_counter()
    step(model, optimizer, tokens)
    return time.perf_counter() - start
