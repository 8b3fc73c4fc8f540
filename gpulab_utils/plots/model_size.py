"""Figures of chapter 01: bytes a number, bytes a parameter, time a pass."""

from gpulab_utils.plots.base import LINES, MUTED, figure, legend, rows_of
from gpulab_utils.units import BYTES, GB, GIB, MB


def bytes_held(runs: list):
    """Growth of the process against numbers held: points measured, lines the formats."""
    fig, ax = figure("numbers held, millions", "growth of the process, MB")
    for run in runs:
        for line, name in zip(LINES, ("fp32", "bf16", "int8"), strict=False):
            rows = [r for r in rows_of(run, "held") if r["format"] == name]
            millions = [r["params"] / 1e6 for r in rows]
            style = {"color": line["color"], "marker": line["marker"], "linestyle": "none"}
            told = f"{name}, {run.label}"
            ax.plot(millions, [r["bytes"] / MB for r in rows], label=told, **style)
            ax.plot([0, max(millions)], [0, max(millions) * BYTES[name]], color=MUTED)
    ax.plot([], [], color=MUTED, label="4, 2 and 1 bytes a number")
    ax.set(xlim=(0, None), ylim=(0, None))
    legend(ax)
    return fig


def bytes_per_parameter(runs: list):
    """What one parameter holds: running in 16 bit, and after one step of Adam, measured."""
    fig, ax = figure("bytes per parameter", "", height=1.6 + 0.7 * len(runs))
    ax.barh(["running in bf16"], [2], color=MUTED)
    for run in runs:
        (row,), left = rows_of(run, "states"), 0
        for line, (what, n) in zip(LINES, row["states"].items(), strict=False):
            wide = n / row["params"]
            told = what if run is runs[0] else None
            place = f"one training step,\n{run.label}"
            ax.barh([place], [wide], left=left, color=line["color"], label=told)
            ax.text(
                left + wide / 2,
                place,
                f"{wide:.0f}",
                color="white",
                ha="center",
                va="center",
            )
            left += wide
    ax.set_xlim(0, 18)
    ax.invert_yaxis()
    ax.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False)
    return fig


def passes_against_bytes(runs: list):
    """Time of a pass through linears against the bytes of their weights, and the floor."""
    fig, ax = figure("bytes of weights, MB", "time of a pass, ms")
    for line, run in zip(LINES, runs, strict=False):
        read, *passes = rows_of(run, "time")
        mb = [row["bytes_read"] / MB for row in passes]
        ms = [row["wall_s"] * 1e3 for row in passes]
        ax.plot(mb, ms, label=f"passes, {run.label}", **line)
        rate = read["bytes_read"] / read["wall_s"]
        floor = [1e3 * row["bytes_read"] / rate for row in passes]
        told = f"floor at the {rate / GB:,.0f} GB/s read there"
        ax.plot(mb, floor, color=MUTED, linestyle=line["linestyle"], label=told)
    ax.set(xlim=(0, None), ylim=(0, None))
    legend(ax)
    return fig


def bytes_by_format(model: str, formats: list[str], cards: list[str]):
    """Bytes of the weights of `model` in each format, against what cards can hold."""
    from gpulab_utils.cards import CARDS
    from gpulab_utils.plan import plan

    fig, ax = figure("GiB", "", height=1.4 + 0.45 * len(formats))
    gib = [plan(model, weights=f, seq=0).terms["weights"] / GIB for f in formats]
    bars = ax.barh(formats, gib, color=LINES[0]["color"])
    ax.bar_label(bars, fmt="%.2f", padding=3)
    for line, name in zip(LINES[1:], cards, strict=False):
        room = CARDS[name].usable_bytes() / GIB
        style = {"color": line["color"], "linestyle": line["linestyle"]}
        ax.axvline(room, label=f"{CARDS[name].name}, beside a desktop", **style)
    ax.set_xlim(0, 1.12 * max(gib))
    ax.invert_yaxis()
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, frameon=False)
    return fig
