"""What is a GB? Powers of ten and of two, told apart by name.

Memory chips and file sizes are quoted both ways: a "12 GB" card holds 12 GiB, a "26 GB"
download is 26e9 bytes. Inside the package everything is bytes; these names convert while
printing.
"""

KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12
KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40

#: Bytes of one value, for the plain number formats.
BYTES = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2, "int8": 1, "fp8": 1}


def gb(n_bytes: float) -> float:
    """Bytes in GB, powers of ten.

    >>> gb(26_031_728_640)
    26.03172864
    """
    return n_bytes / GB


def gib(n_bytes: float) -> float:
    """Bytes in GiB, powers of two.

    >>> round(gib(26_031_728_640), 2)
    24.24
    """
    return n_bytes / GIB


def bytes_of(dtype: str) -> int:
    """Bytes of one value of a plain format; `ValueError` on any other name.

    >>> bytes_of("bf16")
    2
    """
    if dtype not in BYTES:
        raise ValueError(f"dtype must be one of {', '.join(BYTES)}, got {dtype!r}")
    return BYTES[dtype]
