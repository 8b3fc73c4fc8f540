"""A training loop to read in one go: it can be killed at any moment and resumed.

What a step computes depends on (seed, epoch, place in the epoch), on the data and the batch
size, and on what a checkpoint holds, on nothing else; so a resumed run has the bits of one
that nobody killed. A file of another seed, batch size or number of items is refused.
"""

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from gpulab_utils.progress import progress

import torch
from torch.utils.data import DataLoader, Dataset


class Diverged(ArithmeticError):
    """A loss or a weight is not finite; the message says since when, and the way back."""


def fit(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Dataset,
    loss_of: Callable,
    *,
    batch: int,
    epochs: int,
    every: int = 50,
    keep: str | Path | None = None,
    seed: int = 0,
    schedule=None,
) -> list[float]:
    """Train; the mean loss of each `every` steps, also of those that were left over.

    `loss_of(model, batch)` returns a scalar tensor. With `keep` a checkpoint is written
    there every `every` steps, and a run begins where that file says. Raises `Diverged`, and
    `ValueError` where the file was made with another seed, batch size or number of items.
    """
    parts = {"model": model, "optimizer": optimizer}
    parts |= {"schedule": schedule} if schedule else {}
    how = {"batch": batch, "seed": seed, "items": len(data)}
    done, losses = load(keep, parts, how) if keep and Path(keep).exists() else (0, [])
    steps, since, total = epochs * math.ceil(len(data) / batch), done, 0.0
    todo = zip(range(done + 1, steps + 1), _batches(data, batch, seed, done), strict=False)
    for step, group in progress(todo, f"step {done} to {steps}"):
        optimizer.zero_grad()
        loss = loss_of(model, group)
        loss.backward()
        optimizer.step()
        if schedule:
            schedule.step()
        total = total + loss.detach()  # no .item(): nobody waits for the device
        if step % every == 0 or step == steps:
            losses.append(_finite(float(total) / (step - since), model, since, step, keep))
            since, total = step, 0.0
            if keep:
                save(keep, parts, step, losses, how)
    return losses


def order(n: int, batch: int, seed: int, epoch: int) -> list[list[int]]:
    """Which items make up which batch of an epoch; the last may be smaller.

    >>> [len(group) for group in order(10, 4, seed=0, epoch=0)]
    [4, 4, 2]
    """
    draw = torch.Generator().manual_seed(2**20 * seed + epoch)
    return [group.tolist() for group in torch.randperm(n, generator=draw).split(batch)]


def _batches(data: Dataset, batch: int, seed: int, done: int) -> Iterator:
    """The batches after the first `done`, epoch after epoch, without end.

    A loader draws a seed for its workers: from a generator of its own, or it would shift
    the random numbers of dropout in a resumed run.
    """
    epoch, skip = divmod(done, math.ceil(len(data) / batch))
    while True:
        groups, own = order(len(data), batch, seed, epoch)[skip:], torch.Generator()
        yield from DataLoader(data, batch_sampler=groups, generator=own.manual_seed(seed))
        epoch, skip = epoch + 1, 0


def _finite(mean: float, model: torch.nn.Module, since: int, step: int, keep) -> float:
    """`mean`, if it and the weights are finite: these are an update newer than the loss."""
    if not math.isfinite(mean):
        what = f"the loss became {mean}"
    elif not all(p.isfinite().all() for p in model.parameters()):
        what = "weights became inf or nan"
    else:
        return mean
    kept = f"{keep} still holds step {since}" if keep and since else "no step is kept"
    raise Diverged(
        f"{what} in steps {since + 1} to {step}; {kept}. Look at the items of these steps "
        "(`loops.order`), or begin anew with a smaller learning rate: a checkpoint brings "
        "its own back"
    )


def save(
    path: str | Path, parts: dict, step: int, losses: list[float], how: dict | None = None
) -> None:
    """Write what a run needs to go on: all or nothing, also where the power fails.

    `parts` are named objects with a `state_dict`; `how` is what the order of the batches
    depends on. The random state of CPU and GPUs is kept with them; that of `random` and
    numpy is not: this loop asks neither.
    """
    path = Path(path)
    whole = {name: part.state_dict() for name, part in parts.items()}
    whole |= {"step": step, "losses": losses, "how": how, "cpu": torch.get_rng_state()}
    whole |= {"gpus": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []}
    half = path.with_name(path.name + ".part")
    with open(half, "wb") as file:
        torch.save(whole, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(half, path)


def load(path: str | Path, parts: dict, how: dict | None = None) -> tuple[int, list[float]]:
    """Put back what `save` wrote: (step, losses). `ValueError` for other parts or `how`."""
    whole = torch.load(path, map_location="cpu", weights_only=True)
    kept = whole.keys() - {"step", "losses", "how", "cpu", "gpus"}
    if kept != parts.keys():
        raise ValueError(f"{path} holds {sorted(kept)}, asked for are {sorted(parts)}")
    if how and whole["how"] != how:
        raise ValueError(
            f"{path} was made with {whole['how']}, asked for is {how}: other batches would "
            "follow; resume with the former, or keep this run in another file"
        )
    for name, part in parts.items():
        part.load_state_dict(whole[name])
    torch.set_rng_state(whole["cpu"])
    if whole["gpus"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(whole["gpus"])
    return whole["step"], whole["losses"]
