"""Bytes: counted by hand, by torch, and by the operating system."""

import sys

from gpulab_utils import memory
from gpulab_utils.units import MIB

import pytest
import torch


def test_a_training_step_has_the_bytes_of_the_book():
    """fp32 Adam: weights 4, gradients 4, two states of 4, and a step counter a tensor."""
    model = torch.nn.Linear(512, 512, bias=False)
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        model(torch.ones(1, 512)).sum().backward()
        optimizer.step()

    seen = memory.peak(step, modules=[model], optimizers=[optimizer])
    n = 512 * 512
    assert seen.by_category["parameter"] == 4 * n
    assert seen.by_category["gradient"] == 4 * n
    states = [v for state in optimizer.state.values() for v in state.values()]
    assert sum(v.nbytes for v in states) == 8 * n + 4
    assert 8 * n < seen.by_category["optstate"] <= 16 * n + 64  # and two temporaries
    assert 16 * n < seen.total < 25 * n


def test_rss_follows_an_allocation():
    before = memory.rss_bytes()
    kept = torch.ones(64 * MIB // 4)
    assert memory.rss_bytes() - before == pytest.approx(kept.nbytes, rel=0.1)


def test_growth_shows_after_much_was_freed():
    """Decoding a model leaves free heap behind, which once hid what a lab held next."""
    blocks = [bytearray(100_000) for _ in range(5_000)]
    del blocks[:-1]
    kept, grown = memory.growth(lambda: [bytearray(100_000) for _ in range(1_000)])
    assert grown == pytest.approx(sum(map(len, kept)), rel=0.1)


@pytest.mark.skipif(sys.platform == "win32", reason="wait4 is POSIX")
def test_peak_rss_of_a_subprocess():
    def peak(code):
        n_bytes, status, _ = memory.run_peak_rss([sys.executable, "-c", code])
        assert status == 0
        return n_bytes

    assert peak("bytearray(200_000_000)") - peak("pass") == pytest.approx(2e8, rel=0.1)


def test_a_failed_subprocess_is_told():
    code = "print('out'); raise SystemExit(3)"
    _, status, out = memory.run_peak_rss([sys.executable, "-c", code])
    assert (status, out) == (3, "out\n")


def test_the_report_has_no_bare_gpu_memory_line():
    assert all(
        line.split(":")[0] in ("process", "allocated", "reserved", "device")
        for line in memory.report().splitlines()
    )


def test_a_cap_must_be_positive():
    with pytest.raises(ValueError, match="n_bytes must be positive, got 0"), memory.cap(0):
        pass
