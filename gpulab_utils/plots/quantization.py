"""Figures of chapter 13: errors by scale and grid, quality by bits, time by rows."""

from gpulab_utils.plots.base import LINES, MUTED, figure, legend, of_kind
from gpulab_utils.tables import read


def int8_errors(runs: list):
    """Error of int8 weights by who shares a scale, without and with one outlier."""
    label = "error of the other weights, % of their size"
    fig, ax = figure(label, "", log="x", height=3.2, width=8)
    looks = iter(2 * LINES)
    for device, rows in of_kind(runs, "int8"):
        for outlier in False, True:
            some = [r for r in rows if r["outlier"] == outlier]
            names = [f"a scale a {r['per']}".replace("a 64", "for 64") for r in some]
            text = f"{'with one outlier' if outlier else 'as they are'}, {device}"
            look = next(looks) | {"linestyle": "", "markersize": 9}
            ax.plot([100 * r["error"] for r in some], names, label=text, **look)
    ax.invert_yaxis()
    ax.margins(y=0.25)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return fig


def outlier_columns(runs: list):
    """Largest magnitude that enters each linear, and the median of its columns."""
    fig, ax = figure("linear, in order of depth", "magnitude", log="y", width=8)
    looks = iter(2 * LINES)
    for device, rows in of_kind(runs, "columns"):
        for key, text in ("largest", "largest column"), ("median", "usual column"):
            look = next(looks) | {"linestyle": "", "markersize": 4}
            y = [r[key] for r in rows]
            ax.plot(range(len(y)), y, label=f"{text}, {device}", **look)
    ax.axhline(6, color=MUTED, linestyle="--", label="LLM.int8's threshold")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=1)
    return fig


def grid_errors(runs: list):
    """Error of int4 against the length of a group, as loaded and shuffled."""
    fig, ax = figure("weights in a group", "error of int4, % of their size", width=8)
    looks = iter(2 * LINES)
    for device, rows in of_kind(runs, "grid"):
        for where in dict.fromkeys(r["where"] for r in rows):
            some = [r for r in rows if r["where"] == where]
            y = [100 * r["error"] for r in some]
            text = f"{where}, {device}"
            ax.plot([r["group"] for r in some], y, label=text, **next(looks))
    ax.set_xscale("log", base=2)
    ax.set_xticks([16, 32, 64, 192], ["16", "32", "64", "192"])
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return fig


def quality_by_bits(runs: list):
    """Rise of perplexity against bits a weight; hollow where a format shares the grid."""
    fig, ax = figure("bits a weight", "perplexity above 16 bits, %", width=8, height=6)
    looks = iter(2 * LINES)
    for device, rows in of_kind(runs, "quality"):
        base, look = rows[0]["perplexity"], next(looks) | {"linestyle": "", "markersize": 7}
        for hollow in False, True:
            some = [r for r in rows if _drawn(r, hollow)]
            points = [(r["bits"], 100 * (r["perplexity"] / base - 1)) for r in some]
            open_ = {"markerfacecolor": "none"} if hollow else {}
            text = f"SmolLM2 135M, {'same grid, as loaded' if hollow else 'shuffled'}"
            label = f"{text}, {device}"
            ax.plot(*zip(*points, strict=True), label=label, **look | open_)
            _name(ax, dict(zip([r["format"] for r in some], points, strict=True)))
    for (model, points), look in zip(_published().items(), LINES[1:], strict=False):
        ax.plot(*zip(*points, strict=True), label=f"{model}, published (llama.cpp)", **look)
    ax.set_yscale("symlog", linthresh=0.1)
    ax.set_ylim(-0.5, 120)
    ax.set_xlim(3.4, 9.2)
    ax.axhline(0, color=MUTED, linewidth=1)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), fontsize=9)
    return fig


def _name(ax, points: dict) -> None:
    """The names of points beside them; of those with the same bits the highest is above."""
    fewest = min(bits for bits, _ in points.values())
    for name, (bits, rise) in points.items():
        highest = rise == max(y for x, y in points.values() if x == bits)
        x, side = (-6, "right") if bits == fewest else (6, "left")
        at = {"xytext": (x, 2 if highest else -9), "ha": side}
        ax.annotate(name, (bits, rise), textcoords="offset points", fontsize=8, **at)


def _drawn(row: dict, hollow: bool) -> bool:
    if row["bits"] > 10:
        return False
    return row["same_grid"] if hollow else row["where"] == "shuffled"


