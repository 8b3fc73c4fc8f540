"""Figures of chapter 05: which wheel has code for which chip, what runs where, RT cores."""

import re

from gpulab_utils import tables
from gpulab_utils.cards import CARDS, Card
from gpulab_utils.plots.base import LINES, figure, legend, rows_of

#: Chips for graphics, one RT core in each SM; the others are for computing, or older.
#: Source: NVIDIA, Turing, Ampere, Ada and Blackwell architecture documents.
RT_CHIPS = {(7, 5), (8, 6), (8, 9), (12, 0)}
#: Labelled to the left, where a neighbour stands to the right.
_LEFT = {"L40S", "RTX A6000", "H100 PCIe", "A100 PCIe"}


def rt_cores(card: Card) -> int:
    """RT cores of an NVIDIA card: one an SM, none on a chip made for computing.

    >>> rt_cores(CARDS["rtx-3080-ti"]), rt_cores(CARDS["h200-sxm"])
    (80, 0)
    """
    return card.sms * (card.compute_capability in RT_CHIPS)


def published_points() -> list[tuple[str, int, int, float]]:
    """(card, bytes/s, RT cores, tokens/s) of Llama-3-8B in Q4_K_M, by others' llama.cpp.

    >>> len(published_points())
    9
    """
    named = {
        re.sub(r"GeForce | \d+GB$", "", card.name): card
        for card in CARDS.values()
        if card.vendor == "NVIDIA"
    }
    found = []
    for row in tables.read("published/decode_speed.jsonl"):
        name = re.sub(r" \d+GB$", "", row["gpu"])
        asked = (row["model"], row["quant"], row["context"])
        if asked == ("Llama-3-8B", "GGUF Q4_K_M", 1024) and name in named:
            card = named[name]
            rt = rt_cores(card)
            found.append((name, card.mem_bytes_per_s, rt, row["tokens_per_s"]))
    return found


def _matrix(columns: list[str], rows: list[str], cell, told: dict[str, str]):
    """A table of marks: `cell(row, column)` is a key of `told` (mark -> its meaning)."""
    fig, ax = figure("", "", width=7.4, height=1.5 + 0.34 * len(rows))
    styles = {"yes": (LINES[0]["color"], "o"), "no": (LINES[1]["color"], "x")}
    for kind, meaning in told.items():
        at = [
            (x, y)
            for y, row in enumerate(rows)
            for x, column in enumerate(columns)
            if cell(row, column) == kind
        ]
        color, marker = styles[kind]
        ax.plot(
            [x for x, _ in at],
            [y for _, y in at],
            color=color,
            marker=marker,
            linestyle="none",
            markersize=9,
            label=meaning,
        )
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    ax.set(xlim=(-0.6, len(columns) - 0.4), ylim=(len(rows) - 0.4, -0.6))
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False)
    return fig


def code_by_wheel(rows: list[dict]):
    """Which wheel of torch holds code for which chip; `rows` of `doctor.machines`."""
    has = {(row["wheel"], row["chip"]): "yes" if row["has"] else "no" for row in rows}
    wheels, chips = (list(dict.fromkeys(row[k] for row in rows)) for k in ("wheel", "chip"))
    told = {"yes": "has code", "no": "has none"}
    return _matrix(chips, wheels, lambda wheel, chip: has[wheel, chip], told)


def features_by_device(runs: list):
    """What `doctor.features.probe` found on each device."""
    right = {
        (row["feature"], run.label): row["right"]
        for run in runs
        for row in run.rows
        if "feature" in row
    }
    features = list(dict.fromkeys(feature for feature, _ in right))
    devices = list(dict.fromkeys(label for _, label in right))

    def cell(row: str, column: str) -> str:
        told = right.get((row, column))
        return "" if told is None else "yes" if told else "no"

    return _matrix(devices, features, cell, {"yes": "ran, and right", "no": "not here"})


def time_of_products(runs: list):
    """Time of one matrix product: bf16 by its kernel, bf16 emulated, fp32; per device."""
    fig, ax = figure("time of a product, ms", "", log="x", height=1.5 + 0.9 * len(runs))
    ticks = []
    for line, run in zip(LINES, runs, strict=False):
        style = {"color": line["color"], "marker": line["marker"], "linestyle": "none"}
        for row in rows_of(run, "product"):
            ms, at = 1e3 * row["wall_s"], len(ticks)
            ax.plot([ms], [at], label=None if at % 3 else run.label, **style)
            ax.text(ms, at, f"   {ms:,.2f}", va="center")
            ticks.append((at, f"{row['what']}, {row['n']} x {row['n']}"))
    ax.set_yticks([at for at, _ in ticks], [told for _, told in ticks])
    ax.invert_yaxis()
    ax.margins(x=0.25, y=0.25)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
    return fig


def speed_and_rt_cores():
    """Published tokens/s against bandwidth, each card labelled with its RT cores."""
    fig, ax = figure("bandwidth, GB/s", "tokens/s, published", height=4.8)
    for name, rate, rt, tokens_per_s in published_points():
        line = LINES[0] if rt else LINES[1]
        style = {"color": line["color"], "marker": line["marker"], "linestyle": "none"}
        ax.plot([rate / 1e9], [tokens_per_s], **style)
        left = name in _LEFT
        ax.annotate(
            f"{name}: {rt}",
            (rate / 1e9, tokens_per_s),
            xytext=(-7 if left else 7, -4),
            textcoords="offset points",
            ha="right" if left else "left",
            fontsize=10,
        )
    for line, told in zip(LINES, ("with RT cores: how many", "without"), strict=False):
        ax.plot([], [], line["marker"], color=line["color"], label=told)
    ax.set(xlim=(200, 2500), ylim=(0, 160))
    legend(ax)
    return fig
