"""Does a claim stand? The ledger of what three articles say, and the check that labs make.

A lab calls `check` once for each claim that it owns. The printed line is the same on every
machine; what this machine decided, and why it could not, goes to the recording.
"""

from dataclasses import asdict, dataclass, is_dataclass

from gpulab_utils import device, results
from gpulab_utils.tables import Table
from gpulab_utils.timing import BAND, Ratio


class ClaimFailed(AssertionError):
    """What was just measured or derived contradicts the verdict that the book prints."""


@dataclass(frozen=True)
class Claim:
    """One row of `data/claims.json`: what an article says, and what the book answers."""

    id: str
    source_file: str
    section: str
    lines: str
    zh: str  # the article's words, "…" where some are left out; ours if not stated
    en: str
    verdict: str  # true, true with conditions, misleading, false, untestable
    correction: str
    source: str
    source_status: str
    tested: str  # lab, or ledger only
    chapter: str
    stated: bool  # False: what the article leaves out
    topic: str


def _claim(row: dict) -> Claim:
    return Claim(**{k: row[k] for k in Claim.__dataclass_fields__})


#: Every claim by id; an unknown one raises `KeyError` with the nearest ids.
CLAIMS = Table("claim", "claims.json", _claim)


def check(id: str, stands: bool | None, evidence: object, why_not: str = "") -> None:
    """Hold our verdict on claim `id` against what this lab just found.

    `stands` is True where the finding agrees with the verdict, whatever the verdict is, and
    None where this machine cannot tell; then `why_not` says why, unless `evidence` holds a
    noisy `Ratio`. Raises `ClaimFailed` where it contradicts, `KeyError` for an unknown id,
    `TypeError` for a `stands` that is no bool (a tensor, a numpy bool).

    >>> check("A-0.1", 13_015_864_320 > 5 * 1_300_000_000, {"parameters": 13_015_864_320})
    A-0.1 (our verdict: false) was put to the test.
    """
    claim = CLAIMS[id]
    if stands not in (True, False, None) or not isinstance(stands, bool | None):
        raise TypeError(f"{id}: stands must be True, False or None, got {stands!r}")
    state = {True: "stands", False: "overturned", None: "undecided"}[stands]
    reason = (why_not or _why(evidence)) if stands is None else ""
    results.checked(
        {"claim": id, "state": state, "why": reason, "evidence": plain(evidence)}
    )
    if stands is False:
        raise ClaimFailed(f"{id}: the verdict {claim.verdict!r} does not stand: {evidence}")
    print(f"{id} (our verdict: {claim.verdict}) was put to the test.")


def _why(evidence: object) -> str:
    """Why a check could not judge, as far as the evidence and the machine tell."""
    if device.here().tiny:
        return "tiny"
    values = evidence.values() if isinstance(evidence, dict) else [evidence]
    if any(isinstance(v, Ratio) and v.aa > BAND for v in values):
        return "too noisy"
    return "cannot be told here"


def plain(value: object) -> object:
    """Evidence as JSON can hold it."""
    if is_dataclass(value):
        return plain(asdict(value))
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
