"""Figures of the walls: time against bytes, bandwidth, the roofline, waits, batches.

Each takes recordings and draws the rows of one `kind`.
"""

from gpulab_utils.plots.base import LINES, MUTED, figure, legend, of_kind


def time_against_bytes(runs: list):
    """Seconds of one pass against the bytes it reads, rows of kind "hold"."""
    fig, ax = figure("bytes read (MB)", "time of a pass (ms)", log="xy")
    for (label, rows), look in zip(of_kind(runs, "hold"), LINES, strict=False):
        x = [r["bytes_read"] / 1e6 for r in rows]
        ax.plot(
            x, [1e3 * r["wall_s"] for r in rows], label=label, **look | {"linestyle": ""}
        )
        small, large = min(x), max(x)
        least = min(1e3 * r["wall_s"] for r in rows if r["bytes_read"] / 1e6 == small)
        ax.plot([small, large], [least, least * large / small], color=MUTED, linewidth=1)
    legend(ax)
    return fig


def bandwidth_against_bytes(runs: list):
    """GB/s of reads and copies against the size of the buffer: caches are steps."""
    fig, ax = figure("buffer (KiB)", "bytes moved (GB/s)", log="xy", width=8)
    looks = iter(LINES)
    for kind in ("read", "copy"):
        for (label, rows), look in zip(of_kind(runs, kind), looks, strict=False):
            x = [r["bytes"] / 1024 for r in rows]
            ax.plot(
                x, [r["bytes_per_s"] / 1e9 for r in rows], label=f"{kind}, {label}", **look
            )
    legend(ax)
    return fig


def rate_against_intensity(runs: list):
    """The roofline of each run, and its operations as points below it."""
    fig, ax = figure("FLOP per byte", "GFLOP/s", log="xy", width=8)
    for (label, (roof, *_)), look in zip(of_kind(runs, "roof"), LINES, strict=False):
        ops = [
            r
            for run in runs
            if run.label == label
            for r in run.rows
            if r.get("kind") == "op"
        ]
        x = [r["intensity"] for r in ops]
        low, high = min([*x, 1]) / 2, max([*x, 1]) * 4
        peak, slope = roof["flop_per_s"] / 1e9, roof["bytes_per_s"] / 1e9
        xs = [low, peak / slope, high]
        ax.plot(
            xs,
            [min(peak, slope * i) for i in xs],
            color=look["color"],
            label=f"roof, {label}",
        )
        rates = [r["flop"] / r["took_s"] / 1e9 for r in ops]
        ax.plot(x, rates, label=f"operations, {label}", **look | {"linestyle": ""})
    legend(ax)
    return fig


def growth_by_op(runs: list):
    """Two tests of each operation: twice the arithmetic, and weights from the cache."""
    fig, ax = figure("times as long", "", height=5, width=8)
    for (label, ops), look in zip(of_kind(runs, "op"), LINES[::2], strict=False):
        names, plain = [r["name"] for r in ops], look | {"linestyle": ""}
        ax.plot(
            [r["growth"] for r in ops],
            names,
            label=f"twice the arithmetic, {label}",
            **plain,
        )
        near = [(r["near"], r["name"]) for r in ops if r["near"]]
        open_ = plain | {"markerfacecolor": "white"}
        ax.plot(*zip(*near, strict=True), label=f"streamed, not cached, {label}", **open_)
    for x in (1, 2):
        ax.axvline(x, color=MUTED, linewidth=1)
    legend(ax)
    return fig


def wait_against_chains(runs: list):
    """Nanoseconds a read waits, and nanoseconds from one read to the next of any chain."""
    fig, ax = figure("chains of dependent reads at once", "time (ns)", log="xy", width=8)
    looks = iter(LINES)
    for label, rows in of_kind(runs, "chase"):
        x = [r["chains"] for r in rows]
        waits = [1e9 * r["step_s"] for r in rows]
        ax.plot(x, waits, label=f"one chain waits, {label}", **next(looks))
        shared = [w / k for w, k in zip(waits, x, strict=True)]
        ax.plot(x, shared, label=f"a read ends every, {label}", **next(looks))
        ax.axhline(1e9 * rows[0]["stream_line_s"], color=MUTED, linewidth=1)
    ax.set_xscale("log", base=2)
    legend(ax)
    return fig


def time_against_rows(runs: list):
    """Milliseconds of one layer against the batch, and the floor under it."""
    fig, ax = figure("rows in the batch", "time (ms)", log="xy", width=8)
    for (label, rows), look in zip(of_kind(runs, "rows"), LINES, strict=False):
        x = [r["rows"] for r in rows]
        name = f"{label}, {rows[0]['dtype']}"
        ax.plot(x, [1e3 * r["took_s"] for r in rows], label=name, **look)
        floor = [1e3 * r["least_s"] for r in rows]
        ax.plot(x, floor, color=look["color"], linewidth=1, label=f"floor, {name}")
    ax.set_xscale("log", base=2)
    legend(ax)
    return fig


def speed_by_threads(runs: list):
    """How many times as fast each job is with a second thread, by two clocks."""
    fig, ax = figure("times as fast with a second thread", "", height=3, width=8)
    for (label, rows), look in zip(of_kind(runs, "threads"), LINES, strict=False):
        jobs, plain = [r["job"] for r in rows], look | {"linestyle": ""}
        ax.plot([r["gain"] for r in rows], jobs, label=f"its own time, {label}", **plain)
        open_ = plain | {"markerfacecolor": "white"}
        ax.plot([r["wall_gain"] for r in rows], jobs, label=f"host clock, {label}", **open_)
    for x in (1, 2):
        ax.axvline(x, color=MUTED, linewidth=1)
    ax.margins(y=0.4)
    legend(ax)
    return fig


def share_of_bound(rows: list[dict]):
    """Published decode speeds against the bound of their card's bandwidth, a card a line.

    `rows`: dicts with `card`, `share` (measured tokens/s over bandwidth / bytes read).
    """
    cards = sorted({r["card"] for r in rows}, key=lambda c: _best(rows, c))
    fig, ax = figure("share of bandwidth / bytes", "", height=1.2 + 0.28 * len(cards))
    places = [cards.index(r["card"]) for r in rows]
    ax.plot(
        [r["share"] for r in rows], places, **LINES[0] | {"linestyle": "", "alpha": 0.6}
    )
    ax.axvline(1, color=MUTED, linewidth=1)
    ax.set_yticks(range(len(cards)), cards)
    ax.set_xlim(0, 1.05)
    return fig


def _best(rows: list[dict], card: str) -> float:
    return max(r["share"] for r in rows if r["card"] == card)
