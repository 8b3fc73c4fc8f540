"""Measured walls: right counts, the fast end of the clock, bounds, chains that chain."""

import subprocess
import sys
import time

from gpulab_utils import MODELS, chase, layer_ops, probes
from gpulab_utils.probes import Machine

import pytest
import torch

SLOW = Machine([], bytes_per_s=1e9, flop_per_s={"fp32": 4e9, "bf16": 2e9}, call_s=1e-6)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    monkeypatch.setenv("GPULAB_TINY", "1")


@pytest.mark.parametrize(
    ("flop", "moved", "wall", "seconds"),
    [(8e9, 1e9, "compute", 2), (2e9, 1e9, "memory", 1), (0, 3e9, "memory", 3)],
)
def test_bound_is_the_later_of_two(flop, moved, wall, seconds):
    bound = SLOW.bound(flop=flop, bytes_moved=moved)
    assert (bound.wall, bound.seconds) == (wall, seconds)


def test_ridge_and_fastest():
    assert (SLOW.ridge("fp32"), SLOW.ridge("bf16")) == (4, 2)
    assert SLOW.fastest() == "fp32"


def test_a_bound_wants_bytes():
    with pytest.raises(ValueError, match="must be positive, got 0"):
        SLOW.bound(flop=1, bytes_moved=0)


def test_seconds_is_near_the_fast_end(monkeypatch):
    """Two calls in five are quick: slow neighbours do not move the figure."""
    monkeypatch.setenv("GPULAB_TINY", "0")
    waits = iter([1, 1, *[3, 1, 3, 3, 1] * 10_000])

    def busy():
        end = time.thread_time() + next(waits) * 2e-3
        while time.thread_time() < end:
            pass

    assert probes.seconds(busy, budget_s=0.3) == pytest.approx(2e-3, rel=0.5)


def test_seconds_groups_short_calls():
    """A call of half a microsecond is not charged the clock around it."""
    assert probes.seconds(lambda: None) < 1e-6


def test_machine_has_every_wall():
    machine = probes.machine()
    kinds = {row["kind"] for row in machine.rows}
    assert kinds == {"read", "copy", "rate"}
    assert set(machine.flop_per_s) == {"fp32", "bf16", "fp16"}
    assert machine.bytes_per_s > 0
    assert machine.call_s > 0


def test_a_rate_counts_two_operations_a_product():
    row = probes.rate_row(64, "fp32")
    assert row["flop_per_s"] * row["took_s"] == pytest.approx(2 * 64**3)


