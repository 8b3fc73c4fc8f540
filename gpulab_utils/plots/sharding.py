"""Figures of chapter 19: bytes of a rank and on the wire, steps, lives, when it pays.

The first four take recordings, the last two what arithmetic gave; `ValueError` where there
is nothing to draw.
"""

from gpulab_utils.plots.base import LINES, MUTED, figure, legend, of_kind

PARTS = ("parameters", "gradients", "optimizer")
HATCHES = ("", "//", "..")


def bytes_by_rank(runs: list):
    """Stacked bytes that a rank keeps, by way and number of ranks; a bar is foretold."""
    label, rows = of_kind(runs, "held")[-1]
    fig, ax = figure("", "held by each rank (MB)", width=8)
    names, base = [f"{r['way']}\n{r['ranks']} ranks" for r in rows], [0.0] * len(rows)
    for part, look, hatch in zip(PARTS, LINES, HATCHES, strict=False):
        tall = [r[part] / 1e6 for r in rows]
        how = {"color": look["color"], "hatch": hatch, "edgecolor": "white"}
        ax.bar(names, tall, bottom=base, label=f"{part}, {label}", width=0.6, **how)
        base = [a + b for a, b in zip(base, tall, strict=True)]
    foretold = [r["expected"] / 1e6 for r in rows]
    left, right = ([i + side for i in range(len(rows))] for side in (-0.35, 0.35))
    ax.hlines(foretold, left, right, color="black", linewidth=3, label="predicted")
    legend(ax)
    return fig


def wire_by_way(runs: list):
    """Bytes of all ranks in one step: by ring formulas, by gloo's, on the loopback."""
    fig, ax = figure("sent by all ranks in one step (MB)", "", height=3.6, width=8)
    looks = iter(LINES)
    for label, rows in of_kind(runs, "wire"):
        names = [f"{r['way']}, {r['ranks']} ranks" for r in rows]
        for key, words in (("ring", "ring formulas"), ("gloo", "as gloo does it")):
            look = next(looks) | {"linestyle": "", "markerfacecolor": "white"}
            ax.plot([r[key] / 1e6 for r in rows], names, label=words, **look)
        seen = [
            (r["loopback"] / 1e6, n)
            for r, n in zip(rows, names, strict=True)
            if r["loopback"]
        ]
        look = next(looks) | {"linestyle": "", "markersize": 4}
        ax.plot(
            [x for x, _ in seen], [n for _, n in seen], label=f"loopback, {label}", **look
        )
    ax.set_xlim(0)
    ax.margins(y=0.1)
    legend(ax)
    return fig


def steps_foretold(runs: list):
    """Milliseconds of a step: computing apart, the wire on top, and measured."""
    fig, ax = figure("", "a step (ms)", width=8)
    looks = iter(LINES)
    for label, rows in of_kind(runs, "step"):
        names = [f"{r['way']}\n{r['ranks']} ranks" for r in rows]
        apart, wire = ([1e3 * r[key] for r in rows] for key in ("apart_s", "wire_s"))
        ax.bar(names, apart, width=0.4, color=next(looks)["color"], label="apart")
        how = {"color": next(looks)["color"], "hatch": "//", "edgecolor": "white"}
        ax.bar(names, wire, bottom=apart, width=0.4, label="wire, by the lines", **how)
        look = next(looks) | {"linestyle": "", "markersize": 9, "color": "black"}
        measured = [1e3 * r["measured_s"] for r in rows]
        ax.plot(names, measured, label=f"measured, {label}", **look)
    ax.set_ylim(0)
    legend(ax)
    return fig


def lives(runs: list):
    """The steps of a training in the order in which they were begun, life by life."""
    label, rows = of_kind(runs, "lives")[-1]
    fig, ax = figure("steps begun so far", "step of the training", width=8)
    begun = rows[0]["begun"]
    for life, look in zip(sorted({one for one, _ in begun}), LINES, strict=False):
        points = [(i, step) for i, (own, step) in enumerate(begun) if own == life]
        look = look | {"linestyle": "", "markersize": 4}
        words = "until the kill" if life == 0 else "after the restart"
        ax.plot(*zip(*points, strict=True), label=f"{words}, {label}", **look)
    for saved in range(0, rows[0]["steps"], rows[0]["every"]):
        ax.axhline(saved, color=MUTED, linewidth=0.4)
    legend(ax)
    return fig


def gain_by_tokens(curves: dict):
    """How many times as fast n cards are, against the tokens of a step; derived.

    `curves` are, by label, lists of (tokens, gain).

    >>> fig = gain_by_tokens({"2 cards": [(1000, 0.5), (4000, 1.5)]})
    """
    if not curves:
        raise ValueError("no curve to draw, got {}")
    words = "tokens of a step, all cards together"
    fig, ax = figure(words, "times as fast as one card", log="x", width=8.5)
    for i, (label, points) in enumerate(curves.items()):
        look = LINES[i % len(LINES)] | {"markersize": 4}
        ax.plot(*zip(*points, strict=True), label=label, **look)
    ax.axhline(1, color=MUTED, linewidth=1)
    ax.set_ylim(0)
    legend(ax)
    return fig


def room_by_cards(lines: dict, rooms: dict):
    """GB that each card holds against the number of cards, and what cards have; derived.

    `lines` are, by way, lists of (cards, bytes), `rooms` bytes by the name of a card.

    >>> fig = room_by_cards({"FSDP2": [(1, 2e11), (2, 1e11)]}, {"a card": 24e9})
    """
    if not lines:
        raise ValueError("no way to draw, got {}")
    fig, ax = figure("cards", "held by each (GB)", log="xy", width=8)
    for (way, points), look in zip(lines.items(), LINES, strict=False):
        x, y = zip(*points, strict=True)
        ax.plot(x, [n / 1e9 for n in y], label=way, **look | {"markersize": 4})
    for name, room in rooms.items():
        ax.axhline(room / 1e9, color=MUTED, linewidth=1)
        ax.annotate(name, (x[0], room / 1e9), va="bottom", fontsize=9, color=MUTED)
    ax.set_xscale("log", base=2)
    ax.set_xticks(x, [str(n) for n in x])
    legend(ax)
    return fig
