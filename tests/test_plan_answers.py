"""Published measurements: errors within the limits that the accuracy page states."""

import json
from pathlib import Path
from statistics import median

from gpulab_utils.plan.validate import answer
from gpulab_utils.tables import read

import pytest

LEVEL = {
    "allocated": "predicted_gib",
    "reserved": "predicted_reserved_gib",
    "card": "predicted_card_gib",
}


def rows(name):
    return [r for r in read(f"published/{name}.jsonl") if r["scored"]]


def errors(mode):
    """Errors of `allocated` rows: the fast ones, without a simulated pool."""
    found = []
    for r in rows("memory"):
        if (r["kind"], r["mode"], r["measured_level"]) == ("measured", mode, "allocated"):
            found.append(abs(answer(r)["predicted_gib"] / r["measured_gib"] - 1))
    return sorted(found)


@pytest.mark.parametrize(
    ("mode", "middle", "tail"),
    [
        ("inference", 0.03, 0.10),
        ("lora", 0.03, 0.08),
        ("qlora", 0.06, 0.12),
        ("full_train", 0.10, 0.20),
    ],
)
def test_allocated_within_limits(mode, middle, tail):
    found = errors(mode)
    assert median(found) <= middle
    assert found[round(0.9 * (len(found) - 1))] <= tail


def test_fake_rows_are_exact():
    for r in rows("fake_sample"):
        told = answer(r)["predicted_gib"] * 2**30
        assert told == pytest.approx(r["measured_bytes"], rel=0.002), r["id"]


def test_no_measured_field_is_read():
    fields = ("measured_gb", "measured_gib", "measured_bytes", "bytes_by_category")
    for r in (*rows("memory")[:30], *rows("fake_sample")):
        blind = {k: v for k, v in r.items() if k not in fields}
        if r.get("kind") == "measured" and r["measured_level"] == "allocated":
            assert answer(blind) == answer(r), r["id"]


def test_what_is_not_modelled_says_so():
    (row,) = [r for r in rows("memory") if "llm.c" in r["framework"]]
    assert "not modelled" in answer(row)["skipped"]


def test_a_config_wins_over_the_fields():
    row = dict(rows("fake_sample")[0], hidden=1, layers=1)
    assert answer(row) == answer(rows("fake_sample")[0])


def test_planner_sources_name_no_published_memory_row():
    folder = Path(__file__).parent.parent / "gpulab_utils" / "plan"
    text = "".join(p.read_text() for p in folder.glob("*.py"))
    assert "memory.jsonl" not in text
    assert json.dumps("fake_sample") not in text
