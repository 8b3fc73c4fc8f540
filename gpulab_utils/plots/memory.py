"""Figures of memory: a step's bytes over time, plans met, bytes against time, traces.

Each takes recordings and draws the rows of one `kind`; `ValueError` where there are none.
"""

from gpulab_utils.plots.base import LINES, MUTED, figure, legend, of_kind

HATCHES = ("", "///", "...", "", "xxx")
NAMES = ("weights", "optimizer states", "gradients", "born in forward", "born later")


def bytes_over_step(runs: list, way: str = "plain"):
    """Bytes alive by kind while a step runs, rows of kind "timeline": the first device."""
    label, rows = of_kind(runs, "timeline")[0]
    (row,) = [r for r in rows if r["way"] == way]
    fig, ax = figure("events of the step", "MB alive", width=8, height=3.6)
    x, stack = row["at"], [[b / 1e6 for b in kind] for kind in row["alive"]]
    colours = [look["color"] for look in LINES]
    areas = ax.stackplot(x, *stack, labels=NAMES, colors=colours, alpha=0.75, step="post")
    for area, hatch in zip(areas, HATCHES, strict=False):
        area.set(hatch=hatch, edgecolor="white", linewidth=0)
    top = 1.12 * max(map(sum, zip(*stack, strict=True)))
    for phase, at in row["begins"]:
        ax.axvline(at, color=MUTED, linewidth=1, linestyle=":")
        beside = {"xytext": (3, 0), "textcoords": "offset points"}
        ax.annotate(phase, (at, top), color=MUTED, va="top", fontsize=9, **beside)
    ax.set(ylim=(0, top), xlim=(0, x[-1]), title=f"{way}, {label}")
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(
        handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1, 1), frameon=False
    )
    return fig


def plans_met(runs: list):
    """Peak of a step by way, measured, and what the planner said: rows of kind "way"."""
    fig, ax = figure("peak of a step (MB)", "", width=8, height=4)
    for (label, rows), look in zip(of_kind(runs, "way"), LINES, strict=False):
        names = [r["way"] for r in rows]
        plain = look | {"linestyle": ""}
        ax.plot([r["peak"] / 1e6 for r in rows], names, label=f"measured, {label}", **plain)
        told = [r["planned"] / 1e6 for r in rows]
        tick = {"marker": "|", "markersize": 16, "linestyle": "", "color": MUTED}
        ax.plot(told, names, label="planned", **tick)
    ax.invert_yaxis()
    ax.set_xlim(left=0)
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return fig


def memory_time_plane(runs: list):
    """Bytes and time of each technique against its base, rows of kind "plane".

    Points are numbered, since some lie close; the legend has the numbers.
    """
    fig, ax = figure(
        "bytes, times those of the base", "time, times the base", width=8, height=5
    )
    numbers: dict[str, int] = {}
    for (label, rows), look in zip(of_kind(runs, "plane"), LINES, strict=False):
        x, y = [r["bytes_ratio"] for r in rows], [r["time_ratio"] for r in rows]
        plain = look | {"linestyle": "", "marker": "o", "markersize": 13}
        ax.plot(x, y, label=label, **plain)
        for r in rows:
            number = numbers.setdefault(r["way"], len(numbers) + 1)
            ax.annotate(
                number, (r["bytes_ratio"], r["time_ratio"]), color="white", fontsize=8,
                ha="center", va="center_baseline",
            )  # fmt: skip
    for way, number in numbers.items():
        ax.plot([], [], linestyle="", label=f"{number}  {way}")
    ax.axvline(1, color=MUTED, linewidth=1)
    ax.axhline(1, color=MUTED, linewidth=1)
    ax.margins(x=0.15, y=0.12)
    legend(ax)
    return fig


def peak_by_segment(runs: list):
    """Peak against the layers in a checkpoint, measured and planned, kind "segment"."""
    fig, ax = figure("layers in a checkpoint", "peak of a step (MB)", log="x", width=8)
    for (label, rows), look in zip(of_kind(runs, "segment"), LINES, strict=False):
        x = [r["every"] for r in rows]
        told = [r["planned"] / 1e6 for r in rows]
        ax.plot(x, told, color=MUTED, linestyle="--", label="planned")
        plain = look | {"linestyle": ""}
        ax.plot(x, [r["peak"] / 1e6 for r in rows], label=f"measured, {label}", **plain)
        ax.axhline(rows[0]["without"] / 1e6, color=MUTED, linewidth=1)
        ax.annotate(
            "no checkpoint", (x[0], rows[0]["without"] / 1e6), va="bottom", color=MUTED
        )
    ax.set_xscale("log", base=2)
    ax.set_ylim(bottom=0)
    legend(ax)
    return fig


def trace_until_death(runs: list):
    """Bytes allocated and reserved over a replayed trace, rows of kind "replay"."""
    fig, ax = figure("requests and frees", "GiB", width=8)
    _, rows = of_kind(runs, "replay")[0]
    for row, look in zip(rows, LINES, strict=False):
        plain = look | {"marker": ""}
        x = row["at"]
        ax.plot(
            x,
            [b / 2**30 for b in row["reserved"]],
            label=f"reserved, {row['conf']}",
            **plain,
        )
        if row["oom"]:
            ax.plot(x[-1:], [row["reserved"][-1] / 2**30], color=look["color"], marker="X",
                    markersize=12, linestyle="", label="out of memory")  # fmt: skip
    ax.plot(x, [b / 2**30 for b in row["allocated"]], color=MUTED, label="allocated")
    ax.axhline(row["capacity"] / 2**30, color=MUTED, linewidth=1)
    legend(ax)
    return fig


def room_for_requests(runs: list):
    """How full memory is when a request finds no room, and how often it is in pieces."""
    fig, ax = figure("percent", "", width=8, height=3)
    _, rows = of_kind(runs, "churn")[0]
    names = [r["layout"] for r in rows]
    first, second = (look | {"linestyle": ""} for look in LINES[:2])
    ax.plot(
        [100 * r["used"] for r in rows],
        names,
        label="of memory in use at a refusal",
        **first,
    )
    shares = [100 * r["although_enough"] / r["failures"] for r in rows]
    ax.plot(shares, names, label="of refusals with enough free", **second)
    ax.set_xlim(-3, 103)
    ax.margins(y=0.3)
    ax.invert_yaxis()
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return fig
