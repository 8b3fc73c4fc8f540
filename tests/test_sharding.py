"""More than one card: arithmetic by hand, and real ranks that do what it says."""

import json
import math
import os
import subprocess
import sys
import time
from types import SimpleNamespace

from gpulab_utils import CARDS, MODELS, fit, ranks, small_gpt
from gpulab_utils.sharding import kills, memory, pays, wire
from gpulab_utils.sharding.rehearsal import one_of, rehearse
from gpulab_utils.sharding.wire import Call, Road
from gpulab_utils.workers import elastic, gpt, reshard, sharded_steps, tensor_parallel
from gpulab_utils.workers.wire import Wire, collective

import pytest
import torch
import torch.distributed as dist
from torch import nn

SHAPE = {"width": 64, "layers": 2}
CARRY = {"shape": SHAPE, "batch": 8, "time": 32}
SPLIT = {"width": 64, "inner": 256, "batch": 2, "time": 16, "rounds": 1}
PARTS = gpt.parts(**SHAPE)
posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="process ids of POSIX")


def carried_alone(ask: dict) -> dict:
    with ranks.alone() as place:
        return reshard.carried(ask, place)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """By number of ranks what they told; two save their training, four take it over."""
    folder, found = tmp_path_factory.mktemp("carried"), {}
    train = {"shape": SHAPE, "batch": 8, "time": 32, "steps": 3}
    for many, carry in {
        2: {"steps": 2, "save": str(folder / "by2")},
        4: {"steps": 2, "load": str(folder / "by2"), "save": str(folder / "by4")},
    }.items():
        ask = {"train": train, "split": SPLIT, "carry": CARRY | carry}
        found[many] = ranks.launch("rank_jobs", ask, ranks=many, limit_s=240)
    found[1] = [{"carry": carried_alone(CARRY | {"steps": 1, "load": str(folder / "by4")})}]
    return found


def distances(by_dtype: dict, base: dict, dtype: str) -> float:
    pairs = zip(by_dtype[dtype]["losses"], base[dtype]["losses"], strict=True)
    return max(abs(a / b - 1) for a, b in pairs)


@posix
@pytest.mark.parametrize("many", [2, 4])
def test_ranks_learn_what_one_process_learns(told, many):
    for rank in told[many]:
        ways = rank["train"]
        for way in "ddp", "fsdp", "fsdp, kept":
            assert distances(ways[way], ways["alone"], "float32") <= 1e-6
            assert distances(ways[way], ways["alone"], "float64") <= 1e-14, "only rounding"
        first, *_, last = ways["alone"]["float32"]["losses"]
        assert last < first - 0.1


@posix
@pytest.mark.parametrize("many", [2, 4])
def test_each_rank_holds_its_share(told, many):
    for rank in told[many]:
        for way, name in {"ddp": "ddp", "fsdp": "fsdp", "fsdp, kept": "fsdp"}.items():
            expected = memory.held(PARTS, name, many, bytes_each=memory.SINGLE)
            found = rank["train"][way]["float32"]
            for what in "parameters", "gradients", "optimizer":
                assert found[what] == getattr(expected, what), (way, what)


@posix
@pytest.mark.parametrize("many", [2, 4])
def test_the_wire_carries_what_the_calls_say(told, many):
    sizes = [4 * n for n in PARTS]
    expected = {
        "ddp": [("all_reduce", sum(sizes))],
        "fsdp": [(c.kind, c.n_bytes) for c in wire.fsdp(sizes)],
        "fsdp, kept": [(c.kind, c.n_bytes) for c in wire.fsdp(sizes, reshard=False)],
    }
    for way, calls in expected.items():
        found = told[many][0]["train"][way]["float32"]
        seen = [tuple(call) for call in found["calls"] if call[0] != "broadcast"]
        assert seen == calls, way
        if found["loopback"] is not None:
            sent = wire.by_gloo([Call(*call) for call in calls], many)
            assert 1 <= found["loopback"] / sent < 1.25, way


@posix
@pytest.mark.parametrize("many", [2, 4])
def test_a_divided_layer_gives_the_values_of_the_whole(told, many):
    for rank in told[many]:
        found = rank["split"]
        assert max(found["far"].values()) < 2e-6
        assert found["bytes"] * many == found["whole_bytes"] == 4 * 3 * 64 * 256
        activations = ["all_reduce", 4 * 2 * 16 * 64]
        assert found["forward"] == found["backward"] == [activations]


