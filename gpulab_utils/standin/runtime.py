"""Where torch runs code on behalf of others: backward, compile, load, autocast."""

import functools
import threading
from contextlib import nullcontext

from gpulab_utils.standin import card, private
from gpulab_utils.standin.card import CARD, HOST
from gpulab_utils.standin.mode import MODE
from gpulab_utils.standin.places import book, book_like, where

import torch


def runs_backward(original):
    """The engine runs hooks and recomputation: with the mode on, as any user code."""

    @functools.wraps(original)
    def run(t_outputs, *args, **kwargs):
        leaves = [leaf for leaf in _leaves(t_outputs) if card.place(leaf) == CARD]
        with _mode_on():
            out = original(t_outputs, *args, **kwargs)
        for leaf in leaves:
            if leaf.grad is not None:
                card.put(leaf.grad, CARD)
        return out

    return run


def _leaves(outputs) -> list:
    """The leaves of the graph of `outputs` that will get a gradient."""
    todo = [t.grad_fn for t in outputs if isinstance(t, torch.Tensor) and t.grad_fn]
    seen, leaves = set(todo), []
    while todo:
        node = todo.pop()
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        fresh = {f for f, _ in node.next_functions if f is not None} - seen
        seen |= fresh
        todo += fresh
    return leaves


def _mode_on():
    is_mine = threading.get_ident() == MODE.thread and not MODE.off
    return MODE if is_mine and MODE not in private.get("modes")() else nullcontext()


def compiles(original):
    """torch.compile, its function run without the mode: Dynamo would trace that too."""

    @functools.wraps(original)
    def compile_(model=None, **options):
        if model is None:
            return lambda fn: compile_(fn, **options)
        compiled = original(model, **options)
        if isinstance(compiled, torch.nn.Module):
            compiled.forward = _without_mode(compiled.forward, model.parameters)
            return compiled
        return functools.wraps(model)(_without_mode(compiled))

    return compile_


def quiet(fn):
    """Checkpointing compares devices seen inside operations with devices seen outside."""

    def run(*args):
        with private.get("no_mode")():
            return fn(*args)

    return run


def _without_mode(fn, state=list):
    def run(*args, **kwargs):
        with private.get("no_mode")():
            out = fn(*args, **kwargs)
        return book_like(out, [args, kwargs, *state()])

    return run


def loads(original):
    @functools.wraps(original)
    def load(f, map_location=None, **options):
        on_card = where(map_location) is CARD
        out = original(f, "cpu" if on_card else map_location, **options)
        return book(out, CARD) if on_card else out

    return load


def autocasts(original):
    """autocast("cuda") is autocast("cpu") with CUDA's default format."""

    @functools.wraps(original)
    def init(self, device_type, dtype=None, *args, **kwargs):
        if where(device_type) is CARD:
            device_type, dtype = "cpu", dtype or torch.float16
        original(self, device_type, dtype, *args, **kwargs)

    return init


def default_device(original):
    @functools.wraps(original)
    def set_default(device):
        MODE.default = CARD if where(device) is CARD else HOST
        original(None if MODE.default is CARD else device)

    return set_default


def record_stream(self, stream) -> None:
    """The memory is kept until somebody waits for what `stream` was given so far.

    A card also counts what the stream is given between this call and the free.
    """
    stream.delay(self.untyped_storage().size)  # the queue holds it: that is all


def pin_memory(self, device=None):
    out = self.clone()
    card.pin(out)
    return out
