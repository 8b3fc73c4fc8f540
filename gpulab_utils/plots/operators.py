"""Figures of operators: what fusing saves, when a compile has paid, attention, rounding.

Each takes recordings and draws the rows of one `kind`; `ValueError` where there are none.
"""

from gpulab_utils.plots.base import LINES, MUTED, figure, legend

COUNTS = {"predicted": "by bytes", "predicted_by_lines": "a store reads its line first"}


def _rows(runs: list, kind: str) -> list[tuple[str, list[dict]]]:
    """(device, rows of that kind) of the runs that have any."""
    found = [(run.label, [r for r in run.rows if r.get("kind") == kind]) for run in runs]
    found = [(label, rows) for label, rows in found if rows]
    if not found:
        raise ValueError(f"no rows of kind {kind!r}: record the lab that measures them")
    return found


def gain_against_size(runs: list):
    """How many times as fast a fused chain is, in place and with new memory a step."""
    fig, ax = figure(
        "bytes of the input", "times as long without fusing", log="xy", width=8
    )
    looks = iter(LINES)
    for label, rows in _rows(runs, "fused"):
        x = [r["bytes"] for r in rows]
        for what, name in ("fresh", "new memory a step"), ("in_place", "in place"):
            gains = [r[f"{what}_s"] / r[f"fused_{what}_s"] for r in rows]
            ax.plot(x, gains, label=f"{name}, {label}", **next(looks))
    for field, name in COUNTS.items():
        ax.axhline(rows[0][field], color=MUTED, linewidth=1)
        ax.annotate(name, (x[0], rows[0][field]), va="bottom", color=MUTED)
    ax.axhline(1, color=MUTED, linewidth=1)
    legend(ax)
    return fig


def calls_to_pay_back(runs: list):
    """After how many calls the compile has paid, where a call gains at all."""
    fig, ax = figure("bytes of the input", "calls until it has paid", log="xy", width=8)
    for (label, rows), look in zip(_rows(runs, "fused"), LINES, strict=False):
        paid = [r for r in rows if r["calls"]]
        ax.plot([r["bytes"] for r in paid], [r["calls"] for r in paid], label=label, **look)
    legend(ax)
    return fig


def use_of_peak(runs: list):
    """Share of this machine's own matmul rate that a loop and one call reach."""
    fig, ax = figure(
        "share of the rate of a large matmul", "", log="x", height=2.6, width=8
    )
    for (label, rows), look in zip(_rows(runs, "loop"), LINES, strict=False):
        names = [r["what"] for r in rows]
        ax.plot([r["share"] for r in rows], names, label=label, **look | {"linestyle": ""})
    ax.axvline(1, color=MUTED, linewidth=1)
    ax.margins(y=0.4)
    _legend_above(ax)
    return fig


def error_by_kernel(runs: list):
    """Relative error against float64 of one formula, written three ways, by dtype."""
    fig, ax = figure("relative error", "", log="x", height=3.2, width=8)
    looks = iter(LINES)
    for label, rows in _rows(runs, "rounding"):
        names = [r["dtype"] for r in rows]
        for way in "eager", "kernel", "library":
            errors = [r[way] for r in rows]
            ax.plot(
                errors, names, label=f"{way}, {label}", **next(looks) | {"linestyle": ""}
            )
    ax.margins(y=0.4)
    _legend_above(ax)
    return fig


def _legend_above(ax) -> None:
    """Beside a row its markers would look like data."""
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False)


def attention_bytes(runs: list):
    """Peak bytes of attention against the length, and the scores alone as thin lines."""
    return _attention(runs, "peak_bytes", 1e6, "most bytes alive (MB)")


def attention_time(runs: list):
    """Milliseconds of attention against the length."""
    return _attention(runs, "took_s", 1e-3, "time (ms)")


def _attention(runs: list, what: str, unit: float, ylabel: str):
    fig, ax = figure("length (tokens)", ylabel, log="xy", width=8)
    looks = iter(LINES)
    for label, rows in _rows(runs, "attention"):
        for way in "scores written out", "scores kept inside":
            mine = [r for r in rows if r["way"] == way]
            x = [r["length"] for r in mine]
            look = next(looks)
            ax.plot(x, [r[what] / unit for r in mine], label=f"{way}, {label}", **look)
            if what == "peak_bytes":
                told = [r["predicted_bytes"] / unit for r in mine]
                ax.plot(x, told, color=look["color"], linewidth=1)
    ax.set_xscale("log", base=2)
    legend(ax)
    return fig
