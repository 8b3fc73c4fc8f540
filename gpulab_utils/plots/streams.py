"""Figures of overlap: a timeline of engines or threads, and the gain against the chunks."""

from gpulab_utils.plots.base import LINES, MUTED, figure, legend, of_kind

HATCHES = ("", "//", "..", "xx")


def timeline(runs: list):
    """What ran when, a bar each: rows of kind "span", a group of lanes for each case."""
    groups = []  # (case, spans)
    for label, rows in of_kind(runs, "span"):
        for case in dict.fromkeys(r["case"] for r in rows):
            spans = [r for r in rows if r["case"] == case]
            known = "predicted" in case and any(case == c for c, _ in groups)
            if not known:  # a prediction is the same on every machine
                title = case if "predicted" in case else f"{case}, {label}"
                groups.append((title, spans))
    lanes = [(title, lane) for title, spans in groups for lane in _lanes(spans)]
    height = 1.2 + 0.36 * len(lanes) + 0.25 * len(groups)
    fig, ax = figure(
        "time (1 is everything one after the other)", "", height=height, width=8
    )
    looks = {
        w: i for i, w in enumerate(dict.fromkeys(r["what"] for _, s in groups for r in s))
    }
    places, y = [], 0.0
    for title, spans in groups:
        ax.annotate(title, (0, y - 0.75), fontsize=10, fontweight="bold", color=MUTED)
        for lane in _lanes(spans):
            places.append((y, lane))
            _bars(ax, [r for r in spans if r["lane"] == lane], y, looks)
            y += 1
        y += 1
    _name_lanes(ax, places, looks)
    return fig


def _lanes(spans: list[dict]) -> list[str]:
    return list(dict.fromkeys(r["lane"] for r in spans))


def _bars(ax, spans: list[dict], y: float, looks: dict) -> None:
    for r in spans:
        i = looks[r["what"]]
        box = [(r["start"], r["end"] - r["start"])]
        color, hatch = LINES[i % len(LINES)]["color"], HATCHES[i % len(HATCHES)]
        ax.broken_barh(
            box, (y - 0.38, 0.76), facecolor=color, hatch=hatch, edgecolor="white"
        )


def _name_lanes(ax, places: list, looks: dict) -> None:
    ax.set_yticks([y for y, _ in places], [lane for _, lane in places])
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    for what, i in looks.items():
        color, hatch = LINES[i % len(LINES)]["color"], HATCHES[i % len(HATCHES)]
        ax.bar(0, 0, color=color, hatch=hatch, edgecolor="white", label=what)
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)


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
    legend(ax)
    return fig
