"""Where things lie: reading a device, finding the tensors in a call, booking them."""

from gpulab_utils.standin import card
from gpulab_utils.standin.card import CARD, HOST

import torch

CPU_0 = torch.device("cpu", 0)  # what a tensor of the card says when asked
ASKS = "asks"  # a device given as torch.device("cpu"): the host, or what an operation saw


def where(device) -> str | None:
    """CARD or HOST, ASKS where a device object says cpu, None for no or another device."""
    if isinstance(device, str):
        return CARD if device.startswith("cuda") else HOST if device == "cpu" else None
    if isinstance(device, torch.device):
        on_card = device.type == "cuda" or (device.type == "cpu" and device.index == 0)
        return CARD if on_card else ASKS if device.type == "cpu" else None
    return CARD if type(device) is int else None


def names_card(value) -> bool:
    return isinstance(value, torch.device) and where(value) is CARD


def tensors(value):
    """Every tensor in nested lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))


def book(out, wanted, pins=False):
    """Remember where every tensor in `out` lies, and return it."""
    for tensor in tensors(out):
        if pins:
            card.pin(tensor)
        elif wanted in (CARD, HOST):
            card.put(tensor, wanted)
    return out


def book_like(out, inputs):
    """Results lie on the card if one of the inputs does."""
    on_card = any(card.place(t) == CARD for t in tensors(inputs))
    return book(out, CARD) if on_card else out


def own(out, source):
    """`out` with memory of its own: on a real card it would not share that of `source`."""
    if not isinstance(out, torch.Tensor):
        return out
    return out.clone() if card.same_memory(out, source) else out
