"""Figures of overlap: a timeline of engines or threads, and the gain against the chunks."""

from gpulab_utils.plots.base import LINES, MUTED, figure, legend, of_kind

KINDS = {  # colour and hatch of each kind of work
    "copy": (LINES[1]["color"], "//"),
    "work": (LINES[0]["color"], ""),
    "copy back": (LINES[2]["color"], ".."),
}


def timeline(runs: list):
    """What ran when, a bar each: rows of kind "span", a group of lanes for each case."""
    groups = {}  # title: spans; a prediction is the same on every machine
    for label, rows in of_kind(runs, "span"):
        for row in rows:
            case = row["case"]
            title = case if case.startswith("predicted") else f"{case}, {label}"
            groups.setdefault(title, {})[tuple(sorted(row.items()))] = row
    groups = {title: list(spans.values()) for title, spans in groups.items()}
    height = 1.2 + sum(0.4 * (len(_lanes(spans)) + 1) for spans in groups.values())
    fig, ax = figure(
        "time (1 is everything one after the other)", "", height=height, width=8
    )
    places, y = [], 0.0
    for title, spans in groups.items():
        ax.annotate(title, (0, y - 0.6), fontsize=10, fontweight="bold", color=MUTED)
        for lane in _lanes(spans):
            places.append((y, lane))
            _bars(ax, [r for r in spans if r["lane"] == lane], y)
            y += 1
        y += 1
    ax.set_yticks([y for y, _ in places], [lane for _, lane in places])
    ax.set(ylim=(y - 1.4, -1.2), xlim=(0, None))
    ax.grid(axis="y", visible=False)
    _legend_once(ax)
    return fig


def _lanes(spans: list[dict]) -> list[str]:
    return list(dict.fromkeys(r["lane"] for r in spans))


def _bars(ax, spans: list[dict], y: float) -> None:
    for r in spans:
        color, hatch = KINDS[r["what"]]
        box = [(r["start"], r["end"] - r["start"])]
        look = {"facecolor": color, "hatch": hatch, "edgecolor": "white"}
        ax.broken_barh(box, (y - 0.38, 0.76), label=r["what"], **look)


def _legend_once(ax) -> None:
    handles, labels = ax.get_legend_handles_labels()
    first = dict(zip(reversed(list(labels)), reversed(list(handles)), strict=True))
    kinds = [kind for kind in KINDS if kind in first]
    ax.legend(
        [first[k] for k in kinds],
        kinds,
        loc="upper left",
        bbox_to_anchor=(1, 1),
        frameon=False,
    )


def gain_against_chunks(runs: list):
    """Times as fast as one after the other, measured over the law: rows of kind "gain"."""
    fig, ax = figure("chunks", "times as fast as one after the other", width=8)
    looks = iter(LINES)
    for label, rows in of_kind(runs, "gain"):
        for stages in dict.fromkeys(r["stages"] for r in rows):
            mine, look = [r for r in rows if r["stages"] == stages], next(looks)
            x, color = [r["chunks"] for r in mine], look["color"]
            ax.plot(
                x,
                [r["law"] for r in mine],
                color=color,
                linewidth=1,
                label=f"law, {stages}",
            )
            points = look | {"linestyle": ""}
            ax.plot(x, [r["gain"] for r in mine], label=f"{stages}, {label}", **points)
            walls = [(r["chunks"], r["wall_gain"]) for r in mine if r.get("wall_gain")]
            if walls:
                hollow = points | {"markerfacecolor": "white"}
                ax.plot(*zip(*walls, strict=True), label="the same, host clock", **hollow)
    ax.axhline(1, color=MUTED, linewidth=1)
    ax.set_xscale("log", base=2)
    ticks = sorted({r["chunks"] for _, rows in of_kind(runs, "gain") for r in rows})
    ax.set_xticks(ticks, [str(n) for n in ticks])
    legend(ax)
    return fig
