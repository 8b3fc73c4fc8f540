"""The model of torch's caching allocator: its rules one by one, and what always holds."""

import itertools
import random
import re
from contextlib import suppress
from math import inf
from pathlib import Path

from gpulab_utils.plan import pool, trace
from gpulab_utils.plan.allocator import ROUNDING, Allocator
from gpulab_utils.plan.expandable import PAGE
from gpulab_utils.plan.pieces import OutOfMemory
from gpulab_utils.units import KIB, MIB

import pytest
import torch
from torch.cuda import _memory_viz

GROWING, NO_SPLIT = "expandable_segments:True", "max_split_size_mb:64"
HEADER = Path(torch.__file__).parent / "include/c10/core/AllocatorConfig.h"


def play(card, text):
    """`a=3` allocates 3 MiB as a, `a=3@1` on stream 1, `-a` frees it, `!` empties."""
    for word in text.split():
        if word == "!":
            card.empty_cache()
        elif word.startswith("-"):
            card.release(word[1:])
        else:
            key, size = word.split("=")
            size, _, stream = size.partition("@")
            card.allocate(key, int(float(size) * MIB), int(stream or 0))
    return card


def test_constants_are_those_of_torch():
    text = HEADER.read_text()
    names = {name: int(n) for name, n in re.findall(r"size_t (k\w+) = (\d+);", text)}
    assert names == {
        "kMinBlockSize": pool.MIN_BLOCK,
        "kSmallSize": pool.SMALL,
        "kSmallBuffer": pool.SMALL_SEGMENT,
        "kMinLargeAlloc": pool.MIN_LARGE,
        "kRoundLarge": pool.ROUND_LARGE,
    }
    (large,) = re.findall(r"large_segment_size_\{(\d+)\}", text)  # kLargeBuffer before 2.10
    assert int(large) == pool.MIDDLE_SEGMENT == ROUNDING


@pytest.mark.parametrize(
    ("rule", "conf", "steps", "allocated", "reserved", "inactive", "calls"),
    [  # MiB; 512 bytes are 1 / 2048
        ("a request is rounded to 512 bytes", "", "a=0.0001", 1 / 2048, 2, 2 - 1 / 2048, 1),
        ("up to 1 MiB from 2 MiB segments", "", "a=1 b=0.5 c=0.5", 2, 2, 0, 1),
        ("above 1 MiB from 20 MiB segments", "", "a=1.5 b=9.5 c=9", 20, 20, 0, 1),
        ("pools do not mix", "", "a=1.5 b=1", 2.5, 22, 19.5, 2),
        ("from 10 MiB a segment of its own", "", "a=10", 10, 10, 0, 1),
        ("rounded to 2 MiB, the rest not split off", "", "a=11", 12, 12, 0, 1),
        ("less than 10 MiB is not", "", "a=9.99", 9.990234375, 20, 10.009765625, 1),
        ("a rest of 1 MiB stays", "", "a=20 -a b=19", 20, 20, 0, 1),
        ("a rest above 1 MiB is split off", "", "a=20 -a b=18.5", 18.5, 20, 1.5, 1),
        ("in the small pool 512 bytes are", "", "a=1 b=0.99951171875", 2 - 1 / 2048, 2,
         1 / 2048, 1),
        ("the smallest block that fits", "", "a=30 b=20 -a -b c=20", 20, 50, 0, 2),
        ("of two equal ones the lower address", "", "a=20 b=20 -b -a c=18 !", 18, 20, 2, 2),
        ("freed neighbours are joined", "", "a=8 b=8 c=4 -a -c -b d=20", 20, 20, 0, 1),
        ("not across a block in use", "", "a=8 b=4 c=8 -a -c d=16", 20, 36, 16, 2),
        ("not across segments", "", "a=10 b=10 -a -b c=20", 20, 40, 0, 3),
        ("a freed segment stays reserved", "", "a=20 -a", 0, 20, 0, 1),
        ("a stream keeps its blocks", "", "a=20@1 -a b=20", 20, 40, 0, 2),
        ("emptying returns whole segments", "", "a=20 b=8 -a !", 8, 20, 12, 2),
        ("and no others", "", "a=8 b=8 -b !", 8, 20, 12, 1),
        ("below the limit a large block is split", "", "a=80 -a b=60", 60, 80, 20, 1),
        ("above it not for a small request", NO_SPLIT, "a=80 -a b=60", 60, 140, 0, 2),
        ("nor when it is 20 MiB too large", NO_SPLIT, "a=90 -a b=70", 70, 160, 0, 2),
        ("else it is taken whole", NO_SPLIT, "a=90 -a b=71", 90, 90, 0, 1),
        ("the limit itself counts as above", NO_SPLIT, "a=64 -a b=60", 60, 124, 0, 2),
        ("an expandable segment grows by 20 MiB", GROWING, "a=15 b=15", 30, 40, 0, 2),
        ("its small pool by 2 MiB", GROWING, "a=1 b=1 c=1", 3, 4, 0, 2),
        ("it is split to 512 bytes", GROWING, "a=19.5 b=20.5", 40, 40, 0, 2),
        ("neighbours of any age are joined", GROWING, "a=20 b=20 -a -b c=40", 40, 40, 0, 2),
        ("what can grow is kept", GROWING, "a=12 b=8 c=10 -a d=9 e=30", 57, 60, 0, 3),
        ("whole pages return", GROWING, "a=30 b=30 -a !", 30, 40, 0, 2),
        ("and gaps are filled first", GROWING, "a=30 b=30 -a ! c=30", 60, 60, 0, 3),
    ],
)  # fmt: skip
def test_rule(rule, conf, steps, allocated, reserved, inactive, calls):
    card = play(trace.model(conf=conf), steps)
    seen = (
        card.allocated / MIB,
        card.reserved / MIB,
        card.inactive_split / MIB,
        card.calls,
    )
    assert seen == (allocated, reserved, inactive, calls), rule
    check(card)


