"""Figures of distillation: gains with intervals, starts, the teacher's bill, the stack.

Each takes recordings and draws the rows of one `kind`; `ValueError` where there are none.
"""

from gpulab_utils.plots.base import LINES, MUTED, figure, legend, of_kind

_SCRATCH = "labels alone"


def gain_by_teaching(runs: list):
    """Gain in accuracy over labels alone and its 95 % interval, by what was taught."""
    fig, ax = figure("gain in accuracy over labels alone", "", height=5.2, width=10)
    for (label, rows), look in zip(of_kind(runs, "digits"), LINES, strict=False):
        mine = [r for r in rows if "gain" in r][::-1]
        ax.errorbar(
            [r["gain"] for r in mine],
            [_student(r) for r in mine],
            xerr=[r["half"] for r in mine],
            label=f"{mine[0]['seeds']} seeds, {label}",
            capsize=3,
            **look | {"linestyle": ""},
        )
    ax.axvline(0, color=MUTED, linewidth=1)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
    return fig


def _student(row: dict) -> str:
    softened = f"T = {row['t']}"
    way = {"features": "features", "logits": f"logits, {softened}"}.get(
        row["way"], f"all images, {softened}"
    )
    knows = "" if row["teacher"] == 4000 else " (teacher of 100)"
    return f"{row['hidden']} units, {row['labels']} labels: {way}{knows}"


def accuracy_by_width(runs: list):
    """Accuracy of students with 100 labels, alone and taught; the teacher's as a line."""
    fig, ax = figure("hidden units of the student", "accuracy on 1,000 digits", width=8)
    looks, drawn = (
        iter(LINES),
        {"labels": _SCRATCH, "logits of all images": "with a teacher"},
    )
    for label, rows in of_kind(runs, "digits"):
        few = [r for r in rows if r["labels"] == 100 and r["teacher"] == 4000]
        for way, name in drawn.items():
            mine = sorted((r for r in few if r["way"] == way), key=lambda r: r["hidden"])
            x, y = [r["hidden"] for r in mine], [r["accuracy"] for r in mine]
            ax.plot(x, y, label=f"{name}, {label}", **next(looks))
        ax.axhline(few[0]["taught_by"], color=MUTED, linewidth=1)
        ax.annotate("the teacher", (x[0], few[0]["taught_by"]), va="bottom", color=MUTED)
    ax.set_xscale("log", base=2)
    ax.set_xticks(x, x)
    legend(ax)
    return fig


def perplexity_by_start(runs: list):
    """Perplexity of every student, a point a seed, and their mean; the teacher's a line."""
    fig, ax = figure("perplexity on unseen text", "", log="x", height=4.4, width=9)
    for (label, rows), look in zip(of_kind(runs, "arm"), LINES, strict=False):
        mine = [r for r in rows if r["start"] != "teacher" or r["way"]][::-1]
        x, y = [r["perplexity"] for r in mine], [_arm(r) for r in mine]
        ax.plot(x, y, label=f"{rows[0]['model']}, {label}", **look | {"linestyle": ""})
        for name in dict.fromkeys(y):
            told = [v for v, n in zip(x, y, strict=True) if n == name]
            mean, at = sum(told) / len(told), (max(told), name)
            text = f"{mean:,.{1 if mean < 100 else 0}f}"
            ax.annotate(text, at, xytext=(8, -4), textcoords="offset points", color=MUTED)
        (own,) = [r for r in rows if r["start"] == "teacher" and not r["way"]]
        ax.axvline(own["perplexity"], color=MUTED, linewidth=1)
    ax.margins(x=0.15)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
    return fig


def _arm(row: dict) -> str:
    gone = f", {row['gone']} layers less" if row["gone"] else " itself"
    return f"{row['start']}{gone}: {row['way'] or 'not trained'}"


def bytes_of_teaching(runs: list):
    """Most bytes of a training step, measured, and ticks where they were predicted."""
    fig, ax = figure("most bytes alive in a step (MB)", "", height=2.8, width=8)
    for (label, rows), look in zip(of_kind(runs, "bill"), LINES, strict=False):
        names = [f"student, {r['what']}" for r in rows]
        ax.plot(
            [r["peak_bytes"] / 1e6 for r in rows],
            names,
            label=label,
            **look | {"linestyle": ""},
        )
        told = [r["predicted_bytes"] / 1e6 for r in rows]
        ax.plot(told, names, "|", color=look["color"], markersize=22)
    ax.set_xlim(left=0)
    ax.margins(y=0.4)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
    return fig


def kept_by_bytes(runs: list):
    """Share of the teacher's probability in the k largest logits against bytes a token."""
    fig, ax = figure("bytes a token on disk", "share of the probability", log="x", width=8)
    for (label, rows), look in zip(of_kind(runs, "file"), LINES, strict=False):
        x, y = [r["token_bytes"] for r in rows], [r["mass"] for r in rows]
        ax.plot(x, y, label=label, **look)
        for row in rows:
            told = f"k = {row['k']}"
            if "perplexity" in row:
                told += f": {row['perplexity']:.2f}"
            at = (row["token_bytes"], row["mass"])
            ax.annotate(told, at, xytext=(6, -12), textcoords="offset points", color=MUTED)
    ax.margins(x=0.2, y=0.15)
    legend(ax)
    return fig


def stack_by_bytes(runs: list):
    """Perplexity of each stack of techniques; behind the point its weights' bytes."""
    fig, ax = figure("perplexity on unseen text", "", height=3.8, width=9)
    for (label, rows), look in zip(of_kind(runs, "stack"), LINES, strict=False):
        rows = rows[::-1]
        x, names = [r["perplexity"] for r in rows], [r["what"] for r in rows]
        ax.plot(x, names, label=label, **look | {"linestyle": ""})
        for row, at in zip(rows, zip(x, names, strict=True), strict=True):
            told = f"{row['bytes'] / 1e6:.0f} MB"
            ax.annotate(told, at, xytext=(8, -4), textcoords="offset points", color=MUTED)
    ax.margins(x=0.15, y=0.1)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
    return fig
