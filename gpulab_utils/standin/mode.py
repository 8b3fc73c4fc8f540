"""The torch function mode: what was meant for `cuda` runs on the CPU, and is remembered.

A tensor of the card says `cpu:0` when asked for its device, so that code which makes its
sibling there (`device=x.device`) is understood, while `.type` is what it really is.
"""

import threading
from types import SimpleNamespace

from gpulab_utils.standin import card, private, queue
from gpulab_utils.standin.card import CARD, HOST

import torch
from torch.overrides import TorchFunctionMode

# What takes tensors of both sides on a real card too.
MIXES = {
    *("__getitem__", "__setitem__", "__get__", "__set__", "copy_", "_foreach_copy_"),
    *("set_", "type_as", "new_tensor", "tensor", "as_tensor", "tensor_split"),
    *("lstm", "gru", "rnn_tanh", "rnn_relu", "_pack_padded_sequence", "backward"),
    *("_make_subclass", "_has_compatible_shallow_copy_type", "is_same_size", "grad"),
}
# What makes the host wait for the current stream.
WAITS = {
    *("item", "tolist", "nonzero", "masked_select", "unique", "equal", "allclose"),
    *("__bool__", "__float__", "__int__", "__index__", "__repr__", "__format__"),
}
WITH_STUBS = {"bitsandbytes"}  # namespaces of operators whose CUDA kernels are stubbed
NOTE = []  # who wants to know
CPU_0 = torch.device("cpu", 0)
ASKS = SimpleNamespace(name="asks")  # a device given as torch.device("cpu"): no telling


class Mode(TorchFunctionMode):
    """Runs each torch function on the CPU and books where its results would lie."""

    def __init__(self):
        super().__init__()
        self.thread, self.off = threading.get_ident(), False
        self.default = HOST  # torch.set_default_device
        self.handlers = {
            torch.Tensor.to: _to,
            torch.Tensor.cuda: _cuda,
            torch.Tensor.cpu: _cpu,
            torch.Tensor.copy_: _copy_,
            torch.Tensor.numpy: _no_numpy,
            torch.Tensor.__array__: _no_numpy,
            torch.Tensor.device.__get__: _device,
        }
        self.as_is = {torch.device, private.get("parse_to")}

    def start(self) -> None:
        self.__enter__()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if self.off or func in self.as_is:
            return func(*args, **kwargs)
        out = self.handlers.get(func, _run)(func, args, kwargs)
        for graph in queue.captures:
            graph.note(func, args, kwargs, out)
        return out


def where(device) -> str | SimpleNamespace | None:
    """CARD or HOST, ASKS where a device object says cpu, None for no or another device."""
    if isinstance(device, str):
        return CARD if device.startswith("cuda") else HOST if device == "cpu" else None
    if isinstance(device, torch.device):
        on_card = device.type == "cuda" or (device.type == "cpu" and device.index == 0)
        return CARD if on_card else ASKS if device.type == "cpu" else None
    return CARD if type(device) is int else None


def _run(func, args, kwargs):
    """Any function: strip the card from its arguments, run, book the result."""
    wanted = where(kwargs.get("device"))
    if wanted is CARD:
        kwargs["device"] = CPU_0
    if any(map(_names_card, args)):
        wanted, args = CARD, [CPU_0 if _names_card(a) else a for a in args]
    pins = kwargs.pop("pin_memory", False)
    name = getattr(func, "__name__", "")
    if name in WAITS and args and any(card.place(t) == CARD for t in tensors(args[0])):
        queue.wait()
    out = func(*args, **kwargs)
    made = list(tensors(out))
    if made:
        inputs = list(tensors(args)) + list(tensors(kwargs))
        wanted = wanted or _follows(func, name, inputs)
        if wanted is CARD and inputs and "device" in kwargs:
            out = _own(out, inputs[0])
        book(out, HOST if pins else wanted, pins)
    return out


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


def _follows(func, name: str, inputs: list) -> str | None:
    """Where the results of these inputs lie; raises where a real card would."""
    places = [card.place(t) for t in inputs]
    if not places:
        return MODE.default
    if CARD not in places:
        return HOST if all(p == HOST for p in places) else None
    family = getattr(func, "namespace", "aten")
    for tell in NOTE if family in WITH_STUBS else ():
        tell(f"{family}.kernels")
    strangers = [t for t, p in zip(inputs, places, strict=True) if p == HOST and t.dim()]
    if strangers and family == "aten" and name not in MIXES:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two "
            f"devices, cuda:0 and cpu! (a host tensor {list(strangers[0].shape)} in {name})"
        )
    return CARD


def _to(func, args, kwargs):
    x, *rest = args
    goal, goals = None, [kwargs.get("device"), kwargs.get("other"), *rest[:1]]
    for given in goals:
        is_tensor = isinstance(given, torch.Tensor)
        goal = goal or (card.place(given) if is_tensor else where(given))
    if goal is CARD:
        kwargs |= {"device": CPU_0} if kwargs.get("device") is not None else {}
        if rest and where(rest[0]) is CARD:
            rest[0] = CPU_0
    flags = [a for a in rest if isinstance(a, bool)]
    is_async = kwargs.get("non_blocking", flags[0] if flags else False)
    return _moved(x, func(x, *rest, **kwargs), goal, is_async)


def _cuda(func, args, kwargs):
    x, *rest = args
    flags = [a for a in rest if isinstance(a, bool)]
    is_async = kwargs.get("non_blocking", flags[0] if flags else False)
    return _moved(x, x, CARD, is_async)


def _cpu(func, args, kwargs):
    return _moved(args[0], func(*args, **kwargs), HOST, False)


def _moved(x, out, goal, is_async: bool):
    """Book `out`, which is `x` brought to `goal`, in memory of its own where it crossed."""
    came_from = card.place(x)
    leaves = came_from == CARD and goal in (HOST, ASKS)
    arrives = came_from != CARD and goal == CARD
    if leaves or arrives:
        out = _own(out, x)
    card_or_host = goal if goal in (CARD, HOST) else None if leaves else came_from
    book(out, card_or_host)
    if leaves and is_async:
        queue.late_copy(out)
    elif leaves or (arrives and not is_async):
        queue.wait()
    return out


def _copy_(func, args, kwargs):
    target, source, *flags = args if len(args) > 1 else (args[0], kwargs["src"])
    out = func(*args, **kwargs)
    is_async = kwargs.get("non_blocking", flags[0] if flags else False)
    if card.place(source) == CARD and card.place(target) == HOST:
        queue.late_copy(target) if is_async else queue.wait()
    return out


def _no_numpy(func, args, kwargs):
    if card.place(args[0]) == CARD:
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy "
            "the tensor to host memory first."
        )
    return func(*args, **kwargs)


def _device(func, args, kwargs):
    real = func(*args, **kwargs)
    return CPU_0 if card.place(args[0]) == CARD else real


def _names_card(value) -> bool:
    return isinstance(value, torch.device) and where(value) is CARD


def _own(out, source):
    """`out` with memory of its own: on a real card it would not share that of `source`."""
    if not isinstance(out, torch.Tensor):
        return out
    return out.clone() if card.same_memory(out, source) else out


def tensors(value):
    """Every tensor in nested lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))


MODE = Mode()
