"""Figures of chapter 18: the bill, a token and its floors, what four bits cost."""

from gpulab_utils.plots.base import LINES, MUTED, figure, legend
from gpulab_utils.tables import read
from gpulab_utils.units import gib


def bills(plans: dict, card):
    """Weights of each format of `plans` against what `card` leaves: derived."""
    fig, ax = figure(f"GiB of weights, 13B ({card.name} against)", "", height=3.4)
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
    fig, ax = figure("", "seconds a token, 13B in 4 bits", height=4)
    told = [(run.label, row) for run in runs for row in _rows(run, "token")]
    kinds = ["measured", *told[0][1]["floors"]]
    for i, kind in enumerate(kinds):
        look = {"color": LINES[i]["color"], "hatch": ("", "//", "..")[i], "ec": "white"}
        seconds = [row["floors"].get(kind, row["wall_s"]) for _, row in told]
        spots = [at + 0.27 * (i - 1) for at in range(len(told))]
        label = f"floor: {kind}" if i else kind
        bars = ax.bar(spots, seconds, 0.25, label=label, **look)
        ax.bar_label(bars, [f"{s:.2g}" for s in seconds], padding=2)
    names = [f"{label}\n{row['kernel']}, {row['layers']} layers" for label, row in told]
    ax.set_xticks(range(len(told)), names)
    ax.grid(axis="x", visible=False)
    legend(ax)
    return fig


def quality(runs: list):
    """Rise of perplexity over the unquantised model against bits a weight, log scale."""
    fig, ax = figure("bits a weight", "perplexity above the model as it was, %", log="y")
    for i, (name, points) in enumerate([*_measured(runs), *_published()]):
        line = LINES[i % len(LINES)] | {"linestyle": ""}
        bits, rises, labels = zip(*points, strict=True)
        ax.plot(bits, rises, label=name, markersize=7, **line)
        for x, y, text in zip(bits, rises, labels, strict=True):
            ax.annotate(text, (x, y), (6, 3), textcoords="offset points", fontsize=8)
    ax.set_xlim(3.9, 9.4)
    ax.legend(loc="upper right", fontsize=9)
    return fig


def _measured(runs):
    bits = {"int4 g64": 4.5, "nf4": 4.5}
    for run in runs:
        rows = {r["weights"]: r for r in _rows(run, "quality")}
        if len(rows) < 2:
            continue
        base = rows.pop("as loaded")
        rise = {
            k: 100 * (r["perplexity"] / base["perplexity"] - 1) for k, r in rows.items()
        }
        points = [(bits[k], rise[k], k) for k in rise]
        yield f"SmolLM2 135M from Q4_1, measured on {run.label}", points


def _published():
    told = read("published/perplexity.json")["rows"]
    rows = [r for r in told if r["source"] == "llama.cpp"]
    for model in dict.fromkeys(r["model"] for r in rows):
        own = [r for r in rows if r["model"] == model]
        base = next(r["perplexity"] for r in own if r["bits"] == 16)
        points = [
            (r["bits_per_weight"], 100 * (r["perplexity"] / base - 1), r["format"])
            for r in own
            if r["bits"] < 16
        ]
        yield f"{model}, published (llama.cpp)", points


def show_kernels(runs: list) -> None:
    """Print the 4-bit products of each recording: bytes, errors, speed."""
    print(
        f"{'device':34} {'product':8} {'weights off':>12} {'product off':>12} {'GB/s':>7}"
    )
    for run in runs:
        for row in _rows(run, "kernel"):
            rate = row["bytes"] / row["wall_s"] / 1e9
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
    """Print the rates at which 4-bit weights were read and multiplied, by recording."""
    print(f"{'device':34} {'product':8} {'what':20} {'GB/s':>7}")
    for run in runs:
        for row in _rows(run, "wall"):
            for name, rate in row["rate"].items():
                print(f"{run.label[:34]:34} {row['kernel']:8} {name:20} {rate / 1e9:7.1f}")


def _rows(run, what: str) -> list[dict]:
    return [row for row in run.rows if row.get("what") == what]
