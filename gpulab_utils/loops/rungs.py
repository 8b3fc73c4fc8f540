"""A ladder of speed: from article B's loop to a fast one, one change a rung.

A rung that loses stays in. Both tasks go through the same loop; the lowest rung of the CNN
does what article B's text does, bit for bit, and `as_printed` runs that text itself.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from gpulab_utils import device, load, numerics, programs, small_gpt

import torch
from torch.utils.data import TensorDataset


@dataclass(frozen=True)
class Rung:
    """What a training step does; the defaults are what article B does."""

    name: str = "as printed"
    on: str = ""  # the rung that it changes one thing of
    batch: int = 4
    lr: float = 0.001
    to_device: bool = False  # from pinned memory; article B stays on the CPU
    gather: bool = False  # a batch is cut out at once, not put together item by item
    item_every: int = 1  # every how many steps the loss is asked for
    channels_last: bool = False
    autocast: bool = False
    fused: bool = False
    compiled: bool = False


@dataclass(frozen=True)
class Task:
    """What is trained: `make()` a model, its optimizer, data of (inputs, labels)."""

    name: str
    make: Callable
    optimizer: Callable  # of (parameters, lr, fused)
    data: Callable  # of "train" or "test": a TensorDataset
    base: Rung
    changes: tuple  # of (name, {field: value}), from the lowest rung up


class Logits(torch.nn.Module):
    """A small GPT that answers with scores: ids [batch, time] -> [batch, time, 256]."""

    def __init__(self, gpt: torch.nn.Module):
        super().__init__()
        self.gpt = gpt

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.gpt(input_ids=ids).logits


def as_printed(batches) -> torch.nn.Module:
    """Run article B's text here with its missing name supplied: two epochs of `batches`."""
    return programs.executed(programs.text("b"), trainloader=batches)["model"]


def _digits(split: str) -> TensorDataset:
    parts = load.digits()
    return TensorDataset(*(parts[:2] if split == "train" else parts[2:]))


def _windows(split: str, time: int = 128) -> TensorDataset:
    """The text in pieces: (bytes [time], the bytes that follow each [time])."""
    text = small_gpt.byte_tokens(split)
    windows = text[: len(text) // (time + 1) * (time + 1)].view(-1, time + 1)
    return TensorDataset(windows[:, :-1], windows[:, 1:])


def _sgd(parameters, lr: float, fused: bool):
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9, fused=fused or None)


def _adamw(parameters, lr: float, fused: bool):
    return torch.optim.AdamW(parameters, lr=lr, fused=fused or None)


@cache
def _network() -> type:
    """Article B's class, by its text; `view` refuses channels_last, flatten does not."""
    text = programs.text("b").replace("x.view(-1, 50 * 4 * 4)", "torch.flatten(x, 1)")
    with torch.random.fork_rng(devices=[]):  # the text makes a model of its own
        return programs.executed(text, trainloader=[])["MyModel"]


def _gpt() -> torch.nn.Module:
    size = device.pick(cpu=(512, 2), gpu=(1024, 8), tiny=(64, 1))
    draw = int(torch.randint(2**31, ()))
    return Logits(small_gpt.make(width=size[0], layers=size[1], positions=128, seed=draw))


_SAME = (
    ("batches cut at once", {"gather": True}),
    ("no .item() per step", {"item_every": 100}),
    ("channels last", {"channels_last": True}),
    ("autocast", {"autocast": True}),
    ("fused optimizer", {"fused": True}),
)
_LAST = ("compile", {"compiled": True})  # last: another batch would compile again
# All rates but article B's were chosen by `rates`, on held-out training data. A rate that
# grows with the batch (Goyal et al. 2017, arXiv:1706.02677, section 2.1) would be 0.008 and
# 0.02 for the CNN. Batches of 160 end worse there than the base does, whatever the rate.
CNN = Task(
    "cnn",
    lambda: _network()(),
    _sgd,
    _digits,
    Rung(),
    (
        ("batch 32", {"batch": 32, "lr": 0.032}),
        *_SAME,
        ("batch 80", {"batch": 80, "lr": 0.064}),
        _LAST,
    ),
)
GPT = Task(
    "gpt",
    _gpt,
    _adamw,
    _windows,
    Rung("plain", batch=8, lr=0.00025),
    (
        *(change for change in _SAME if change[0] != "channels last"),
        ("batch 16", {"batch": 16, "lr": 0.0005}),
        _LAST,
    ),
)


def ladder(task: Task, batch: int | None = None, *, compiles: bool = True) -> list[Rung]:
    """The rungs of `task`, each with one change more; at one `batch` all along if given.

    Its learning rate is that of the highest rung whose batch is not larger. On a GPU the
    second rung moves there. Where no unit computes in 16 bit autocast is tried, but no
    other rung stands on it. Without `compiles` nothing is compiled.

    >>> [rung.name for rung in ladder(CNN, 32, compiles=False)][-3:]
    ['channels last', 'autocast', 'fused optimizer']
    """
    changes = [c for c in task.changes if compiles or "compiled" not in c[1]]
    rung = task.base
    if device.here().is_gpu:
        changes = [("on the GPU", {"to_device": True}), *changes]
    if batch is not None:
        sizes = [{"batch": rung.batch, "lr": rung.lr}]
        sizes += [c[1] for c in changes if "batch" in c[1]]
        fits = [size["lr"] for size in sizes if size["batch"] <= batch] or [rung.lr]
        rung = replace(rung, batch=batch, lr=fits[-1])
        changes = [c for c in changes if "batch" not in c[1]]
    rungs, has_unit = [rung], bool(numerics.unit().name)
    for name, change in changes:
        rungs.append(replace(rung, name=name, on=rung.name, **change))
        rung = rungs[-1] if has_unit or "autocast" not in change else rung
    return rungs
