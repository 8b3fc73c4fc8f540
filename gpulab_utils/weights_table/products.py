"""How quick is a model that multiplies by its codes? Products put in place of linears.

A product is a function of x [..., in] that keeps the codes of one weight [out, in]. Those
of `KERNELS` never write the weight out; `dequantized` does, at each call.
"""

from contextlib import contextmanager

from gpulab_utils import device, fourbit, kernels, quant
from gpulab_utils.progress import progress
from gpulab_utils.weights_table import linears

GROUP = 64  # of int4: 128 does not divide SmolLM2's rows


@contextmanager
def multiplying(model, make, only: str = ""):
    """`model` with `make(weight)` in place of the product of each linear (`only` some)."""
    some = linears(model, only).values()
    try:
        for linear in progress(some, "packing"):
            linear.forward = make(linear.weight.data)
        yield model
    finally:
        for linear in some:
            linear.__dict__.pop("forward", None)


def int8(weight):
    """torch's product of 16-bit x and int8 codes with a scale a row."""
    codes = quant.int8(weight.float(), per="row")
    scales = (codes.absmax.flatten() / 127).to(device.here().dtype)  # [out]

    def product(x):
        y = kernels.multiply_int8(x.flatten(0, -2), codes.codes, scales)
        return y.unflatten(0, x.shape[:-1])

    return product


def int4(weight):
    """torch's int4 product, groups of 64."""
    return fourbit.int4(weight, group=GROUP)


def nf4(weight):
    """bitsandbytes' fused NF4 product."""
    return fourbit.nf4(weight.float())


KERNELS = {"int8 row": int8, "int4 g64": int4, "nf4": nf4}


def dequantized(name: str):
    """A maker for format `name` of `quant.FORMATS`: the codes are written out each time."""

    def make(weight):
        kept = quant.FORMATS[name](weight)
        return lambda x: x @ kept.values.to(x.dtype).T

    return make


def available(columns: int = 576) -> dict:
    """The makers of `KERNELS` that this machine can run on rows of `columns` weights.

    >>> set(available()) <= set(KERNELS)
    True
    """
    found = dict(KERNELS)
    if "nf4" not in kernels.available():
        found.pop("nf4")
    if "int4" not in kernels.available() or (device.here().is_gpu and columns % 128):
        found.pop("int4 g64")  # the card's kernel takes rows in steps of 128
    if not kernels.has_int8():
        found.pop("int8 row")
    return found
