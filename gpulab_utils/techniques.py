"""What does a technique give and take? One row of a recording, the same in every lab.

The page "What to try first on your card" is computed from these rows, and from what labs 08
and 10 recorded in words of their own (`told_otherwise`).
"""

import math

from gpulab_utils import results

USES = ("inference", "training")
#: A word of `of`, and the term of the planner's bill that it means.
PARTS = {"KV": "kv_cache", "attention": "activations", "weights": "weights"}
PARTS |= {"linears": "weights"}
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
    `EFFORTS`. Raises `ValueError` for another use or effort, a ratio that is not positive,
    an `of` that no bill has (`part`), a time that is missing without a reason.

    >>> made = row("gradient checkpointing", use="training", base="plain", bytes_ratio=0.4,
    ...            of="a whole step", time_ratio=1.3, quality="equal", effort="a setting")
    >>> made["kind"], made["bytes_ratio"]
    ('technique', 0.4)
    """
    for given, allowed in ((use, USES), (effort, EFFORTS)):
        if given not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}, got {given!r}")
    for ratio in (bytes_ratio, 1 if time_ratio is None else time_ratio):
        if not ratio > 0:
            raise ValueError(f"a ratio must be positive, got {ratio}")
    part(of)
    if time_ratio is None and not why_no_time:
        raise ValueError(f"{technique}: no time, and no reason why")
    return {
        "kind": "technique", "technique": technique, "use": use, "base": base,
        "bytes_ratio": bytes_ratio, "of": of, "time_ratio": time_ratio,
        "quality": quality if isinstance(quality, str) else list(quality),
        "effort": effort, "why_no_time": why_no_time,
    }  # fmt: skip


def recorded() -> list[results.Run]:
    """A `Run` a device, GPUs first, with every technique row of all its recordings.

    A row carries its "lab" as well. Rows of one lab, technique and base that repeat are the
    same trial at several sizes: the first is taken.

    >>> {row["kind"] for run in recorded() for row in run.rows}
    {'technique'}
    """
    found: dict[str, tuple[dict, dict]] = {}
    for lab in sorted({path.stem for path in results.folder().glob("*/*.json")}):
        for run in results.load(lab):
            rows = found.setdefault(run.label, (run.where, {}))[1]
            for r in [*run.rows, *told_otherwise(lab, run.rows)]:
                if r.get("kind") == "technique":
                    key = lab, r["technique"], r["base"], r["of"]
                    rows.setdefault(key, r | {"lab": lab})
    runs = [results.Run(w, list(rows.values()), []) for w, rows in found.values() if rows]
    return sorted(runs, key=lambda run: run.where["peak_vram_bytes"] is None)


def told_otherwise(lab: str, rows: list[dict]) -> list[dict]:
    """Technique rows of labs that were recorded before there were any.

    >>> made = told_otherwise("08_scheduling", [
    ...     {"kind": "saved", "what": "continuous batch", "timed": 1.25}])
    >>> made[0]["technique"], made[0]["time_ratio"]
    ('continuous batching', 0.8)
    """
    if lab == "08_scheduling":
        timed = [r["timed"] for r in rows if r.get("what") == "continuous batch"]
        return [
            row(
                "continuous batching", use="inference", base="a static batch", of="weights",
                bytes_ratio=1, time_ratio=1 / gain, quality="the same tokens",
                effort="a program of its own",
            )
            for gain in timed
        ]  # fmt: skip
    if lab != "10_operators":
        return []
    by_way: dict[str, dict] = {}
    for r in sorted((r for r in rows if r.get("kind") == "attention"), key=_length):
        by_way[r["way"]] = r  # the longest stays
    out, inside = (by_way.get(f"scores {way}") for way in ("written out", "kept inside"))
    if not out or not inside or out["length"] != inside["length"]:
        return []
    return [
        row(
            "fused attention", use="inference", base="scores written out",
            of=f"attention at {out['length']:,} tokens",
            bytes_ratio=inside["peak_bytes"] / out["peak_bytes"],
            time_ratio=inside["took_s"] / out["took_s"],
            quality="equal but for rounding", effort="a setting",
        )
    ]  # fmt: skip


def _length(r: dict) -> int:
    return r["length"]


def lost(r: dict) -> float:
    """How much worse a technique row's quality is: by what share perplexity grew.

    Nats are turned into perplexity, of a share that falls (accuracy) the lost part is told;
    negative where it improved, 0 where the row says in words that nothing changes.

    >>> lost({"quality": ["perplexity", 20, 25]}), lost({"quality": "equal to the bit"})
    (0.25, 0.0)
    """
    if isinstance(r["quality"], str):
        return 0.0
    name, before, after = r["quality"]
    if name.startswith("nats"):
        return math.exp(after - before) - 1
    return (
        after / before - 1 if name.startswith("perplexity") else (before - after) / before
    )


def gives(r: dict) -> tuple:
    """To sort by: the least bytes first, of equals the least time."""
    return r["bytes_ratio"], r["time_ratio"] or math.inf


def part(of: str) -> str | None:
    """The term of a bill that `of` names, None for the whole; `ValueError` for neither.

    >>> part("weights of the linears"), part("a whole step")
    ('weights', None)
    """
    if "whole" in of:
        return None
    for word, term in PARTS.items():
        if word in of:
            return term
    raise ValueError(f"of must name a whole, or one of {', '.join(PARTS)}, got {of!r}")


def saved(r: dict, terms: dict[str, int]) -> float:
    """Bytes that a row's technique saves of a run whose bill is `terms` (bytes by term).

    What `of` names is one term of the bill, or the whole.

    >>> bill = {"weights": 80, "kv_cache": 20}
    >>> saved({"of": "KV cache a user", "bytes_ratio": 0.75}, bill)
    5.0
    """
    term = part(r["of"])
    return (1 - r["bytes_ratio"]) * (terms[term] if term else sum(terms.values()))


def worth(rows: list[dict], use: str, most_lost: float = 0.05) -> list[dict]:
    """Rows of a use that save a twentieth of bytes or time and lose at most `most_lost`.

    The least effort first, of equals what leaves fewer bytes.

    >>> cheap = row("a", use="training", base="b", bytes_ratio=0.5, of="a whole",
    ...             time_ratio=1, quality="equal", effort="a setting")
    >>> dear = cheap | {"technique": "c", "effort": "a training run", "bytes_ratio": 0.1}
    >>> [r["technique"] for r in worth([dear, cheap], "training")]
    ['a', 'c']
    """
    good = [
        r
        for r in rows
        if r["use"] == use
        and (r["bytes_ratio"] < 0.95 or (r["time_ratio"] or 1) < 0.95)
        and lost(r) <= most_lost
    ]
    return sorted(good, key=lambda r: (EFFORTS.index(r["effort"]), *gives(r)))
