"""How right is the planner? Its answers beside what others measured, point by point."""

import re
from dataclasses import dataclass
from statistics import median, quantiles

from gpulab_utils.plan.bill import weight_bytes
from gpulab_utils.plan.frameworks import setting_of
from gpulab_utils.plots.base import LINES, MUTED, figure
from gpulab_utils.units import GIB

LEVELS = {
    "allocated": "predicted_gib",
    "reserved": "predicted_reserved_gib",
    "card": "predicted_card_gib",
}
MODES = ("inference", "load_only", "lora", "qlora", "full_train")
MAKERS = {"Apple": r"^Apple", "AMD": r"^RX |Radeon|^MI\d|Ryzen", "Intel": r"Arc|Flex"}
#: What is known of a miss beyond 10 %, by the beginning of a row's id.
WHY = {
    "qwen25-inf-0.5b-awq-in1": "table",
    "qwen25-inf-3b-awq-in1": "table",
    "awq-falcon-7b": "table",
    "litgpt-lora-stablelm3b-bf16mixed": "mixed",
    "tt-llama32-3b-adam8": "adam8",
    "hf-bert-large": "bert",
    "swift-bs": "order",
    "swift-quant": "bnb",
}


@dataclass(frozen=True)
class Point:
    """One published figure and the planner's, in the same unit."""

    row: dict
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one.

        >>> round(Point({}, 11.0, 10.0).error, 3)
        0.1
        """
        return self.predicted / self.measured - 1

    @property
    def group(self) -> tuple[str, str]:
        return self.row["mode"], self.row["measured_level"]


def points(rows: list[dict], said: list[dict]) -> list[Point]:
    """Measured rows that have an answer, each at its own level or as tokens/s."""
    made = []
    for row, told in zip(rows, said, strict=True):
        if "skipped" in told:
            continue
        if "tokens_per_s" in row:
            made.append(Point(row, told["predicted_tokens_per_s"], row["tokens_per_s"]))
        elif row["kind"] == "boundary_max_seq":
            made.append(Point(row, told["predicted_seq"], row["seq"]))
        elif row["kind"] == "measured":
            level = LEVELS[row["measured_level"]]
            made.append(Point(row, told[level], row["measured_gib"]))
    return made


def spread(found: list[Point]) -> tuple[float, float, float]:
    """Median, 90th percentile and largest size of the errors.

    >>> [round(x, 3) for x in spread([Point({}, p, 100) for p in (90, 101, 103)])]
    [0.03, 0.086, 0.1]
    """
    sizes = sorted(abs(p.error) for p in found)
    if len(sizes) == 1:
        return (sizes[0],) * 3
    return median(sizes), quantiles(sizes, n=10, method="inclusive")[-1], sizes[-1]


def grouped(found: list[Point], key=lambda p: p.group) -> dict:
    """Points by `key`, modes in the order in which the book names them."""
    groups: dict = {}
    for p in sorted(found, key=lambda p: MODES.index(p.row.get("mode", "inference"))):
        groups.setdefault(key(p), []).append(p)
    return groups


def source(p: Point) -> str:
    """Whose figure it is: the repository or site, and its file."""
    _, _, site, *path = p.row["source_url"].split(" ")[0].split("/")
    return f"{'/'.join(path[:2]) if site == 'github.com' else site}, {path[-1]}"


def maker(p: Point) -> str:
    """Who made the card of a decode row."""
    named = (m for m, words in MAKERS.items() if re.search(words, p.row["gpu"]))
    return next(named, "NVIDIA")


def why(p: Point) -> str:
    """The paragraph of the page that speaks of a miss; KeyError where none does."""
    for start, key in WHY.items():
        if p.row["id"].startswith(start):
            return key
    raise KeyError(f"{p.row['id']} misses by {p.error:+.1%}: book/accuracy.md says nothing")


def rule(name: str, row: dict) -> float:
    """GiB by a rule of thumb of data/published/planners.json.

    >>> rule("16 bytes per parameter", {"params": 2**30})
    16.0
    """
    if name == "16 bytes per parameter":
        return 16 * row["params"] / GIB
    s = setting_of(row)
    weights = sum(weight_bytes(s).values()) / GIB
    if name == "1.2 x weights":
        return 1.2 * weights
    return weights + s.batch * s.shape.kv_bytes(s.seq) / GIB


def peaks(found: list[Point]):
    """Predicted against measured GiB: colour by mode, hollow = reserved or card."""
    fig, ax = figure("GiB, measured by others", "GiB, predicted", log="xy", height=5.2)
    _diagonal(ax, 0.4, 100)
    by_mode = grouped(found, lambda p: p.row["mode"])
    for line, (mode, group) in zip(LINES, by_mode.items(), strict=False):
        look = {"color": line["color"], "marker": line["marker"], "linestyle": ""}
        for face, inside in ((line["color"], True), ("none", False)):
            some = [p for p in group if (p.row["measured_level"] == "allocated") == inside]
            if some:
                words = "allocated" if inside else "reserved or card"
                xy = [p.measured for p in some], [p.predicted for p in some]
                ax.plot(*xy, **look, markerfacecolor=face, label=f"{mode}, {words}")
    ax.legend(loc="upper left", fontsize=9, frameon=False)
    return fig


def errors(found: list[Point]):
    """Every point's error, one line a mode and level, with the median as a bar."""
    groups = grouped(found)
    xlabel = "predicted over measured, less one, %"
    fig, ax = figure(xlabel, "", height=1.2 + 0.42 * len(groups))
    ax.axvspan(-10, 10, color="#E8EEF4", zorder=0, label="within 10 %")
    ax.axvline(0, color=MUTED, linewidth=1)
    names = [f"{mode}, {level} ({len(g)})" for (mode, level), g in groups.items()]
    for i, ((mode, _), group) in enumerate(groups.items()):
        line = LINES[MODES.index(mode)]
        off = [100 * p.error for p in group]
        height = [i + 0.3 * ((7 * k % 11) / 11 - 0.5) for k in range(len(off))]
        look = {"color": line["color"], "marker": line["marker"], "linestyle": ""}
        ax.plot(off, height, markersize=5, alpha=0.7, **look)
        ax.plot([median(off)] * 2, [i - 0.35, i + 0.35], color="#111111", linewidth=2.5)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    return fig


def speeds(found: list[Point], bounds: list[float]):
    """Estimate and bound (grey) against measured tokens/s, colour by the card's maker."""
    fig, ax = figure("tokens/s, measured", "tokens/s, predicted", log="xy", height=5)
    sides = [p.measured for p in found]
    _diagonal(ax, 0.8 * min(sides), 1.3 * max(sides))
    ax.plot(sides, bounds, color=MUTED, marker="_", linestyle="", label="bound")
    for line, (name, group) in zip(LINES, grouped(found, maker).items(), strict=False):
        style = line | {"linestyle": "", "markersize": 5}
        xy = [p.measured for p in group], [p.predicted for p in group]
        ax.plot(*xy, label=f"estimate, {name}", **style)
    ax.legend(loc="upper left", fontsize=9, frameon=False)
    return fig


def _diagonal(ax, low: float, high: float) -> None:
    """The line of equality and 10 % to either side."""
    ends = [low, high]
    ax.fill_between(ends, [0.9 * x for x in ends], [1.1 * x for x in ends], color="#E8EEF4")
    ax.plot(ends, ends, color=MUTED, linewidth=1, label="equal, and 10 % to either side")
