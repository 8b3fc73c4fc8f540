"""How does a GGUF file write weights? Its blocks, decoded from their raw bytes.

A block is 32 or 256 weights of a row and their scales, as one struct; numbers are little
endian, `half` is fp16. In the K formats eight or sixteen scales share a `half`. Layouts:
ggml-common.h of the ggml library.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """Weights and bytes a block."""

    weights: int
    n_bytes: int

    @property
    def bits(self) -> float:
        """Bits a weight, scales included."""
        return 8 * self.n_bytes / self.weights


LAYOUTS = {
    "Q4_0": Layout(32, 2 + 16),  # half d; codes
    "Q4_1": Layout(32, 2 + 2 + 16),  # half d, m; codes
    "Q8_0": Layout(32, 2 + 32),  # half d; int8
    "Q4_K": Layout(256, 2 + 2 + 12 + 128),  # half d, dmin; 8 scales and minima; codes
    "Q6_K": Layout(256, 128 + 64 + 16 + 2),  # low 4 bits; high 2 bits; int8 scales; half d
    "MXFP4": Layout(32, 1 + 16),  # E8M0; e2m1 codes
}


def decode(raw, name: str):
    """The weights in `raw`, uint8 [..., n_bytes] (tensor, array or bytes): fp32 [..., n].

    Raises `ValueError` for a format that is not in `LAYOUTS`, or for a row of bytes that
    is not a whole number of blocks.

    >>> import struct
    >>> block = struct.pack("<e", 0.5) + bytes([0x1F] * 16)  # codes 15, then codes 1
    >>> decode(block, "Q4_0").unique(sorted=False).tolist() in ([3.5, -3.5], [-3.5, 3.5])
    True
    """
    import torch

    if name not in LAYOUTS:
        raise ValueError(f"format must be one of {', '.join(LAYOUTS)}, got {name!r}")
    if isinstance(raw, bytes):
        raw = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    raw, size = torch.as_tensor(raw), LAYOUTS[name].n_bytes
    if raw.shape[-1] % size:
        raise ValueError(f"{raw.shape[-1]} bytes a row are no blocks of {size} ({name})")
    return _DECODE[name](raw.unflatten(-1, (-1, size))).flatten(-2)


def _half(raw):
    """fp32 [..., n / 2] of fp16 [..., n]."""
    import torch

    return raw.contiguous().view(torch.float16).float()


def _int8(raw):
    import torch

    return raw.contiguous().view(torch.int8).float()


def _nibbles(raw):
    """Low halves of all bytes, then high halves: [..., 2 n]."""
    import torch

    return torch.cat([raw & 15, raw >> 4], dim=-1)


def _q4_0(b):
    """d x (code - 8)."""
    return _half(b[..., :2]) * (_nibbles(b[..., 2:]).float() - 8)


def _q4_1(b):
    """d x code + m."""
    return _half(b[..., :2]) * _nibbles(b[..., 4:]).float() + _half(b[..., 2:4])


def _q8_0(b):
    """d x code."""
    return _half(b[..., :2]) * _int8(b[..., 2:])


def _q4_k(b):
    """(d x scale) x code - dmin x minimum; scale and minimum of 32 weights in 6 bits."""
    scale, minimum = _six_bits(b[..., 4:16])
    scale, minimum = _half(b[..., :2]) * scale, _half(b[..., 2:4]) * minimum  # [..., 8]
    codes = _nibbles(b[..., 16:].unflatten(-1, (4, 32)))  # [..., 4, 64]: 64 in 32 bytes
    codes = codes.flatten(-2).unflatten(-1, (8, 32)).float()
    return (scale.unsqueeze(-1) * codes - minimum.unsqueeze(-1)).flatten(-2)


def _six_bits(b):
    """Eight scales and eight minima from 12 bytes, fp32 [..., 8] each.

    Bytes 0 to 3 and 4 to 7 hold the first four of either in their low six bits; the other
    four have their low bits in bytes 8 to 11 and their high ones atop bytes 0 to 7.
    """
    import torch

    first, second, low = b.unflatten(-1, (3, 4)).unbind(-2)  # [..., 4] each
    scale = torch.cat([first & 63, low & 15 | first >> 6 << 4], dim=-1)
    minimum = torch.cat([second & 63, low >> 4 | second >> 6 << 4], dim=-1)
    return scale.float(), minimum.float()


def _q6_k(b):
    """(d x scale) x (code - 32); a scale for 16 weights, 128 weights in 64 + 32 bytes."""
    import torch

    low = _nibbles(b[..., :128].unflatten(-1, (2, 64)))  # [..., 2, 128]
    bits = b[..., 128:192].unflatten(-1, (2, 32))
    high = torch.cat([bits >> s & 3 for s in (0, 2, 4, 6)], dim=-1)  # [..., 2, 128]
    codes = (low | high << 4).flatten(-2).unflatten(-1, (16, 16)).float() - 32
    scale = _half(b[..., 208:]) * _int8(b[..., 192:208])  # [..., 16]
    return (scale.unsqueeze(-1) * codes).flatten(-2)


def _mxfp4(b):
    """2 ** (e - 127) x the e2m1 value of the code."""
    from gpulab_utils.minifloats import Mx

    return Mx(_nibbles(b[..., 1:]), b[..., :1], "e2m1").values


_DECODE = {
    **{"Q4_0": _q4_0, "Q4_1": _q4_1, "Q8_0": _q8_0},
    **{"Q4_K": _q4_k, "Q6_K": _q6_k, "MXFP4": _mxfp4},
}
