"""Figures of chapter 11: without a library, by layout, all-reduce, and a second process.

Each takes recordings and draws the rows of one `kind`; `ValueError` where there is none.
"""

from gpulab_utils.plots.base import LINES, MUTED, figure, legend


def _of_kind(runs: list, kind: str) -> list[tuple[str, list[dict]]]:
    """(device, rows of that kind) of the runs that have any."""
    found = [(run.label, [r for r in run.rows if r.get("kind") == kind]) for run in runs]
    if not any(rows for _, rows in found):
        raise ValueError(f"no row of kind {kind!r} in {[run.label for run in runs]}")
    return [(label, rows) for label, rows in found if rows]


def _points(ax, rows: list[dict], key: str, label: str, look: dict) -> None:
    names = [r["what"] for r in rows]
    ax.plot([r[key] for r in rows], names, label=label, **look | {"linestyle": ""})


def times_without_library(runs: list):
    """How many times as long each layer takes with cuDNN or oneDNN switched off."""
    fig, ax = figure("times as long without the library", "", log="x", height=3.2, width=8)
    for (label, rows), look in zip(_of_kind(runs, "library"), LINES, strict=False):
        _points(ax, rows, "times", label, look)
    _plain_ticks(ax, [0.5, 1, 2, 4, 8, 16])
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
    return fig


def times_by_layout(runs: list):
    """Each layer in channels-last, kept or converted there and back, over the usual."""
    fig, ax = figure(
        "times as long as in the usual order", "", log="x", height=3.2, width=8
    )
    looks = iter(LINES)
    for label, rows in _of_kind(runs, "layout"):
        _points(ax, rows, "stays", f"stays, {label}", next(looks))
        look = next(looks) | {"markerfacecolor": "white"}
        _points(ax, rows, "converts", f"converts, {label}", look)
    _plain_ticks(ax, [0.1, 0.2, 0.5, 1, 2, 4])
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
    return fig


def time_of_all_reduce(runs: list):
    """Milliseconds of an all-reduce against its bytes; filled points made the line."""
    fig, ax = figure("bytes of the tensor (KiB)", "time (ms)", log="xy", width=8)
    roads = dict(_of_kind(runs, "road"))
    for (label, rows), look in zip(_of_kind(runs, "all-reduce"), LINES, strict=False):
        road, plain = roads[label][0], look | {"linestyle": ""}
        name = f"{road['ranks']} ranks, {road['backend']}, {label}"
        x = [r["bytes"] for r in rows]
        line = [1e3 * (road["latency_s"] + n / road["bytes_per_s"]) for n in x]
        ax.plot([n / 1024 for n in x], line, color=look["color"], linewidth=1)
        for fitted, face in ((True, look["color"]), (False, "white")):
            seen = [r for r in rows if r["fitted"] == fitted]
            word = "made the line" if fitted else "predicted by it"
            ax.plot(
                [r["bytes"] / 1024 for r in seen],
                [1e3 * r["seconds"] for r in seen],
                label=f"{word}: {name}",
                **plain | {"markerfacecolor": face},
            )
    legend(ax)
    return fig


def gain_of_two_processes(runs: list):
    """One process over two (or over its own two threads), against the tokens of each."""
    fig, ax = figure(
        "tokens of each process", "times as fast as one process", log="x", width=8
    )
    looks = iter(LINES)
    for label, rows in _of_kind(runs, "step"):
        x = [r["tokens"] for r in rows]
        drawn = {
            "two processes": "together",
            "predicted": "foretold",
            "two threads": "threads",
        }
        for name, way in drawn.items():
            y = [r["double"] / r[way] for r in rows]
            ax.plot(x, y, label=f"{name}, {label}", **next(looks))
    ax.axhline(1, color=MUTED, linewidth=1)
    ax.set_xscale("log", base=2)
    ax.set_xticks(x, [str(n) for n in x])
    ax.set_ylim(0)
    legend(ax)
    return fig


def _plain_ticks(ax, ticks: list[float]) -> None:
    ax.axvline(1, color=MUTED, linewidth=1)
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.margins(y=0.2)
