"""Schedules by hand; what is generated in a batch that changes is what each gets alone."""

from gpulab_utils import batching, small_gpt
from gpulab_utils.timing import Ratio

import pytest
import torch


@pytest.fixture(scope="module")
def model():
    return small_gpt.make(width=64, layers=2).eval()


@pytest.fixture(autouse=True)
def on_one_cpu_thread(monkeypatch):
    monkeypatch.setenv("GPULAB_DEVICE", "cpu")
    with torch.no_grad():
        yield


PROMPTS = [[5, 9, 2], [7], [1, 2, 3, 4, 5, 6], [8, 8], [3, 1, 4, 1]]
WANTED = [5, 2, 3, 7, 2]


@pytest.mark.parametrize(
    ("wanted", "slots", "join", "steps"),
    [
        ([2, 2, 2, 2], 2, "static", [(0, 1), (2, 3)]),
        ([2, 2, 2, 2], 2, "continuous", [(0, 1), (2, 3)]),
        ([4, 2, 2], 2, "static", [(0, 1), (0,), (0,), (2,)]),
        ([4, 2, 2], 2, "continuous", [(0, 1), (0, 2), (0,)]),
        ([3, 2], 1, "continuous", [(0,), (0,), (1,)]),
        ([2], 4, "static", [(0,)]),
    ],
)
def test_schedules_by_hand(wanted, slots, join, steps):
    assert batching.schedule(wanted, slots, join) == steps


@pytest.mark.parametrize("join", batching.JOIN)
def test_every_token_is_in_one_step(join):
    draw = torch.Generator().manual_seed(4)
    for _ in range(50):
        wanted = torch.randint(2, 12, (9,), generator=draw).tolist()
        steps = batching.schedule(wanted, 3, join)
        assert all(len(live) <= 3 for live in steps)
        for i, n in enumerate(wanted):
            assert sum(i in live for live in steps) == n - 1
        assert sum(batching.joins(steps)) == 9


def test_continuous_never_takes_more_steps():
    draw = torch.Generator().manual_seed(5)
    for _ in range(50):
        wanted = torch.randint(2, 12, (9,), generator=draw).tolist()
        static, continuous = (batching.schedule(wanted, 3, j) for j in batching.JOIN)
        assert max(wanted) - 1 <= len(continuous) <= len(static)


@pytest.mark.parametrize("join", batching.JOIN)
def test_served_as_planned_and_as_alone(model, join):
    served = batching.serve(model, PROMPTS, WANTED, 2, join)
    assert served.live == batching.schedule(WANTED, 2, join)
    for prompt, n, tokens in zip(PROMPTS, WANTED, served.tokens, strict=True):
        ids = torch.tensor([prompt])
        alone = batching.generate(model, ids, n, eos_token_id=None, use_cache=True)
        assert tokens == alone.tokens
        assert alone.widths == [len(prompt)] + [1] * (n - 1)
    assert served.total_s == pytest.approx(sum(served.step_s) + sum(served.prefill_s))


def test_the_first_token_waits_for_those_before(model, monkeypatch):
    now = iter(range(1000))  # each reading of the clock is a second later
    monkeypatch.setattr(batching, "_clock", lambda: lambda: float(next(now)))
    served = batching.serve(model, PROMPTS, WANTED, 2, "static")
    first_s = [served.first_s[i] for i in range(len(PROMPTS))]
    assert first_s[0] == first_s[1] == 3.0  # readings: start, before, after, first
    assert first_s[2] == first_s[3] == 3.0 + 2 * 4 + 3  # four steps, then a prefill
    assert served.prefill_s == [1.0] * 3


def test_costs_add_up():
    one = batching.Served([], live=[(0,)], step_s=[2.0], prefill_s=[10.0])
    two = batching.Served([], live=[(0, 1)], step_s=[3.0], prefill_s=[15.0])
    steps = [(0, 1), (0, 2), (2,)]  # prefills of two and of one; steps of two, two, one
    assert batching.cost({1: one, 2: two}, steps) == 15 + 10 + 3 + 3 + 2


def test_noise_comes_from_equal_steps():
    live = [(0, 1)] + [(0,)] * 10
    served = batching.Served([], live, step_s=[9.0] + [1.0] * 10, prefill_s=[1.0])
    assert served.over(5.0) == Ratio(4.0, aa=1.0)


def test_passes_and_their_price():
    plain = batching.Passes([1] * 8, [20] + [1] * 7, took_s=8.0)
    guessed = batching.Passes([1] * 8, [25, 6, 1, 6], took_s=5.0)
    row = batching.row("text", plain, guessed, wide_cost=1.5)
    assert (row["counted"], row["timed"]) == (2.0, 1.6)
    assert row["expected"] == 8 / 5  # four passes, two of them half as dear again


@pytest.mark.parametrize(
    ("wanted", "slots", "join", "message"),
    [
        ([2], 1, "dynamic", "join must be one of static, continuous, got 'dynamic'"),
        ([2], 0, "static", "slots must be positive, got 0"),
        ([2, 1], 1, "static", "a request needs 2 new tokens or more, got 1"),
    ],
)
def test_refusals(wanted, slots, join, message):
    with pytest.raises(ValueError, match=message):
        batching.schedule(wanted, slots, join)


def test_an_acceptance_is_a_probability():
    with pytest.raises(ValueError, match=r"acceptance must lie in 0 to 1, got 1.5"):
        batching.expected_tokens(1.5, 3)
