"""Latency and bandwidth of a road: the line seconds = latency + bytes / rate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """seconds = latency_s + n_bytes / bytes_per_s, and how far the points lie from it."""

    latency_s: float
    bytes_per_s: float
    worst: float  # measured over fitted, or its inverse, of the worst point: 1 and up

    def seconds(self, n_bytes: float) -> float:
        """What the line predicts for `n_bytes`.

        >>> Line(1e-5, 1e9, 1.0).seconds(10**6)
        0.00101
        """
        return self.latency_s + n_bytes / self.bytes_per_s

    @property
    def half_bytes(self) -> float:
        """The size at which latency and bytes cost the same: half the rate is reached.

        Source: R. W. Hockney, "The communication challenge for MPP", 1994 (n-half).

        >>> Line(1e-5, 1e9, 1.0).half_bytes
        10000.0
        """
        return self.latency_s * self.bytes_per_s


def line(n_bytes: Sequence[float], seconds: Sequence[float]) -> Line:
    """The line with the least squared relative error, latency not below zero.

    Relative: a microsecond counts at a kilobyte as a millisecond does at a megabyte. Where
    time does not grow with size, on a busy machine say, the rate is infinite. Raises
    `ValueError` for fewer than three sizes and for a time that is not above zero.

    >>> road = line([1e3, 1e6, 1e9], [1.1e-5, 1.01e-3, 1.00001])
    >>> round(road.latency_s * 1e6), round(road.bytes_per_s / 1e9, 2), road.worst < 1.001
    (10, 1.0, True)
    """
    points = list(zip(n_bytes, seconds, strict=True))
    if len(set(n_bytes)) < 3:
        raise ValueError(f"a line needs three sizes, got {sorted(set(n_bytes))}")
    if any(size < 0 or took <= 0 for size, took in points):
        raise ValueError(f"sizes from 0 and times above 0, got {points}")
    # Normal equations of sum((latency + size * slope) / took - 1)^2.
    ll = sum(1 / t**2 for _, t in points)
    ls = sum(s / t**2 for s, t in points)
    ss = sum(s**2 / t**2 for s, t in points)
    l1, s1 = sum(1 / t for _, t in points), sum(s / t for s, t in points)
    det = ll * ss - ls**2
    latency, slope = (l1 * ss - s1 * ls) / det, (s1 * ll - l1 * ls) / det
    if latency < 0:
        latency, slope = 0.0, s1 / ss
    if slope <= 0:
        latency, slope = l1 / ll, 0.0
    off = [t / (latency + s * slope) for s, t in points]
    rate = 1 / slope if slope else math.inf
    return Line(latency, rate, max(max(x, 1 / x) for x in off))
