"""What techniques give and take: bytes against time, where quality is lost marked."""

from gpulab_utils.plots.base import LINES, MUTED, figure, of_kind
from gpulab_utils.techniques import gives, lost

SAME, WORSE = 0.005, 0.05  # of perplexity: no change to speak of, and more than a little


def look(r: dict) -> dict:
    """A circle where nothing is lost, a triangle for a little, a square for more."""
    grade = (lost(r) > SAME) + (lost(r) > WORSE)
    colour, marker = (LINES[k]["color"] for k in (2, 0, 1)), ("o", "^", "s")
    return {"color": list(colour)[grade], "marker": marker[grade], "linestyle": ""}


GRADES = ("quality stays", "a little is lost", "more is lost")


def bytes_against_time(runs: list, use: str):
    """Rows of kind "technique" of one use on the first device that has any, numbered.

    Left and below the lines is less than the base. Without a time: on the rim, hollow.
    `ValueError` where no recording has such a row.
    """
    mine = ((label, [r for r in rows if r["use"] == use])
            for label, rows in of_kind(runs, "technique"))  # fmt: skip
    label, rows = next(((name, found) for name, found in mine if found), ("", []))
    if not rows:
        raise ValueError(f"no technique row for {use!r} to draw")
    fig, ax = figure(
        "bytes, times those of the base",
        "time, times the base",
        log="y",
        width=9,
        height=5.5,
    )
    ax.axvline(1, color=MUTED, linewidth=1)
    ax.axhline(1, color=MUTED, linewidth=1)
    times = [r["time_ratio"] for r in rows if r["time_ratio"]] or [1]
    rim = min(*times, 1) / 1.6
    names = []
    for number, r in enumerate(sorted(rows, key=gives), 1):
        at = r["bytes_ratio"], r["time_ratio"] or rim
        fill = "full" if r["time_ratio"] else "none"
        ax.plot(*at, markersize=8, fillstyle=fill, **look(r))
        place = (6, 4) if number % 2 else (-8, -12)
        ax.annotate(str(number), at, xytext=place, textcoords="offset points", fontsize=9)
        names.append(f"{number}  {r['technique']}{'' if r['time_ratio'] else ' (no time)'}")
    ax.set_title(f"{use}, {label}", fontsize=11)
    ax.margins(0.12)
    _ticks(ax)
    _keys(ax, rows)
    ax.text(1.03, 0.98, "\n".join(names), transform=ax.transAxes, va="top", fontsize=9)
    return fig


def _ticks(ax) -> None:
    """Plain numbers of time: 0.5, not 5 x 10^-1; bytes from nothing on."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    ax.set_xlim(left=0)
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    ax.yaxis.set_minor_formatter(FuncFormatter(lambda v, _: ""))


def _keys(ax, rows: list) -> None:
    """The grades that occur, below the axes."""
    seen = {}
    for r in rows:
        grade = (lost(r) > SAME) + (lost(r) > WORSE)
        seen[grade] = look(r)
    for grade in sorted(seen):
        ax.plot([], [], label=GRADES[grade], **seen[grade])
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, frameon=False)
