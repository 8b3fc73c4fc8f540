"""How does a weight fit into four bits, and what is left of it?

int4  an integer 0 to 15 a weight, and for each group of 128 along a row a scale and an
      offset in bf16: 4 + 32 / 128 bits a weight
nf4   one of 16 levels placed as a normal distribution has them, and for each block of 64
      its largest magnitude (QLoRA, arXiv:2305.14314): 4 + 32 / 64 bits on a GPU,
      4 + 16 / 64 in the layout of bitsandbytes' fused CPU product

Packed bytes differ from one instruction set to the next: never store or hash them.
"""

from copy import copy
from dataclasses import dataclass, replace

from gpulab_utils import device, kernels

GROUP, BLOCK = 128, 64  # weights a scale: int4, nf4


@dataclass(frozen=True)
class Int4:
    """A linear layer in torch's int4 layout; call it with x [..., in] in bf16."""

    packed: object  # two codes a byte
    scales: object  # bf16 [in / group, out, 2]: the scale, the value of code 8
    group: int

    def __call__(self, x):
        y = kernels.multiply_int4(x.flatten(0, -2), self.packed, self.group, self.scales)
        return y.unflatten(0, x.shape[:-1])

    @property
    def tensors(self) -> tuple:
        """Codes, and scales with offsets: all that the layer keeps."""
        return self.packed, self.scales

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return self.packed.nbytes + self.scales.nbytes

    def clone(self) -> "Int4":
        """The same weights in memory of their own."""
        return replace(self, packed=self.packed.clone(), scales=self.scales.clone())


@dataclass(frozen=True)
class Nf4:
    """A linear layer in bitsandbytes' NF4; call it with x [..., in] in bf16 or fp16."""

    packed: object  # two codes a byte
    state: object  # bitsandbytes' QuantState: absmax, shape, block size

    def __call__(self, x):
        return kernels.bitsandbytes().matmul_4bit(x, self.packed, quant_state=self.state)

    @property
    def tensors(self) -> tuple:
        """Codes, and each block's largest magnitude; the 16 levels are shared."""
        return self.packed, self.state.absmax

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return self.packed.nbytes + self.state.absmax.nbytes

    def clone(self) -> "Nf4":
        """The same weights in memory of their own."""
        state = copy(self.state)
        state.absmax = state.absmax.clone()
        return Nf4(self.packed.clone(), state)


def quantize_int4(weight, group: int = GROUP):
    """Codes and scales of `weight` [out, in]: (int32 [out, in], bf16 [in / group, out, 2]).

    A group's smallest and largest weight become codes 0 and 15; a code stands for
    (code - 8) * scale + offset. Raises `ValueError` where `group` does not divide a row.

    >>> import torch
    >>> codes, scales = quantize_int4(torch.linspace(-1, 1, 32).reshape(1, 32), group=32)
    >>> codes.min().item(), codes.max().item(), tuple(scales.shape)
    (0, 15, (1, 1, 2))
    """
    import torch

    if weight.shape[1] % group:
        raise ValueError(f"group {group} does not divide rows of {weight.shape[1]}")
    grouped = weight.float().unflatten(1, (-1, group))  # [out, in / group, group]
    low, high = grouped.aminmax(dim=-1, keepdim=True)
    scale = ((high - low) / 15).clamp(min=1e-8).bfloat16().float()
    offset = (low + 8 * scale).bfloat16().float()
    codes = ((grouped - offset) / scale + 8).round_().clamp_(0, 15)
    scales = torch.cat([scale, offset], dim=-1).transpose(0, 1).bfloat16()
    return codes.flatten(1).int(), scales.contiguous()


def dequantize_int4(codes, scales):
    """What the codes stand for: fp32 [out, in]."""
    scale, offset = scales.float().transpose(0, 1).unsqueeze(-1).unbind(2)
    group = codes.shape[1] // scales.shape[0]
    return ((codes.unflatten(1, (-1, group)) - 8) * scale + offset).flatten(1)


def int4(weight, group: int = GROUP, values=None) -> Int4:
    """Quantise and pack `weight` [out, in]; `values` gets what the codes stand for."""
    import torch

    packed, scales = [], []
    for rows in _pieces(weight):
        codes, some = quantize_int4(weight[rows], group)
        packed.append(kernels.pack_int4(codes))
        scales.append(some)
        if values is not None:
            values[rows] = dequantize_int4(codes, some)
    return Int4(torch.cat(packed), torch.cat(scales, dim=1), group)


def nf4(weight, values=None) -> Nf4:
    """As `int4`, by bitsandbytes, in the layout of its product here."""
    kernels.fused_nf4()  # before the work, not after it
    return Nf4(*kernels.pack_nf4(*_codes_nf4(weight, values)))


def round_trip(weight, name: str, group: int = GROUP):
    """`weight` quantised as `name` ("int4" or "nf4") and written out again: fp32 [out, in].

    Needs no 4-bit product. Raises `ValueError` for another name.

    >>> import torch
    >>> weight = torch.tensor([[0.0, 5.0, 10.0, 15.0] * 8])  # a scale of 1: exact
    >>> (round_trip(weight, "int4", group=32) - weight).abs().max().item()
    0.0
    """
    import torch

    values = torch.empty(weight.shape, dtype=torch.float32, device=weight.device)
    if name == "nf4":
        _codes_nf4(weight, values)
        return values
    if name != "int4":
        raise ValueError(f"name must be one of {', '.join(PACK)}, got {name!r}")
    for rows in _pieces(weight):
        values[rows] = dequantize_int4(*quantize_int4(weight[rows], group))
    return values


def _codes_nf4(weight, values=None):
    """bitsandbytes' codes and state of `weight` [out, in]; no block crosses a row."""
    import torch

    if weight.shape[1] % BLOCK:
        raise ValueError(f"block {BLOCK} does not divide rows of {weight.shape[1]}")
    functional, codes, absmax = kernels.bitsandbytes().functional, [], []
    for rows in _pieces(weight):
        some, state = functional.quantize_4bit(
            weight[rows], blocksize=BLOCK, quant_type="nf4"
        )
        if not device.here().is_gpu:
            state.absmax = state.absmax.bfloat16().float()  # its CPU layout keeps no more
        codes.append(some)
        absmax.append(state.absmax)
        if values is not None:
            values[rows] = functional.dequantize_4bit(some, state).to(values.dtype)
    state.shape, state.absmax = weight.shape, torch.cat(absmax)
    return torch.cat(codes), state


def _pieces(weight) -> list[slice]:
    """Rows quantised together: on a CPU few, so that the temporaries stay in its cache."""
    step = len(weight) if device.here().is_gpu else 256
    return [slice(i, i + step) for i in range(0, len(weight), step)]


#: How a weight is packed, by name.
PACK = {"int4": int4, "nf4": nf4}
