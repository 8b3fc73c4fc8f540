"""Real transformers models on fake tensors: the peak of bytes alive, by torch's MemTracker.

No weights, no values: `FakeTensorMode` runs shapes only. Each shim below undoes something
that fake tensors change or that a CPU does otherwise than a GPU; its comment says what.
"""

import warnings
from contextlib import nullcontext

import torch
import transformers
from bitsandbytes import functional as bnb  # registers torch.ops.bitsandbytes
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from transformers import masking_utils
from transformers.pytorch_utils import Conv1D

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
assert bnb

# On fake tensors transformers cannot read positions, so it assumes packed sequences and
# builds a mask that a real run does not have.
masking_utils.find_packed_sequence_indices = lambda position_ids: None


class Dropout(nn.Module):
    """CUDA's dropout: a mask of one byte an element, where the CPU's has the full type."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x):
        return torch.native_dropout(x, self.p, True)[0]


class Lora(nn.Module):
    """PEFT's forward of a `Linear`, or of a `Linear4bit` where `packed`."""

    def __init__(self, base, rows, columns, spec, packed):
        super().__init__()
        self.base, self.packed = base, packed
        kind = DTYPES[spec["dtype"]]
        self.a = nn.Linear(columns, spec["rank"], bias=False, dtype=kind)
        self.b = nn.Linear(spec["rank"], rows, bias=False, dtype=kind)
        self.drop = Dropout(spec["dropout"]) if spec["dropout"] else nn.Identity()

    def forward(self, x):
        result = self.base(x)
        kind = result.dtype
        if self.packed:
            result = result.clone()
        x = x.to(self.a.weight.dtype)
        delta = self.b(self.a(self.drop(x))) * 2.0
        return result + delta.to(kind) if self.packed else (result + delta).to(kind)


class Unpack(torch.autograd.Function):
    """bitsandbytes 0.50 above 1,536 tokens: unpack, multiply, free; the input is not
    kept.
    """

    @staticmethod
    def forward(ctx, x, packed, absmax, shape, bias):
        ctx.state = packed, absmax, shape
        weight = unpack(packed, absmax, shape, x.dtype)
        return nn.functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, grad):
        packed, absmax, shape = ctx.state
        return torch.matmul(grad, unpack(packed, absmax, shape, grad.dtype)), *[None] * 4


def unpack(packed, absmax, shape, dtype):
    if isinstance(absmax, tuple):
        codes, scales, table, mean = absmax
        op = torch.ops.bitsandbytes.dequantize_blockwise
        absmax = op(codes, scales, table, 256, torch.float32) + mean
    op = torch.ops.bitsandbytes.dequantize_4bit
    return op(packed, absmax, 64, "nf4", shape, dtype)


class Packed(nn.Module):
    """A linear in NF4: codes, absmax (nested: int8, its scales, 256-entry table, mean),
    code.
    """

    def __init__(self, rows, columns, bias, nested):
        super().__init__()
        n, self.shape = rows * columns, (rows, columns)
        groups = -(-n // 64)
        blank = lambda *a, dtype=torch.float32: nn.Parameter(  # noqa: E731
            torch.empty(*a, dtype=dtype), requires_grad=False
        )
        self.packed = blank((n + 1) // 2, 1, dtype=torch.uint8)
        self.code, self.bias, self.nested = blank(16), bias, nested
        if nested:
            self.absmax = blank(groups, dtype=torch.uint8)
            self.scales, self.table = blank(-(-groups // 256)), blank(256)
            self.mean = blank(())
        else:
            self.absmax = blank(groups)

    def forward(self, x):
        absmax = self.absmax
        if self.nested:
            absmax = (self.absmax, self.scales, self.table, self.mean)
        return Unpack.apply(x, self.packed, absmax, self.shape, self.bias)


def replace_linears(model, spec):
    """Pack every linear of the blocks, then put adapters on the targets."""
    head, quantized = model.get_output_embeddings(), spec["mode"] == "qlora"
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if not isinstance(child, (nn.Linear, Conv1D)) or child is head:
                continue
            rows, columns = child.weight.shape
            if isinstance(child, Conv1D):
                rows, columns = columns, rows
            base = Packed(rows, columns, child.bias, spec["nested"]) if quantized else child
            if name in spec["adapter"]["targets"]:
                base = Lora(base, rows, columns, spec["adapter"], quantized)
            setattr(module, name, base)


def build(spec):
    config = transformers.AutoConfig.for_model(spec["family"], **spec["config"])
    config._attn_implementation = spec["attn"]
    old = torch.get_default_dtype()
    torch.set_default_dtype(DTYPES[spec["dtype"]])
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation=spec["attn"], dtype=DTYPES[spec["dtype"]]
    )
    torch.set_default_dtype(old)
    model.tie_weights()
    if spec.get("adapter"):
        model.requires_grad_(False)
        replace_linears(model, spec)
    if spec.get("ckpt"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train(spec["mode"] != "inference")


def optimizer(model, spec):
    name, kind = spec["opt"]
    params = [p for p in model.parameters() if p.requires_grad]
    how = {"foreach": kind == "foreach", "fused": kind == "fused"}
    if name == "SGD":
        return torch.optim.SGD(params, lr=1e-3, momentum=spec.get("momentum", 0), **how)
    return torch.optim.AdamW(params, lr=1e-3, **how)


def infer(model, spec, ids, tracker):
    rows = 1 if spec["last"] else 0
    with torch.no_grad():
        out = model(ids, use_cache=spec["cache"], logits_to_keep=rows)
        past = out.cache if spec["cache"] else None
        token = out.logits[:, -1:].argmax(-1)
        del out
        for _ in range(spec["gen"]):
            tracker.reset_mod_stats()
            out = model(token, cache=past, use_cache=True, logits_to_keep=rows)
            token = out.logits[:, -1:].argmax(-1)
            del out


def train(model, spec, ids, step, tracker):
    for _ in range(2):
        lower = torch.autocast("cpu", torch.bfloat16) if spec["autocast"] else nullcontext()
        with lower:
            loss = model(ids, labels=ids, use_cache=False).loss
        loss.backward()
        del loss
        step.step()
        step.zero_grad(set_to_none=True)
        tracker.reset_mod_stats()


class NoHook:
    """Stands for the gradient hook that MemTracker would hang on a frozen parameter."""

    @staticmethod
    def remove():
        pass


def peak_bytes(spec: dict) -> int:
    """The most bytes alive over the run of `spec`, MemTracker's count."""
    warnings.filterwarnings("ignore", module="transformers|torch")
    with FakeTensorMode(allow_fallback_kernels=False):
        model = build(spec)
        ids = torch.zeros(spec["batch"], spec["seq"], dtype=torch.long)
        tracker = MemTracker()
        if spec["mode"] == "inference":
            tracker.track_external(model, ids)
            with tracker:
                infer(model, spec, ids, tracker)
        else:
            step = optimizer(model, spec)
            tracker.track_external(model, step, ids)
            frozen = [p for p in model.parameters() if not p.requires_grad]
            tracker._param_to_grad_hook_handles.update(
                dict.fromkeys(frozen, (NoHook, NoHook))
            )
            with tracker:
                train(model, spec, ids, step, tracker)
        return sum(v for k, v in totals(tracker).items() if k == "Total")


def totals(tracker) -> dict[str, int]:
    snapshot = tracker.get_tracker_snapshot("peak")
    (device,) = [d for d in snapshot if d.type == "cpu"]
    return {getattr(k, "value", str(k)): v for k, v in snapshot[device].items()}