def test_addresses_of_equal_blocks():
    card = play(trace.model(), "a=20 b=20 -b -a c=20")
    (taken,) = (b for b in card.blocks() if not b.free)
    assert taken.at == min(b.at for b in card.blocks())


def test_out_of_memory_with_free_memory():
    card = play(trace.model(100 * MIB), "a=8 b=8 c=8 d=8 e=8 f=8 g=8 h=8 -a -c -e -g")
    # eight of 8 MiB, two to a segment of 20; the driver has 20, and half is free inside
    with pytest.raises(OutOfMemory, match=r"tried to allocate 30\.00 MiB of 100") as error:
        card.allocate("i", 30 * MIB)
    e = error.value
    seen = [e.driver_free, e.allocated, e.reserved, e.free_inside, e.largest, e.segment]
    assert [n / MIB for n in seen] == [20, 32, 80, 48, 8, 30]
    assert card.retries == 1
    assert card.trace[-1]["action"] == "oom"
    assert card.trace[-1]["device_free"] == 20 * MIB
    check(card)
    again = trace.replay(card.trace, 100 * MIB)
    assert again.oom.largest == e.largest
    assert again.points[-1].step == len(card.trace) - 1
    grown = trace.replay(card.trace, 100 * MIB, GROWING)
    assert grown.oom is None
    assert grown.allocator.retries == 0
    assert trace.replay(card.trace, 110 * MIB).oom is None


def test_a_full_card_gives_cached_segments_back_first():
    card = play(trace.model(60 * MIB), "a=20 b=20 c=20 -a -c d=30")
    assert (card.reserved / MIB, card.calls, card.returned, card.retries) == (50, 4, 2, 1)
    # with a limit one oversized block that is large enough goes, and no other
    card = play(trace.model(200 * MIB, NO_SPLIT), "a=90 b=70 c=20 -a -b -c d=60")
    assert (card.reserved / MIB, card.returned, card.retries) == (170, 1, 0)
    # none is large enough: the largest go until the sum is
    card = play(trace.model(200 * MIB, NO_SPLIT), "a=90 b=70 c=20 -a -b -c d=130")
    assert (card.reserved / MIB, card.returned, card.retries) == (150, 2, 0)


def test_memory_that_another_stream_uses_waits():
    card = play(trace.model(), "a=20")
    card.request_free("a")
    assert card.allocated == 0
    assert card.blocks()[0].waiting
    states = [b["state"] for s in trace.snapshot(card)["segments"] for b in s["blocks"]]
    assert states == ["active_awaiting_free"]
    play(card, "b=20")
    card.complete_free("a")
    play(card, "c=20")
    assert card.reserved == 40 * MIB


@pytest.mark.parametrize(
    ("conf", "says"),
    [
        ("max_split_size_mb:19", "max_split_size_mb must be at least 20, got 19"),
        ("roundup_power2_divisions:4", "got 'roundup_power2_divisions:4'"),
        ("expandable_segments:yes", "got 'expandable_segments:yes'"),
    ],
)
def test_conf_is_refused(conf, says):
    with pytest.raises(ValueError, match=says):
        trace.model(conf=conf)


