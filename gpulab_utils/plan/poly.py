"""Polynomials in batch B, length S and min(S, window), packed into one integer.

A count of the ledger is a sum of c x B^i x S^j with whole c below 2^63. Writing S as 2^64
and B as 2^256 turns it into one long integer whose 64-bit digits are the c's: adding and
multiplying integers then adds and multiplies polynomials (Kronecker's substitution), and
the ledger need not know. Digit 4 i + j belongs to B^i x S^j; one of 2^63 or more is a
negative c, as B x (S - 1) has.
"""

S = 1 << 64
B = 1 << 256
MASK = S - 1
HALF = S >> 1  # the sign of a digit

Poly = dict[tuple[int, int, int], int]  # (i, j, k) of B^i S^j min(S, window)^k -> c


def unpack(packed: int) -> Poly:
    """The coefficients of a packed polynomial.

    >>> unpack(3 * B * S * S + 5)
    {(0, 0, 0): 5, (1, 2, 0): 3}
    >>> unpack(7 * B * (S - 1))
    {(1, 0, 0): -7, (1, 1, 0): 7}
    """
    found: Poly = {}
    digit = 0
    while packed:
        c = (packed & MASK) - (packed & HALF) * 2
        if c:
            found[(digit // 4, digit % 4, 0)] = c
        packed = (packed - c) >> 64
        digit += 1
    return found


def value(poly: Poly, batch: int, seq: int, window: int | None = None) -> int:
    """The polynomial at one batch and length.

    >>> value({(1, 1, 0): 2, (1, 0, 1): 1}, batch=3, seq=10, window=4)
    72
    """
    short = min(seq, window or seq)
    return sum(c * batch**i * seq**j * short**k for (i, j, k), c in poly.items())


def total(terms: dict[str, Poly]) -> Poly:
    """The sum of all terms."""
    out: Poly = {}
    for poly in terms.values():
        for power, c in poly.items():
            out[power] = out.get(power, 0) + c
    return out


def reaches(one: Poly, other: Poly) -> bool:
    """Whether no coefficient of `one` is below that of `other`."""
    return all(one.get(p, 0) >= other.get(p, 0) for p in one.keys() | other.keys())


def undominated(candidates: list[tuple]) -> list[tuple]:
    """Packed totals whose every coefficient another one reaches cannot be the peak: drop
    them.
    """
    best: dict[int, tuple] = {}
    for c in candidates:
        best.setdefault(sum(c), c)
    kept: list[tuple[Poly, tuple]] = []
    for packed in sorted(best, reverse=True):
        poly = unpack(packed)
        if not any(reaches(other, poly) for other, _ in kept):
            kept.append((poly, best[packed]))
    return [c for _, c in kept]
