"""How right is the planner? Its answer to every row of a file of measurements."""

import json
import math
import re
from pathlib import Path

from gpulab_utils.cards import CONTEXT_BYTES, TORCH_SHARE
from gpulab_utils.plan.bill import bill
from gpulab_utils.plan.decode import answer as decode_answer
from gpulab_utils.plan.frameworks import setting_of
from gpulab_utils.plan.replay import longest, reserved
from gpulab_utils.units import GIB, MIB


def answer(row: dict) -> dict:
    """What the planner says to one row, or why it says nothing."""
    base = {"id": row["id"], "kind": row.get("kind", "decode")}
    try:
        if "tokens_per_s" in row:
            return base | decode_answer(row)
        return base | predicted(row)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return base | {"skipped": f"{type(error).__name__}: {error}"}


def predicted(row: dict) -> dict:
    """Figures for the row's level, or what its kind asks for."""
    s = setting_of(row)
    context = (row.get("cuda_context_mib") or 0) * MIB or CONTEXT_BYTES
    kind = row.get("kind", "measured")
    if kind == "boundary_max_seq":
        return {"predicted_seq": longest(s, room(row) - context), "note": "longest"}
    b = bill(s)
    allocated = b.allocated + buffers(row, s)
    answer = {"predicted_gib": allocated / GIB, "note": b.phase}
    if row.get("measured_level") == "allocated":
        return answer
    held = reserved(s)
    if kind == "measured":  # a full card makes the allocator give back what it caches
        held = min(held, capacity(row) - context)
    held = max(allocated, held)
    if kind.startswith("boundary"):
        return answer | {"predicted_fits": held + context <= room(row)}
    return answer | {
        "predicted_reserved_gib": held / GIB,
        "predicted_card_gib": (held + context) / GIB,
    }


def capacity(row: dict) -> float:
    """The card's bytes, or no limit where the row names no card."""
    try:
        return room(row)
    except ValueError:
        return math.inf


def room(row: dict) -> float:
    """Bytes of the card before the context: what torch reports, else 0.98 of the box."""
    if row.get("usable_gib"):
        return row["usable_gib"] * GIB
    found = re.search(r"(\d+) ?GB", row.get("gpu") or "")
    if not found:
        raise ValueError(f"no size in the card's name {row.get('gpu')!r}")
    return TORCH_SHARE * int(found[1]) * GIB


def buffers(row: dict, s) -> int:
    """Input ids, position tables and, on fake tensors, the optimizer's step counters."""
    return 8 * s.batch * s.forward


def validate(path: str | Path) -> dict:
    """Rows and a summary, as the command prints them."""
    rows = [
        json.loads(line) for line in Path(path).read_text().splitlines() if line.strip()
    ]
    answers = [answer(row) for row in rows]
    skipped = sum("skipped" in a for a in answers)
    return {"rows": answers, "summary": {"rows": len(rows), "skipped": skipped}}
