"""The box under a lab's title: get it, open it, and what running it took where."""

import json
import re
from pathlib import Path

from gpulab_book import wheel

from docutils import nodes

LAB = re.compile(r"labs/(\d\d_\w+)")
COLAB = "https://colab.research.google.com/github/"


def colab_url(repository: str, branch: str, path: str) -> str | None:
    """Where Colab opens `path` of the repository; None where it has no public address.

    Raises `ValueError` for an address that Colab cannot open.
    """
    if not repository:
        return None
    found = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?", repository)
    if not found:
        raise ValueError(f"repository.url must name GitHub, got {repository!r}")
    return f"{COLAB}{found[1]}/blob/{branch}/{path}"


def recorded(root: Path, lab: str) -> list[dict]:
    """`where` of each recording of `lab`: device, date, seconds, bytes."""
    paths = sorted(root.glob(f"results/*/{lab}.json"))
    return [json.loads(p.read_text(encoding="utf-8"))["where"] for p in paths]


def cost(where: dict) -> str:
    """One recording in a sentence.

    >>> cost({"device": "A card", "date": "2026-11-30", "wall_s": 61,
    ...       "peak_rss_bytes": 3 << 30, "peak_vram_bytes": None})
    'A card: 61 s, 3.0 GiB of RAM (2026-11-30)'
    """
    took = [f"{where['wall_s']:.0f} s", f"{where['peak_rss_bytes'] / 2**30:.1f} GiB of RAM"]
    if where.get("peak_vram_bytes"):
        took.append(f"{where['peak_vram_bytes'] / 2**30:.1f} GiB of VRAM")
    return f"{where['device']}: {', '.join(took)} ({where['date']})"


def add(app, doctree) -> None:
    found = LAB.fullmatch(app.env.docname)
    title = next(doctree.findall(nodes.title), None)
    if not found or title is None:
        return
    lab = found[1]
    box = nodes.container(classes=["lab-box"])
    box += _links(app.config.html_theme_options, lab)
    runs = recorded(Path(app.srcdir), lab)
    box += _paragraph(
        "Recording all of it took:" if runs else "Not recorded on any machine yet."
    )
    if runs:
        items = (nodes.list_item("", _paragraph(cost(where))) for where in runs)
        box += nodes.bullet_list("", *items)
    title.parent.insert(title.parent.index(title) + 1, box)


def _links(options: dict, lab: str) -> nodes.paragraph:
    """Relative to labs/, where every lab page is."""
    links = {
        f"Download {lab}.ipynb": f"../_sources/labs/{lab}.ipynb",
        "Download gpulab_utils (wheel)": f"../{wheel.name()}",
    }
    address, branch = options.get("repository_url"), options.get("repository_branch")
    if url := colab_url(address, branch, f"labs/{lab}.ipynb"):
        links["Open in Colab"] = url
    made = nodes.paragraph(classes=["lab-links"])
    for text, uri in links.items():
        made += [nodes.reference("", text, refuri=uri, internal=False), nodes.Text(" ")]
    return made


def _paragraph(text: str) -> nodes.paragraph:
    return nodes.paragraph("", text)


def setup(app) -> None:
    app.connect("doctree-read", add)
