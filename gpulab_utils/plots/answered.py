"""The planner's answers to published rows. Many simulate a pool, a second each: kept.

They lie in the cache folder under a hash of the planner and of its tables, so that a change
of either asks all rows anew.
"""

import hashlib
import json
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

from gpulab_utils.load import cache_folder
from gpulab_utils.plan.validate import answer

ROOT = Path(__file__).parents[1]
#: All that the planner may read; the import order of the package says so.
READ = ("units", "tables", "cards", "configs", "models", "roofline", "fit")


def answers(rows: list[dict]) -> list[dict]:
    """What the planner says to each row, asked on all cores or found where it is kept.

    >>> answers([{"id": "x", "mode": "inference"}])[0]["id"]
    'x'
    """
    file = cache_folder() / f"planner-{_planner()}.json"
    kept = json.loads(file.read_text()) if file.exists() else {}
    keys = [hashlib.sha256(json.dumps(row).encode()).hexdigest() for row in rows]
    new = {key: row for key, row in zip(keys, rows, strict=True) if key not in kept}
    if new:
        kept |= dict(zip(new, _asked(list(new.values())), strict=True))
        with suppress(OSError):  # nowhere to keep them: asked anew next time
            _keep(file, kept)
    return [kept[key] for key in keys]


def _asked(rows: list[dict]) -> list[dict]:
    if sum(row.get("measured_level") in ("reserved", "card") for row in rows) < 9:
        return [answer(row) for row in rows]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        return list(pool.map(answer, rows, chunksize=2))


def _planner() -> str:
    paths = [*ROOT.glob("plan/**/*.py"), *ROOT.glob("data/*.json")]
    paths += [*ROOT.glob("data/published/*.json*"), *(ROOT / f"{m}.py" for m in READ)]
    told = hashlib.sha256()
    for path in sorted(paths):
        told.update(path.name.encode() + path.read_bytes())
    return told.hexdigest()[:16]


def _keep(file: Path, kept: dict) -> None:
    """Write at once, and remove what an older planner said."""
    file.parent.mkdir(parents=True, exist_ok=True)
    for old in file.parent.glob("planner-*.json"):
        if old != file:
            old.unlink(missing_ok=True)
    number, part = tempfile.mkstemp(dir=file.parent)
    with open(number, "w") as to:
        json.dump(kept, to)
    os.replace(part, file)
