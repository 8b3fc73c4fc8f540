"""The torch function mode: what was meant for `cuda` runs on the CPU, and is remembered.

A tensor of the card says `cpu:0` when asked for its device, so that code which makes its
sibling there (`device=x.device`) is understood, while `.type` is what it really is.
"""

import atexit
import threading

from gpulab_utils.standin import card, moves, private, queue
from gpulab_utils.standin.card import CARD, HOST
from gpulab_utils.standin.places import CPU_0, book, names_card, own, tensors, where

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
# What multiplies matrices by cuBLAS.
PRODUCTS = {
    *("linear", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "addmm", "baddbmm"),
    *("einsum", "addmv", "mv"),
}
WITH_STUBS = {"bitsandbytes"}  # namespaces of operators whose CUDA kernels are stubbed
NOTE = []  # who wants to know


class Mode(TorchFunctionMode):
    """Runs each torch function on the CPU and books where its results would lie."""

    def __init__(self):
        super().__init__()
        self.thread, self.off = threading.get_ident(), False
        self.default = HOST  # torch.set_default_device
        self.handlers = {
            torch.Tensor.to: moves.to,
            torch.Tensor.cuda: moves.cuda,
            torch.Tensor.cpu: moves.cpu,
            torch.Tensor.copy_: moves.copy_,
            torch.Tensor.numpy: moves.numpy,
            torch.Tensor.__array__: moves.numpy,
            torch.Tensor.device.__get__: moves.device,
        }
        self.handlers |= {torch.device: moves.name, private.get("parse_to"): moves.name}

    def start(self) -> None:
        """Enter for good; at the end of the process torch is taken apart without it."""
        self.__enter__()
        atexit.register(setattr, self, "off", True)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if self.off:
            return func(*args, **kwargs)
        out = self.handlers.get(func, _run)(func, args, kwargs)
        for graph in queue.captures:
            graph.note(func, args, kwargs, out)
        return out


def _run(func, args, kwargs):
    """Any function: strip the card from its arguments, run, book the result."""
    wanted = where(kwargs.get("device"))
    if wanted is CARD:
        kwargs["device"] = CPU_0
    if any(map(names_card, args)):
        wanted, args = CARD, [CPU_0 if names_card(a) else a for a in args]
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
            out = own(out, inputs[0])
        book(out, HOST if pins else wanted, pins)
    return out


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
    if name in PRODUCTS:
        card.use_workspace()
    strangers = [t for t, p in zip(inputs, places, strict=True) if p == HOST and t.dim()]
    if strangers and family == "aten" and name not in MIXES:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two "
            f"devices, cuda:0 and cpu! (a host tensor {list(strangers[0].shape)} in {name})"
        )
    return CARD


MODE = Mode()
