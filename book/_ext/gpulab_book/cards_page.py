"""The card table: datasheet numbers and what is left of the memory, a source each."""

from collections.abc import Iterator
from itertools import groupby

from gpulab_book import markup
from gpulab_book.markup import plain
from gpulab_utils.cards import CARDS, Card
from gpulab_utils.units import GIB

HEAD = [
    *["card", "box GB", "usable GiB", "GB/s", "fp16 TFLOP/s", "int8 TOP/s"],
    *["cc", "W", "sale", "confidence"],
]


def _of(cards: list[Card]) -> str:
    return markup.table(HEAD, map(_row, cards), right=1)


def table() -> str:
    """One table for each maker, the newest cards first."""
    made = []
    for vendor, cards in _by_vendor():
        made += [f"### {vendor}\n", _of(cards)]
    return "\n".join(made)


def sources() -> str:
    """Under each card's name: where its numbers come from, and what disagrees."""
    return "\n\n".join(map(_sources, CARDS.values()))


def _by_vendor() -> Iterator[tuple[str, list[Card]]]:
    newest = sorted(CARDS.values(), key=lambda c: c.launch_date, reverse=True)
    ranked = sorted(newest, key=lambda c: ["NVIDIA", "AMD", "Intel"].index(c.vendor))
    for vendor, cards in groupby(ranked, key=lambda c: c.vendor):
        yield vendor, list(cards)


def _row(card: Card) -> list[str]:
    capability = card.compute_capability
    return [
        card.name,
        f"{card.row['box_gb']:g}",
        " / ".join(f"{card.usable_bytes(desktop=d) / GIB:.2f}" for d in (False, True)),
        f"{card.mem_bytes_per_s / 1e9:.0f}",
        _tera(card, "fp16"),
        _tera(card, "int8"),
        ".".join(map(str, capability)) if capability else card.row["gfx_target"] or "none",
        str(card.tdp_w or "unknown"),
        card.launch_date[:4],
        card.confidence,
    ]


def _tera(card: Card, dtype: str) -> str:
    rate = card.flop_per_s.get(dtype)
    return f"{rate / 1e12:.0f}" if rate else "none"


def _sources(card: Card) -> str:
    lines = [f"**{card.name}** (`{card.id}`)", ""]
    lines += [f"- {s['kind']}: {plain(s['address'])}" for s in card.row["sources"]]
    lines += [f"- note: {plain(note)}" for note in card.row["notes"]]
    return "\n".join(lines)
