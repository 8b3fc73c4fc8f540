"""How good is a classifier? Over items, not over batches: the last one may be smaller."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class Score:
    """Share of right answers and mean loss in nats, over `items` answers."""

    accuracy: float
    loss: float
    items: int


def evaluate(model: torch.nn.Module, batches: Iterable) -> Score:
    """Score `model` on (inputs, labels); labels have any shape, classes come last.

    Batches go to the model's device, one answer comes back at the end, and each module is
    left in the mode it was in. Raises `ValueError` where there is nothing to score.

    >>> right = torch.nn.Identity()
    >>> two = [(torch.eye(4)[:3], torch.arange(3)), (torch.eye(4)[:1], torch.tensor([3]))]
    >>> evaluate(right, two).accuracy, evaluate(right, two).items
    (0.75, 4)
    """
    place = next((p.device for p in model.parameters()), None)
    modes, items, sums = [(m, m.training) for m in model.modules()], 0, 0
    model.eval()
    try:
        with torch.inference_mode():
            for inputs, labels in batches:
                inputs, labels = inputs.to(place), labels.to(place)
                scores = model(inputs).float()  # [..., classes]
                loss = F.cross_entropy(
                    scores.flatten(0, -2), labels.flatten(), reduction="sum"
                )
                right = (scores.argmax(-1) == labels).sum()
                sums = sums + torch.stack([right.double(), loss.double()])
                items += labels.numel()
    finally:
        for module, was in modes:  # train() would switch a frozen child as well
            module.training = was
    if not items:
        raise ValueError("no batch to score: is the loader empty, or used up?")
    right, loss = (sums / items).tolist()
    return Score(right, loss, items)
