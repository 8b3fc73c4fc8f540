"""The engine model against hand arithmetic, and two real threads."""

import threading
import time
from types import SimpleNamespace

from gpulab_utils import engines, plots
from gpulab_utils.engines import Op, chunked, gain, law, overlap_s, timeline, total_s
from gpulab_utils.overlap import Stages, double_buffer

import pytest


@pytest.mark.parametrize("n", [1, 2, 3, 4, 16])
def test_laws_for_equal_stages(n):
    """n + 1 (n + 2) steps of 1/n instead of 2 (3)."""
    assert gain(chunked(n, 1, 1)) == pytest.approx(2 * n / (n + 1))
    assert gain(chunked(n, 1, 1, 1)) == pytest.approx(3 * n / (n + 2))


@pytest.mark.parametrize("stages", [(1, 1), (1, 5), (10, 1), (2, 3, 1), (1, 8, 1)])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_the_law_is_what_the_model_does(n, stages):
    assert gain(chunked(n, *stages)) == pytest.approx(law(n, *stages))
    assert law(n, *stages) <= sum(stages) / max(stages)


def test_the_ledger_s_values():
    assert [round(law(n, 1, 1), 2) for n in (2, 4, 16)] == [1.33, 1.6, 1.88]
    assert all(1.09 <= round(law(n, 1, 5), 2) <= 1.19 for n in (2, 4, 16))


def test_one_copy_engine_serves_in_the_order_of_issue():
    """Chunk by chunk copy 2 stands behind the copy back of 1; stage by stage 3 / 2."""
    depth, breadth = (chunked(4, 1, 1, 1, breadth=b) for b in (False, True))
    assert gain(depth, copy_engines=1) == 1
    assert gain(breadth, copy_engines=1) == pytest.approx(1.5)
    assert gain(depth) == gain(breadth) == pytest.approx(2)


def test_kernels_overlap_while_their_shares_fit():
    def two(share):
        return [Op("kernel", s, 2, share=share) for s in "ab"]

    assert [gain(two(s)) for s in (0.1, 0.5, 0.51, 1)] == [2, 2, 1, 1]
    three = [Op("kernel", s, 1, share=0.5) for s in "abc"]
    assert [op.start_s for op in timeline(three)] == [0, 0, 1]


def test_no_kernel_overtakes():
    ops = [
        Op("kernel", "a", 2, share=0.6),
        Op("kernel", "b", 1),
        Op("kernel", "c", 1, share=0.1),
    ]
    assert [op.start_s for op in timeline(ops)] == [0, 2, 3]


def test_the_default_stream_orders_all():
    ops = [Op("h2d", "a", 1), Op("kernel", "0", 1), Op("h2d", "b", 1)]
    assert [op.start_s for op in timeline(ops)] == [0, 1, 2]


def test_pageable_copies_hold_the_host():
    """With a copy back nothing overlaps; copies in alone still do."""
    assert gain(chunked(4, 1, 1, 1, pageable=True)) == 1
    ops = [Op("h2d", "a", 1, pageable=True), Op("kernel", "a", 1)]
    ops += [Op("h2d", "b", 1, pageable=True), Op("kernel", "b", 1)]
    assert total_s(timeline(ops)) == 3


def test_overlap_is_counted_by_pairs():
    spans = timeline([Op("h2d", "a", 1), Op("kernel", "a", 1), Op("h2d", "b", 1)])
    assert overlap_s(spans, "kernel", "h2d") == overlap_s(spans, "h2d", "kernel") == 1
    assert overlap_s(spans, "h2d", "h2d") == 0


