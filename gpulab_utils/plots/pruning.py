"""Figures of pruning: what shrinks, when a format pays, quality against size, recovery.

Each takes recordings and draws the rows of one `kind`; `ValueError` where there are none.
"""

from gpulab_utils.plots.base import LINES, MUTED, figure, legend, of_kind

COUNTED = {"values": "weights", "flop": "operations", "bytes": "bytes", "time": "time"}


def what_shrinks(runs: list):
    """Weights, operations, bytes and time of each variant over those of the whole."""
    found = of_kind(runs, "variant")
    height = 1 + 0.62 * len(found) * len(found[0][1])
    fig, ax = figure("share of the dense model", "", height=height, width=8)
    names = []
    for label, rows in found:
        for row in rows:
            place = -len(names)
            for (field, name), look in zip(COUNTED.items(), LINES, strict=False):
                text = name if not names else None
                low = place + 0.24 - 0.16 * list(COUNTED).index(field)
                ax.plot(row[field], low, label=text, **look | {"linestyle": ""})
            names.append(f"{row['what']}\n{label}")
    ax.set_yticks([-i for i in range(len(names))], names, fontsize=8)
    ax.axvline(1, color=MUTED, linewidth=1)
    ax.set_xscale("log")
    ax.set_xticks([0.25, 0.5, 1, 2, 4], ["1/4", "1/2", "1", "2", "4"])
    ax.minorticks_off()
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False, ncols=4)
    return fig


def csr_against_dense(runs: list):
    """Time of a product in CSR, and its bytes, over dense against the share left."""
    fig, ax = figure("share of the weights left", "CSR over dense", log="xy", width=8)
    looks = iter(LINES)
    for label, rows in of_kind(runs, "csr"):
        for columns in sorted({r["columns"] for r in rows}):
            mine = [r for r in rows if r["columns"] == columns]
            x, y = [r["left"] for r in mine], [r["time"] for r in mine]
            what = "one column" if columns == 1 else f"{columns} columns"
            ax.plot(x, y, label=f"time, {what}, {label}", **next(looks))
    ax.plot(x, [r["bytes"] for r in mine], color=MUTED, label="bytes")
    ax.axhline(1, color=MUTED, linewidth=1)
    _plain(ax.xaxis)
    _plain(ax.yaxis)
    legend(ax)
    return fig


def _plain(axis) -> None:
    """Shares as 0.05, not as a power of ten."""
    axis.set_major_formatter("{x:g}")


def quality_against_size(runs: list):
    """Perplexity of each variant against the share of its bytes, a mark for each family."""
    fig, ax = figure("share of the bytes left", "perplexity", log="y", width=8)
    looks = iter(LINES)
    for label, rows in of_kind(runs, "quality"):
        whole = next(r for r in rows if r["family"] == "as loaded")
        ax.axhline(whole["perplexity"], color=MUTED, linewidth=1)
        ax.annotate(
            f"as loaded, {label}", (0.72, whole["perplexity"]), va="top", color=MUTED
        )
        for family in dict.fromkeys(r["family"] for r in rows if r is not whole):
            mine = sorted(
                (r for r in rows if r["family"] == family),
                key=lambda r: (r["left"], r["perplexity"]),
            )
            x, y = [r["left"] for r in mine], [r["perplexity"] for r in mine]
            look = next(looks, LINES[-1])
            joined = look if len(set(x)) > 1 else look | {"linestyle": ""}
            ax.plot(x, y, label=family, **joined)
    ax.set_ylim(top=4e6)  # beyond it there is no model left to speak of
    _plain(ax.yaxis)
    legend(ax)
    return fig


def quality_by_layer(runs: list):
    """Perplexity without each layer in turn."""
    fig, ax = figure("layer that is taken out", "perplexity without it", log="y", width=8)
    for (label, rows), look in zip(of_kind(runs, "without"), LINES, strict=False):
        mine = sorted(rows, key=lambda r: r["layer"])
        x, y = [r["layer"] for r in mine], [r["perplexity"] for r in mine]
        ax.plot(x, y, label=label, **look)
    _plain(ax.yaxis)
    legend(ax)
    return fig


def recovery(runs: list):
    """Perplexity before and after the same training, a row for each arm; a dot a seed."""
    found = of_kind(runs, "recovery")
    arms = list(dict.fromkeys(r["arm"] for _, rows in found for r in rows))
    fig, ax = figure("perplexity", "", height=1.6 + 0.5 * len(arms), width=8)
    for (label, rows), look in zip(found, LINES, strict=False):
        for at, arm in enumerate(arms):
            for i, row in enumerate(r for r in rows if r["arm"] == arm):
                ends, text = [row["before"], row["after"]], None if at or i else label
                ax.plot(ends, [-at, -at], color=look["color"], linewidth=1)
                ax.plot(ends[0], -at, color=look["color"], marker="|", markersize=12)
                ax.plot(ends[1], -at, label=text, **look | {"linestyle": ""})
    ax.set_yticks([-i for i in range(len(arms))], arms)
    ax.margins(y=0.3)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
    return fig
