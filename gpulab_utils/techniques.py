"""What does a technique give and take? One row of a recording, the same in every lab.

The page "What to try first on your card" is computed from these rows and from nothing else.
"""

USES = ("inference", "training")
EFFORTS = ("a setting", "a few lines", "a training run", "a program of its own")


def row(
    technique: str,
    *,
    use: str,
    base: str,
    bytes_ratio: float,
    of: str,
    time_ratio: float | None,
    quality: tuple[str, float, float] | str,
    effort: str,
    why_no_time: str = "",
) -> dict:
    """The row for `results.record`: `technique` held against `base`, both measured.

    bytes_ratio: with / without, of the bytes that `of` names ("weights", "a whole step");
    time_ratio: with / without, or None and `why_no_time`; quality: ("perplexity", before,
    after), or words where nothing can change ("equal to the bit"); effort: one of
    `EFFORTS`. Raises `ValueError` for a use or an effort that is none of these, a ratio
    that is not positive, or a time that is missing without a reason.

    >>> made = row("gradient checkpointing", use="training", base="plain", bytes_ratio=0.4,
    ...            of="a whole step", time_ratio=1.3, quality="equal to the bit",
    ...            effort="a setting")
    >>> made["kind"], made["bytes_ratio"]
    ('technique', 0.4)
    """
    for given, allowed in ((use, USES), (effort, EFFORTS)):
        if given not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}, got {given!r}")
    for ratio in (bytes_ratio, 1 if time_ratio is None else time_ratio):
        if not ratio > 0:
            raise ValueError(f"a ratio must be positive, got {ratio}")
    if time_ratio is None and not why_no_time:
        raise ValueError(f"{technique}: no time, and no reason why")
    return {
        "kind": "technique", "technique": technique, "use": use, "base": base,
        "bytes_ratio": bytes_ratio, "of": of, "time_ratio": time_ratio,
        "quality": quality if isinstance(quality, str) else list(quality),
        "effort": effort, "why_no_time": why_no_time,
    }  # fmt: skip
