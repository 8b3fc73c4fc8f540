"""Figures of training loops: optimizers, the rungs of a ladder, a run that came back.

Each takes recordings and draws the rows of one `kind`; `ValueError` where there are none.
"""

from statistics import mean

from gpulab_utils.plots.base import LINES, MUTED, figure, of_kind


def loss_by_optimizer(runs: list):
    """Loss against the step, a line for each optimizer and rate, of each recording."""
    fig, ax = figure("step", "loss of the batch (nats a byte), mean of 5", width=8)
    looks = {"SGD": LINES[0], "AdamW": LINES[1]}
    dashes = ("-", "--", ":")
    for label, rows in of_kind(runs, "optimizer"):
        rates = {name: [] for name in looks}
        for row in rows:
            name, y = row["optimizer"], _smooth(row["losses"])
            dash = dashes[len(rates[name]) % 3]
            rates[name].append(row["rate"])
            look = {"color": looks[name]["color"], "linestyle": dash}
            ax.plot(
                range(1, len(y) + 1), y, label=f"{name} {row['rate']:g}, {label}", **look
            )
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False, ncols=2)
    return fig


def _smooth(losses: list[float], over: int = 5) -> list[float]:
    """Each loss as the mean of it and up to four before it."""
    windows = (losses[max(0, i - over + 1) : i + 1] for i in range(len(losses)))
    return [sum(window) / len(window) for window in windows]


def loss_of_resumed(runs: list):
    """Mean loss of each window of steps: a whole run, one that came back, a poor one."""
    fig, ax = figure("step", "mean loss since the last checkpoint (nats)", width=8)
    for label, rows in of_kind(runs, "resumed"):
        for row, look in zip(rows, LINES, strict=False):
            losses, first = row["losses"], row["from"]
            ends = range(
                row["every"] * (first + 1), row["every"] * (len(losses) + 1), row["every"]
            )
            x = [min(end, row.get("steps", end)) for end in ends]
            size = {"markersize": 9 - 2 * LINES.index(look)}
            ax.plot(x, losses[first:], label=f"{row['run']}, {label}", **look | size)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
    return fig


def rungs_by_speed(runs: list, task: str):
    """Samples a second on each rung of a task, lowest first; gain and bytes beside it."""
    what = {"cnn": "images a second", "gpt": "windows of 128 bytes a second"}[task]
    height = 1.4 + 0.38 * max(len(_of(rows, task)) for _, rows in of_kind(runs, "rung"))
    fig, ax = figure(what, "", height=height, width=9)
    for (label, rows), look in zip(of_kind(runs, "rung"), LINES, strict=False):
        mine = _of(rows, task)
        x, names = [r["per_s"] for r in mine], [r["rung"] for r in mine]
        ax.plot(x, names, label=label, **look | {"linestyle": ""})
        for row in mine:
            ax.annotate(
                _beside(row, below(row, mine)),
                (row["per_s"], row["rung"]),
                xytext=(8, -4),
                textcoords="offset points",
                color=MUTED,
            )
    ax.set_xlim(left=0)
    ax.margins(x=0.25, y=0.1)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
    return fig


def below(row: dict, rows: list[dict]) -> dict | None:
    """The row of the rung that `row` changes one thing of; None for the lowest.

    >>> rows = [{"rung": "a"}, {"rung": "b", "on": "a"}, {"rung": "c", "on": "a"}]
    >>> below(rows[2], rows)["rung"], below(rows[0], rows)
    ('a', None)
    """
    before = [None, *rows][rows.index(row)]
    return next((r for r in rows if r["rung"] == row.get("on")), before)


def _of(rows: list[dict], task: str) -> list[dict]:
    return [row for row in rows if row["task"] == task]


def _beside(row: dict, other: dict | None) -> str:
    gain = f"{row['per_s'] / other['per_s']:.2f} times, " if other else ""
    if row["rung"] == "compile":
        return f"{gain}first call {row['first_s']:.0f} s"
    return gain + (f"{row['bytes'] / 1e6:.0f} MB a step" if row["bytes"] else "")


def ends_by_rung(runs: list, task: str):
    """Accuracy (cnn) or loss (gpt) on test data that each rung ends with, seed by seed."""
    by, what = {
        "cnn": ("accuracy", "accuracy on test digits"),
        "gpt": ("loss", "loss on test text (nats a byte)"),
    }[task]
    height = 1.6 + 0.36 * max(
        len({r["rung"] for r in _of(rows, task)}) for _, rows in of_kind(runs, "end")
    )
    fig, ax = figure(what, "", height=height, width=8)
    for (label, rows), look in zip(of_kind(runs, "end"), LINES, strict=False):
        mine = _of(rows, task)
        names = list(dict.fromkeys(r["rung"] for r in mine))
        for seed in sorted({r["seed"] for r in mine}):
            x = [
                next(r[by] for r in mine if (r["rung"], r["seed"]) == (n, seed))
                for n in names
            ]
            told = {"label": f"{label}, a point a seed"} if not seed else {}
            ax.plot(x, names, **look | {"linestyle": ""}, **told)
        means = [mean(r[by] for r in mine if r["rung"] == n) for n in names]
        ax.plot(means, names, "|", color=look["color"], markersize=22)
    ax.margins(x=0.15, y=0.15)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
    return fig
