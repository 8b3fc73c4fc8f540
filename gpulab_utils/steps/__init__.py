"""A training step in several ways: the same arithmetic, other bytes.

`make(way)` builds a step of a small Llama on real text; `way.options` say to `plan` what
it does. Every way trains the same model on the same batch from the same start.
"""

from dataclasses import dataclass

from gpulab_utils import device, numerics, plan, small_gpt
from gpulab_utils.alive import KINDS, Ledger, keep
from gpulab_utils.models import shape_from_config
from gpulab_utils.steps.asking import asked_for
from gpulab_utils.steps.shelf import Shelf
from gpulab_utils.steps.turns import times
from gpulab_utils.steps.ways import WAYS, Way, cut, optimizers, words

import torch

__all__ = ["KINDS", "WAYS", "Ledger", "Shelf", "Step", "Way", "asked_for", "cut", "keep"]
__all__ += ["learn", "make", "planned", "times", "words"]


@dataclass
class Step:
    """A model, its optimizers, a batch, and a step that tells its phases."""

    way: Way
    model: torch.nn.Module
    optimizers: list
    ids: torch.Tensor  # [batch, time]
    shelf: Shelf | None

    def __call__(self, enter=lambda phase: None) -> float:
        """One step; returns the loss. Gradients are dropped at its end."""
        way, total, hooks = self.way, 0.0, self._hooks()
        for part in self.ids.chunk(way.accumulation):
            enter("forward")
            loss = self.forward(part) / way.accumulation
            enter("backward")
            loss.backward()
            total += loss.item()
            del loss
        enter("step")
        self.update()
        self.model.zero_grad()
        for hook in hooks:
            hook.remove()
        return total

    def _hooks(self) -> list:
        """Where the step is fused into backward a gradient is used up at once."""
        if not self.way.in_backward:
            return []
        own = dict(zip(self.model.parameters(), self.optimizers, strict=True))

        def step(p):
            own[p].step()
            p.grad = None

        return [p.register_post_accumulate_grad_hook(step) for p in own]

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        away = self.way.offload == "activations"
        saving = self.shelf.saving(self.model.parameters()) if away else numerics.autocast()
        dtype = device.here().dtype if self.way.amp else None
        with saving, numerics.autocast(dtype):
            return self.model(input_ids=ids, labels=ids).loss

    def update(self) -> None:
        if self.way.in_backward:
            return
        for optimizer in self.optimizers:
            if self.way.offload == "states":
                self._with_states(optimizer)
            else:
                optimizer.step()

    def _with_states(self, optimizer) -> None:
        """Fetch this optimizer's states, step, put them back."""
        for p, states in optimizer.state.items():
            for name in ("exp_avg", "exp_avg_sq"):
                states[name + "_away"] = states[name]
                states[name] = self.shelf.fetch(states[name], p)
        optimizer.step()
        for states in optimizer.state.values():
            for name in ("exp_avg", "exp_avg_sq"):
                away = states.pop(name + "_away", None)
                if away is None:  # the first step has made them
                    away = self.shelf.put(states[name])
                else:
                    away.copy_(states[name])
                states[name] = away

    def ledger(self) -> Ledger:
        """The ledger of the second step: the states exist by then."""
        self()
        tensors = [v for o in self.optimizers for s in o.state.values() for v in s.values()]
        states = [v for v in tensors if isinstance(v, torch.Tensor)]
        here, away = ([], states) if self.way.offload == "states" else (states, [])
        return keep(self, self.model.parameters(), here, [self.ids], away)


def make(way: Way, *, width: int, layers: int, batch: int, time: int) -> Step:
    """A step in this way. `kernels.KernelMissing` where its library is not installed."""
    here = device.here()
    model = small_gpt.make(width=width, layers=layers, positions=time).to(here.device)
    if way.checkpointing:
        cut(model, int(way.checkpointing))
    ids = next(small_gpt.batches("train", batch=batch, time=time)).to(here.device)
    one_each = way.in_backward or way.offload == "states"
    shelf = Shelf() if way.offload else None
    return Step(way, model, optimizers(model, way, one_each), ids, shelf)


def planned(step: Step, **more):
    """The planner's bill for this step, of its shape, batch and way alone.

    Without block rounding and workspaces, which a ledger does not see; `device="gpu"` has
    them.
    """
    shape = shape_from_config(step.model.config.to_dict())
    batch, time = step.ids.shape
    options = {"device": "cpu"} | step.way.options | more
    return plan(shape, "full_train", "fp32", batch, time, **options)


def learn(step: Step, n: int, seed: int = 0) -> float:
    """Nats a byte on a piece of the test text after `n` steps on other windows."""
    batch, time = step.ids.shape
    windows = small_gpt.batches("train", batch=batch, time=time, seed=seed)
    for _ in range(n):
        step.ids = next(windows).to(device.here().device)
        step()
    ids = next(small_gpt.batches("test", batch=16, time=time)).to(device.here().device)
    with torch.no_grad():
        return float(step.model(input_ids=ids, labels=ids).loss)
