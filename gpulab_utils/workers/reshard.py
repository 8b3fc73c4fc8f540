"""A training that some ranks save and others, more or fewer, take over.

Asked: `shape`, `batch`, `time`; `load` and `save`, folders (each may be missing); `steps`
to train in between. Told: the losses, the first and the last digest of all weights and of
Adam's states, the bytes that this rank holds, and those of the files it wrote.
"""

import hashlib
from itertools import islice
from pathlib import Path

from gpulab_utils import small_gpt
from gpulab_utils.workers import sharded_steps
from gpulab_utils.workers.tensor_parallel import whole

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


def digest(model, optimizer) -> str:
    """One hash of all bits of the weights and of Adam's states, put together."""
    told = hashlib.sha256()
    for p in model.parameters():
        for tensor in p, *(s for _, s in sorted(optimizer.state[p].items())):
            told.update(whole(tensor.detach()).cpu().contiguous().numpy().tobytes())
    return told.hexdigest()


def save(folder: str, model, optimizer, position: int) -> None:
    """Every rank writes its own part, at the same time; rank 0 the table of contents."""
    both = get_state_dict(model, optimizer)
    states = {"model": both[0], "optimizer": both[1], "position": torch.tensor(position)}
    dcp.save(states, checkpoint_id=folder)


def load(folder: str, model, optimizer) -> int:
    """Every rank reads what it needs, whoever wrote it; the position in the data."""
    both = get_state_dict(model, optimizer)
    states = {"model": both[0], "optimizer": both[1], "position": torch.tensor(0)}
    dcp.load(states, checkpoint_id=folder)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=states["model"],
        optim_state_dict=states["optimizer"],
    )
    return int(states["position"])


def carried(ask: dict, place) -> dict:
    """Take over, train a little, save: with however many ranks there are."""
    way = "fsdp" if dist.get_world_size() > 1 else "alone"
    model, optimizer = sharded_steps.setup(way, ask["shape"], place)
    start, found = 0, {"losses": []}
    if "load" in ask:
        start = load(ask["load"], model, optimizer)
        found |= {"loaded": digest(model, optimizer)}
    drawn = small_gpt.batches("train", batch=ask["batch"], time=ask["time"])
    for tokens in islice(drawn, start, start + ask.get("steps", 0)):
        mine = tokens.chunk(dist.get_world_size())[dist.get_rank()].to(place)
        loss = torch.tensor(sharded_steps.step(model, optimizer, mine), device=place)
        dist.all_reduce(loss)
        found["losses"].append(loss.item() / dist.get_world_size())
    found |= {"digest": digest(model, optimizer)}
    found |= sharded_steps.held(model, optimizer)
    if "save" in ask:
        save(ask["save"], model, optimizer, start + len(found["losses"]))
        own = Path(ask["save"]).glob(f"__{dist.get_rank()}_*.distcp")
        found |= {"written": sum(path.stat().st_size for path in own)}
    return found