@posix
def test_a_checkpoint_of_two_is_read_by_four_and_by_one(told):
    two, four, one = (
        [{key: r["carry"].get(key) for key in ("loaded", "digest", "losses")} for r in rs]
        for rs in (told[2], told[4], told[1])
    )
    assert {r["loaded"] for r in four} == {r["digest"] for r in two}
    assert {r["loaded"] for r in one} == {r["digest"] for r in four}
    there = carried_alone(CARRY | {"steps": 5})["losses"]
    carried = two[0]["losses"] + four[0]["losses"] + one[0]["losses"]
    assert carried == pytest.approx(there, rel=1e-6), "and the batches went on in order"
    written = [sum(r["carry"]["written"] for r in told[many]) for many in (2, 4)]
    state = 4 * 3 * sum(PARTS)  # weights and two of Adam
    assert all(state < n < 1.5 * state for n in written), "each part once, and its names"


def test_unless_the_input_is_prepared_two_gradients_of_it_are_summed():
    ask = SPLIT | {"rounds": 0}
    with one_of(4):
        counts = {
            prepared: len(
                tensor_parallel.compared(ask | {"prepared": prepared}, torch.device("cpu"))[
                    "backward"
                ]
            )
            for prepared in (True, False)
        }
    assert counts == {True: 1, False: 2}


@pytest.mark.filterwarnings("ignore:`torch.distributed:FutureWarning")  # since torch 2.13
def test_every_kind_of_call_is_seen_with_the_bytes_of_the_whole():
    place = torch.device("cpu")
    with one_of(4), Wire() as seen:
        for kind in sharded_steps.KINDS:
            collective(kind, 4096, place)()
        dist.broadcast(torch.zeros(3), 0)
        torch.add(torch.zeros(2), 1)
    assert seen.calls == [(k, 4096) for k in sharded_steps.KINDS] + [("broadcast", 12)]
    with one_of(3):
        with pytest.raises(ValueError, match="4096 bytes do not divide"):
            collective("all_gather", 4096, place)
        with pytest.raises(ValueError, match="got 'scatter'"):
            collective("scatter", 12, place)


def test_a_13b_over_eight_cards_is_rehearsed_without_memory():
    from transformers import LlamaConfig, LlamaForCausalLM

    shape, layers = MODELS["llama-2-13b"], 4

    def make():
        sizes = {"hidden_size": 5120, "intermediate_size": 13824, "num_attention_heads": 40}
        config = LlamaConfig(num_hidden_layers=layers, **sizes)
        return LlamaForCausalLM._from_config(config, dtype=torch.bfloat16)

    groups = pays.parts(shape)[: layers + 1]
    found = rehearse(make, "fsdp", 8)
    assert found.held["parameters"] == 2 * sum(groups) // 8
    assert found.held["optimizer"] == 2 * 2 * sum(groups) // 8, "AdamW keeps the dtype"
    assert found.calls == wire.fsdp([2 * n for n in groups])


def test_what_is_gathered_at_the_peak():
    shape = {"width": 128, "layers": 2}
    peak = rehearse(lambda: gpt.make(**shape), "fsdp", 4, peak=True).peak
    expected = memory.held(gpt.parts(**shape), "fsdp", 4, bytes_each=memory.SINGLE)
    assert peak["Sharded Param"] == expected.parameters
    gathered = peak["Unsharded Param"] + peak["All Gather"] + peak["Reduce Scatter"]
    assert gathered == expected.gathered


def test_parts_of_a_gpt_are_those_of_its_parameters():
    for shape in SHAPE, {"width": 192, "layers": 3, "positions": 40}:
        model = gpt.make(**shape)
        layers = [sum(p.numel() for p in one.parameters()) for one in model.layers]
        whole = sum(p.numel() for p in model.parameters())
        assert gpt.parts(**shape) == [whole - sum(layers), *layers]
    with pytest.raises(ValueError, match="got 96"):
        gpt.make(width=96)


