"""Figures of scheduling: busy and working, calls, links of a step, rows of a batch.

Each takes recordings and draws the rows of one `kind`.
"""

from gpulab_utils.plots.base import LINES, MUTED, figure, legend, of_kind

HOLLOW = {"markerfacecolor": "white"}


def _dots(look: dict) -> dict:
    return look | {"linestyle": ""}


def busy_and_share(runs: list):
    """Share of the time and share of the peak's FLOP/s, by job, rows of kind "busy"."""
    fig, ax = figure("percent", "", log="x", height=3.2, width=8)
    for (label, rows), look in zip(of_kind(runs, "busy"), LINES, strict=False):
        jobs = [r["job"] for r in rows]
        at_work = [100 * r["share"] for r in rows]
        ax.plot(at_work, jobs, label=f"of the FLOP/s, {label}", **_dots(look))
        busy = [(100 * r["busy"], r["job"]) for r in rows if r["busy"] is not None]
        if busy:
            name = f"of the time, {label}"
            ax.plot(*zip(*busy, strict=True), label=name, **_dots(look) | HOLLOW)
    ax.axvline(100, color=MUTED, linewidth=1)
    ax.margins(y=0.3)
    legend(ax)
    return fig


def time_by_waiting(runs: list):
    """Milliseconds of one addition by how threads wait, rows of kind "spin"."""
    fig, ax = figure("time of one addition (ms)", "", log="x", height=3, width=8)
    for (label, rows), look in zip(of_kind(runs, "spin"), LINES, strict=False):
        took_ms = [1e3 * r["took_s"] for r in rows]
        ax.plot(took_ms, [r["how"] for r in rows], label=label, **_dots(look))
    ax.margins(y=0.3)
    legend(ax)
    return fig


def time_against_size(runs: list):
    """Microseconds of one addition against its size, and call + bytes / rate."""
    fig, ax = figure("values added", "time of a call (µs)", log="xy", width=8)
    for (label, rows), look in zip(of_kind(runs, "call"), LINES, strict=False):
        x = [r["n"] for r in rows]
        ax.plot(x, [1e6 * r["took_s"] for r in rows], label=label, **_dots(look))
        told = [1e6 * r["least_s"] for r in rows]
        ax.plot(x, told, color=look["color"], linewidth=1, label=f"two probes, {label}")
    legend(ax)
    return fig


def gain_by_link(runs: list):
    """Each link's own gain, what Amdahl makes of it for the step; all three, measured."""
    fig, ax = figure("times as fast", "", log="x", height=3.2, width=8)
    wholes = dict(of_kind(runs, "whole"))
    for (label, rows), look in zip(of_kind(runs, "link"), LINES, strict=False):
        names = [f"{r['link']}" for r in rows]
        own, alone = [r["own"] for r in rows], [r["alone"] for r in rows]
        ax.plot(own, names, label=f"the link, {label}", **_dots(look) | HOLLOW)
        ax.plot(alone, names, label=f"the step, {label}", **_dots(look))
        (whole,) = wholes[label][:1]
        ax.plot([whole["measured"]], ["all three"], label="", **_dots(look))
        ax.plot([whole["predicted"]], ["all three"], color=MUTED, marker="|", markersize=16)
    ax.axvline(1, color=MUTED, linewidth=1)
    ax.margins(y=0.25)
    legend(ax)
    return fig


def rows_by_step(runs: list):
    """Live rows of each step, static and continuous: the first run that has them."""
    fig, ax = figure("step", "live rows", width=8, height=3.2)
    rows = of_kind(runs, "serve")[0][1]
    for row, look in zip(rows, LINES, strict=False):
        y = [*row["rows"], 0]
        plain = look | {"marker": ""}
        name = f"{row['join']}, {len(row['rows'])} steps"
        ax.plot(range(len(y)), y, drawstyle="steps-post", label=name, **plain)
    most = max(max(r["rows"]) for r in rows)
    ax.set_ylim(0, most + 0.5)
    ax.set_yticks(range(most + 1))
    legend(ax)
    return fig


def counted_and_timed(runs: list):
    """Passes saved and time saved by each schedule, rows of kind "saved"."""
    fig, ax = figure("times fewer passes, times less time", "", height=3.2, width=8)
    for (label, rows), look in zip(of_kind(runs, "saved"), LINES, strict=False):
        names = [r["what"] for r in rows]
        counted = [r["counted"] for r in rows]
        ax.plot(counted, names, label=f"passes, {label}", **_dots(look) | HOLLOW)
        ax.plot([r["timed"] for r in rows], names, label=f"time, {label}", **_dots(look))
    ax.axvline(1, color=MUTED, linewidth=1)
    ax.margins(y=0.3)
    legend(ax)
    return fig
