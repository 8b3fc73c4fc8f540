"""Recordings: what a machine measured, written by `make record`, read by pages and labs.

`results/<device>/<lab>.json` = {"where": ..., "rows": [...], "checks": [...]}. A page calls
`load`, which must find one; a lab's figure calls `shown`.
"""

import atexit
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from gpulab_utils import device

_START = time.monotonic()
_open: dict = {"lab": None, "rows": [], "checks": []}


@dataclass(frozen=True)
class Run:
    """One recording: where it was made, its rows, and what each check decided."""

    where: dict
    rows: list[dict]
    checks: list[dict]

    @property
    def label(self) -> str:
        """The device, as a figure's legend names it."""
        return self.where["device"]


def folder() -> Path:
    """`GPULAB_RESULTS`, or `results/` of the checkout, or the copy that the wheel carries.

    >>> folder().name
    'results'
    """
    if other := os.environ.get("GPULAB_RESULTS"):
        return Path(other)
    package = Path(__file__).parent
    checkout = package.parent / "results"
    return checkout if checkout.is_dir() else package / "data" / "results"


def record(lab: str, rows: list[dict]) -> None:
    """Keep `rows` for the recording of `lab`; nothing unless GPULAB_RECORD=1.

    The file is written when the lab has run to its end. Raises `RuntimeError` on the GPU
    stand-in, whose times mean nothing. GPULAB_RECORD=rehearse keeps and counts, and writes
    no file.
    """
    asked = os.environ.get("GPULAB_RECORD")
    if asked not in ("1", "rehearse"):
        return
    if asked == "1" and device.here().standin:
        raise RuntimeError("GPULAB_RECORD=1 on the GPU stand-in: nothing to record there")
    if _open["lab"] is None:
        atexit.register(_write)
        _note_failure()
    _open["lab"] = lab
    _open["rows"] += rows


def checked(entry: dict) -> None:
    """Keep what a check decided, for the recording of this lab."""
    _open["checks"].append(entry)


def load(lab: str) -> list[Run]:
    """The recordings of `lab`, one a device; `FileNotFoundError` where there is none."""
    paths = sorted(folder().glob(f"*/{lab}.json"))
    if not paths:
        raise FileNotFoundError(
            f"no recording of {lab} in {folder()}; make record NAME={lab}"
        )
    return [_run(p) for p in paths]


def shown(lab: str, rows: list[dict]) -> list[Run]:
    """What a lab's figure draws: the recordings, and `rows` where a person runs it.

    In CI (`CI` or `PYTEST_VERSION` set) it is the recordings alone, so that a stored figure
    has one provenance; this run stands in where there is no recording yet.
    """
    paths = sorted(folder().glob(f"*/{lab}.json"))
    runs = [_run(p) for p in paths]
    if runs and ("CI" in os.environ or "PYTEST_VERSION" in os.environ):
        return runs
    return [*runs, Run({"device": f"{device.here().name}, this run"}, rows, [])]


def where() -> dict:
    """Device, driver, versions, commit, date and cost of this process."""
    from gpulab_utils import memory

    import torch

    here = device.here()
    return {
        "device": here.name,
        "slug": here.slug,
        "driver": _driver(),
        "threads": here.threads,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "capability": here.capability,
        "python": sys.version.split()[0],
        "transformers": _version("transformers"),
        "bitsandbytes": _version("bitsandbytes"),
        "commit": _commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "wall_s": round(time.monotonic() - _START, 2),
        "peak_rss_bytes": memory.peak_rss_bytes(),
        "peak_vram_bytes": torch.cuda.max_memory_reserved() if here.is_gpu else None,
    }


def _run(path: Path) -> Run:
    return Run(**json.loads(path.read_text(encoding="utf-8")))


def _note_failure() -> None:
    before = sys.excepthook

    def hook(*error):
        _open["failed"] = True
        before(*error)

    sys.excepthook = hook


def _write() -> None:
    if _open.get("failed"):
        return
    told = where()
    text = {"where": told, "rows": _open["rows"], "checks": _open["checks"]}
    text = json.dumps(text, indent=1, ensure_ascii=False) + "\n"
    if os.environ["GPULAB_RECORD"] == "rehearse":
        counts = f"{len(_open['rows'])} rows, {len(_open['checks'])} checks"
        print(f"rehearsed {_open['lab']}: {counts}, nothing written")
        return
    path = folder() / told["slug"] / f"{_open['lab']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except ImportError:
        return None


def _commit() -> str | None:
    """The commit, "-dirty" where package or labs differ from it."""
    git = ["git", "-C", str(Path(__file__).parent.parent)]
    changed = [*git, "status", "--porcelain", "--", "gpulab_utils", "labs/*.py"]
    try:
        head, changes = (
            subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
            for asked in ([*git, "rev-parse", "--short=10", "HEAD"], changed)
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{head}-dirty" if changes else head


def _driver() -> str | None:
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml.nvmlSystemGetDriverVersion()
    except Exception:  # no NVML, no driver, no card: nothing to name
        return None