def _published() -> dict:
    rows = [
        r for r in read("published/perplexity.json")["rows"] if r["source"] == "llama.cpp"
    ]
    base = {r["model"]: r["perplexity"] for r in rows if r["bits"] == 16}
    found = {name: [] for name in base}
    for r in rows:
        if r["bits"] < 16:
            rise = 100 * (r["perplexity"] / base[r["model"]] - 1)
            found[r["model"]].append((r["bits_per_weight"], rise))
    return {name: sorted(points) for name, points in found.items()}


def time_by_int8_rows(runs: list):
    """Time of int8 products over the quickest plain product, against rows."""
    fig, ax = figure(
        "rows", "times as long as the quickest plain product", log="xy", width=8
    )
    looks = iter(2 * LINES)
    for device, rows in of_kind(runs, "batch"):
        for way in dict.fromkeys(r["way"] for r in rows):
            some = [r for r in rows if r["way"] == way]
            y, text = [r["over"] for r in some], f"{way}, {device}"
            ax.plot([r["rows"] for r in some], y, label=text, **next(looks))
    ax.axhline(1, color=MUTED, linewidth=1)
    ax.axhline(0.5, color=MUTED, linestyle=":", label="half the bytes of 16 bit")
    ax.set_xscale("log", base=2)
    legend(ax)
    return fig


def table_of(run) -> list[tuple]:
    """(format, bits, MB, as loaded, shuffled, KL, same grid, tokens/s, those dequantized
    first) of one recording, by bits. Tokens/s are bf16's by the clock over each product's
    ratio to it, which was taken in turns: clocks of different minutes do not compare."""
    scored = [r for r in run.rows if r.get("kind") == "quality"]
    timed = [r for r in run.rows if r.get("kind") == "token"]
    plain = next((r["wall_s"] for r in timed if r["product"] == "bf16"), None)
    speed = {r["product"]: 1 / (plain * r["times_bf16"]) for r in timed}
    base = next((r["perplexity"] for r in scored if r["format"] == "fp32"), None)
    found = []
    for name in dict.fromkeys(r["format"] for r in scored):
        own = {r["where"]: r for r in scored if r["format"] == name}
        some = next(iter(own.values()))
        score = {k: r["perplexity"] for k, r in own.items()}
        if name == "fp32":
            score["shuffled"] = base
        grid = any(r["same_grid"] for r in own.values())
        slow = speed.get(f"{name}, dequantized first")
        kl = own["shuffled"]["kl"] if "shuffled" in own else None
        scores = score.get("as loaded"), score.get("shuffled"), kl, grid
        size = some["bits"], some["bytes"] / 1e6
        found.append((name, *size, *scores, speed.get(name), slow))
    return sorted(found, key=lambda row: -row[1])


def show_quality(runs: list) -> None:
    """Print the table: bits, bytes, perplexity twice, tokens/s, for each recording."""
    for run in runs:
        print(f"{run.label}; * same grid; ~ dequantized first")
        print("format         bits     MB  as loaded  shuffled    KL  tokens/s")
        for name, bits, mb, loaded, shuffled, kl, grid, quick, slow in table_of(run):
            cells = [f"{v:.2f}" if v else "" for v in (loaded, shuffled)]
            cells[0] += "*" if grid else ""
            cells.append(f"{kl:.3f}" if kl is not None else "")
            told = f"{quick:.1f}" if quick else f"~{slow:.1f}" if slow else ""
            print(
                f"{name:12} {bits:6.3f} {mb:6.1f}",
                "{:>10} {:>9} {:>5}".format(*cells),
                told,
            )


def show_both(runs: list) -> None:
    """Print what int8 on both sides does to the model, for each recording."""
    for run in runs:
        for row in (r for r in run.rows if r.get("kind") == "both"):
            print(f"{run.label}: perplexity {row['perplexity']:8.2f} {row['how']}")


def show_kv(runs: list) -> None:
    """Print bytes and perplexity by bits of the KV cache, for each recording."""
    for run in runs:
        for row in (r for r in run.rows if r.get("kind") == "kv"):
            of, how = f"{100 * row['of']:.0f} % of the bytes", f"keys by {row['keys']}"
            print(
                f"{run.label}: {row['bits']:2} bits, {how:15} {of}: {row['perplexity']:.3f}"
            )
