"""Roads: copies that copy, counts of faults, a page cache that is emptied, exact lines."""

import math
import os
import sys

from gpulab_utils import fit, roads
from gpulab_utils.roads import between, copies, fitted, pages

import pytest
import torch
from safetensors.torch import save_file

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux tells")


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setenv("GPULAB_TINY", "1")
    copies.place.cache_clear()
    yield
    roads.clear()


@pytest.mark.parametrize("road", copies.MEMORY)
def test_every_byte_of_a_copy_arrives(road, monkeypatch):
    n, made = 2**15, []
    monkeypatch.setattr(
        pages, "fresh", lambda n: made.append(torch.zeros(n).byte()) or made[-1]
    )
    place = copies.place()
    place.target.zero_()
    roads.send(road, n)()
    target = made[-1] if made else place.target
    sent = n if road != "file, read" else sum(place.file.read_bytes()[:n])
    assert int(target.sum()) == sent, "the bytes, all of them, and no more"
    assert bool(made) == road.endswith("touch")


@LINUX
def test_bytes_cross_to_the_other_process():
    for road in between.ROADS:
        for n in (1, 4096, 2**18):
            shared = between._taker(2**20).shared
            shared[:] = bytes(2**20)
            roads.send(road, n)()  # returns when the other side has said so
            assert shared[:] == b"1" * n + bytes(2**20 - n), (road, n)


@LINUX
def test_the_other_process_ends_when_half_a_message_is_all_it_gets():
    taker = between._taker.__wrapped__(2**20)
    taker.tell(2**20)
    taker.process.stdin.close()
    assert taker.process.wait(timeout=20) == 0


def test_pieces_go_through_the_whole_buffer():
    place, n = copies.place(), 2**18
    pairs = place.pairs(n)
    starts = [next(pairs)[0].data_ptr() - place.target.data_ptr() for _ in range(5)]
    assert starts == [0, n, 2 * n, 3 * n, 0]  # 2**20 bytes


def test_a_fresh_page_faults_once():
    block = roads.fresh(256 * roads.PAGE)
    first = roads.faulted(lambda: block.fill_(1))
    again = roads.faulted(lambda: block.fill_(2))
    assert first is None or 256 <= first < 300
    assert again is None or again < 40


@LINUX
def test_eviction_is_seen(tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(2**20))
    assert roads.cached(path) == 1
    with path.open("rb") as file:  # without our code: does this file system do it?
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if roads.cached(path) == 1:
        pytest.skip("this file system keeps its files in memory")
    path.write_bytes(bytes(2**20))
    roads.evict(path)
    assert roads.cached(path) < 0.1
    assert path.read_bytes() == bytes(2**20)
    assert roads.cached(path) == 1


def test_lines_are_fitted_road_by_road():
    rows = [
        fitted._row(road, n, wait + n / rate)
        for road, wait, rate in (("a", 1e-5, 1e9), ("b", 0.0, 2e10))
        for n in (10**3, 10**6, 10**8)
    ]
    lines = roads.lines(rows)
    assert lines["a"].latency_s == pytest.approx(1e-5, rel=1e-6)
    assert lines["b"].bytes_per_s == pytest.approx(2e10, rel=1e-6)
    assert roads.lines(rows[:2]) == {}, "two points are no line"


def test_a_disk_whose_time_does_not_grow_is_left_out_and_another_road_is_not():
    falling = [(4096, 3e-3), (2**15, 2e-3), (2**18, 1e-3)]
    assert roads.lines([fitted._row(roads.DISK, n, t) for n, t in falling]) == {}
    line = roads.lines([fitted._row("memory", n, t) for n, t in falling])["memory"]
    assert line.bytes_per_s == math.inf
    assert line.seconds(10**9) == line.latency_s
    assert min(t for _, t in falling) < line.latency_s < max(t for _, t in falling)


def test_large_blocks_are_fetched_into_fresh_pages(monkeypatch):
    told = {"file, mapped": fit.Line(0, 1e10, 1), "file, first touch": fit.Line(0, 2e9, 1)}
    monkeypatch.setattr(fitted, "lines", lambda: told)
    assert (roads.fetch_rate(2**25), roads.fetch_rate(2**25 + 1)) == (1e10, 2e9)


def test_no_gap_is_told_where_the_page_cache_stays(monkeypatch):
    monkeypatch.setattr(fitted, "cold", lambda: False)
    links, why = roads.gap(2**15)
    assert links.lies_in(1.5) is None
    assert "cannot be emptied" in why


def test_every_read_of_the_disk_finds_it_cold(monkeypatch):
    seen = []
    monkeypatch.setattr(fitted, "cold", lambda: seen.append("cold") or True)
    monkeypatch.setattr(copies, "read", lambda file, target: seen.append("read"))
    roads.gap(2**15)
    roads.disk_seconds(2**15)
    assert seen == ["cold", "read"] * 4


@pytest.mark.parametrize(("left", "is_cold"), [(0.05, True), (0.2, False), (None, False)])
def test_a_file_is_cold_when_hardly_a_page_is_left(left, is_cold, monkeypatch):
    monkeypatch.setattr(pages, "cached", lambda path: left)
    assert fitted.cold() is is_cold


def test_a_road_without_a_wait_has_no_negative_one():
    points = [(1e3, 0.5e-6), *((10.0**n, 10.0 ** (n - 9)) for n in range(5, 10))]
    line = fit.line(*zip(*points, strict=True))
    off = [took / line.seconds(n) for n, took in points]
    assert line.latency_s == 0
    assert line.worst == pytest.approx(1 / min(off)), "the point that is too quick counts"

    def error(rate):
        return sum((n / rate / took - 1) ** 2 for n, took in points)

    best = error(line.bytes_per_s)
    assert best < min(error(0.99 * line.bytes_per_s), error(1.01 * line.bytes_per_s))


def test_as_many_layers_come_as_are_away(monkeypatch):
    stack, came = roads.Stack(4, 16), []
    monkeypatch.setattr(stack, "fetch", lambda i, way: came.append(i) or stack.resident[i])
    for away in range(5):
        stack.step(away)
        assert came == list(range(4 - away, 4))
        came.clear()


@pytest.mark.parametrize("way", copies.WAYS)
def test_layers_that_are_away_come_from_the_file(way):
    stack = roads.Stack(2, 16)
    save_file({str(i): torch.zeros(16, 16) for i in range(2)}, stack.file)
    assert not stack.step(2, way).any()
    assert stack.step().any()
    assert (stack.fetch(0, way).data_ptr() == stack.kept.data_ptr()) == (way == "kept")


@pytest.mark.parametrize("way", copies.WAYS)
def test_a_stack_answers_alike_wherever_its_layers_are(way):
    stack = roads.Stack(3, 16)
    x = stack.x
    for weight in stack.resident:
        x = x @ weight.T
    for away in range(4):
        assert torch.allclose(stack.step(away, way), x, atol=1e-5)
    assert stack.layer_bytes == 4 * 16 * 16


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: roads.send("rail", 1), "road must be one of memory, first touch"),
        (lambda: roads.send("memory", 0), "n_bytes must be positive, got 0"),
        (lambda: roads.fresh(0), "n_bytes must be positive, got 0"),
        (lambda: between.send("rail", 1), "road must be one of pipe, shared memory"),
        (lambda: roads.Stack(0, 8), "layers and side must be positive, got 0 and 8"),
        (lambda: roads.Stack(2, 8).step(3), "away must be 0 to 2, got 3"),
        (
            lambda: roads.Stack(2, 8).fetch(0, "late"),
            "way must be kept or fresh, got 'late'",
        ),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
