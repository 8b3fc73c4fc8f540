"""Whose bytes are alive in a training step? Weights, gradients, states and the rest.

`alive` keeps the books, on real tensors or on fake ones that have no memory. torch's
`MemTracker` does the same by module; it refuses weights that are frozen, and its hooks
keep what checkpointing has freed.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import partial

from gpulab_utils import alive
from gpulab_utils.memory import Peak

import torch

PLAIN = nullcontext()
PHASES = ("forward", "backward", "optimizer")


def weights(model) -> list[torch.Tensor]:
    """Parameters and buffers, and the scales that bitsandbytes keeps beside its codes."""
    found = [*model.parameters(), *model.buffers()]
    for parameter in model.parameters():
        state = getattr(parameter, "quant_state", None)
        for part in filter(None, (state, getattr(state, "state2", None))):
            found += [part.absmax, part.code]
        if getattr(state, "offset", None) is not None:
            found.append(state.offset)
    return found


def states(optimizer) -> list[torch.Tensor]:
    """What the optimizer keeps from step to step; nothing before its first step.

    Each tensor once: bitsandbytes names two tables in the state of every parameter.
    """
    kept = (value for of in optimizer.state.values() for value in of.values())
    return list({id(v): v for v in kept if isinstance(v, torch.Tensor)}.values())


def step(model, optimizer, ids, lower: AbstractContextManager = PLAIN, before=None):
    """One training step of a causal language model on `ids` [batch, time]: its loss,
    a tensor that needs no gradient.

    `lower` is an autocast context for the forward; `before(phase)` is called at the start
    of each phase.
    """
    before = before or (lambda phase: None)
    before("forward")
    with lower:
        loss = model(ids, labels=ids).loss
    before("backward")
    loss.backward()
    loss = loss.detach()
    before("optimizer")
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


def peaks(model, optimizer, ids, lower: AbstractContextManager = PLAIN) -> dict[str, Peak]:
    """The most bytes alive in each phase of a step, by category.

    A step is made before if the optimizer has no states yet. Time is never taken here.

    >>> layer = torch.nn.Linear(256, 256, bias=False)
    >>> class Model(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layer = layer
    ...     def forward(self, x, labels):
    ...         return type("", (), {"loss": self.layer(x).square().mean()})
    >>> adam = torch.optim.AdamW(layer.parameters(), foreach=True)
    >>> told = peaks(Model(), adam, torch.ones(1, 256))["optimizer"].by_category
    >>> kinds = "weights", "gradients", "optimizer"
    >>> [told[kind] // layer.weight.nbytes for kind in kinds]
    [1, 1, 2]
    """
    if not optimizer.state:
        step(model, optimizer, ids, lower)
    ids = ids.clone()  # a window may be a view of a whole text
    run = partial(step, model, optimizer, ids, lower)
    return alive.keep(run, weights(model), states(optimizer), [ids]).peaks()


def largest(found: dict[str, Peak]) -> Peak:
    """The peak of the whole step.

    >>> largest({"forward": Peak(1, {}), "backward": Peak(2, {})}).total
    2
    """
    return max(found.values(), key=lambda peak: peak.total)
