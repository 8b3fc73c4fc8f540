"""Which 4-bit products does this machine have, and how are they called?

torch's int4 product is private: `torch._weight_int4pack_mm_for_cpu` on a CPU,
`torch._weight_int4pack_mm` on a CUDA card of compute capability 8.0. bitsandbytes' fused
product on a CPU wants AVX512-BF16 and a weight repacked by a private function. Both are
called from this module alone, so that a version that moves them breaks in one place.
"""

import logging
from functools import cache

from gpulab_utils import device

SEEN_IN = {"torch": "2.13.0", "bitsandbytes": "0.50.2"}  # what was read and tested
_INNER_K_TILES = {"cpu": 2, "cuda": 8}


class KernelMissing(RuntimeError):
    """A 4-bit product that this machine, or this version of a library, lacks."""


def available() -> list[str]:
    """The names that run here without a fall-back that writes the weights out again.

    >>> set(available()) <= {"int4", "nf4"}
    True
    """
    found = []
    for name, ask in (("int4", _int4), ("nf4", fused_nf4)):
        try:
            ask()
        except KernelMissing:
            continue
        found.append(name)
    return found


def quantizers() -> list[str]:
    """The formats that a weight can be quantised to here, with or without a product.

    >>> "int4" in quantizers()
    True
    """
    try:
        bitsandbytes()
    except KernelMissing:
        return ["int4"]
    return ["int4", "nf4"]


def pack_int4(codes):
    """int32 codes [out, in] in the layout of the product here, two a byte."""
    import torch

    pack, _ = _int4()
    if not device.here().is_gpu:
        return pack(codes, _INNER_K_TILES["cpu"])
    pairs = (codes[:, ::2] << 4 | codes[:, 1::2]).to(torch.uint8)
    return pack(pairs, _INNER_K_TILES["cuda"])


def multiply_int4(x, packed, group: int, scales):
    """x [tokens, in] in bf16 times the packed weight: [tokens, out] in bf16."""
    return _int4()[1](x, packed, group, scales)


def has_int8() -> bool:
    """Whether torch has its product of 16-bit x and int8 weights here.

    >>> has_int8() in (True, False)
    True
    """
    import torch

    on_card = device.here().is_gpu  # of cards it knows CUDA's, and computes in fp32
    return hasattr(torch, "_weight_int8pack_mm") and not (on_card and torch.version.hip)


def multiply_int8(x, codes, scales):
    """x [tokens, in] times int8 codes [out, in] times scales [out], both in x's dtype."""
    import torch

    if not has_int8():
        raise KernelMissing(f"torch has no int8 product for {device.here().name}")
    return torch._weight_int8pack_mm(x, codes, scales)


def bitsandbytes():
    """The library, quiet; `KernelMissing` with the way out where it is not installed."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it tells of optional parts
    try:
        import bitsandbytes
    except ImportError as error:
        raise KernelMissing(
            f"NF4 needs bitsandbytes ({error}): pip install bitsandbytes"
        ) from error
    return bitsandbytes


def fused_nf4():
    """bitsandbytes, where its NF4 product never writes the weights out."""
    library = bitsandbytes()
    if not device.here().is_gpu and not library.functional.has_avx512bf16():
        raise KernelMissing(
            f"the fused NF4 product needs AVX512-BF16, {device.here().name} has none"
        )
    return library


def pack_nf4(codes, state):
    """Codes and absmax as bitsandbytes' product here wants them."""
    if device.here().is_gpu:
        return codes, state
    pack = getattr(fused_nf4().functional, "_convert_weight_packed_for_cpu", None)
    if pack is None:
        raise KernelMissing(_moved("bitsandbytes", "_convert_weight_packed_for_cpu"))
    return pack(codes, state)


@cache
def _int4():
    """(pack, multiply) of torch for this device."""
    import torch

    here = device.here()
    if here.is_gpu and (here.dtype != torch.bfloat16 or torch.version.hip):
        raise KernelMissing(
            f"torch's int4 product wants a CUDA card with bf16: {here.name}"
        )
    tail = "" if here.is_gpu else "_for_cpu"
    names = "_convert_weight_to_int4pack" + tail, "_weight_int4pack_mm" + tail
    for name in names:
        if not hasattr(torch, name):
            raise KernelMissing(_moved("torch", name))
    return tuple(getattr(torch, name) for name in names)


def _moved(library: str, name: str) -> str:
    from importlib.metadata import version

    return (
        f"{library} {version(library)} has no {name}, which {library} {SEEN_IN[library]} "
        f"had; install that version, or use another 4-bit product"
    )
