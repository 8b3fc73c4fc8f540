"""What to try first: every number comes from a row or the planner, and no row is needed."""

import re
import subprocess
import sys
from collections import Counter

from gpulab_utils import plots, results, techniques
from gpulab_utils.plan import plan

import jupytext
import pytest
from lab_files import ROOT

PAGE = ROOT / "book" / "what_to_try_first.md"
LABS = ("12_memory", "13_quantization", "14_pruning", "15_distillation")


def made(**other) -> dict:
    given = {
        "use": "inference", "base": "plain", "bytes_ratio": 0.5, "of": "weights",
        "time_ratio": 2.0, "quality": "equal to the bit", "effort": "a setting",
    }  # fmt: skip
    return techniques.row(other.pop("technique", "a"), **(given | other))


@pytest.mark.parametrize("lab", LABS)
def test_each_lab_that_makes_models_fit_has_a_row(lab):
    rows = [r for run in results.load(lab) for r in run.rows]
    assert any(r.get("kind") == "technique" for r in rows), f"{lab} gives no advice"


def test_a_row_is_told_once():
    for run in techniques.recorded():
        told = Counter((r["lab"], r["technique"], r["base"], r["of"]) for r in run.rows)
        assert set(told.values()) == {1}


def test_every_recorded_row_is_a_row():
    """Words that `row` refuses, or a part that no bill has, would break the page."""
    bill = plan("llama-2-7b", seq=128).terms
    for run in techniques.recorded():
        for r in run.rows:
            given = {k: v for k, v in r.items() if k not in ("kind", "lab")}
            given["quality"] = r["quality"]
            assert techniques.row(**given) | {"lab": r["lab"]} == r
            assert techniques.lost(r) > -1
            if r["use"] == "inference":
                assert techniques.saved(r, bill) <= bill["weights"]


@pytest.mark.parametrize(
    ("quality", "share"),
    [
        (("perplexity", 10, 11), 0.1),
        (("perplexity", 10, 9), -0.1),
        (("nats a byte", 1, 1 + 0.0953), 0.1),
        (("accuracy", 0.8, 0.6), 0.25),
        ("the same tokens", 0),
    ],
)
def test_what_is_lost(quality, share):
    assert techniques.lost(made(quality=quality)) == pytest.approx(share, abs=1e-3)


def test_the_cheapest_comes_first_and_what_loses_is_left_out():
    rows = [
        made(technique="dear", effort="a training run", bytes_ratio=0.1),
        made(technique="bad", quality=("perplexity", 10, 12), bytes_ratio=0.1),
        made(technique="little", bytes_ratio=0.9),
        made(technique="much", bytes_ratio=0.3),
        made(technique="nothing", bytes_ratio=1, time_ratio=1),
        made(technique="quick", bytes_ratio=1, time_ratio=0.5),
        made(technique="other", use="training"),
    ]
    names = [r["technique"] for r in techniques.worth(rows, "inference")]
    assert names == ["much", "little", "quick", "dear"]


def test_a_part_that_no_bill_has_is_named():
    with pytest.raises(ValueError, match="got 'the road'"):
        made(of="the road")
    whole = made(of="a whole step", bytes_ratio=0.75)
    assert techniques.saved(whole, {"weights": 3, "logits": 1}) == 1


def test_older_recordings_are_read_too():
    rows = [
        {
            "kind": "attention",
            "way": f"scores {w}",
            "length": n,
            "peak_bytes": b,
            "took_s": s,
        }
        for w, n, b, s in (
            ("written out", 64, 50, 5),
            ("written out", 128, 100, 8),
            ("kept inside", 128, 10, 2),
        )
    ]
    (row,) = techniques.told_otherwise("10_operators", rows)
    assert (row["bytes_ratio"], row["time_ratio"]) == (0.1, 0.25)
    assert row["of"] == "attention at 128 tokens"
    assert techniques.told_otherwise("10_operators", rows[:2]) == []
    assert techniques.told_otherwise("10_operators", rows[::2][:1]) == []
    assert techniques.told_otherwise("02_bottlenecks", rows) == []


def test_a_figure_marks_what_loses():
    pytest.importorskip("matplotlib")
    rows = [
        made(),
        made(technique="b", quality=("perplexity", 10, 10.2)),
        made(
            technique="c", quality=("perplexity", 10, 20), time_ratio=None, why_no_time="no"
        ),
    ]
    run = results.Run({"device": "a CPU"}, rows, [])
    (ax,) = plots.bytes_against_time([run], "inference").axes
    markers = {line.get_marker() for line in ax.lines if line.get_marker() != "None"}
    assert markers == {"o", "^", "s"}
    assert [t.get_text() for t in ax.get_legend().get_texts()] == list(plots.advice.GRADES)
    with pytest.raises(ValueError, match="no technique row for 'training'"):
        plots.bytes_against_time([run], "training")


def cells() -> list[str]:
    return [c.source for c in jupytext.read(PAGE).cells if c.cell_type == "code"]


def test_every_glued_number_is_shown():
    text, code = PAGE.read_text(encoding="utf-8"), "\n".join(cells())
    glued = set(re.findall(r"\{glue:text\}`(\w+)", text))
    assert glued == set(re.findall(r"(?m)^    (\w+)=.*,$", code[code.index("\nshow(") :]))


@pytest.mark.parametrize("kept", [0, 1, None], ids=["none", "one", "all"])
def test_the_page_runs_with_rows_missing(kept, tmp_path):
    """With one row of inference alone, with one a use, with all."""
    code = "from gpulab_utils import techniques\nreal = techniques.recorded()\n"
    code += f"""
kept = {kept}
if kept is not None:
    uses = techniques.USES[: kept + 1]
    rows = [next(r for r in real[0].rows if r['use'] == use) for use in uses]
    one = techniques.results.Run(real[0].where, rows, [])
    techniques.recorded = lambda: [one]
"""
    script = tmp_path / "page.py"
    script.write_text(code + "\n".join(cells()).replace("_ = plots", "figure = plots"))
    env_free = [sys.executable, str(script)]
    ran = subprocess.run(env_free, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr[-800:]
