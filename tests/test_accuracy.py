"""The page of the planner's accuracy: its statistics, rules of thumb and paragraphs."""

import re
from statistics import quantiles

from gpulab_utils.plots import accuracy, answered
from gpulab_utils.tables import read

import pytest
from lab_files import ROOT

PAGE = (ROOT / "book" / "accuracy.md").read_text(encoding="utf-8")
# The rows that need no simulated pool: the others take seconds each.
ROWS = [
    r
    for r in read("published/memory.jsonl")
    if r["scored"] and (r["kind"], r["measured_level"]) == ("measured", "allocated")
]


@pytest.fixture(scope="module")
def found():
    return accuracy.points(ROWS, answered.answers(ROWS))


def test_answers_are_kept_until_planner_or_row_changes(monkeypatch, tmp_path):
    monkeypatch.setenv("GPULAB_CACHE", str(tmp_path))
    asked, rows = [], ROWS[:3]
    real = answered.answer
    monkeypatch.setattr(answered, "answer", lambda row: (asked.append(row), real(row))[1])
    fresh = [real(row) for row in rows]
    assert answered.answers(rows) == answered.answers(rows) == fresh
    assert asked == rows
    other = rows[0] | {"seq": rows[0]["seq"] + 64}
    assert answered.answers([other]) == [real(other)]
    assert asked[3:] == [other]
    monkeypatch.setattr(answered, "_planner", lambda: "changed")
    assert answered.answers(rows) == fresh
    assert asked[4:] == rows
    assert [p.name for p in tmp_path.iterdir()] == ["planner-changed.json"]


def test_what_the_planner_may_read_is_what_its_answers_are_kept_by():
    from test_setup import ORDER

    assert list(answered.READ) == ORDER[: ORDER.index("plan")]


def point(predicted, measured=100, **row):
    return accuracy.Point(row, predicted, measured)


def test_spread_is_the_scorers():
    """0, 1, ... 10 %: median 5, and nine tenths of the way 9, interpolated."""
    sizes = [point(100 + i) for i in range(11)]
    assert accuracy.spread(sizes) == pytest.approx((0.05, 0.09, 0.10))
    assert accuracy.spread([point(88)]) == pytest.approx((0.12, 0.12, 0.12))
    mixed = [point(x) for x in (90, 104, 107, 99)]
    ninth = quantiles([0.01, 0.04, 0.07, 0.10], n=10, method="inclusive")[8]
    assert accuracy.spread(mixed)[1] == pytest.approx(ninth)


def test_each_row_is_compared_at_its_own_level():
    told = {f"predicted_{k}gib": v for k, v in (("", 1), ("reserved_", 2), ("card_", 3))}
    for level, expected in (("allocated", 1), ("reserved", 2), ("card", 3)):
        row = {"kind": "measured", "measured_level": level, "measured_gib": 2}
        (made,) = accuracy.points([row], [told])
        assert made.predicted == expected


def test_skipped_rows_and_verdicts_are_no_points():
    rows = [{"kind": "measured"}, {"kind": "boundary_oom"}]
    assert accuracy.points(rows, [{"skipped": "why"}, {"predicted_fits": False}]) == []


def test_every_miss_has_its_paragraph(found):
    missed = [p for p in found if abs(p.error) > 0.1]
    assert {accuracy.why(p) for p in missed} <= set(accuracy.WHY.values())
    with pytest.raises(KeyError, match=r"new-row misses by \+20.0%: .* says nothing"):
        accuracy.why(point(120, id="new-row"))


def test_rules_of_thumb_by_hand():
    """Llama-2-13B in bf16: 2 x 13.0e9 bytes, and 4096 tokens of 819,200 bytes."""
    row = next(r for r in ROWS if r["model"] == "Llama-2-13B" and r["mode"] == "inference")
    row = row | {"weight_dtype": "bf16", "batch": 1, "seq": 4096}
    weights = 2 * 13_015_864_320 / 2**30
    assert accuracy.rule("1.2 x weights", row) == pytest.approx(1.2 * weights, rel=1e-3)
    both = weights + 4096 * 819_200 / 2**30
    assert accuracy.rule("weights + KV cache", row) == pytest.approx(both, rel=1e-3)
    assert accuracy.rule("16 bytes per parameter", {"params": 2**30}) == 16


def test_sources_and_makers_are_named():
    hub = {"source_url": "https://github.com/a/b/blob/0/docs/page.md (quoted)"}
    assert accuracy.source(point(1, **hub)) == "a/b, page.md"
    site = {"source_url": "https://docs.example.org/basics/bench"}
    assert accuracy.source(point(1, **site)) == "docs.example.org, bench"
    cards = {"RX 7900 XT": "AMD", "Apple M2 Ultra": "Apple", "H100 PCIe 80GB": "NVIDIA"}
    assert {c: accuracy.maker(point(1, gpu=c)) for c in cards} == cards


def test_figures_show_every_point(found):
    pytest.importorskip("matplotlib")
    for draw in (accuracy.peaks, accuracy.errors):
        (ax,) = draw(found).axes
        drawn = sum(len(x.get_xdata()) for x in ax.lines if x.get_linestyle() == "None")
        assert drawn == len(found)


def test_page_asserts_the_limits_and_lists_every_kind_of_miss():
    cells = "\n".join(re.findall(r"```\{code-cell\}.*?```", PAGE, re.DOTALL))
    assert cells.count("assert ") >= 12
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    for name in (
        "AWQ",
        "bf16-mixed",
        "8-bit Adam",
        "BERT",
        "bitsandbytes",
        "llm.c",
        "vLLM",
    ):
        assert name in prose
