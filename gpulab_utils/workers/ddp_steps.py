"""A rank that trains one small GPT together with the others: its bits, buckets and times.

Asked: `train` = {shape, batch, time, steps, save}, `watch` = {shape, time, caps in MB},
`clock` = {shape, times, sizes, rounds}; each may be missing. Told: what `trained`,
`watched` and `clocked` return.
"""

import copy
import hashlib
import time
from contextlib import nullcontext
from itertools import islice

from gpulab_utils import small_gpt
from gpulab_utils.workers import joined, tell
from gpulab_utils.workers.all_reduce import meet, sweep

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

RATE = 0.1
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def train(model, batches, *, parts: int = 1) -> list[float]:
    """Plain SGD, a step for each of `batches` [batch, time]; the loss of each step.

    A batch is taken in `parts` pieces, whose gradients are averaged.
    """
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=RATE), []
    for tokens in batches:
        optimizer.zero_grad()
        pieces = [_backward(model, piece, parts) for piece in tokens.chunk(parts)]
        optimizer.step()
        losses.append(sum(pieces))
    return losses


def _backward(model, tokens, parts: int = 1) -> float:
    loss = model(input_ids=tokens, labels=tokens).loss / parts
    loss.backward()
    return loss.item()


def batches(ask: dict, place) -> list:
    """`steps` batches of real text, the same for everyone: LongTensor [batch, time]."""
    drawn = small_gpt.batches("train", batch=ask["batch"], time=ask["time"])
    return [tokens.to(place) for tokens in islice(drawn, ask["steps"])]


def digest(model) -> str:
    """One hash of all the bits of a model's parameters."""
    told = hashlib.sha256()
    for p in model.parameters():
        told.update(p.detach().cpu().numpy().tobytes())
    return told.hexdigest()


def trained(ask: dict, place) -> dict:
    """By dtype: the hash of this rank's parameters, its losses; rank 0 saves the states."""
    rank, found, states = dist.get_rank(), {}, {}
    for name, dtype in DTYPES.items():
        model = small_gpt.make(**ask["shape"]).to(place, dtype)
        own = [b.chunk(dist.get_world_size())[rank] for b in batches(ask, place)]
        losses = train(DistributedDataParallel(model), own)
        found[name] = {"digest": digest(model), "losses": losses}
        states[name] = {k: v.cpu() for k, v in model.state_dict().items()}
    if rank == 0:
        torch.save(states, ask["save"])
    return found


def watched(ask: dict, place) -> dict:
    """By bucket size: (bytes, gradients that were ready) of each all-reduce of one step."""
    found = {}
    for cap in ask["caps"]:
        model = small_gpt.make(**ask["shape"]).to(place)
        shared = DistributedDataParallel(model, bucket_cap_mb=cap)
        seen, ready = [], []
        for p in model.parameters():
            p.register_hook(lambda _, ready=ready: ready.append(1))

        def reduce(_, bucket, seen=seen, ready=ready):
            seen.append((bucket.buffer().nbytes, len(ready)))
            return default_hooks.allreduce_hook(dist.group.WORLD, bucket)

        shared.register_comm_hook(None, reduce)
        tokens = torch.zeros(1, ask["time"], dtype=torch.int64, device=place)
        for _ in range(2):  # after the first step the buckets follow the backward pass
            seen.clear(), ready.clear()
            _backward(shared, tokens)
        found[str(cap)] = {"buckets": list(seen), "gradients": len(ready)}
    return found


def clocked(ask: dict, place) -> dict:
    """By way and tokens the seconds of each round's step, in turns; a sweep of sizes too.

    Ways: `alone` and `double` (one rank works, on as many and twice as many tokens),
    `threads` (likewise, twice as many, two threads), `apart` (all work, none speaks),
    `together` (DDP) and `late` (DDP with a single bucket).
    """
    model = small_gpt.make(**ask["shape"], positions=2 * max(ask["times"])).to(place)
    shared = DistributedDataParallel(copy.deepcopy(model), bucket_cap_mb=4)
    late = DistributedDataParallel(copy.deepcopy(model), bucket_cap_mb=10_000)
    ways = {
        "alone": (model, 1, 1, nullcontext),
        "double": (model, 2, 1, nullcontext),
        "threads": (model, 2, 2, nullcontext),
        "apart": (shared, 1, 1, shared.no_sync),
        "together": (shared, 1, 1, nullcontext),
        "late": (late, 1, 1, nullcontext),
    }
    jobs = {
        f"{way} {n}": (*how, n, place) for n in ask["times"] for way, how in ways.items()
    }
    took = [[_step(*job) for job in jobs.values()] for _ in range(ask["rounds"] + 1)][1:]
    steps = dict(zip(jobs, zip(*took, strict=True), strict=True))
    return {"steps": steps, "sweep": sweep(ask["sizes"], ask["rounds"], place)}


def _step(model, times: int, threads: int, quiet, n: int, place) -> float | None:
    lonely = not isinstance(model, DistributedDataParallel)
    tokens = torch.zeros(1, times * n, dtype=torch.int64, device=place)
    model.zero_grad()
    meet(place)
    if lonely and dist.get_rank():
        return None
    torch.set_num_threads(threads)
    start = time.perf_counter()
    with quiet():
        _backward(model, tokens)  # its `.item()` waits for a card
    took = time.perf_counter() - start
    torch.set_num_threads(1)
    return took


JOBS = {"train": trained, "watch": watched, "clock": clocked}

if __name__ == "__main__":
    with joined() as (ask, place):
        tell({job: JOBS[job](ask[job], place) for job in ask})
