"""Figures of training a large model: bytes a weight, depth, the waterfall, losses, hours.

`waterfall` and `hours_by_card` draw what the planner and `training_time` derive; the others
draw rows of recordings of one `kind` and raise `ValueError` where there are none.
"""

from gpulab_utils.plots.base import LINES, MUTED, figure, legend, of_kind

TERMS = {
    "weights": ("weights",),
    "gradients": ("gradients",),
    "optimizer states": ("optimizer",),
    "activations, logits": ("activations", "logits"),
    "workspace": ("workspace",),
}
HATCHES = ("", "///", "...", "xxx", "")


def bytes_a_weight(runs: list):
    """Bytes a weight of a step by optimizer, rows of kind "weight": kept, and the peak."""
    fig, ax = figure("bytes a weight", "", height=3.6, width=8)
    for (label, rows), look in zip(of_kind(runs, "weight"), LINES, strict=False):
        mine = [r for r in rows if r["width"] == rows[-1]["width"]]
        names = [r["optimizer"] for r in mine]
        plain = look | {"linestyle": ""}
        peaks = [r["peak"] / r["params"] for r in mine]
        ax.plot(peaks, names, label=f"peak of the step, {label}", **plain)
        kept = [r["kept"] / r["params"] for r in mine]
        tick = {"marker": "|", "markersize": 18, "linestyle": "", "color": MUTED}
        ax.plot(kept, names, label="weights, gradients and states", **tick)
    ax.axvline(16, color=MUTED, linewidth=1, linestyle=":")
    ax.invert_yaxis()
    ax.set_xlim(left=0)
    ax.margins(y=0.12)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
    return fig


def bytes_by_layers(runs: list):
    """Peak of a step against layers, rows of kind "depth"; a tick is the planner's."""
    fig, ax = figure("layers", "GB at the peak of a step", width=8)
    _, rows = of_kind(runs, "depth")[0]
    for way, look in zip(dict.fromkeys(r["way"] for r in rows), LINES, strict=False):
        mine = sorted((r for r in rows if r["way"] == way), key=lambda r: r["layers"])
        ran = [r for r in mine if r["how"] == "run"]
        x, y = [r["layers"] for r in ran], [r["bytes"] / 1e9 for r in ran]
        ax.plot(x, y, label=f"{way}: run without memory", **look | {"linestyle": ""})
        line = [r for r in mine if r["how"] == "line"] + ran[:1]
        x, y = [r["layers"] for r in line], [r["bytes"] / 1e9 for r in line]
        ax.plot(x, y, color=look["color"], linestyle="--", linewidth=1)
        told = next(r for r in mine if r["how"] == "plan")
        ax.plot(told["layers"], told["bytes"] / 1e9, "_", color=MUTED, markersize=18)
        text = f"{told['bytes'] / 1e9:,.0f} GB planned"
        at = (told["layers"], told["bytes"] / 1e9)
        ax.annotate(text, at, xytext=(-8, 8), textcoords="offset points", ha="right")
    ax.set_ylim(bottom=0)
    ax.margins(y=0.12)
    legend(ax)
    return fig


def waterfall(steps: dict, seen: dict, usable: int):
    """Peak by step of the bill: {name: terms in bytes} from a plan, stacked by kind.

    `seen` holds bytes of runs without memory by the same names, drawn as points; `usable`
    is what a card has, a line.
    """
    fig, ax = figure("GB at the peak of a training step", "", height=5.4, width=10)
    names, left = list(steps), [0.0] * len(steps)
    for (kind, terms), look, hatch in zip(TERMS.items(), LINES, HATCHES, strict=False):
        part = [sum(steps[n].get(t, 0) for t in terms) / 1e9 for n in names]
        ax.barh(
            names, part, left=left, label=kind, color=look["color"], alpha=0.75,
            hatch=hatch, edgecolor="white",
        )  # fmt: skip
        left = [a + b for a, b in zip(left, part, strict=True)]
    for name, total in zip(names, left, strict=True):
        at = (total, name)
        ax.annotate(f"{total:,.1f}", at, xytext=(10, -4), textcoords="offset points")
    met = [n for n in names if n in seen]
    points = [seen[n] / 1e9 for n in met]
    style = {"marker": "D", "linestyle": "", "color": "black", "markersize": 5}
    ax.plot(points, met, label="run without memory", **style)
    ax.axvline(
        usable / 1e9, color="black", linewidth=1, linestyle=":", label="a 12 GB card"
    )
    ax.invert_yaxis()
    ax.margins(x=0.1)
    ax.legend(loc="lower right", frameon=False)
    return fig


def trainable_by_lever(sizes: dict):
    """Billions of parameters that a card trains at most: {lever: parameters}."""
    fig, ax = figure("largest model (billion parameters)", "", log="x", height=4.4, width=8)
    names = list(sizes)
    numbers = [n / 1e9 for n in sizes.values()]
    ax.plot(numbers, names, **LINES[0] | {"linestyle": ""})
    for name, n in zip(names, numbers, strict=True):
        ax.annotate(f"{n:.2f}", (n, name), xytext=(8, -4), textcoords="offset points")
    ax.invert_yaxis()
    ax.margins(x=0.15)
    return fig


def losses_of_merges(runs: list):
    """Held-out loss by stage of LoRA and QLoRA, rows of kind "stage"; of each device."""
    fig, ax = figure("held-out loss (nats a token)", "", height=4.6, width=9)
    looks = iter(LINES)
    for label, rows in of_kind(runs, "stage"):
        for mode, name in (("lora", "LoRA"), ("qlora", "QLoRA")):
            mine = [r for r in rows if r["mode"] == mode]
            if not mine:
                continue
            names = [f"{name}: {r['stage']}" for r in mine]
            plain = next(looks) | {"linestyle": ""}
            ax.plot([r["nats"] for r in mine], names, label=f"{name}, {label}", **plain)
            for r, at in zip(mine, names, strict=True):
                text = f"{r['nats']:.3f}"
                ax.annotate(
                    text, (r["nats"], at), xytext=(8, -4), textcoords="offset points"
                )
    ax.invert_yaxis()
    ax.margins(x=0.15, y=0.08)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
    return fig


def loss_by_rate(runs: list):
    """Loss after a few steps against the learning rate, by width, rows of kind "rate"."""
    fig, ax = figure("learning rate", "loss on text not learned (nats)", log="x", width=10)
    label, rows = of_kind(runs, "rate")[0]
    looks = iter(LINES)
    for width, warm in dict.fromkeys((r["width"], r["warm"]) for r in rows):
        mine = [r for r in rows if (r["width"], r["warm"]) == (width, warm)]
        x, y = [r["rate"] for r in mine], [r["nats"] for r in mine]
        name = f"width {width}" + (", warm-up" if warm else "")
        ax.plot(x, y, label=f"{name}, {label}", **next(looks))
    ax.axvline(1e-3, color=MUTED, linewidth=1, linestyle=":")
    legend(ax)
    return fig


def hours_by_card(hours: dict, spread: tuple[float, float]):
    """{card: hours} for a goal, and the spread of the predictions left out, as bars."""
    fig, ax = figure("hours", "", log="x", height=3.8, width=8)
    names, x = list(hours), list(hours.values())
    low, high = ([abs(h - h / s) for h in x] for s in (spread[1], spread[0]))
    ax.errorbar(x, names, xerr=[low, high], capsize=3, **LINES[0] | {"linestyle": ""})
    ax.invert_yaxis()
    return fig
