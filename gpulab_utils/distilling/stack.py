"""A language model whose weights are written in another format: bytes, values, a pass."""

import copy
from collections.abc import Callable
from functools import partial

from gpulab_utils import fourbit, quant

import torch
import torch.nn.functional as F

GROUP = 64  # divides SmolLM2's rows; its file's own groups are of 32
PACK = {"int4": partial(fourbit.int4, group=GROUP), "nf4": fourbit.nf4}


def held(model, name: str) -> tuple:
    """(a copy of `model` with the values that format `name` leaves, its bytes).

    `name`: "fp32", "bf16", or one of `quant.FORMATS` for the linears in the layers, the
    rest (embedding, head, norms) in bf16. The copy computes in fp32. `ValueError` for
    another name.

    >>> from gpulab_utils import small_gpt
    >>> model = small_gpt.make(width=64, layers=1, positions=8)
    >>> [held(model, name)[1] for name in ("fp32", "bf16", "int4 g64")]
    [393984, 196992, 102784]
    """
    if name == "fp32":
        return model, sum(p.nbytes for p in model.parameters())
    made, n_bytes = copy.deepcopy(model), 0
    inside = {id(linear.weight) for linear in _linears(made)}
    with torch.no_grad():
        for weight in made.parameters():
            if id(weight) in inside and name != "bf16":
                left = quant.write(weight, name)
                values, size = left.values, left.nbytes
            else:
                values = weight.bfloat16()
                size = values.nbytes
            weight.copy_(values)
            n_bytes += size
    return made, n_bytes


def token_pass(model, name: str, dtype) -> Callable:
    """A call that multiplies one row by each weight that a token meets, the head included.

    `name`: "fp32", "bf16" (that is `dtype`), or "int4" or "nf4", where the linears of the
    layers are packed. Attention and norms are left out: at a short context a token is its
    weights. Raises `kernels.KernelMissing` where there is no such product.
    """
    dtype = torch.float32 if name == "fp32" else dtype
    weights = [linear.weight.detach() for linear in _linears(model)]
    head = model.get_output_embeddings().weight.detach().to(dtype)
    rows = {w.shape[1]: torch.ones(1, w.shape[1]).to(w.device, dtype) for w in weights}
    if name in PACK:
        packed = [(PACK[name](w.to(dtype)), rows[w.shape[1]]) for w in weights]
        calls = [(linear.__call__, (x,)) for linear, x in packed]
    else:
        calls = [(F.linear, (rows[w.shape[1]], w.to(dtype))) for w in weights]
    calls.append((F.linear, (rows[head.shape[1]], head)))
    return lambda: [call(*given) for call, given in calls]


def _linears(model) -> list:
    """The linears of the layers: not the head, which may be the embedding."""
    modules = model.model.layers.modules()
    return [m for m in modules if isinstance(m, torch.nn.Linear)]
