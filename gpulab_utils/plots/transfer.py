"""Figures of the roads: time against bytes, what pages cost, layers and tokens from afar.

Each takes recordings and draws the rows of one `kind`, measured as points, foretold as thin
lines.
"""

import math
from itertools import cycle

from gpulab_utils import fit
from gpulab_utils.plots.base import LINES, MUTED, figure, legend, of_kind

_DRAWN = ("memory", "first touch", "file, mapped", "pipe", "shared memory", "disk")


def time_against_copy(runs: list):
    """Microseconds of one copy against its bytes, rows of kind "road", and the lines.

    One device is named once, in a legend below: beside the data it would make them small
    on a phone.
    """
    devices = of_kind(runs, "road")
    one = len(devices) == 1
    size = {"height": 5.4} if one else {"width": 9.5, "height": 4.8}
    fig, ax = figure("bytes in one copy", "time (µs)", log="xy", **size)
    looks = cycle(LINES)
    for label, rows in devices:
        links = any("host" in r["road"] for r in rows)  # a GPU's five are all drawn
        names = dict.fromkeys(r["road"] for r in rows if links or r["road"] in _DRAWN)
        for road in names:
            told, look = [r for r in rows if r["road"] == road], next(looks)
            x, took = [r["bytes"] for r in told], [r["took_s"] for r in told]
            named = look | {"linestyle": "", "label": road if one else f"{road}, {label}"}
            ax.plot(x, [1e6 * t for t in took], **named)
            line = _line(x, took)
            if line:
                every = [min(x) * 2 ** (i / 4) for i in range(4 * 20)]
                every = [n for n in every if n <= max(x)]
                fitted = [1e6 * line.seconds(n) for n in every]
                ax.plot(every, fitted, color=look["color"], linewidth=1)
    if one:
        below = {"loc": "outside lower center", "ncols": 3, "frameon": False}
        fig.legend(title=devices[0][0], **below)
    else:
        legend(ax)
    return fig


def _line(x: list, took: list) -> fit.Line | None:
    if len(set(x)) < 3:
        return None
    line = fit.line(x, took)
    return line if math.isfinite(line.bytes_per_s) else None  # a disk in its moods


def times_by_habit(runs: list):
    """How many times as long one way of moving the same bytes takes as another."""
    fig, ax = figure("times as long", "", log="x", height=2.8, width=9)
    for (label, rows), look in zip(of_kind(runs, "habit"), LINES, strict=False):
        plain = look | {"linestyle": ""}
        ax.plot(
            [r["times"] for r in rows], [r["habit"] for r in rows], label=label, **plain
        )
    ax.axvline(1, color=MUTED, linewidth=1)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter("{x:g}")
    ax.margins(y=0.3)
    ax.invert_yaxis()
    legend(ax)
    return fig


def time_by_layers_away(runs: list):
    """Milliseconds of a step against the layers that come over a road, rows "away"."""
    fig, ax = figure("layers that are not there", "time of a step (ms)", width=9)
    looks = cycle(LINES)
    for label, rows in of_kind(runs, "away"):
        for road in dict.fromkeys(r["road"] for r in rows):
            told, look = [r for r in rows if r["road"] == road], next(looks)
            x, plain = [r["away"] for r in told], look | {"linestyle": ""}
            ax.plot(x, [1e3 * r["took_s"] for r in told], label=f"{road}, {label}", **plain)
            foretold = [1e3 * r["foretold_s"] for r in told]
            ax.plot(x, foretold, color=look["color"], linewidth=1)
    ax.set_ylim(bottom=0)
    legend(ax)
    return fig


def slowdown_by_extra(runs: list):
    """Times as long a step takes with extra bytes copied in it, against their share."""
    share = "extra bytes, as a share of what the road carries in a step"
    fig, ax = figure(share, "times as long", width=8)
    for (label, rows), look in zip(of_kind(runs, "extra"), LINES, strict=False):
        x = [r["share"] for r in rows]
        ax.plot(x, [r["times"] for r in rows], label=label, **look | {"linestyle": ""})
        ax.plot([0, max(x)], [1, 1 + max(x)], color=MUTED, linewidth=1)
    ax.axhline(1.1, color=MUTED, linewidth=1, linestyle=":")
    ax.set_ylim(bottom=0.8)
    legend(ax)
    return fig


def tokens_from_afar(runs: list):
    """Tokens a second with weights in memory, foretold and measured with them elsewhere."""
    fig, ax = figure("tokens a second", "", height=2.8, width=8)
    for (label, rows), look in zip(of_kind(runs, "token"), LINES, strict=False):
        rates = [1 / r["token_s"] for r in rows]
        name = f"{rows[0]['model']}, {label}"
        ax.plot(rates, [r["what"] for r in rows], label=name, **look | {"linestyle": ""})
    ax.margins(x=0.2, y=0.3)
    ax.set_xlim(left=0)
    ax.invert_yaxis()
    legend(ax)
    return fig
