"""Clocks: against torch's own, and told apart from noise."""

import time
from statistics import median

from gpulab_utils import bench, compare, device
from gpulab_utils.timing import Ratio

import pytest
import torch
from torch.utils.benchmark import Timer


def test_bench_agrees_with_torch_s_timer():
    x = torch.ones(2**22)
    timer = Timer("x.sum()", globals={"x": x}, num_threads=torch.get_num_threads())
    turns = [
        bench(x.sum, budget_s=0.2).wall_s / timer.blocked_autorange(min_run_time=0.2).median
        for _ in range(5)
    ]
    assert 0.6 < median(turns) < 1.7, turns  # in turns, on a machine that may be busy


def test_bench_leaves_device_times_empty_on_a_cpu():
    timing = bench(torch.ones(8).sum, budget_s=0.05)
    assert (timing.device_s, timing.launch_s) == (None, None)
    assert timing.p20_s <= timing.wall_s <= timing.p80_s


def test_a_cold_run_is_no_faster_than_a_warm_one():
    x = torch.ones(2**16)  # 256 KiB: stays in cache between warm calls
    warm, cold = bench(x.sum, budget_s=0.3), bench(x.sum, budget_s=0.3, cold=True)
    assert cold.p20_s > 0.8 * warm.p20_s


def test_compare_sees_eight_times_the_work():
    x = torch.ones(2**24)
    part = x[: 2**21]
    ratio = compare(x.sum, part.sum)
    assert ratio.lies_in(4, 16) is not False, ratio


def test_compare_of_a_call_with_itself_is_one():
    x = torch.ones(2**22)
    assert compare(x.sum, x.sum).lies_in(0.7, 1.4) is not False


def test_thread_clock_does_not_charge_for_waiting():
    ratio = compare(lambda: time.sleep(0.02), lambda: sum(range(20_000)), budget_s=0.4)
    assert ratio.value < 1


def test_wall_clock_does():
    calls = (lambda: time.sleep(0.02)), (lambda: sum(range(20_000)))
    assert compare(*calls, budget_s=0.4, clock="wall").value > 1


def test_compare_restores_the_threads():
    before = torch.get_num_threads()
    compare(torch.ones(64).sum, torch.ones(64).sum, budget_s=0.01)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("aa", [1.26, 5, float("inf")])
def test_a_noisy_ratio_is_not_judged(aa):
    assert Ratio(100, aa=aa).lies_in(1, 2) is None


def test_a_band_is_at_least_twice_the_spread():
    assert Ratio(1.5, aa=1.2).lies_in(1, 2) is None  # 1.2**4 = 2.07 > 2
    assert Ratio(1.5, aa=1.15).lies_in(1, 2) is True  # 1.15**4 = 1.75


def test_refusals_name_the_value():
    with pytest.raises(ValueError, match="budget_s must be positive, got 0"):
        bench(int, budget_s=0)
    with pytest.raises(ValueError, match=r"tighter than 1\.25"):
        Ratio(1, aa=1).lies_in(1, 1.2)
    with pytest.raises(ValueError, match="got 'cpu'"):
        compare(int, int, clock="cpu")


def test_tiny_runs_are_too_few_to_judge(monkeypatch):
    monkeypatch.setenv("GPULAB_TINY", "1")
    ratio = compare(torch.ones(8).sum, torch.ones(8).sum)
    assert device.here().tiny
    assert ratio.lies_in(0.1, 10) is None
