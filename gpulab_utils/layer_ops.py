"""What does an operation of a decoder compute and move? As numbers, and as a call.

flop         multiplications and additions of one call
bytes_moved  weights and inputs read, outputs written, each once
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from gpulab_utils import device, load
from gpulab_utils.models import MODELS, Shape
from gpulab_utils.probes import DTYPES, Machine

REAL = "smollm2-135m"  # the one model whose own weights the labs have


@dataclass(frozen=True)
class Op:
    """One operation: its counts, `run`, `double` with twice the arithmetic, and `near`.

    `double` reads the same weights, keys or inputs: if arithmetic is the wall it takes
    twice as long, else it does not. `near` does the same work on one weight again and
    again, which stays in the cache: if memory is the wall it is quicker.
    """

    name: str
    flop: int
    bytes_moved: int
    dtype: str
    calls: int
    run: Callable
    double: Callable
    near: Callable | None = None

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flop / self.bytes_moved

    def predict(self, machine: Machine) -> tuple[str, float]:
        """The wall and the least seconds: memory or compute, plus what the calls cost."""
        bound = machine.bound(
            flop=self.flop, bytes_moved=self.bytes_moved, dtype=self.dtype
        )
        calls_s = self.calls * machine.call_s
        return "calls" if calls_s > bound.seconds else bound.wall, bound.seconds + calls_s


@cache
def linears(model: str, dtype: str, layers: int) -> dict[str, list]:
    """Weights [outputs, inputs] by name, `layers` of each, `head` once.

    SmolLM2's own on a CPU that has its file, random ones of the same shape elsewhere: a
    time depends on their number, not on their values. Raises `ValueError` for more layers
    than there are.
    """
    shape = MODELS[model]
    if not 0 < layers <= shape.layers:
        raise ValueError(f"layers must be 1 to {shape.layers}, got {layers}")
    here = device.here()
    if model == REAL and not here.is_gpu and not here.tiny:
        with suppress(load.MissingInput):
            return _own(dtype, layers)
    return _random(shape, dtype, layers)


def linear(name: str, weights: list, rows: int) -> Op:
    """`rows` tokens through each of `weights`: one call each.

    >>> import torch
    >>> op = linear("up", [torch.zeros(1536, 576)], rows=2)
    >>> op.flop == 2 * 2 * 1536 * 576, op.bytes_moved == 4 * (1536 * 576 + 2 * (1536 + 576))
    (True, True)
    """
    n = sum(w.numel() for w in weights)
    sides = sum(sum(w.shape) for w in weights)
    size = weights[0].element_size()
    return Op(
        name=f"{name}, {rows} rows",
        flop=2 * rows * n,
        bytes_moved=size * (n + rows * sides),
        dtype=_name(weights[0].dtype),
        calls=len(weights),
        run=_through(weights, rows),
        double=_through(weights, 2 * rows),
        near=_through(weights[:1] * len(weights), rows) if len(weights) > 1 else None,
    )


def add(n: int, dtype: str) -> Op:
    """Residual addition of [n] and [n]: n FLOP; `double` scales the second too."""
    import torch

    a, b, c = (_draw(n, dtype=dtype) for _ in range(3))
    return Op(
        name=f"add, {n} values",
        flop=n,
        bytes_moved=3 * a.nbytes,
        dtype=dtype,
        calls=1,
        run=lambda: torch.add(a, b, out=c),
        double=lambda: torch.add(a, b, alpha=2, out=c),
    )


def attention(shape: Shape, context: int, batch: int, dtype: str) -> Op:
    """One new token per sequence against a KV cache of `context` tokens.

    The query heads that share a key head are the rows of its product; `double` has twice as
    many. 4 FLOP per key head, query, position and channel.
    """
    import torch.nn.functional as F

    group = shape.heads // shape.kv_heads
    kv = batch, shape.kv_heads, context, shape.head_dim  # [batch, kv_heads, time, head_dim]
    k, v = _draw(*kv, dtype=dtype), _draw(*kv, dtype=dtype)
    q, q2 = (_draw(*kv[:2], g * group, kv[3], dtype=dtype) for g in (1, 2))
    return Op(
        name=f"attention, {context} tokens",
        flop=4 * group * k.numel(),
        bytes_moved=k.nbytes + v.nbytes + 2 * q.nbytes,
        dtype=dtype,
        calls=1,
        run=lambda: F.scaled_dot_product_attention(q, k, v),
        double=lambda: F.scaled_dot_product_attention(q2, k, v),
    )


def rows_past(machine: Machine, dtype: str) -> int:
    """A batch well past the ridge: the power of two that is eight times it, 128 to 2048.

    >>> rows_past(Machine([], 1e10, {"bf16": 1e12}, 0.0), "bf16")
    1024
    """
    wanted = 8 * machine.ridge(dtype)
    return next(2**n for n in range(7, 12) if 2**n >= wanted or n == 11)


def _through(weights: list, rows: int) -> Callable:
    import torch.nn.functional as F

    x = _draw(rows, weights[0].shape[1], dtype=_name(weights[0].dtype))  # [rows, inputs]
    return lambda: [F.linear(x, w) for w in weights]


def _draw(*size: int, dtype: str):
    import torch

    drawn = torch.randn(*size, device=device.here().device)
    return drawn.to(getattr(torch, DTYPES[dtype]))


def _name(dtype) -> str:
    return {v: k for k, v in DTYPES.items()}[str(dtype).removeprefix("torch.")]


def _own(dtype: str, layers: int) -> dict[str, list]:
    import torch

    model, _ = load.language_model(getattr(torch, DTYPES[dtype]))
    found: dict[str, list] = {}
    for name, value in model.named_parameters():
        part = name.split(".")[-2].removesuffix("_proj")
        if name.endswith("_proj.weight"):
            found.setdefault(part, []).append(value.detach())
    head = [model.lm_head.weight.detach()]
    return {name: weights[:layers] for name, weights in found.items()} | {"head": head}


def _random(shape: Shape, dtype: str, layers: int) -> dict[str, list]:
    parts = {
        name: [_draw(out, inputs, dtype=dtype) for _ in range(min(layers, many))]
        for name, out, inputs, many in shape.linears
    }
    return parts | {"head": [_draw(shape.vocab, shape.hidden, dtype=dtype)]}