def test_zero_by_hand():
    """Figure 1 of the paper: 7.5 billion parameters over 64 ranks, in GB."""
    parts = [0, 7_500_000_000]
    states = {w: memory.held(parts, w, 64).state / 1e9 for w in memory.DIVIDED}
    told = {"ddp": 120, "zero-1": 31.4, "zero-2": 16.6, "fsdp": 1.9}
    assert states == pytest.approx(told, abs=0.05)
    assert (
        memory.held(parts, "fsdp", 1).gathered == memory.held(parts, "ddp", 1).gathered == 0
    )
    assert memory.held(parts, "ddp", 64).gathered == 15e9, "buckets: gradients in 16 bit"
    with pytest.raises(ValueError, match="got 'zero-4'"):
        memory.held(parts, "zero-4", 8)
    with pytest.raises(ValueError, match="got 0"):
        memory.held(parts, "ddp", 0)


def test_a_step_by_hand():
    calls = [Call("all_reduce", 8e9), Call("all_gather", 4e9)]
    road = Road(0.25, 4e9)
    # 4 ranks: 6 messages and 12 GB, 3 messages and 3 GB; a quarter of 16 s of work.
    assert pays.step_s(16.0, calls, 4, road) == 4 + 6 * 0.25 + 3 + 3 * 0.25 + 0.75
    assert pays.step_s(16.0, calls, 4, road, hidden=1.0) == 6.0
    assert pays.gain(16.0, calls, 1, road) == 1.0
    assert wire.ddp([3, 4], bucket_bytes=5) == [
        Call("all_reduce", 5),
        Call("all_reduce", 2),
    ]
    with pytest.raises(ValueError, match="got 'all_to_all'"):
        wire.sent("all_to_all", 1, 2)
    with pytest.raises(ValueError, match="got 0"):
        wire.sent("all_reduce", 1, 0)


@pytest.mark.parametrize("way", ["ddp", "fsdp"])
@pytest.mark.parametrize("hidden", [0.0, 0.7])
@pytest.mark.parametrize("many", [2, 4, 8])
def test_tokens_to_pay_are_those_at_which_the_gain_is_reached(way, hidden, many):
    shape, card, road = MODELS["llama-2-7b"], CARDS["rtx-4090"], Road(1e-5, 24.5e9)
    least = 0.6 * many
    how = {"way": way, "at_least": least, "hidden": hidden}
    tokens = pays.tokens_to_pay(shape, card, road, many, **how)
    calls = {"ddp": wire.ddp, "fsdp": wire.fsdp}[way]([2 * n for n in pays.parts(shape)])
    compute = pays.compute_s(shape, card, tokens)
    assert pays.gain(compute, calls, many, road, hidden) == pytest.approx(least)
    assert pays.gain(2 * compute, calls, many, road, hidden) > least
    assert math.isinf(pays.tokens_to_pay(shape, card, road, many, at_least=many))


def test_a_step_is_foretold_from_lines():
    line = fit.Line(1.5e-3, 2e9, 1.0)
    calls, lines = [Call("all_reduce", 1e8)] * 2, {"all_reduce": line}
    assert pays.foretold(1.0, calls, lines) == 1 + 2 * line.seconds(1e8)
    assert pays.foretold(1.0, calls, lines, hidden=1.0) == 1.0


def test_published_roads_are_slower_than_their_sheets():
    for row in pays.published().values():
        assert 0.3 < row["bus_bytes_per_s"] / row["datasheet_bytes_per_s"] < 1, row
        assert row["source_url"].startswith("https://"), row


@pytest.fixture
def lives(tmp_path, monkeypatch):
    """`lives(keep, stops)`: a training that ends its life at each stop; the last `Run`."""
    whole = {"many": 160, "batch": 8, "every": 5}

    def live(stops=(), **options) -> elastic.Run:
        for life, until in enumerate([*stops, None]):
            monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(life))
            run = elastic.Run(str(tmp_path), **whole, **options)
            run.resume()
            run.train(until)
        return run

    with ranks.alone():
        yield live


