"""The emulator: poison, order within a stream, events, statuses, the allocator's rule."""

import math

from gpulab_utils.queues import NO_DEVICE, SUCCESS, Gpu, Pool, play

import pytest

SEEDS = range(50)


def double(x):
    return 2 * x


def chain(seed: int, work_stream: str, event: bool = False) -> Gpu:
    """A copy in stream "a", a kernel that reads it in `work_stream`."""
    gpu = Gpu(seed)
    gpu.host("h", [3.0] * 4)
    gpu.malloc("d", 4), gpu.malloc("out", 4)
    gpu.copy("d", "h", "a")
    if event:
        gpu.record("copied", "a"), gpu.wait("copied", work_stream)
    gpu.launch("kernel", double, "d", "out", work_stream)
    gpu.synchronize()
    return gpu


def test_memory_holds_nan_until_it_is_written():
    gpu = Gpu()
    gpu.malloc("d", 3)
    assert all(map(math.isnan, gpu.values("d")))


def test_work_is_done_when_somebody_waits_not_before():
    gpu = Gpu()
    gpu.host("h", [1.0]), gpu.malloc("d", 1)
    gpu.copy("d", "h", "a")
    assert math.isnan(gpu.values("d")[0])
    gpu.synchronize("a")
    assert gpu.values("d") == [1.0]


def test_waiting_for_one_stream_may_leave_another():
    left = []
    for seed in SEEDS:
        gpu = Gpu(seed)
        gpu.host("h", [1.0]), gpu.malloc("d", 1), gpu.malloc("e", 1)
        gpu.copy("e", "h", "b"), gpu.copy("d", "h", "a")
        gpu.synchronize("a")
        assert gpu.values("d") == [1.0]
        left.append(math.isnan(gpu.values("e")[0]))
    assert any(left)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_stream_keeps_its_order(seed):
    assert chain(seed, "a").values("out") == [6.0] * 4


@pytest.mark.parametrize("seed", SEEDS)
def test_an_event_orders_two_streams(seed):
    gpu = chain(seed, "b", event=True)
    assert gpu.values("out") == [6.0] * 4
    copy, kernel = (
        next(w for w in gpu.done if w.name == name) for name in ("copy h", "kernel")
    )
    assert kernel.start > copy.end


def test_two_streams_race():
    outs = [chain(seed, "b").values("out")[0] for seed in SEEDS]
    assert {math.isnan(out) for out in outs} == {True, False}


def test_a_kernel_reads_when_it_starts_not_when_it_ends():
    """What another stream writes meanwhile comes too late for it."""
    late = 0
    for seed in SEEDS:
        gpu = Gpu(seed)
        gpu.host("d", [1.0]), gpu.host("h", [9.0]), gpu.malloc("out", 1)
        gpu.launch("kernel", double, "d", "out", "a"), gpu.copy("d", "h", "b")
        gpu.synchronize()
        kernel, copy = sorted(gpu.done, key=lambda work: work.name, reverse=True)
        assert gpu.values("out") == [2.0 if kernel.start < copy.end else 18.0]
        late += kernel.start < copy.end < kernel.end
    assert late


def test_the_host_waits_for_pageable_memory():
    gpu = Gpu()
    gpu.host("h", [1.0], pinned=False), gpu.malloc("d", 1)
    gpu.copy("d", "h", "a")
    assert (gpu.host_waited, gpu.values("d")) == (1, [1.0])


def test_without_a_card_every_call_says_so_and_does_nothing():
    gpu = Gpu(present=False)
    gpu.host("h", [1.0])
    said = play(
        "cudaStreamCreate(&s); cudaMemcpyAsync(d, h, 4, kind, s); k<<<1, 1, 0, s>>>(d, e);"
        "cudaStreamSynchronize(s);",
        gpu,
        double,
    )
    assert said == [NO_DEVICE] * 4
    assert gpu.done == []


def test_with_a_card_they_succeed():
    gpu = Gpu()
    gpu.host("h", [1.0]), gpu.malloc("d", 1)
    assert play("cudaMemcpyAsync(d, h, 4, kind, s);", gpu, double) == [SUCCESS]


def test_refusals():
    with pytest.raises(ValueError, match="the emulator has no cudaMemset"):
        play("cudaMemset(d, 0, 4);", Gpu(), double)
    gpu = Gpu()
    gpu.wait("never", "a")
    with pytest.raises(RuntimeError, match="waits for an event nobody records"):
        gpu.synchronize("a")


def pool_of(n: int = 4) -> tuple[Gpu, Pool, str]:
    gpu = Gpu()
    pool = Pool(gpu)
    return gpu, pool, pool.malloc(n, "main")


def test_a_freed_block_comes_back_on_its_stream_alone():
    _, pool, x = pool_of()
    pool.free(x)
    assert pool.malloc(4, "side") != x
    assert pool.malloc(8, "main") != x
    assert pool.malloc(4, "main") == x
    assert pool.malloc(4, "main") != x, "it is taken"


def test_a_recorded_block_waits_for_that_stream():
    gpu, pool, x = pool_of()
    gpu.malloc("y", 4)
    gpu.launch("reader", double, x, "y", "side")
    pool.record_stream(x, "side")
    pool.free(x)
    assert pool.malloc(4, "main") != x
    gpu.synchronize("side")
    assert pool.malloc(4, "main") == x


def test_recording_its_own_stream_changes_nothing():
    _, pool, x = pool_of()
    pool.record_stream(x, "main")
    pool.free(x)
    assert pool.malloc(4, "main") == x
