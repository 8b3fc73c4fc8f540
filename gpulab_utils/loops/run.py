"""Training on one rung, a few samples at a time, so that rungs can take turns."""

from collections.abc import Iterator
from contextlib import nullcontext

from gpulab_utils import compiling, device, numerics
from gpulab_utils.loops.rungs import Rung, Task

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class Run:
    """A model in training on one rung; call it with how many samples to train on next."""

    def __init__(
        self, task: Task, rung: Rung, *, seed: int = 0, data: Dataset | None = None
    ):
        self.rung, self.losses = rung, []
        here = device.here()
        self.place = here.device if rung.to_device else torch.device("cpu")
        gpus = [self.place] if self.place.type == "cuda" else []
        with torch.random.fork_rng(devices=gpus):
            torch.manual_seed(seed)
            self.model = task.make().to(self.place)
        if rung.channels_last:
            self.model.to(memory_format=torch.channels_last)
        self.optimizer = task.optimizer(self.model.parameters(), rung.lr, rung.fused)
        self.forward = compiling.compiled(self.model) if rung.compiled else self.model
        self.dtype = here.dtype if rung.autocast else None
        scales = self.dtype == torch.float16
        self.scaler = torch.amp.GradScaler(self.place.type, enabled=scales)
        self.batches = self._endless(data or task.data("train"), seed)
        self.total, self.steps = 0.0, 0

    def __call__(self, samples: int) -> int:
        """Train on whole batches until there were `samples`; how many it were."""
        done = 0
        while done < samples:
            done += self.step(*next(self.batches))
        return done

    def step(self, inputs: torch.Tensor, labels: torch.Tensor) -> int:
        """One step; how many samples were in it."""
        if self.rung.to_device:
            inputs, labels = (x.to(self.place, non_blocking=True) for x in (inputs, labels))
        if self.rung.channels_last:
            inputs = inputs.to(memory_format=torch.channels_last)
        self.optimizer.zero_grad()
        with numerics.autocast(self.dtype) if self.dtype else nullcontext():
            outputs = self.forward(inputs)
        scores = outputs.float().flatten(0, -2)  # [labels, classes]
        loss = torch.nn.functional.cross_entropy(scores, labels.flatten())
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self._count(loss)
        return len(inputs)

    def _count(self, loss: torch.Tensor) -> None:
        self.steps += 1
        self.total = self.total + loss.detach()
        if self.steps % self.rung.item_every == 0:
            self.losses.append(self.total.item() / self.rung.item_every)
            self.total = 0.0

    def _endless(self, data: Dataset, seed: int) -> Iterator:
        draw = torch.Generator().manual_seed(seed)
        how = {"batch_size": self.rung.batch, "shuffle": True}
        if self.rung.gather:  # the sampler hands the dataset a list: one indexing a batch
            order = BatchSampler(
                RandomSampler(data, generator=draw), self.rung.batch, False
            )
            how = {"sampler": order, "batch_size": None}
        pinned = self.rung.to_device and self.place.type == "cuda"
        while True:
            yield from DataLoader(data, **how, generator=draw, pin_memory=pinned)
