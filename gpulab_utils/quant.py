"""How is a weight written in eight or four bits, and what does it then stand for?

int8 by absmax: the largest magnitude of a tensor, a row or a group becomes 127. Written
out to be read; LLM.int8's rows are those of bitsandbytes on a CPU, to the bit. `write`
puts every format of the package into one table: what is left, and the bytes.
"""

from dataclasses import dataclass
from functools import partial

from gpulab_utils import fourbit, minifloats, normalfloat


@dataclass(frozen=True)
class Int8:
    """Codes int8 [out, in]; absmax fp32 [1, 1], [out, 1] or [out, in / group]."""

    codes: object
    absmax: object

    @property
    def values(self):
        """codes x absmax / 127: fp32 [out, in]."""
        groups = self.codes.unflatten(1, (self.absmax.shape[1], -1)).float()
        return (groups * self.absmax.unsqueeze(-1) * (1 / 127)).flatten(1)

    @property
    def nbytes(self) -> int:
        """Bytes of codes and magnitudes."""
        return self.codes.nbytes + self.absmax.nbytes


def int8(weight, per: str | int = "row") -> Int8:
    """`weight` [out, in], a magnitude per "tensor", "row" or group of `per` in a row.

    Raises `ValueError` where `per` is none of these or does not divide a row.

    >>> import torch
    >>> w = int8(torch.tensor([[0.5, -1.0], [100.0, 12.7]]), per="row")
    >>> w.codes.tolist()
    [[64, -127], [127, 16]]
    """
    rows, columns = weight.shape
    group = {"tensor": weight.numel(), "row": columns}.get(per, per)
    if not isinstance(group, int) or group < 1 or (per != "tensor" and columns % group):
        raise ValueError(
            f'per must be "tensor", "row" or divide rows of {columns}, got {per!r}'
        )
    groups = weight.float().reshape(-1, group)
    codes, absmax = _int8(groups)
    shape = (1, 1) if per == "tensor" else (rows, columns // group)
    return Int8(codes.view(rows, columns), absmax.view(shape))


def int8_rows(x, threshold: float = 0.0) -> tuple:
    """LLM.int8's codes of x [rows, in]: int8 [rows, in], absmax fp32 [rows], outliers.

    A column with a magnitude of `threshold` or more is an outlier (0: none is): its codes
    are 0, for it is multiplied in 16 bits, and those values do not count for absmax.
    Source: arXiv:2208.07339, as bitsandbytes computes it.

    >>> import torch
    >>> codes, absmax, outliers = int8_rows(torch.tensor([[1.0, 9.0], [2.0, 3.0]]), 6.0)
    >>> codes.tolist(), absmax.tolist(), outliers.tolist()
    ([[127, 0], [85, 0]], [1.0, 3.0], [1])
    """
    large = x.abs() >= threshold if threshold > 0 else x != x
    codes, absmax = _int8(x.float().masked_fill(large, 0))
    outliers = large.any(dim=0).nonzero().flatten()
    codes[:, outliers] = 0
    return codes, absmax, outliers


def _int8(groups):
    """int8 codes of fp32 [groups, n] and absmax [groups]; a group of zeros is zeros."""
    import torch

    absmax = groups.abs().amax(dim=1)
    codes = (groups * (127.0 / absmax.unsqueeze(1))).nan_to_num_(0)
    return codes.round_().to(torch.int8), absmax


@dataclass(frozen=True)
class Written:
    """What is left of a weight, fp32 in its shape, and the bytes that it takes."""

    values: object
    nbytes: int


def write(weight, name: str) -> Written:
    """`weight` [out, in] written as `name` of `FORMATS`, and read again.

    Raises `ValueError` for another name, or where a block does not divide the weight.

    >>> import torch
    >>> for name in "int8 row", "int4 g32", "nf4", "nf4 double", "mxfp4":
    ...     print(name, write(torch.ones(64, 512), name).nbytes * 8 / 2**15)
    int8 row 8.0625
    int4 g32 5.0
    nf4 4.5
    nf4 double 4.1279296875
    mxfp4 4.25
    """
    if name not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {name!r}")
    written = FORMATS[name](weight)
    return Written(written.values, written.nbytes)


def _int4(weight, group: int) -> Written:
    """`fourbit`'s codes, two a byte, and its scales and offsets in bf16."""
    codes, scales = fourbit.quantize_int4(weight, group)
    n_bytes = codes.numel() // 2 + scales.nbytes
    return Written(fourbit.dequantize_int4(codes, scales), n_bytes)


#: How a weight is written, by name.
FORMATS = {
    "int8 tensor": partial(int8, per="tensor"),
    "int8 row": partial(int8, per="row"),
    "int8 g64": partial(int8, per=64),
    "int4 g32": partial(_int4, group=32),
    "int4 g64": partial(_int4, group=64),
    "nf4": normalfloat.quantize,
    "nf4 double": partial(normalfloat.quantize, double=True),
    "mxfp4": partial(minifloats.mx, element="e2m1"),
    "mxfp8 e4m3": partial(minifloats.mx, element="e4m3"),
    "mxfp8 e5m2": partial(minifloats.mx, element="e5m2"),
}
