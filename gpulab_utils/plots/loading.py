"""Figures of loading: an epoch against workers, images a second, what a batch shares."""

from gpulab_utils.plots.base import LINES, MUTED, figure, legend, of_kind


def epoch_by_workers(runs: list):
    """Milliseconds of four batches against workers: measured, and a thin line predicted."""
    fig, ax = figure("workers", "time of four batches (ms)", width=8)
    looks = iter(LINES)
    for label, rows in of_kind(runs, "prefetch"):
        for step_ms in sorted({r["step_ms"] for r in rows}, reverse=True):
            some = [r for r in rows if r["step_ms"] == step_ms]
            x, look = [r["workers"] for r in some], next(looks)
            name = f"step of {step_ms:g} ms, {label}"
            took = [1e3 * r["took_s"] for r in some]
            ax.plot(x, took, label=name, **look | {"linestyle": ""})
            told = [1e3 * r["predicted_s"] for r in some]
            ax.plot(x, told, color=look["color"], linewidth=1)
        ax.set_xticks(sorted({r["workers"] for r in rows}))
    return _with_prediction(fig, ax)


def images_by_workers(runs: list):
    """Images a second against workers for each batch size; thin lines are predicted."""
    fig, ax = figure("workers", "images/s", width=8)
    looks = iter(LINES)
    for label, rows in of_kind(runs, "jpeg"):
        for batch in sorted({r["batch"] for r in rows}):
            some = [r for r in rows if r["batch"] == batch and r["prefetch"] == 2]
            x, look = [r["workers"] for r in some], next(looks)
            name = f"batch of {batch}, {label}"
            rates = [r["images_per_s"] for r in some]
            ax.plot(x, rates, label=name, fillstyle="none", **look | {"linestyle": ""})
            told = [r["predicted_per_s"] for r in some]
            ax.plot(x, told, color=look["color"], linewidth=1)
        ax.set_xticks(sorted({r["workers"] for r in rows}))
        ax.axhline(rows[0]["model_per_s"], color=MUTED, linewidth=1, linestyle=":")
    return _with_prediction(fig, ax)


def time_by_batch(runs: list):
    """Time of a batch and time a row against the rows of the batch, one layer."""
    fig, ax = figure("rows in the batch", "time (ms)", log="xy", width=8)
    looks = iter(LINES)
    for label, rows in of_kind(runs, "batching"):
        x = [r["rows"] for r in rows]
        whole = [1e3 * r["took_s"] for r in rows]
        ax.plot(x, whole, label=f"the batch, {label}", **next(looks))
        each = [t / n for t, n in zip(whole, x, strict=True)]
        ax.plot(x, each, label=f"a row of it, {label}", **next(looks))
    ax.set_xscale("log", base=2)
    legend(ax)
    return fig


def time_by_start(runs: list):
    """Milliseconds for the same few batches: from this process, or from workers."""
    fig, ax = figure("time (ms)", "", log="x", height=3, width=8)
    for (label, rows), look in zip(of_kind(runs, "start"), LINES, strict=False):
        took = [1e3 * r["took_s"] for r in rows]
        what = [r["what"] for r in rows]
        ax.plot(took, what, label=label, **look | {"linestyle": ""})
    ax.margins(y=0.3)
    ax.invert_yaxis()
    legend(ax)
    return fig


def _with_prediction(fig, ax):
    """The figure with one word for all of its thin lines."""
    ax.plot([], [], color=MUTED, linewidth=1, label="predicted")
    ax.set_ylim(bottom=0)
    legend(ax)
    return fig
