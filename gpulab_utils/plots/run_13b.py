"""Figures of chapter 18: the bill, a token and its floors, what four bits cost."""

from gpulab_utils.plots.base import LINES, MUTED, figure, legend
from gpulab_utils.tables import read
from gpulab_utils.units import gib


def bills(plans: dict, card):
    """Weights of each format of `plans` against what `card` leaves: derived."""
    fig, ax = figure(f"GiB of weights of a 13B; lines: {card.name}", "", height=3.4)
    names = list(plans)[::-1]
    held = [gib(plans[n].terms["weights"]) for n in names]
    bars = ax.barh(names, held, color=LINES[0]["color"])
    ax.bar_label(bars, [f"{h:.2f}" for h in held], padding=3)
    for desktop, style in ((True, "--"), (False, ":")):
        left = gib(card.usable_bytes(desktop=desktop))
        label = f"{left:.2f} GiB usable " + ("beside a desktop" if desktop else "headless")
        ax.axvline(left, color=MUTED, linestyle=style, label=label)
    ax.set_xlim(0, 1.12 * max(held))
    ax.grid(axis="y", visible=False)
    legend(ax)
    return fig


def token_and_floors(runs: list):
    """Seconds a token beside its two floors, one group of bars a device."""
    told = [(run.label, row) for run in runs for row in _rows(run, "token")]
    size = {"width": 8, "height": 1.4 + 1.3 * len(told)}
    fig, ax = figure("seconds a token, 13B in 4 bits, one user", "", **size)
    kinds = ["measured", *told[0][1]["floors"]]
    for i, kind in enumerate(kinds):
        look = {"color": LINES[i]["color"], "hatch": ("", "//", "..")[i], "ec": "white"}
        seconds = [row["floors"].get(kind, row["took_s"]) for _, row in told]
        spots = [at + 0.27 * (i - 1) for at in range(len(told))]
        bars = ax.barh(spots, seconds, 0.25, label=f"floor: {kind}" if i else kind, **look)
        ax.bar_label(bars, [f"{s:.2g}" for s in seconds], padding=3)
    names = [f"{label}\n{row['kernel']}, {row['layers']} layers" for label, row in told]
    ax.set_yticks(range(len(told)), names)
    ax.invert_yaxis()
    ax.margins(x=0.1)
    ax.grid(axis="y", visible=False)
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return fig


def quality(runs: list):
    """Rise of perplexity over the unquantised model, by format, on a log scale."""
    groups = [*_measured(runs), *_published()]
    formats = list(dict.fromkeys(name for _, points in groups for name in points))
    formats.sort(key=lambda name: (name.startswith("Q8"), name.startswith("Q")))
    label = "perplexity above that of the model as it was, %"
    fig, ax = figure(label, "", log="x", width=8, height=3.8)
    for i, (name, points) in enumerate(groups):
        look = LINES[i % len(LINES)] | {"linestyle": "", "markersize": 8}
        ax.plot(points.values(), [formats.index(k) for k in points], label=name, **look)
    ax.set_yticks(range(len(formats)), formats)
    ax.set_ylim(len(formats) - 0.5, -0.5)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), fontsize=9)
    return fig


def _measured(runs):
    for run in runs:
        rows = {r["weights"]: r["perplexity"] for r in _rows(run, "quality")}
        if len(rows) > 1:
            base = rows.pop("as loaded")
            names = {"int4 g64": "int4 g64, 4.5 bits", "nf4": "NF4, 4.5 bits"}
            rises = {names[k]: 100 * (score / base - 1) for k, score in rows.items()}
            yield f"SmolLM2 135M from Q4_1, measured on {run.label}", rises


def _published():
    told = read("published/perplexity.json")["rows"]
    rows = [r for r in told if r["source"] == "llama.cpp"]
    for model in dict.fromkeys(r["model"] for r in rows):
        own = [r for r in rows if r["model"] == model]
        base = next(r["perplexity"] for r in own if r["bits"] == 16)
        rises = {
            f"{r['format']}, {r['bits_per_weight']} bits": 100
            * (r["perplexity"] / base - 1)
            for r in own
            if r["bits"] < 16
        }
        yield f"{model}, published (llama.cpp)", rises


def show_kernels(runs: list) -> None:
    """Print the 4-bit products of each recording: bytes, errors, speed."""
    print(
        f"{'device':34} {'product':8} {'weights off':>12} {'product off':>12} {'GB/s':>7}"
    )
    for run in runs:
        for row in _rows(run, "kernel"):
            rate = row["bytes"] / row["took_s"] / 1e9
            print(
                f"{run.label[:34]:34} {row['kernel']:8} {row['weight_error']:12.2%} "
                f"{row['product_error']:12.3%} {rate:7.1f}"
            )


def show_bill(runs: list) -> None:
    """Print each term of the memory bill, planned and measured, by recording."""
    print(f"{'device':34} {'term':24}  planned MiB    grown MiB   ratio")
    for run in runs:
        for row in _rows(run, "bill"):
            planned, grown = row["planned"] / 2**20, row["grown"] / 2**20
            print(
                f"{run.label[:34]:34} {row['term']:24} {planned:12,.1f} {grown:12,.1f} "
                f"{grown / planned:7.3f}"
            )


def show_rates(runs: list) -> None:
    """Print how fast one thread (or the GPU) read bytes and multiplied 4-bit weights."""
    print(f"{'device':34} {'product':8} {'what':20} {'GB/s':>7}")
    for run in runs:
        for row in _rows(run, "token"):
            for name, rate in row["rate"].items():
                print(f"{run.label[:34]:34} {row['kernel']:8} {name:20} {rate / 1e9:7.1f}")


def _rows(run, what: str) -> list[dict]:
    return [row for row in run.rows if row.get("what") == what]