def test_the_roof_is_measured_beyond_the_cache(monkeypatch):
    monkeypatch.setattr(
        probes.device, "here", lambda: type("Here", (), {"cache_bytes": 100})
    )
    rows = [
        {"bytes": n, "bytes_per_s": r} for n, r in [(50, 9), (199, 8), (200, 2), (400, 3)]
    ]
    assert probes._from_memory(rows) == 3
    assert probes._from_memory(rows[:2]) == 8, "no buffer is large enough: the largest"


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_a_cap_is_a_door():
    need = 2**25
    assert [probes.fits_under(cap, need) for cap in (need // 2, need, 2 * need)] == [
        False,
        True,
        True,
    ]


def test_elsewhere_no_cap_binds(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert probes.fits_under(1, 2) is None


@pytest.mark.parametrize("lines", [2, 3, 64, 1000])
def test_the_chase_is_one_cycle(lines):
    table, order = chase.cycle(lines)
    at, seen = int(order[0]) * 8, []
    for _ in range(lines):
        seen.append(at // 8)
        at = int(table[at])
    assert sorted(seen) == list(range(lines))
    assert at == int(order[0]) * 8


def test_a_walk_takes_the_steps_it_says():
    """Against a walk in Python: where each of three chains is after seven steps."""
    table, order = chase.cycle(64)
    at = (order[:: 64 // 3][:3] * 8).tolist()
    for _ in range(7):
        at = [int(table[i]) for i in at]
    walk, steps = chase.chase(lines=64, chains=3, steps=7)
    assert steps == 7
    assert walk().tolist() == at


def test_streaming_reads_every_word():
    words = torch.arange(100, dtype=torch.int64).numpy()
    expected = 0
    for word in range(100):
        expected ^= word
    assert chase.read_all(words) == expected


@pytest.mark.parametrize("chains", [0, -1, 65])
def test_chains_are_at_most_the_lines(chains):
    with pytest.raises(ValueError, match=rf"1 to 64 \(lines\), got {chains}"):
        chase.chase(64, chains)


def test_without_numba_the_message_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    chase._compiled.cache_clear()
    try:
        with pytest.raises(ImportError, match="pip install numba"):
            chase.read_all(None)
    finally:
        monkeypatch.undo()
        chase._compiled.cache_clear()


def test_linear_counts_match_hand_arithmetic():
    """Two weights [3, 4] in fp32, five rows: 2*5*24 FLOP; 24 + 2*5*(3 + 4) values moved."""
    op = layer_ops.linear("x", [torch.ones(3, 4), torch.ones(3, 4)], 5)
    assert (op.flop, op.bytes_moved, op.calls) == (240, 4 * (24 + 70), 2)
    assert [tuple(y.shape) for y in op.run()] == [(5, 3), (5, 3)]
    assert [tuple(y.shape) for y in op.double()] == [(10, 3), (10, 3)]
    assert len(op.near()) == 2


def test_attention_counts_match_torch_s_own():
    from torch.utils.flop_counter import FlopCounterMode

    shape = MODELS["smollm2-135m"]  # 9 query heads on 3 key heads of 64
    op = layer_ops.attention(shape, context=16, batch=2, dtype="fp32")
    assert op.flop == 4 * 2 * 9 * 16 * 64
    assert op.bytes_moved == 4 * (2 * 2 * 3 * 16 * 64 + 2 * 2 * 9 * 64)
    assert op.run().shape == (2, 3, 3, 64)
    with FlopCounterMode(display=False) as counter:
        op.run()
    assert counter.get_total_flops() in (0, op.flop), "torch counts SDPA, or knows no CPU's"


def test_add_counts_one_flop_a_value():
    op = layer_ops.add(10, "bf16")
    assert (op.flop, op.bytes_moved, op.intensity) == (10, 60, 10 / 60)


@pytest.mark.parametrize(
    ("calls", "flop", "moved", "wall", "seconds"),
    [
        (1, 0, 1e9, "memory", 1 + 1e-6),
        (1, 8e9, 1e9, "compute", 2 + 1e-6),
        (10**7, 8e9, 1e9, "calls", 12),
    ],
)
def test_the_prediction_adds_the_calls(calls, flop, moved, wall, seconds):
    op = layer_ops.Op("x", flop, moved, "fp32", calls, run=None, double=None)
    assert op.predict(SLOW) == (wall, pytest.approx(seconds))


@pytest.mark.parametrize(
    ("ridge", "rows"), [(0.2, 128), (16, 128), (100, 1024), (900, 2048)]
)
def test_rows_past_the_ridge(ridge, rows):
    assert layer_ops.rows_past(Machine([], 1.0, {"bf16": ridge}, 0.0), "bf16") == rows


def test_layers_beyond_the_model_are_refused():
    with pytest.raises(ValueError, match="1 to 30, got 31"):
        layer_ops.linears("smollm2-135m", "fp32", 31)


def test_random_weights_have_the_model_s_shapes():
    parts = layer_ops.linears("smollm2-135m", "bf16", 2)
    shapes = {name: (len(w), *w[0].shape) for name, w in parts.items()}
    assert shapes["k"] == (2, 192, 576)
    assert shapes["down"] == (2, 576, 1536)
    assert shapes["head"] == (1, 49152, 576)


def test_its_own_weights_are_smollm2_s(monkeypatch):
    from gpulab_utils import load

    monkeypatch.setenv("GPULAB_TINY", "0")
    parts = layer_ops.linears("smollm2-135m", "bf16", 1)
    model, _ = load.language_model(torch.bfloat16)
    assert torch.equal(parts["up"][0], model.model.layers[0].mlp.up_proj.weight)
    assert set(parts) == {"q", "k", "v", "o", "gate", "up", "down", "head"}


def test_importing_the_probes_needs_no_torch():
    code = (
        "import sys, gpulab_utils.layer_ops, gpulab_utils.chase\n"
        "assert not {'torch', 'numba', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
