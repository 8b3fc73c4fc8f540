"""The claims page: what the articles say, what we answer, and what a machine checked."""

import re
from collections import Counter
from dataclasses import dataclass
from itertools import groupby

from gpulab_book import recorded
from gpulab_book.markup import listed, plain, table, zh
from gpulab_utils.claims import CLAIMS, Claim

VERDICTS = ["true", "true with conditions", "misleading", "false", "untestable"]
STATES = {
    "tested": "a lab asserted it, and on at least one recorded machine the check judged",
    "needs a GPU": "the lab's check ran, and only a GPU can judge it",
    "cited": "nothing to measure; the source decides",
    "not yet": "no recorded check has judged it so far",
}


@dataclass(frozen=True)
class State:
    """How far a claim has been checked: one of `STATES`, and by which machines."""

    word: str
    detail: str = ""


def state(claim: Claim, checks: list[tuple[str, dict]]) -> State:
    """What the recorded `checks`, as (device, check), say of a claim.

    One machine that judged is enough. A machine that could not judge says why.
    """
    if claim.tested != "lab":
        return State("cited", claim.source_status)
    mine = [(device, c) for device, c in checks if c.get("claim") == claim.id]
    if judged := [device for device, c in mine if c["state"] == "stands"]:
        return State("tested", f"stands on {listed(judged)}")
    why = [f"{c['why']} ({device})" for device, c in mine if c["state"] == "undecided"]
    if any("GPU" in w for w in why):
        return State("needs a GPU", listed(why))
    return State("not yet", listed(why))


def _stated() -> list[Claim]:
    return [c for c in CLAIMS.values() if c.stated]


def counts() -> str:
    """Verdicts by article, of what the articles do say."""
    found = Counter((c.id[0], c.verdict) for c in _stated())
    rows = [
        [
            verdict,
            *(found[a, verdict] for a in "ABC"),
            sum(found[a, verdict] for a in "ABC"),
        ]
        for verdict in VERDICTS
    ]
    total = [sum(row[i] for row in rows) for i in range(1, 5)]
    return table(["verdict", "A", "B", "C", "all"], [*rows, ["all", *total]], right=1)


def states() -> str:
    """How many claims are in each state, and what the state means."""
    checks = recorded.checks()
    found = Counter(state(c, checks).word for c in CLAIMS.values())
    rows = ((word, meaning, found[word]) for word, meaning in STATES.items())
    return table(["state", "meaning", "claims"], rows, right=2)


def ledger() -> str:
    """Every stated claim, under its chapter."""
    made, checks = [], recorded.checks()
    ranked = sorted(_stated(), key=lambda c: c.chapter)
    for chapter, claims in groupby(ranked, key=lambda c: c.chapter):
        made.append(_chapter(chapter))
        made += [entry(c, state(c, checks)) for c in claims]
    return "\n".join(made)


def not_stated() -> str:
    """What the articles leave out."""
    checks = recorded.checks()
    return "\n".join(entry(c, state(c, checks)) for c in CLAIMS.values() if not c.stated)


def entry(claim: Claim, found: State) -> str:
    """One claim: the quotation, the verdict, the answer, its source, its state."""
    words = {"verdict": claim.verdict, "state": found.word}
    marks = " ".join(f'<span class="{k} {_slug(v)}">{v}</span>' for k, v in words.items())
    lines = [
        f"(claim-{_slug(claim.id)})=",
        f"**{claim.id}** {marks}",
        "",
        f"{zh(claim.zh, quoted=claim.stated)} {plain(claim.en)}.",
        "",
        f"*Answer*: {plain(claim.correction)}",
        "",
        f"*Source* ({plain(claim.source_status)}): {plain(claim.source)}",
    ]
    if found.detail and found.word != "cited":
        lines += ["", f"*Check*: {plain(found.detail)}"]
    return "::::{div} claim\n" + "\n".join(lines) + "\n::::\n"


def _slug(text: str) -> str:
    return text.lower().replace(" ", "-").replace(".", "-")


def _chapter(number: str) -> str:
    """The heading of a chapter's claims, and the way to it once it is written."""
    page = next((p for p in recorded.contents() if p.startswith(f"book/{number}_")), None)
    if page is None:
        return f"### Chapter {number} (not written yet)\n"
    text = (recorded.ROOT / f"{page}.md").read_text(encoding="utf-8")
    title = re.search(r"(?m)^# (.+)$", text)[1]
    return f"### Chapter {number}: {title}\n\n[Read chapter {number}](../{page}.md)\n"
