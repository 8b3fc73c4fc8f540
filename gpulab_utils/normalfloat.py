"""How does NF4 write a weight in four bits? QLoRA's format, and its double quantization.

One of 16 levels a weight, and the largest magnitude of each block of 64 in fp32: 4.5 bits
a weight. Double quantization writes that magnitude in 8 bits: 4.127. Written out to be
read; codes and magnitudes are those of bitsandbytes on a CPU, to the bit. Source of both:
QLoRA, arXiv:2305.14314.
"""

from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

BLOCK, ABSMAX_BLOCK = 64, 256  # weights a magnitude, magnitudes a magnitude
_OUTERMOST = 0.9677083  # quantile of the levels -1 and 1: 1 - (1/30 + 1/32) / 2


@dataclass(frozen=True)
class Magnitudes:
    """Magnitudes quantised again: codes uint8 [n], absmax fp32 [n / 256], their mean."""

    codes: object
    absmax: object
    mean: object

    @property
    def values(self):
        """dynamic value x absmax + mean: fp32 [n]."""
        scale = self.absmax.repeat_interleave(ABSMAX_BLOCK)[: len(self.codes)]
        return dynamic_map().to(scale.device)[self.codes.long()] * scale + self.mean

    @property
    def nbytes(self) -> int:
        """Bytes of all three."""
        return self.codes.nbytes + self.absmax.nbytes + self.mean.nbytes


@dataclass(frozen=True)
class Nf4:
    """Packed uint8 [n / 2, 1], the first of two codes in the high half; absmax."""

    packed: object
    absmax: object  # fp32 [n / 64], or Magnitudes
    shape: tuple

    @property
    def values(self):
        """level x absmax: fp32 of the shape that was written."""
        import torch

        codes = torch.cat([self.packed >> 4, self.packed & 15], dim=1).flatten().long()
        twice = isinstance(self.absmax, Magnitudes)
        absmax = self.absmax.values if twice else self.absmax
        units = levels().to(codes.device)[codes].view(len(absmax), -1)
        return (units * absmax.unsqueeze(1)).view(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of codes and magnitudes; the 16 levels are shared."""
        return self.packed.nbytes + self.absmax.nbytes


@cache
def levels():
    """The 16 levels, fp32 [16]: quantiles of a normal distribution, zero among them.

    Eight positive and seven negative ones, evenly spaced in probability from the outermost
    to the middle, divided by the largest. Source: arXiv:2305.14314, appendix E.

    >>> levels()[[0, 7, 8, 15]].tolist()
    [-1.0, 0.0, 0.07958029955625534, 1.0]
    """
    import torch

    right, left = (torch.linspace(_OUTERMOST, 0.5, n)[:-1].tolist() for n in (9, 8))
    quantile = NormalDist().inv_cdf
    found = [*map(quantile, right), 0.0, *(-quantile(p) for p in left)]
    found = torch.tensor(sorted(found))
    return found / found.max()


def quantize(weight, double: bool = False) -> Nf4:
    """`weight` in blocks of 64 of its flattened values, each coded by the nearest level.

    Raises `ValueError` where 64 does not divide the number of weights.

    >>> import torch
    >>> w = quantize(torch.linspace(-1, 1, 64).reshape(2, 32))
    >>> w.packed.shape, w.absmax.tolist(), w.nbytes
    (torch.Size([32, 1]), [1.0], 36)
    """
    import torch

    if weight.numel() % BLOCK:
        raise ValueError(f"block {BLOCK} does not divide {weight.numel()} weights")
    blocks = weight.float().reshape(-1, BLOCK)
    absmax = blocks.abs().amax(dim=1)
    units = (blocks * (1.0 / absmax.clamp(min=1e-38).unsqueeze(1))).clamp(-1, 1)
    table = levels().to(weight.device)
    codes = torch.bucketize(units, (table[1:] + table[:-1]) / 2).to(torch.uint8)
    pairs = codes.view(-1, 2)
    packed = pairs[:, :1] << 4 | pairs[:, 1:]
    return Nf4(packed, double_quantize(absmax) if double else absmax, tuple(weight.shape))


def double_quantize(absmax, steps: int = 1 << 16) -> Magnitudes:
    """`absmax` fp32 [n] less its mean, in blocks of 256, each to the nearest dynamic value.

    bitsandbytes on a CPU looks the value up in a table of 65,536 places from -1 to 1, so
    that about one in 700 takes the other neighbour; `steps=0` does not.

    >>> import torch
    >>> twice = double_quantize(torch.tensor([1.0, 2.0, 3.0]), steps=0)
    >>> twice.values.tolist(), twice.nbytes
    ([1.0070312023162842, 2.0, 3.0], 11)
    """
    import torch

    mean, table = absmax.mean(), dynamic_map().to(absmax.device)
    blocks = torch.nn.functional.pad(absmax - mean, (0, -len(absmax) % ABSMAX_BLOCK))
    blocks = blocks.view(-1, ABSMAX_BLOCK)
    largest = blocks.abs().amax(dim=1)
    units = (blocks * (1.0 / largest.clamp(min=1e-38).unsqueeze(1))).clamp(-1, 1)
    if steps:
        place = ((units + 1) * 0.5 * (steps - 1) + 0.5).floor()
        units = place / (steps - 1) * 2 - 1
    above = torch.searchsorted(table, units).clamp(1, len(table) - 1)
    nearer = table[above] - units < units - table[above - 1]
    codes = torch.where(nearer, above, above - 1)
    codes[largest == 0] = 0
    return Magnitudes(codes.flatten()[: len(absmax)].to(torch.uint8), largest, mean)


@cache
def dynamic_map():
    """bitsandbytes' 256 dynamic values, fp32: a sign, a power of ten, a linear fraction.

    The larger the power, the more bits has the fraction: one value of either sign in
    1e-7..1e-6, 64 in 0.1..1; 0 and 1 besides. Source: arXiv:1511.04561, as bitsandbytes
    makes it.

    >>> len(dynamic_map()), dynamic_map()[128:130].tolist()
    (256, [5.500000384017767e-07, 3.250000190746505e-06])
    """
    import torch

    found = [0.0, 1.0]
    for i in range(7):
        edges = torch.linspace(0.1, 1, 2**i + 1)
        middles = 10.0 ** (i - 6) * ((edges[:-1] + edges[1:]) / 2)
        found += [*middles.tolist(), *(-middles).tolist()]
    return torch.tensor(sorted(found))
