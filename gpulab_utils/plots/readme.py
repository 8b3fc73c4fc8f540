"""The figure of the README: a 13B model by format, derived and measured, against a card."""

import hashlib
from pathlib import Path

from gpulab_utils.cards import CARDS
from gpulab_utils.plan import plan
from gpulab_utils.plots.base import LINES, MUTED, figure
from gpulab_utils.results import Run, folder, load
from gpulab_utils.units import gib

FORMATS = ("bf16", "int8", "nf4", "int4-g128")
LAB = "18_run_13b"


def inputs() -> str:
    """A hash of the recordings that the figure draws; it is stored in the image."""
    told = hashlib.sha256()
    for path in sorted(folder().glob(f"*/{LAB}.json")):
        told.update(path.read_bytes())
    return told.hexdigest()[:16]


def draw(runs: list[Run]):
    """Weights of a 13B by format (derived), and what running it held (measured)."""
    card = CARDS["rtx-3060-12gb"]
    fig, ax = figure("GiB", "", height=3.2, width=8)
    derived = {f"{f}, weights, derived": _weights(f) for f in FORMATS}
    measured = {f"4 bit, running\nmeasured on {r.label}": _grown(r) for r in runs}
    for i, bars in enumerate((derived, measured)):
        look = {"color": LINES[i]["color"], "hatch": ("", "//")[i], "edgecolor": "white"}
        drawn = ax.barh(list(bars), [gib(n) for n in bars.values()], **look)
        ax.bar_label(drawn, [f"{gib(n):.1f}" for n in bars.values()], padding=3)
    ax.axvline(
        gib(card.usable_bytes()),
        color=MUTED,
        linestyle="--",
        label="what a 12 GB card leaves beside a desktop",
    )
    ax.invert_yaxis()
    ax.margins(x=0.1)
    ax.grid(axis="y", visible=False)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False)
    return fig


def _weights(name: str) -> int:
    return plan("llama-2-13b", weights=name, seq=0).terms["weights"]


def _grown(run: Run) -> int:
    return sum(row["grown"] for row in run.rows if row.get("what") == "bill")


def save(path: Path) -> None:
    """Draw the recordings into `path`, with the hash of what was drawn."""
    draw(load(LAB)).savefig(path, metadata={"Inputs": inputs()})
