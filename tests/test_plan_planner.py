"""`plan`: one formula for Python and the page, refusals, advice, speed, commands."""

import json
import random
import subprocess
import sys
import time

from gpulab_utils.cards import CARDS
from gpulab_utils.models import MODELS
from gpulab_utils.plan import MODES, cheapest_change, coefficients, plan
from gpulab_utils.plan.bill import bill

import pytest

WEIGHTS = {"inference": "nf4", "full_train": "bf16", "lora": "bf16", "qlora": "nf4"}


def page(tables, batch, seq):
    """What the static page does: find the table, sum its terms, take the maximum."""
    for t in tables:
        rules = t["conditions"]
        given = {"batch": batch, "seq": seq}
        inside = [lo <= given[k] <= (hi or given[k]) for k, (lo, hi) in rules.items()]
        if all(inside):
            short = min(seq, t["window"] or seq)
            sums = [
                sum(
                    c * batch**i * seq**j * short**k
                    for term in p["terms"].values()
                    for i, j, k, c in term
                )
                for p in t["phases"]
            ]
            return max(sums)
    raise AssertionError(f"no table for batch {batch}, {seq} tokens")


@pytest.mark.parametrize("mode", MODES)
def test_symbols_and_numbers_agree(mode):
    rng = random.Random(7)
    names = [n for n in MODELS if MODELS[n].family != "bert"]
    for name in rng.sample(names, 12):
        batch, seq = rng.choice([1, 2, 7]), rng.choice([16, 600, 4096, 9000])
        options = {"attention": rng.choice(["fused", "eager"])}
        p = plan(name, mode, WEIGHTS[mode], batch, seq, **options)
        kv = batch * MODELS[name].kv_bytes(seq) if mode == "inference" else 0
        assert p.allocated == bill(p.setting).allocated + kv, (name, batch, seq)
        tables = coefficients(name, mode, WEIGHTS[mode], **options)
        assert page(tables, batch, seq) == p.allocated, (name, batch, seq)


@pytest.mark.parametrize("loss", ["whole", "shifted_copy", "chunked", "fused"])
@pytest.mark.parametrize("mode", ["full_train", "qlora"])
def test_symbols_and_numbers_agree_for_each_loss(mode, loss):
    p = plan("smollm2-135m", mode, WEIGHTS[mode], 3, 700, loss=loss)  # its logits are large
    assert p.allocated == bill(p.setting).allocated


def test_checkpointing_keeps_one_input_a_layer():
    # 40 layers x 1 x 2048 x 5120 x 2 bytes of inputs; all activations are far more
    with_it, without = (
        plan("llama-2-13b", "lora", seq=2048, checkpointing=c).terms["activations"]
        for c in (True, False)
    )
    assert 40 * 2048 * 5120 * 2 < with_it < without / 5


def test_lora_of_13b_by_hand():
    # r = 16 on all linears: 16 x 40 x (4 x (5120 + 5120) + 3 x (5120 + 13824)) = 62.6 M
    n = 16 * 40 * (4 * 10240 + 3 * 18944)
    p = plan("llama-2-13b", "lora", seq=128)
    assert n == 62_586_880
    assert p.terms["weights"] == 2 * MODELS["llama-2-13b"].params + 4 * n
    assert p.terms["optimizer"] == 8 * n


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "qlora", "weights": "bf16"}, "qlora needs packed weights such as nf4"),
        ({"attention": "flash"}, "attention must be one of fused, eager, got 'flash'"),
        ({"mode": "full_train", "optimizer": "lion"}, "optimizer must be one of"),
        ({"mode": "lora", "targets": ("w1",)}, r"targets must be of .* got \['w1'\]"),
        ({"kv_dtype": "int3"}, "kv_dtype must be one of .* got 'int3'"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        plan("llama-2-7b", **options)


def test_advice_is_computed():
    card = CARDS["rtx-4090"]
    p = plan("llama-2-7b", "qlora", "nf4", batch=4, seq=2048)
    change = cheapest_change(p, card)
    assert not p.fits(card)
    assert change == "gradient checkpointing"
    assert plan("llama-2-7b", "qlora", "nf4", 4, 2048, checkpointing=True).fits(card)


def test_whole_grid_in_five_seconds():
    start, rooms = time.process_time(), [c.usable_bytes() for c in CARDS.values()]
    formats = ("bf16", "int8", "int4-g128", "nf4", "nf4-dq", "q4_k_m", "q8_0", "mxfp4")
    grid = {"inference": formats, "full_train": ("fp32", "bf16"), "lora": ("bf16",)}
    for mode, kinds in (grid | {"qlora": ("nf4", "nf4-dq")}).items():
        for name in MODELS:
            for kind in kinds:
                for seq in (2**i for i in range(9, 17)):
                    bytes_needed = plan(name, mode, kind, 1, seq).allocated
                    assert len([bytes_needed <= room for room in rooms]) == len(CARDS)
    assert time.process_time() - start < 5


def run(*args):
    command = [sys.executable, "-m", "gpulab_utils", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_commands_print_json(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "gpt2"}))
    told = json.loads(run("plan", str(config), "--seq", "64", "--json").stdout)
    assert told["terms"]["weights"] == 2 * 124_439_808
    free = run(
        "plan", "--hidden", "512", "--layers", "4", "--heads", "8", "--vocab", "1000"
    )
    assert "allocated" in free.stdout
    assert len(json.loads(run("models", "--json").stdout)) == len(MODELS)
    assert run("plan", "llama-2-13", "--json").returncode == 2


def test_validate_prints_one_object(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"id": "x", "kind": "measured", "mode": "inference"}))
    told = json.loads(run("validate", str(rows), "--json").stdout)
    assert told["rows"][0]["id"] == "x"
    assert "skipped" in told["rows"][0]


def test_planning_imports_no_torch():
    code = "import sys, gpulab_utils.plan.validate as v; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
