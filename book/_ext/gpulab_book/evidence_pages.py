"""Where numbers come from: our recordings, what others published, the labs' checks."""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from gpulab_book import recorded
from gpulab_book.markup import listed, plain, table
from gpulab_utils.tables import read
from gpulab_utils.units import GIB


def labs() -> str:
    """Each lab, and what holds it."""
    head = ["lab", "compared cells", "assertions", "planted faults"]
    rows = [
        [_lab(n), recorded.compared_cells(n), recorded.asserted(n), recorded.faults(n)]
        for n in recorded.labs()
    ]
    return table(head, rows, right=1) if rows else "No lab has been added yet.\n"


def recordings() -> str:
    """Each device, and each lab it has run."""
    made = []
    by_device = sorted(recorded.runs(), key=lambda run: run[1]["where"]["device"])
    for device, runs in groupby(by_device, key=lambda run: run[1]["where"]["device"]):
        made += [f"## {plain(device)}\n", _of_device(list(runs))]
    return "\n".join(made) or "Nothing has been recorded yet: `make record` does it.\n"


def _of_device(runs: list[tuple[str, dict]]) -> str:
    head = [
        "lab",
        "date",
        "torch",
        "seconds",
        "RAM GiB",
        "VRAM GiB",
        "rows",
        "judged",
        "open",
    ]
    return table(head, (_recording(lab, run) for lab, run in runs), right=3)


def _recording(lab: str, run: dict) -> list[str]:
    where, judged = run["where"], sum(c["state"] == "stands" for c in run["checks"])
    vram = where.get("peak_vram_bytes")
    return [
        _lab(lab),
        where["date"],
        where["torch"],
        f"{where['wall_s']:.0f}",
        f"{where['peak_rss_bytes'] / GIB:.1f}",
        f"{vram / GIB:.1f}" if vram else "none",
        str(len(run["rows"])),
        str(judged),
        str(len(run["checks"]) - judged),
    ]


def _lab(name: str) -> str:
    return f"[{name}](../labs/{name}.ipynb)" if name in recorded.labs() else name


def published_memory() -> str:
    """Peak GPU memory as others measured it, by source."""
    rows = read("published/memory.jsonl")
    return _by_source(rows, "mode", "measured_level")


def published_speed() -> str:
    """Tokens per second as others measured them, by source."""
    return _by_source(read("published/decode_speed.jsonl"), "gpu", "backend")


def published_sizes() -> str:
    """GGUF types, by size."""
    rows = sorted(read("published/gguf_sizes.jsonl"), key=lambda r: (r["model"], _bits(r)))
    head = ["model", "type", "bits a weight", "file"]
    cells = (
        [
            plain(r["model"]),
            f"`{r['quant']}`",
            f"{_bits(r):.2f}" if _bits(r) else "not stated",
            f"{r['file_size']} {r['unit']}" if r["file_size"] else "not stated",
        ]
        for r in rows
    )
    return table(head, cells, right=2)


def published_perplexity() -> str:
    """Perplexity of 7B and 13B by format, each source with its data set."""
    data = read("published/perplexity.json")
    made = []
    for name, source in data["sources"].items():
        rows = [r for r in data["rows"] if r["source"] == name]
        context = source["context"] or "not stated"
        told = f"{plain(source['dataset'])}, context {context}: <{source['url']}>"
        cells = (
            [
                r["model"],
                plain(r["format"]),
                r["bits_per_weight"] or r["bits"],
                r["perplexity"],
            ]
            for r in rows
        )
        head = ["model", "format", "bits a weight", "perplexity"]
        made += [f"**{plain(name)}**, {told}\n", table(head, cells, right=2)]
    return "\n".join(made)


def published_files() -> str:
    """Every file, how many rows it has, and the file itself."""
    folder = recorded.ROOT / "gpulab_utils" / "data" / "published"
    return table(["file", "rows"], map(_file, sorted(folder.glob("*.json*"))), right=1)


def _file(path: Path) -> list[object]:
    data = read(f"published/{path.name}")
    if isinstance(data, dict):  # what is said of all rows, and the rows
        data = max((v for v in data.values() if isinstance(v, list)), key=len)
    address = path.relative_to(recorded.ROOT).as_posix()
    return [f"{{download}}`{path.name} <../{address}>`", len(data)]


def _bits(row: dict) -> float:
    return row["bits_per_weight"] or 0


def _by_source(rows: list[dict], *fields: str) -> str:
    def source(row: dict) -> str:
        return row["source_url"].split("/blob/")[0].split(" ")[0]

    made = []
    for address, group in groupby(sorted(rows, key=source), key=source):
        members = list(group)
        made.append([_link(address), len(members), _scored(members)])
        made[-1] += [plain(listed(sorted({str(m[f]) for m in members}))) for f in fields]
    names = [f.replace("measured_", "").replace("gpu", "cards") for f in fields]
    return table(["source", "rows", "scored", *names], made)


def _scored(rows: Iterable[dict]) -> int:
    return sum(bool(r["scored"]) for r in rows)


def _link(address: str) -> str:
    name = address.removeprefix("https://").removeprefix("github.com/")
    return f"[{plain(name)}]({address})"
