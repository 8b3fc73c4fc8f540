"""Traces of tensors: by hand, against torch's own tracker, and without any memory."""

from gpulab_utils import allocations, device, memory
from gpulab_utils.plan import trace
from gpulab_utils.units import MIB

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode


def job(width=512):
    """A training step, what it is made of, and what lies there before it."""
    layers = [torch.nn.Linear(width, 4 * width), torch.nn.GELU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(4 * width, width))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    x = torch.ones(64, width)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step()  # the states exist
    states = (v for state in optimizer.state.values() for v in state.values())
    return step, (model, optimizer), (*model.parameters(), *states, x)


def test_a_view_is_no_block_and_a_result_lives_on():
    entries = allocations.record(lambda: torch.ones(256).view(2, 128).t()[0])
    assert [(e["action"], e["size"]) for e in entries] == [("alloc", 1024)]


def test_what_lay_there_before_comes_first():
    a, b = torch.ones(256), torch.ones(512)
    entries = allocations.record(lambda: a + b[:256], holding=[a])
    assert [e["size"] for e in entries] == [1024, 2048, 1024]
    assert len({e["addr"] for e in entries}) == 3


@pytest.mark.skipif(device.here().is_gpu, reason="a GPU's peak is its allocator's")
def test_peak_is_that_of_torchs_tracker():
    step, (model, optimizer), held = job()
    entries = allocations.record(step, holding=held)
    peak = max(requested for _, requested, _ in trace.recorded(entries))
    told = memory.peak(step, modules=[model], optimizers=[optimizer])
    assert peak == told.total + held[-1].nbytes  # the tracker leaves the input out


def test_fake_tensors_leave_the_same_trace():
    step, _, held = job()
    real = allocations.record(step, holding=held)
    with FakeTensorMode():
        step, _, held = job()
        fake = allocations.record(step, holding=held)
    assert fake == real


def test_a_step_that_no_memory_here_holds_is_replayed():
    with FakeTensorMode():
        step, _, held = job(width=1 << 14)  # 2 x 2**30 weights, 16 bytes each
        entries = allocations.record(step, holding=held)
    done = trace.replay(entries)
    assert done.oom is None
    assert done.peak("allocated") > 32 << 30
    assert done.peak("allocated") <= done.peak("reserved") < 1.01 * done.peak("allocated")
    short = trace.replay(entries, capacity=20 << 30)
    assert short.oom.segment == 4096 * MIB  # one fp32 matrix