def test_share_counts_threads():
    """1536 // 256 = 6 blocks an SM; 1024 / (80 * 6)."""
    assert engines.share(1024, 256, sms=80, threads_per_sm=1536) == pytest.approx(
        2.1333, rel=1e-3
    )
    assert engines.share(1, 1024, sms=80, threads_per_sm=1536) == 1 / 80


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: timeline([], copy_engines=3), "copy_engines must be 1 or 2, got 3"),
        (lambda: timeline([Op("dma", "a", 1)]), "engine is one of h2d, kernel, d2h"),
        (lambda: timeline([Op("kernel", "a", 1, share=2)]), r"share in \(0, 1\]"),
        (lambda: chunked(0, 1, 1), "n must be 1 or more, got 0"),
        (lambda: engines.share(1, 2000, 80, 1536), "1 to 1024 threads, got 2000"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_trace_of_the_profiler():
    copy = {
        "cat": "gpu_memcpy",
        "name": "Memcpy HtoD (Pinned -> Device)",
        "ts": 10,
        "dur": 4,
    }
    back = {
        "cat": "gpu_memcpy",
        "name": "Memcpy DtoH (Device -> Pinned)",
        "ts": 16,
        "dur": 4,
    }
    kernel = {"cat": "kernel", "name": "gemm", "ts": 12, "dur": 3, "args": {"stream": 7}}
    host = {"cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 1}
    spans = engines.spans({"traceEvents": [kernel, host, back, copy]})
    assert [op.engine for op in spans] == ["h2d", "kernel", "d2h"]
    assert overlap_s(spans, "h2d", "kernel") == pytest.approx(2e-6)
    rows = engines.bars("profiled", spans)
    assert [r["what"] for r in rows] == ["copy", "work", "copy back"]
    assert rows[-1]["end"] == pytest.approx(10 / 11), "10 us, and 11 one after the other"
    inside = copy | {"name": "Memcpy DtoD (Device -> Device)"}
    assert engines.spans({"traceEvents": [inside]}) == []


def test_neighbours_are_drawn_as_one_and_strangers_are_not():
    run = [Op("kernel", s, 1, start_s=t, end_s=t + 1) for t, s in enumerate("aabb")]
    run += [Op("h2d", "b", 1, start_s=4, end_s=5), Op("kernel", "b", 1, start_s=6, end_s=7)]
    whole = engines.joined(run, gap_s=0.5)
    assert [(op.start_s, op.end_s, op.seconds) for op in whole] == [
        *[(0, 2, 2), (2, 4, 2), (4, 5, 1), (6, 7, 1)]
    ]


def test_bars_are_drawn_where_they_ran():
    rows = engines.bars("predicted", timeline([Op("h2d", s, 1) for s in "ab"]))
    (ax,) = plots.timeline([SimpleNamespace(label="here", rows=rows)]).axes
    boxes = [path.get_extents() for c in ax.collections for path in c.get_paths()]
    assert sorted((box.x0, box.x1) for box in boxes) == [(0, 0.5), (0.5, 1)]


def test_a_law_is_a_line_and_what_was_measured_are_points():
    row = {"kind": "gain", "stages": "1:1", "chunks": 4, "law": 1.6, "gain": 1.5}
    run = SimpleNamespace(label="here", rows=[row | {"wall_gain": 1.1}])
    (ax,) = plots.gain_against_chunks([run]).axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in ax.lines}
    assert drawn["law, 1:1"] == [1.6]
    assert (drawn["1:1, here"], drawn["the same, host clock"]) == ([1.5], [1.1])


@pytest.mark.parametrize("ahead", [False, True])
def test_work_follows_its_copy(ahead):
    copied, worked = set(), []

    def work(i):
        assert i in copied
        worked.append(i)

    double_buffer(copied.add, work, 8, ahead)
    assert worked == list(range(8))


def test_the_reader_is_another_thread_from_the_second_chunk_on():
    threads = {}
    double_buffer(
        lambda i: threads.update({i: threading.get_ident()}), lambda i: None, 3, True
    )
    assert threads[0] == threading.get_ident() != threads[1] == threads[2]


def test_an_error_of_the_reader_reaches_the_caller():
    def copy(i):
        if i == 2:
            raise OSError("no such block")

    with pytest.raises(OSError, match="no such block"):
        double_buffer(copy, lambda i: None, 4, ahead=True)


def test_stages_read_what_the_file_holds(monkeypatch):
    monkeypatch.setenv("GPULAB_TINY", "1")
    stages = Stages(pieces=4, piece_bytes=4096)
    assert (stages._room[0] == stages._room[3]).all()
    assert stages._room[0].abs().sum() > 0
    assert stages.copy_s > 0 < stages.work_s
    seen = stages.watched(2)
    assert [s["lane"] for s in seen if s["what"] == "copy"] == [
        "calling thread",
        "reading thread",
    ]
    with pytest.raises(ValueError, match="3 chunks do not divide 4 pieces"):
        stages.of(3)


def test_prediction_is_the_law_for_equal_stages():
    stages = Stages.__new__(Stages)
    stages.copy_s = stages.work_s = 2.0
    assert stages.predicted(4) == pytest.approx(law(4, 1, 1))


def test_unequal_stages_leave_the_caller_the_work():
    """A quarter of the copy, all of the work: (4 + 1) / (4 / 4 + 1), 5 / (1 / 4 + 4)."""
    stages = Stages.__new__(Stages)
    stages.copy_s, stages.work_s = 4.0, 1.0
    assert stages.predicted(4) == pytest.approx(2.5)
    stages.copy_s, stages.work_s = 1.0, 4.0
    assert stages.predicted(4) == pytest.approx(5 / 4.25)


def test_no_work_before_a_slow_reader_is_done():
    copied = set()

    def copy(i):
        time.sleep(0.02 * (i > 0))
        copied.add(i)

    def work(i):
        assert i in copied

    double_buffer(copy, work, 4, ahead=True)