def test_a_life_goes_on_where_the_last_checkpoint_was(lives, tmp_path):
    undisturbed = lives().found()
    (tmp_path / "checkpoint.pt").unlink()
    for path in tmp_path.glob("notes*"):
        path.unlink()
    again = lives(stops=(7, 13, 13)).found()
    assert again["loss"] == undisturbed["loss"], "to the bit"
    assert set(again["seen"]) == {1}
    assert again["life"] == 3
    lines = elastic.notes(tmp_path)
    assert sorted(kills.used(lines)) == list(range(160))
    assert [line["step"] for line in lines if line["life"] == 1] == [5, 6, *range(7, 13)]


@pytest.mark.parametrize(
    ("left_out", "wrong"),
    [("optimizer", "loss"), ("step", "seen"), ("model", "loss"), ("seen", "seen")],
)
def test_each_part_of_a_checkpoint_is_needed(lives, tmp_path, left_out, wrong):
    undisturbed = lives().found()
    (tmp_path / "checkpoint.pt").unlink()
    keep = tuple(part for part in elastic.PARTS if part != left_out)
    again = lives(stops=(7,), keep=keep).found()
    assert again[wrong] != undisturbed[wrong]


def test_a_kill_while_it_writes_leaves_the_last_checkpoint(lives, tmp_path, monkeypatch):
    def cut(states, file):
        file.write(b"half of it")
        raise KeyboardInterrupt

    run = lives()
    before = (tmp_path / "checkpoint.pt").read_bytes()
    monkeypatch.setattr(elastic.torch, "save", cut)
    with pytest.raises(KeyboardInterrupt):
        run.save()
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


def test_a_line_cut_short_is_no_note(tmp_path):
    (tmp_path / "notes0").write_text(json.dumps({"step": 1}) + '\n{"st')
    assert elastic.notes(tmp_path) == [{"step": 1}]


ELASTIC = {"pause_s": 0.02}
STEPS = 60


@posix
def test_a_killed_rank_costs_no_batch():
    kill = kills.Kill(rank=1, step=12)
    ended = kills.train(ELASTIC, [kill], limit_s=240)
    assert ended.lives == 2
    assert set(ended.seen) == {1}
    assert sorted(ended.used) == list(range(960))
    before = max(step for life, step in ended.begun if life == 0)
    again = min(step for life, step in ended.begun if life == 1)
    saved = range(5, before + 1, 5)[-2:]  # a kill may fall into the writing of the last
    assert again in saved, "not from its beginning"
    assert ended.steps == STEPS + before + 1 - again
    with ranks.alone(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(elastic.Run, "save", lambda self: None)
        patch.setattr(elastic.Run, "note", lambda self, mine: None)
        run = elastic.Run("")
        run.train()
        assert run.found()["loss"] == pytest.approx(ended.loss, rel=1e-4)


def test_a_rank_that_is_gone_cannot_be_killed(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    line = {"rank": 0, "life": 0, "step": 3, "pid": child.pid}
    (tmp_path / "notes0").write_text(json.dumps(line))
    running = SimpleNamespace(process=SimpleNamespace(poll=lambda: None))
    for kill in kills.Kill(rank=0, step=2), kills.Kill(rank=1, step=2):
        with pytest.raises(ValueError, match="of life 0 found no such rank"):
            kills._kill(kill, 0, tmp_path, running, time.monotonic() + 0.1)


@pytest.fixture(scope="module")
def undisturbed():
    return kills.train(ELASTIC, limit_s=240)


@posix
@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_after_a_random_kill_the_same_training_ends(seed, undisturbed):
    kill = kills.draw(seed, steps=STEPS, ranks=2, pause_s=ELASTIC["pause_s"])
    ended = kills.train(ELASTIC, [kill], limit_s=240)
    assert ended.lives == 2, kill
    assert ended.loss == undisturbed.loss, kill
    assert set(ended.seen) == {1}, kill
    assert ended.used == undisturbed.used, kill


def test_a_gated_layer_is_that_of_the_small_gpt():
    layer = small_gpt.make(width=64, layers=1).model.layers[0].mlp
    ours = gpt.GatedMLP(64, 256)
    with torch.no_grad():
        for name, module in ours.named_children():
            module.weight.copy_(getattr(layer, f"{name}_proj").weight)
    x = torch.randn(2, 3, 64)
    assert isinstance(ours.gate, nn.Linear)
    assert torch.allclose(ours(x), layer(x), atol=1e-6)
