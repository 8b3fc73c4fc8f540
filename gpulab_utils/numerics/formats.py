"""Floating-point formats from 32 to 4 bits: range, spacing, rounding, error of a product.

A value is sign x 2^exponent x 1.mantissa; below the smallest normal the exponent stays and
the leading 1 goes (subnormal). One `rounded` serves them all, TF32 and FP4 included, which
torch does not cast to.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """Bits of exponent and mantissa, and the largest finite value."""

    exponent_bits: int
    mantissa_bits: int
    max: float

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def smallest_normal(self) -> float:
        """2^(1 - bias), the bias being 2^(exponent bits - 1) - 1.

        >>> FORMATS["fp16"].smallest_normal == 2**-14
        True
        """
        return 2.0 ** (2 - 2 ** (self.exponent_bits - 1))

    @property
    def smallest(self) -> float:
        """The smallest value above zero; half of it and less rounds to zero.

        >>> FORMATS["fp16"].smallest == 2**-24
        True
        """
        return self.smallest_normal * 2.0**-self.mantissa_bits


def _ieee(exponent_bits: int, mantissa_bits: int) -> Format:
    top = 2.0 ** (2 ** (exponent_bits - 1) - 1)
    return Format(exponent_bits, mantissa_bits, top * (2 - 2.0**-mantissa_bits))


#: IEEE-like but for e4m3, whose only special value is NaN, and e2m1, which has none.
#: Sources: arXiv:2209.05433 (e4m3, e5m2), OCP Microscaling Formats 1.0 (e2m1).
FORMATS = {
    "fp32": _ieee(8, 23),
    "tf32": _ieee(8, 10),
    "fp16": _ieee(5, 10),
    "bf16": _ieee(8, 7),
    "e4m3": Format(4, 3, 448.0),
    "e5m2": _ieee(5, 2),
    "e2m1": Format(2, 1, 6.0),
}


def rounded(x, name: str):
    """`x` (float32 of any shape) to the nearest value of format `name`, still float32.

    Ties go to the even mantissa; what lies beyond the largest finite value becomes it
    (a cast of torch gives infinity or NaN there instead).

    >>> import torch
    >>> rounded(torch.tensor([1 + 2**-11, 2.5, 2**-25]), "fp16").tolist()
    [1.0, 2.5, 0.0]
    """
    import torch

    form = FORMATS[name]
    x = x.double()
    exponent = torch.frexp(x).exponent - 1  # frexp's mantissa lies in 0.5 to 1
    lowest = torch.tensor(form.smallest_normal).frexp().exponent - 1
    exponent = exponent.clamp(min=int(lowest))
    quantum = torch.ldexp(torch.ones_like(x), exponent - form.mantissa_bits)
    return (torch.round(x / quantum) * quantum).clamp(-form.max, form.max).float()


def scaled(x, name: str, block: int):
    """`rounded` with one power of two for each `block` values along the last axis.

    The scale brings the largest value of a block under the format's largest binade, as the
    OCP Microscaling Formats do; the last axis must be a multiple of `block`.

    >>> import torch
    >>> scaled(torch.tensor([600.0, 100.0]), "e2m1", 2).tolist()
    [512.0, 128.0]
    """
    import torch

    if x.shape[-1] % block:
        raise ValueError(f"the last axis must be a multiple of {block}, got {x.shape[-1]}")
    parts = x.view(*x.shape[:-1], -1, block)
    top = torch.frexp(torch.tensor(FORMATS[name].max)).exponent
    exponent = torch.frexp(parts.abs().amax(-1, keepdim=True)).exponent - top
    scale = torch.ldexp(torch.ones_like(parts[..., :1]), exponent)
    return (rounded(parts / scale, name) * scale).view(x.shape)


def expected_error(name: str, roundings: int = 2) -> float:
    """Relative error (in the 2-norm) of a sum of many products, each rounded before.

    Within a binade values step by 2^-mantissa of its lower end and the mantissa is taken as
    uniform: a rounding errs by 2^-mantissa / sqrt(12) where the value is sqrt(7/3) in the
    root mean square, that is by 2^-mantissa / sqrt(28). Independent errors add in squares:
    two for the factors, a third where the result is rounded to the same format. (Rounding
    errors as independent: Higham and Mary, 2019; the constant is derived here.)

    >>> round(expected_error("tf32") * 1e4, 2)
    2.61
    """
    return (roundings / 28) ** 0.5 * 2.0 ** -FORMATS[name].mantissa_bits