def check(card):
    """Blocks tile what is reserved, and no two free ones are neighbours."""
    blocks = card.blocks()
    assert sum(b.size for b in blocks) == card.reserved <= card.capacity
    assert sum(b.size for b in card.taken.values()) == card.allocated
    assert all(a.at + a.size <= b.at for a, b in itertools.pairwise(blocks))
    for block in blocks:
        assert block.size % 512 == 0
        assert block.size >= block.requested
        after = block.after
        if after is not None:
            assert after.before is block
            assert after.at == block.at + block.size
            assert after.segment == block.segment
            assert after.stream == block.stream
            assert not (block.free and after.free)
    for (_, small), gaps in getattr(card, "unmapped", {}).items():
        assert all(g.size and g.size % PAGE[small] == 0 for g in gaps)
    stuck = sum(b.size for b in blocks if b.free and b.split)
    assert card.inactive_split == (stuck if type(card) is Allocator else 0)


def random_steps(card, seed, n=1500, empties=0.002):
    """Allocate and free at random, sizes from bytes to 100 MiB, on two streams."""
    draw, live = random.Random(seed), []
    for i in range(n):
        if live and draw.random() < (0.35 if len(live) < 40 else 0.55):
            card.release(live.pop(draw.randrange(len(live))))
        elif draw.random() < empties:
            card.empty_cache()
        else:
            card.allocate(i, int(2 ** draw.uniform(4, 26.6)), draw.random() < 0.2)
            live.append(i)
        yield i


CASES = [(conf, c) for conf in ("", NO_SPLIT, GROWING) for c in (inf, 700 * MIB, 400 * MIB)]


@pytest.mark.parametrize(("conf", "capacity"), CASES)
def test_what_holds_for_any_trace(conf, capacity):
    for seed in range(4):
        card = trace.model(capacity, conf)
        with suppress(OutOfMemory):
            for i in random_steps(card, seed):
                if i % 25 == 0:
                    check(card)
        check(card)
        for key in list(card.taken):
            card.release(key)
        whole = [b for b in card.blocks() if b.before is None and b.after is None]
        if conf != GROWING:
            assert len(whole) == len(card.blocks()), "freed, then whole again"
        assert card.allocated == card.requested == card.inactive_split == 0
        card.empty_cache()
        assert (card.reserved, card.blocks()) == (0, [])


@pytest.mark.parametrize(("conf", "capacity"), CASES)
def test_a_replay_of_its_own_trace_changes_nothing(conf, capacity):
    card, empties = trace.model(capacity, conf), 0.01 * (capacity == inf)
    with suppress(OutOfMemory):
        for _ in random_steps(card, seed=7, n=800, empties=empties):
            pass
    options = {"conf": conf, "empty_cache": capacity == inf}
    again, third = (trace.replay(card.trace, capacity, **options) for _ in range(2))
    assert again.points == third.points
    assert again.allocator.trace == card.trace
    assert again.allocator.retries == card.retries
    told = [(p.step, p.requested, p.reserved) for p in again.points]
    assert trace.recorded(card.trace) == told[: len(told) - bool(again.oom)]
    assert again.saved == again.requests - card.calls > 0
    assert again.unseen == 0


def test_torch_reads_the_snapshot():
    card = trace.model()
    for _ in random_steps(card, seed=3, n=300):
        pass
    told = trace.snapshot(card)
    assert sum(s["total_size"] for s in told["segments"]) == card.reserved
    assert sum(s["allocated_size"] for s in told["segments"]) == card.allocated
    text = _memory_viz.segsum(told)  # it adds up each segment, and raises if it is off
    assert f"segments: {len(told['segments'])}\n" in text
    assert f"{len(card.trace)} entries" in _memory_viz.trace(told)


def test_a_recording_that_began_late():
    entries = [
        {"action": "free_requested", "addr": 1, "size": 5, "stream": 0},
        {"action": "free_completed", "addr": 1, "size": 5, "stream": 0},
        {"action": "alloc", "addr": 1, "size": 3 * KIB, "stream": 0},
        {"action": "snapshot", "addr": 0, "size": 0, "stream": 0},
    ]
    done = trace.replay(entries)
    assert (done.unseen, done.requests, done.saved) == (1, 1, 0)
    with pytest.raises(ValueError, match="entry 4 allocates address 0x1, which is taken"):
        trace.replay([*entries, entries[2]])


def test_an_emptied_cache_is_replayed_or_passed_over():
    card = play(trace.model(), "a=20 b=30 -a -b ! c=20")
    assert trace.replay(card.trace).allocator.reserved == 20 * MIB
    kept = trace.replay(card.trace, empty_cache=False).allocator
    assert (kept.reserved, kept.calls) == (50 * MIB, 2)
