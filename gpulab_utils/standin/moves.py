"""Tensors that cross between host and card, and what may not be done with a card's."""

from gpulab_utils.standin import card, private, queue
from gpulab_utils.standin.card import CARD, HOST
from gpulab_utils.standin.places import ASKS, CPU_0, book, own, where

import torch


def to(func, args, kwargs):
    x, *rest = args
    goal, goals = None, [kwargs.get("device"), kwargs.get("other"), *rest[:1]]
    for given in goals:
        is_tensor = isinstance(given, torch.Tensor)
        goal = goal or (card.place(given) if is_tensor else where(given))
    if goal is CARD:
        there = torch.device("cpu") if card.place(x) == CARD else CPU_0  # CPU_0 copies
        kwargs |= {"device": there} if kwargs.get("device") is not None else {}
        if rest and where(rest[0]) is CARD:
            rest[0] = there
    flags = [a for a in rest if isinstance(a, bool)]
    is_async = kwargs.get("non_blocking", flags[0] if flags else False)
    return _moved(x, func(x, *rest, **kwargs), goal, is_async)


def cuda(func, args, kwargs):
    x, *rest = args
    flags = [a for a in rest if isinstance(a, bool)]
    is_async = kwargs.get("non_blocking", flags[0] if flags else False)
    return _moved(x, x, CARD, is_async)


def cpu(func, args, kwargs):
    return _moved(args[0], func(*args, **kwargs), HOST, False)


def _moved(x, out, goal, is_async: bool):
    """Book `out`, which is `x` brought to `goal`, in memory of its own where it crossed."""
    came_from = card.place(x)
    leaves = came_from == CARD and goal in (HOST, ASKS)
    arrives = came_from != CARD and goal == CARD
    if leaves or arrives:
        out = own(out, x)
    card_or_host = goal if goal in (CARD, HOST) else None if leaves else came_from
    book(out, card_or_host)
    if leaves and is_async:
        _late(out)
    elif leaves or (arrives and not is_async):
        queue.wait()
    return out


def copy_(func, args, kwargs):
    target, source, *flags = args if len(args) > 1 else (args[0], kwargs["src"])
    out = func(*args, **kwargs)
    is_async = kwargs.get("non_blocking", flags[0] if flags else False)
    if card.place(source) == CARD and card.place(target) == HOST:
        _late(target) if is_async else queue.wait()
    return out


def numpy(func, args, kwargs):
    if card.place(args[0]) == CARD:
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy "
            "the tensor to host memory first."
        )
    return func(*args, **kwargs)


def name(func, args, kwargs):
    """A device is only named: as it is, a bare number being the card of that index."""
    if args and type(args[0]) is int:
        args = torch.device("cuda", args[0]), *args[1:]
    return func(*args, **kwargs)


def device(func, args, kwargs):
    real = func(*args, **kwargs)
    return CPU_0 if card.place(args[0]) == CARD else real


def _late(host) -> None:
    """Hide what was just copied into `host` until the current stream was waited for."""
    with private.get("no_mode")(), torch.inference_mode(host.is_inference()):
        seen = host if host.is_inference() else host.data  # no version to trip autograd
        arrived = seen.clone()
        seen.copy_(_poison(arrived))

    def arrive() -> None:
        with private.get("no_mode")(), torch.inference_mode(host.is_inference()):
            seen.copy_(arrived)

    queue.current().delay(arrive)


def _poison(value):
    if value.dtype == torch.bool:
        return ~value
    if value.is_floating_point() or value.is_complex():
        return torch.full_like(value, float("nan"))
    return torch.full_like(value, torch.iinfo(value.dtype).min or 255)
