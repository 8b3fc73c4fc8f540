"""Datasets for a loader with workers: pictures to decode, and waits of a known length.

They stand in a file, since a worker that is spawned imports what it is to load: a class
that was defined in a notebook's cell it cannot find. Times are seconds.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from gpulab_utils.load import MissingInput

SIDE = 224  # what a model gets, whatever the size of the file


class Waiting:
    """Item i takes `waits[i]` seconds and no core; `payload` bytes come with it.

    An item is (uint8 tensor [payload], i, how long it took).

    >>> data = Waiting([0.001, 0.002])
    >>> len(data), data[1][1], data[1][2] >= 0.002
    (2, 1, True)
    """

    def __init__(self, waits: Sequence[float], payload: int = 8):
        self.waits, self.payload = list(waits), payload

    def __len__(self) -> int:
        return len(self.waits)

    def __getitem__(self, i: int) -> tuple:
        import torch

        start = time.perf_counter()
        time.sleep(self.waits[i])
        bytes_ = torch.full((self.payload,), i % 256, dtype=torch.uint8)
        return bytes_, i, time.perf_counter() - start


class Pictures:
    """`n` items from the JPEG files of `folder`, read again and again in order.

    An item is (uint8 tensor [3, 224, 224], i). `draft` lets libjpeg decode at the half,
    quarter or eighth of the size that is still 224 or more: most of the work is not done.
    Raises `FileNotFoundError` for a folder without pictures.
    """

    def __init__(self, folder: str | Path, n: int, *, draft: bool = False):
        self.files = sorted(map(str, Path(folder).glob("*.jpg")))
        self.n, self.draft = n, draft
        if not self.files:
            raise FileNotFoundError(f"no *.jpg in {folder}: jpegs.make(folder) writes some")

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> tuple:
        if not 0 <= i < self.n:
            raise IndexError(f"item {i} of {self.n}")
        import numpy
        import torch
        from PIL import Image

        with Image.open(self.files[i % len(self.files)]) as picture:
            if self.draft:
                picture.draft("RGB", (SIDE, SIDE))
            small = picture.convert("RGB").resize((SIDE, SIDE))
        return torch.from_numpy(numpy.array(small)).permute(2, 0, 1), i


def make(folder: str | Path, n: int = 4, *, side: int = 896, seed: int = 0) -> int:
    """Write `n` JPEG files of `side` x `side` pixels; their bytes together.

    Soft colours under noise, so that they compress as a photograph does. Raises
    `load.MissingInput` where Pillow is not installed.
    """
    import torch
    import torch.nn.functional as F

    try:
        from PIL import Image
    except ImportError:
        raise MissingInput("JPEG files need Pillow: pip install pillow") from None
    draw = torch.Generator().manual_seed(seed)
    paths = [Path(folder) / f"{i:04}.jpg" for i in range(n)]
    for path in paths:
        coarse = torch.rand(1, 3, 12, 12, generator=draw)
        colours = F.interpolate(coarse, (side, side), mode="bicubic")[0]  # [3, side, side]
        noise = 0.06 * torch.randn(side, side, generator=draw)
        pixels = (255 * (colours + noise).clamp(0, 1)).byte().permute(1, 2, 0)
        Image.fromarray(pixels.contiguous().numpy()).save(path, quality=90)
    return sum(path.stat().st_size for path in paths)


def total_s(
    loads: Sequence[float], step_s: float, *, workers: int, prefetch: int = 2
) -> float:
    """When the last step ends, if batch i takes `loads[i]` to load and `step_s` to use.

    As torch's loader works: batches go round the workers, `prefetch` of them are asked of
    each in advance, and one more whenever one is taken. No core is short, no call costs.

    >>> [total_s([3] * 4, 2, workers=w) for w in (0, 1, 2)]  # 4 (3 + 2), 4 3 + 2, 3 + 4 2
    [20.0, 14.0, 11.0]
    """
    if workers < 0 or prefetch < 1:
        raise ValueError(f"workers from 0, prefetch from 1, got {workers}, {prefetch}")
    if not workers:
        return float(sum(loads) + len(loads) * step_s)
    ready, taken, end = [], [], 0.0
    for i, load_s in enumerate(loads):
        free = ready[i - workers] if i >= workers else 0.0
        ahead = workers * prefetch
        asked = taken[i - ahead] if i >= ahead else 0.0
        ready.append(max(free, asked) + load_s)
        taken.append(max(end, ready[i]))
        end = taken[i] + step_s
    return end


def start_method() -> str:
    """How workers are started here: "fork" on Linux, "spawn" elsewhere.

    A forked worker has what its parent had; torch gives it one thread before it loads, so
    that the parent's OpenMP threads, which no fork copies, are never waited for.

    >>> start_method() in ("fork", "spawn")
    True
    """
    return "fork" if sys.platform == "linux" else "spawn"


def workers(n: int, *, prefetch: int = 2, keep: bool = True) -> dict:
    """Options for a `DataLoader` with `n` workers, kept from epoch to epoch if `keep`.

    None of them in a script whose workers would be spawned: each would run the whole
    script anew. It says so, once.

    >>> workers(0)
    {'num_workers': 0}
    """
    method = start_method()
    if n and method == "spawn" and hasattr(sys.modules["__main__"], "__file__"):
        _say_so()
        n = 0
    if not n:
        return {"num_workers": 0}
    ahead = {"prefetch_factor": prefetch, "persistent_workers": keep}
    return {"num_workers": n, "multiprocessing_context": method} | ahead


@cache
def _say_so() -> None:
    print("0 workers: run the notebook, a script's workers would run the script too")


def spawn_s() -> float:
    """Seconds until a spawned process has imported torch: what each worker does first."""
    child = [sys.executable, "-c", _SPAWN]
    return float(subprocess.check_output(child, env=_env(), text=True))


def outcome(source: str, file: Path | None = None) -> str:
    """What Python says to `source`: the name of the error, or "works".

    Run from `file` if one is given, else as a notebook runs a cell: from no file at all.
    """
    if file:
        file.write_text(source, encoding="utf-8")
    child = [sys.executable, *([str(file)] if file else ["-c", source])]
    done = subprocess.run(child, env=_env(), capture_output=True, text=True, check=False)
    errors = re.findall(r"(?m)^(\w+(?:Error|Exception))\b", done.stderr)
    return errors[0] if errors else "works"


def _env() -> dict[str, str]:
    path = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    found = os.pathsep.join(filter(None, path))
    return os.environ | {"PYTHONPATH": found, "GPULAB_DEVICE": "cpu"}


_SPAWN = """
import time
from importlib import import_module
from multiprocessing import get_context

start = time.perf_counter()
worker = get_context("spawn").Process(target=import_module, args=["torch.utils.data"])
worker.start()
worker.join()
print(time.perf_counter() - start)
"""
