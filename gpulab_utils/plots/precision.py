"""Figures of few bits: rates by format, errors, lost gradients, losses, bytes of a step.

Each takes recordings and draws the rows of one `kind`.
"""

from math import log2

from gpulab_utils.numerics.formats import FORMATS
from gpulab_utils.plots.base import LINES, MUTED, figure, legend, of_kind


def rate_by_side(runs: list):
    """GFLOP/s of square products against their side, a line a dtype."""
    fig, ax = figure("side of the matrices", "GFLOP/s", log="xy", width=8)
    looks = iter(2 * LINES)
    for label, rows in of_kind(runs, "rate"):
        for dtype in dict.fromkeys(r["dtype"] for r in rows):
            some = [r for r in rows if r["dtype"] == dtype]
            rates = [r["flop_per_s"] / 1e9 for r in some]
            ax.plot([r["n"] for r in some], rates, label=f"{dtype}, {label}", **next(looks))
    ax.set_xscale("log", base=2)
    legend(ax)
    return fig


def gain_of_unit(runs: list):
    """fp32 time over 16-bit time by rows: with the unit, without it, as stated."""
    fig, ax = figure("times as fast as fp32", "", height=3, width=8)
    looks = iter(2 * LINES)
    for label, rows in of_kind(runs, "unit"):
        names = [f"{r['rows']} row{'s' * (r['rows'] > 1)}" for r in rows]
        plain, other = (next(looks) | {"linestyle": ""} for _ in range(2))
        ax.plot([r["gain"] for r in rows], names, label=f"16 bit, {label}", **plain)
        off = [(r["without"], n) for r, n in zip(rows, names, strict=True) if r["without"]]
        if off:
            ax.plot(*zip(*off, strict=True), label="16 bit without the unit", **other)
        if stated := rows[0]["predicted"]:
            ax.axvline(stated, color=MUTED, linestyle="--", label="the unit, as stated")
    ax.axvline(1, color=MUTED, linewidth=1)
    ax.margins(y=0.4)
    ax.invert_yaxis()
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return fig


def error_by_format(runs: list):
    """Relative error of a product against float64, measured and predicted, by format."""
    fig, ax = figure("relative error of the product", "", log="x", height=4, width=8)
    for (label, rows), look in zip(of_kind(runs, "error"), LINES, strict=False):
        names, plain = [r["name"] for r in rows], look | {"linestyle": ""}
        ax.plot([r["measured"] for r in rows], names, label=f"measured, {label}", **plain)
        open_ = {"marker": "|", "markersize": 16, "linestyle": "", "color": MUTED}
        told = [(r["predicted"], r["name"]) for r in rows if r["predicted"]]
        ax.plot(*zip(*told, strict=True), label="predicted from the mantissa", **open_)
    ax.invert_yaxis()
    ax.legend(loc="center left", frameon=False)  # left of what few bits err
    return fig


def gradient_exponents(runs: list):
    """How large gradients are: their share by power of two, and where formats end."""
    fig, ax = figure("gradient (power of two)", "share of the values (%)", width=8)
    for (label, rows), look in zip(of_kind(runs, "exponents"), LINES, strict=False):
        x = [r["exponent"] for r in rows]
        ax.plot(x, [100 * r["share"] for r in rows], label=label, **look)
    for name, dash in ("fp16", "--"), ("e5m2", ":"), ("e4m3", "-."):
        least = FORMATS[name].smallest / 2
        ax.axvline(log2(least), color=MUTED, linestyle=dash, label=f"{name} rounds to 0")
    ax.set_xlim(-45, 0)
    legend(ax)
    return fig


def lost_by_scale(runs: list):
    """Share of gradients that become zero in fp16 against the scale of the loss."""
    fig, ax = figure("loss scale (power of two)", "gradients lost (%)", log="y", width=8)
    for (label, rows), look in zip(of_kind(runs, "lost"), LINES, strict=False):
        x = [r["log2_scale"] for r in rows]
        line = {"color": MUTED, "linestyle": "--"}
        ax.plot(x, [100 * r["predicted"] for r in rows], label="from fp32", **line)
        plain = look | {"linestyle": ""}
        ax.plot(x, [100 * r["measured"] for r in rows], label=f"in fp16, {label}", **plain)
        ax.axhline(100 * rows[0]["bf16"], color=MUTED, linestyle=":", label="in bf16")
    legend(ax)
    return fig


def loss_by_recipe(runs: list):
    """Loss against the step for each way of using 16 bit; a cross where it stopped."""
    fig, ax = figure("step", "loss (nats a byte)", width=8)
    looks = iter(2 * LINES)
    for label, rows in of_kind(runs, "loss"):
        for i, row in enumerate(rows):  # the curves lie on each other: markers take turns
            apart = {"markevery": (i, len(rows)) if len(row["losses"]) > i else 1}
            look, name = next(looks) | apart, f"{row['recipe']}, {label}"
            ax.plot(range(len(row["losses"])), row["losses"], label=name, **look)
            if row["broke"]:
                last = len(row["losses"]) - 1
                ax.plot(last, row["losses"][-1], "x", color="#000000", markersize=12)
    legend(ax)
    return fig


PARTS = ("parameters", "gradients", "optimizer", "rest")


def bytes_of_step(runs: list):
    """Peak bytes of a training step for each parameter, by what they are."""
    fig, ax = figure("bytes a parameter at the peak", "", height=3.6, width=8)
    hatches = ("", "//", "..", "xx")
    for label, rows in of_kind(runs, "step_bytes")[:1]:
        names = [f"{r['how']}, {r['tokens']:,} tokens" for r in rows]
        left = [0.0] * len(rows)
        for part, look, hatch in zip(PARTS, LINES, hatches, strict=False):
            width = [r[part] / r["n_params"] for r in rows]
            style = {"color": look["color"], "hatch": hatch, "edgecolor": "white"}
            ax.barh(names, width, left=left, label=part, **style)
            left = [a + b for a, b in zip(left, width, strict=True)]
        ax.set_title(label, fontsize=10)
    ax.invert_yaxis()
    legend(ax)
    return fig


def gain_of_steps(runs: list):
    """How many times as fast a step is in mixed precision, measured and predicted."""
    fig, ax = figure("times as fast in mixed precision", "", height=3, width=8)
    looks = iter(LINES)
    for label, rows in of_kind(runs, "step_gain"):
        plain = next(looks) | {"linestyle": ""}
        jobs = [r["job"] for r in rows]
        ax.plot([r["gain"] for r in rows], jobs, label=f"measured, {label}", **plain)
        told = [(r["predicted"], r["job"]) for r in rows if r["predicted"]]
        open_ = {"marker": "|", "markersize": 18, "linestyle": "", "color": MUTED}
        ax.plot(*zip(*told, strict=True), label="predicted", **open_)
    ax.axvline(1, color=MUTED, linewidth=1)
    ax.margins(y=0.4)
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return fig
