"""Figures of chapter 04: what sheets promise, what ranks cards, what an upgrade gives."""

from gpulab_utils.plots.base import LINES, MUTED, figure, legend, rows_of


def promised_and_reached(runs: list):
    """GFLOP/s in fp32, by clock x width or the sheet, and in a matmul: kind "core"."""
    fig, ax = figure("fp32 GFLOP/s", "", height=1.8 + 0.8 * len(runs))
    for i, run in enumerate(runs):
        for row in rows_of(run, "core"):
            bar = ax.barh([run.label], [row["reached"] / 1e9], color=LINES[0]["color"])
            words = "%.0f reached in a matmul"
            ax.bar_label(bar, fmt=words, label_type="center", color="white")
            if row["promised"]:
                at = row["promised"] / 1e9
                told = None if i else "promised: clock x width, or the sheet"
                ax.plot([at, at], [i - 0.4, i + 0.4], color=LINES[1]["color"], label=told)
    ax.margins(x=0.4, y=0.3)
    ax.set_xlim(0, None)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False)
    return fig


def misranked(wrong: dict[str, int], pairs: int):
    """Of `pairs` pairs of cards, how many each number of the sheet ranks wrongly."""
    fig, ax = figure(f"pairs in the wrong order, of {pairs}", "", height=2.8)
    bars = ax.barh(list(wrong), list(wrong.values()), color=LINES[0]["color"])
    ax.bar_label(bars, padding=3)
    ax.invert_yaxis()
    ax.margins(x=0.15)
    return fig


def tokens_by_card(rows: list[dict]):
    """Published tokens/s per card, between what was estimated and the bound.

    `rows`: dicts with `card`, `measured`, `estimate`, `bound`, all tokens/s.
    """
    rows = sorted(rows, key=lambda r: r["measured"])
    fig, ax = figure("tokens/s", "", height=1.6 + 0.32 * len(rows), log="x")
    names, marks = [r["card"] for r in rows], ("measured", "estimate", "bound")
    for line, what in zip(LINES, marks, strict=False):
        look = line | {"linestyle": ""}
        if what == "estimate":
            look |= {"markerfacecolor": "none", "markersize": 9}
        ax.plot([r[what] for r in rows], names, label=what, **look)
    ax.xaxis.set_major_formatter("{x:.0f}")
    ax.xaxis.set_minor_formatter("{x:.0f}")
    ax.legend(loc="lower center", bbox_to_anchor=(0.4, 1), ncols=3, frameon=False)
    return fig


def time_against_room(runs: list):
    """Time of a token, all resident = 1, against the layers that fit: kind "room"."""
    fig, ax = figure("layers that fit", "time of a token, all resident = 1")
    for line, run in zip(LINES, runs, strict=False):
        rows = rows_of(run, "room")
        (resident,) = (r["took_s"] for r in rows if r["room"] == r["layers"])
        took = [r["took_s"] / resident for r in rows]
        ax.plot([r["room"] for r in rows], took, label=run.label, **line)
        ax.axvline(rows[0]["layers"], color=MUTED, linewidth=1)
    ax.set_ylim(0, None)
    legend(ax)
    return fig


def gain_by_job(runs: list):
    """How many times as fast with half the FLOP, and Amdahl's figure: kind "upgrade"."""
    fig, ax = figure("times as fast with twice the FLOP/s", "", height=3)
    for line, run in zip(LINES, runs, strict=False):
        rows, look = rows_of(run, "upgrade"), line | {"linestyle": ""}
        jobs = [r["job"] for r in rows]
        ax.plot([r["gain"] for r in rows], jobs, label=f"measured, {run.label}", **look)
        told = [(r["amdahl"], r["job"]) for r in rows if r["amdahl"]]
        look |= {"markerfacecolor": "none", "markersize": 12}
        ax.plot(*zip(*told, strict=True), label=f"by Amdahl, {run.label}", **look)
    for x in (1, 2):
        ax.axvline(x, color=MUTED, linewidth=1)
    ax.margins(y=0.3)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False)
    return fig
