"""What does a float of four or eight bits hold, and how does a block of them share a scale?

Elements and blocks are those of the OCP Microscaling Formats (MX) specification 1.0: 32
values a block with one scale, a power of two in eight bits (E8M0). e2m1 makes MXFP4, e4m3
and e5m2 make MXFP8. An element is rounded to the nearest, ties to even, and saturates.
"""

from dataclasses import dataclass
from functools import cache

MX_BLOCK = 32  # values a scale


@dataclass(frozen=True)
class Element:
    """A float format: bits of exponent and mantissa, bias, largest finite value."""

    exponent: int
    mantissa: int
    bias: int
    largest: float

    @property
    def bits(self) -> int:
        """With the sign."""
        return 1 + self.exponent + self.mantissa

    @property
    def top(self) -> int:
        """Exponent of the largest value: the specification's emax."""
        return int(self.largest).bit_length() - 1


ELEMENTS = {
    "e2m1": Element(2, 1, 1, 6.0),
    "e4m3": Element(4, 3, 7, 448.0),
    "e5m2": Element(5, 2, 15, 57344.0),
}


@dataclass(frozen=True)
class Mx:
    """A weight in blocks: codes uint8 [..., in], scales uint8 [..., in / 32] (E8M0)."""

    codes: object
    scales: object
    element: str

    @property
    def values(self):
        """What the codes stand for: fp32 [..., in]."""
        device = self.codes.device
        units = values(self.element).to(device)[self.codes.long()]
        scale = scales().to(device)[self.scales.long()]
        return (units.unflatten(-1, (-1, MX_BLOCK)) * scale.unsqueeze(-1)).flatten(-2)

    @property
    def shift(self):
        """Exponents of the scales: int32 [..., in / 32]."""
        return self.scales.int() - 127

    @property
    def nbytes(self) -> int:
        """Bytes of codes, packed, and of scales."""
        return self.codes.numel() * ELEMENTS[self.element].bits // 8 + self.scales.numel()


@cache
def scales():
    """What an E8M0 code stands for: 2 ** (code - 127), the last NaN: fp32 [256].

    >>> scales()[[0, 127, 130]].tolist()
    [5.877471754111438e-39, 1.0, 8.0]
    """
    import torch

    return torch.tensor([*(2.0 ** (i - 127) for i in range(255)), torch.nan])


@cache
def values(name: str):
    """What each code of element `name` stands for: fp32 [2 ** bits], NaN and inf included.

    Raises `ValueError` for a name that is not in `ELEMENTS`.

    >>> values("e2m1").tolist()[:8]
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    """
    import torch

    if name not in ELEMENTS:
        raise ValueError(f"element must be one of {', '.join(ELEMENTS)}, got {name!r}")
    e = ELEMENTS[name]
    code = torch.arange(2 ** (e.bits - 1))  # without the sign
    field, fraction = code >> e.mantissa, (code % 2**e.mantissa) / 2**e.mantissa
    power = torch.ldexp(torch.ones(len(code)), field.clamp(min=1).int() - e.bias)
    value = ((field > 0) + fraction) * power
    beyond = value > e.largest
    value[beyond] = torch.nan
    if name == "e5m2":  # it keeps infinity; e4m3 has one NaN in place of it
        value[beyond & (fraction == 0)] = torch.inf
    return torch.cat([value, -value])


def encode(x, name: str):
    """Nearest codes of element `name` for finite x [...]: uint8 [...].

    Ties go to the even code; what is too large becomes the largest value. Raises
    `ValueError` for a value that is not finite, or another name.

    >>> import torch
    >>> encode(torch.tensor([0.6, 2.5, 3.5, -100.0]), "e2m1").tolist()
    [1, 4, 6, 15]
    """
    import torch

    table = values(name).to(x.device)
    if not x.isfinite().all():
        raise ValueError(f"weights must be finite, {(~x.isfinite()).sum()} are not")
    positive = table[: len(table) // 2]
    positive = positive[positive.isfinite()]
    middles = (positive[1:] + positive[:-1]) / 2  # exact in fp32
    size = x.float().abs()
    low, high = (torch.bucketize(size, middles, right=r) for r in (False, True))
    code = torch.where(low % 2 == 0, low, high)  # they differ in a tie only
    return (code + torch.signbit(x) * (len(table) // 2)).to(torch.uint8)


def mx(weight, element: str) -> Mx:
    """`weight` [..., in] in blocks of 32: scale 2 ** (floor(log2(largest)) - emax).

    The largest of a block is then at most two times what an element holds, and saturates
    where it is more than that. Raises `ValueError` where 32 does not divide a row.

    >>> import torch
    >>> block = mx(torch.tensor([1.0, 0.5, 0.25, -6.0] * 8), "e2m1")
    >>> block.scales.tolist(), block.values[:4].tolist(), block.nbytes
    ([127], [1.0, 0.5, 0.0, -6.0], 17)
    """
    import torch

    if weight.shape[-1] % MX_BLOCK:
        raise ValueError(f"block {MX_BLOCK} does not divide rows of {weight.shape[-1]}")
    blocks = weight.float().unflatten(-1, (-1, MX_BLOCK))
    largest = blocks.abs().amax(-1)
    floor = torch.frexp(largest).exponent - 1  # floor(log2(largest)), exactly
    floor = torch.where(largest > 0, floor, -127)
    shift = (floor - ELEMENTS[element].top).clamp(-127, 127)
    codes = (shift + 127).to(torch.uint8)
    units = blocks / scales().to(weight.device)[codes.long()].unsqueeze(-1)
    return Mx(encode(units, element).flatten(-2), codes, element)
