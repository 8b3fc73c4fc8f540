"""How right is the planner? Its answer to every row of a file of measurements."""

import json
from pathlib import Path

from gpulab_utils.cards import CONTEXT_BYTES
from gpulab_utils.plan.frameworks import setting_of
from gpulab_utils.plan.setting import bill
from gpulab_utils.units import GIB


def answer(row: dict) -> dict:
    """What the planner says to one row, or why it says nothing."""
    base = {"id": row["id"], "kind": row.get("kind", "decode")}
    try:
        return base | predicted(row)
    except (ValueError, KeyError, TypeError) as error:
        return base | {"skipped": f"{type(error).__name__}: {error}"}


def predicted(row: dict) -> dict:
    s = setting_of(row)
    b = bill(s)
    allocated = b.allocated + buffers(row, s)
    return {
        "predicted_gib": allocated / GIB,
        "predicted_reserved_gib": allocated / GIB,
        "predicted_card_gib": (allocated + CONTEXT_BYTES) / GIB,
        "note": b.phase,
    }


def buffers(row: dict, s) -> int:
    """Input ids, position tables and, on fake tensors, the optimizer's step counters."""
    return 8 * s.batch * s.forward


def validate(path: str | Path) -> dict:
    """Rows and a summary, as the command prints them."""
    rows = [json.loads(line) for line in Path(path).read_text().splitlines() if line.strip()]
    answers = [answer(row) for row in rows]
    skipped = sum("skipped" in a for a in answers)
    return {"rows": answers, "summary": {"rows": len(rows), "skipped": skipped}}
