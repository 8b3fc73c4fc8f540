"""Seconds of a fine-tune: by hand, against rows left out, and what is refused."""

from dataclasses import replace

from gpulab_utils import CARDS, MODELS, training_time
from gpulab_utils.training_time import Pace, fit, left_out, published

import pytest

ROWS = published()


def test_seconds_by_hand():
    """A 13B, 1,000 tokens: 3 x (2 x 12.85e9 + 4 x 500 x 40 x 5120) flop each."""
    shape, card = MODELS["llama-2-13b"], CARDS["a100-sxm-80gb"]
    flop = 3 * 1000 * (2 * (12_687_769_600 + 32000 * 5120) + 4 * 500 * 40 * 5120)
    turn = 2 * 12_687_769_600 / 2.039e12
    told = Pace(0.5, {"lora": 0, "qlora": 10}).seconds(shape, card, "qlora", 1000)
    assert told == pytest.approx(flop / (0.5 * 312e12) + 10 * turn, rel=1e-3)


def test_rows_are_what_was_published():
    (row,) = [r for r in ROWS if (r.group[:8], r.mode, r.seq) == ("Qwen-14B", "lora", 2048)]
    assert row.seconds == pytest.approx(8.4 / 8)
    assert row.shape.params == 14_167_290_880  # as the row says of the model
    (row,) = [r for r in ROWS if r.card.id == "rtx-4090" and r.mode == "lora"]
    assert row.tokens_per_s == pytest.approx(3083)


def test_rows_are_kept_out_by_a_rule_and_told():
    assert len(ROWS) == 27
    small = published(training_time.SMALLER)
    assert len(small) == 10
    assert {r.shape.params for r in small} == {1_836_828_672}  # as the rows say
    found = training_time.ratios(fit(ROWS), small)
    assert 0.15 < min(found) < max(found) < 0.7


def test_a_fit_finds_what_made_the_rows():
    pace = Pace(0.4, {"lora": 5.0, "qlora": 20.0})
    made = [
        replace(r, seconds=pace.seconds(r.shape, r.card, r.mode, r.seq, r.batch))
        for r in ROWS
    ]
    found = fit(made)
    assert found.share == pytest.approx(0.4)
    assert found.turns == pytest.approx(pace.turns)
    assert all(x == pytest.approx(1) for ratios in left_out(made).values() for x in ratios)


def test_a_group_left_out_is_not_in_its_fit():
    spoiled = [replace(r, seconds=9 * r.seconds) if "72B" in r.group else r for r in ROWS]
    right, wrong = left_out(ROWS), left_out(spoiled)
    (group,) = [g for g in right if "72B" in g]
    assert wrong[group] == pytest.approx([x / 9 for x in right[group]])


def test_refusals():
    with pytest.raises(ValueError, match="rows of both modes"):
        fit([r for r in ROWS if r.mode == "lora"])
    told = {"id": "x", "mode": "lora", "train_speed": {"value": 1, "unit": "steps"}}
    sizes = dict.fromkeys(("hidden", "layers", "heads", "kv_heads", "head_dim"), 64)
    told |= sizes | {"intermediate": 64, "vocab": 64}
    with pytest.raises(ValueError, match="x: no rule for a speed in 'steps'"):
        training_time._row(told, "x", "qwen-7b", "a100-sxm-80gb")
