"""Training steps of a real small Llama, and the peak that torch's MemTracker sees.

A CPU has no second memory to offload to. So what waits on the host leaves the tracker's
sight: a copy that numpy owns, or a step in a thread, where dispatch modes do not reach.
"""

import threading
import warnings
from functools import partial

from gpulab_utils import small_gpt

import bitsandbytes
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils.checkpoint import checkpoint

ADAMW = {
    "adamw": partial(torch.optim.AdamW, foreach=True),
    "adamw_loop": partial(torch.optim.AdamW, foreach=False),
    "adamw_fused": partial(torch.optim.AdamW, fused=True),
    "adamw8bit": bitsandbytes.optim.AdamW8bit,
    "sgd": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
}


class Segment(nn.Module):
    """Some layers in a row, checkpointed together."""

    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def through(self, hidden, **rest):
        for layer in self.layers:
            hidden = layer(hidden, **rest)
        return hidden

    def forward(self, hidden, **rest):
        return checkpoint(self.through, hidden, use_reentrant=False, **rest)


def cut(model, k: int) -> None:
    layers = list(model.model.layers)
    parts = [Segment(layers[i : i + k]) for i in range(0, len(layers), k)]
    model.model.layers = nn.ModuleList(parts)


class Away(saved_tensors_hooks):
    """torch's save_on_cpu with numpy for a host; `kept` are storages that stay."""

    def __init__(self, kept: set = frozenset()):
        self.moved = {"to_host": 0, "from_host": 0}
        self.kept = kept
        super().__init__(self.pack, self.unpack)

    def pack(self, tensor):
        if tensor.untyped_storage().data_ptr() in self.kept:
            return tensor
        self.moved["to_host"] += tensor.nbytes
        raw = tensor.detach().contiguous().view(torch.uint8) if tensor.dim() else tensor
        return tensor.dtype, tensor.shape, raw.numpy().copy()

    def unpack(self, packed):
        if isinstance(packed, torch.Tensor):
            return packed
        dtype, shape, array = packed
        found = torch.empty(shape, dtype=dtype)
        raw = found.view(torch.uint8) if shape else found
        raw.copy_(torch.from_numpy(array))
        self.moved["from_host"] += found.nbytes
        return found


assert save_on_cpu.__mro__[1] is saved_tensors_hooks  # what `Away` stands for


def unseen(work) -> None:
    """Run `work` where no dispatch mode looks: in a thread of its own."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


class HostStep:
    """AdamW over copies of the weights: gradients come over, weights go back."""

    def __init__(self, params, make):
        self.params, self.moved = params, {"to_host": 0, "from_host": 0}
        self.copies = [p.detach().clone().requires_grad_() for p in params]
        self.inner = make(self.copies, lr=1e-3)

    def step(self):
        unseen(self._step)

    def _step(self):
        for p, copy in zip(self.params, self.copies, strict=True):
            copy.grad = p.grad.clone()
            self.moved["to_host"] += p.grad.nbytes
        type(self.inner).step.__wrapped__(self.inner)  # MemTracker hooks the wrapper
        with torch.no_grad():
            for p, copy in zip(self.params, self.copies, strict=True):
                p.copy_(copy)
                self.moved["from_host"] += p.nbytes


class StatesAway:
    """AdamW on the device, a parameter at a time; its two states come and go."""

    def __init__(self, params, make):
        self.moved, self.away = {"to_host": 0, "from_host": 0}, {}
        self.steps = [make([p], lr=1e-3) for p in params]

    def step(self):
        for inner in self.steps:
            (p,) = inner.param_groups[0]["params"]
            for name, array in self.away.get(p, {}).items():
                state = torch.empty_like(p)
                state.copy_(torch.from_numpy(array))
                inner.state[p][name] = state
                self.moved["from_host"] += state.nbytes
                del state
            inner.step()
            held = {n: inner.state[p].pop(n) for n in ("exp_avg", "exp_avg_sq")}
            self.away[p] = {n: v.numpy().copy() for n, v in held.items()}
            self.moved["to_host"] += sum(v.nbytes for v in held.values())
            del held


def in_backward(params, make) -> list:
    """A step of its own for each parameter, in a hook that frees the gradient."""
    own = {p: make([p], lr=1e-3) for p in params}

    def step(p):
        own[p].step()
        p.grad = None

    for p in params:
        p.register_post_accumulate_grad_hook(step)
    return list(own.values())


class Run:
    """One setting: a model, its step, and what the step moved."""

    def __init__(self, width, layers, batch, time, options):
        self.options, self.hooks = options, []
        self.model = small_gpt.make(width=width, layers=layers, positions=time)
        if options.get("checkpointing"):
            cut(self.model, int(options["checkpointing"]))
        self.ids = next(small_gpt.batches("train", batch=batch, time=time))
        params, make = (
            list(self.model.parameters()),
            ADAMW[options.get("optimizer", "adamw")],
        )
        self.kept = {p.untyped_storage().data_ptr() for p in params}
        self.stepping = None
        if options.get("in_backward"):
            self.optimizers = in_backward(params, make)
            return
        away = {"optimizer": HostStep, "states": StatesAway}.get(options.get("offload"))
        self.stepping = away(params, make) if away else make(params, lr=1e-3)
        self.optimizers = [] if away else [self.stepping]

    def loss(self, ids):
        kind, amp = self.options.get("offload"), bool(self.options.get("amp"))
        with torch.autocast("cpu", torch.bfloat16, enabled=amp):
            if kind not in ("activations", "save_on_cpu"):
                return self.model(input_ids=ids, labels=ids).loss
            self.hooks.append(Away(self.kept if kind == "activations" else frozenset()))
            with self.hooks[-1]:
                return self.model(input_ids=ids, labels=ids).loss

    def step(self, tracker):
        self.hooks = []
        for ids in self.ids.chunk(self.options.get("accumulation", 1)):
            loss = self.loss(ids)
            loss.backward()
            del loss
            tracker.reset_mod_stats()  # else the next forward raises
        if self.stepping:
            self.stepping.step()
        self.model.zero_grad()

    def peak_bytes(self) -> int:
        """Of two steps: the optimizer's states exist from the first on."""
        tracker = MemTracker()
        tracker.track_external(self.model, *self.optimizers)
        with tracker, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a hook of MemTracker meets a freed gradient
            self.step(tracker)
            if hasattr(self.stepping, "moved"):
                self.stepping.moved.update(to_host=0, from_host=0)
            self.step(tracker)
        (told,) = tracker.get_tracker_snapshot("peak").values()
        return {getattr(k, "value", k): v for k, v in told.items()}["Total"]

    def road(self) -> dict[str, int]:
        """What the last step moved."""
        found = [h.moved for h in self.hooks]
        if hasattr(self.stepping, "moved"):
            found.append(self.stepping.moved)
        return {way: sum(m[way] for m in found) for way in ("to_host", "from_host")}
