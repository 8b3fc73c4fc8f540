"""The card table: units, sources, and arithmetic that the sheet must obey."""

from gpulab_utils import CARDS, bound, ridge
from gpulab_utils.units import GIB

import pytest


@pytest.fixture(params=CARDS, ids=str)
def card(request):
    return CARDS[request.param]


def test_there_are_seventy_cards():
    assert len(CARDS) >= 70


def test_bandwidth_is_bus_times_data_rate(card):
    computed = card.bus_bits * card.data_rate_bits_per_s / 8
    noted = card.row["also_acceptable"].get("memory_bandwidth_gb_s", [])
    accepted = [card.mem_bytes_per_s, *(g * 1e9 for g in noted)]
    assert any(computed == pytest.approx(a, rel=0.03) for a in accepted), computed


def test_fp32_rate_is_cores_times_clock(card):
    computed = 2 * card.cores * card.boost_hz
    assert card.flop_per_s["fp32"] in (
        pytest.approx(computed, rel=0.05),
        pytest.approx(2 * computed, rel=0.05),  # RDNA 3 issues two
    )


def test_units_are_si(card):
    assert 1e11 < card.mem_bytes_per_s < 1e13
    assert 4 * GIB < card.mem_bytes < 300 * GIB
    assert all(1e11 < rate < 2e16 for rate in card.flop_per_s.values())
    assert 50 <= card.tdp_w <= 1500


def test_every_card_has_sources(card):
    assert card.confidence in ("vendor", "secondary")
    assert all(s["address"] for s in card.row["sources"])


def test_usable_memory_is_less_than_the_box(card):
    assert card.usable_bytes() < card.usable_bytes(desktop=False) < card.mem_bytes
    assert card.usable_bytes() > 0.75 * card.mem_bytes


@pytest.mark.parametrize(
    ("name", "bytes_per_s"),
    [  # the article's 768 GB/s would be 384 x 16 / 8; the card has 19 Gbit/s a pin
        ("rtx-3080-ti", 384 * 19e9 / 8),
        ("rtx-4060-ti-16gb", 128 * 18e9 / 8),
        ("rtx-a6000", 384 * 16e9 / 8),
    ],
)
def test_bandwidth_matches_hand_arithmetic(name, bytes_per_s):
    assert CARDS[name].mem_bytes_per_s == bytes_per_s


@pytest.mark.parametrize(
    ("what", "flop", "bytes_moved", "wall", "ms"),
    [  # 16e9 / 4.8e12 bytes/s; 2 * 8192**3 = 1.0995e12 / 989.4e12 FLOP/s
        ("decode of one token, 8B bf16", 16e9, 16e9, "memory", 3.333),
        ("square matmul, n=8192", 2 * 8192**3, 6 * 8192**2, "compute", 1.111),
    ],
)
def test_bound_matches_hand_arithmetic(what, flop, bytes_moved, wall, ms):
    b = bound(CARDS["h200-sxm"], flop=flop, bytes_moved=bytes_moved)
    assert (b.wall, b.seconds * 1e3) == (wall, pytest.approx(ms, rel=1e-3)), what


def test_ridge_is_the_crossover():
    card = CARDS["rtx-3080-ti"]
    flop = ridge(card) * 1e9
    assert bound(card, flop=1.01 * flop, bytes_moved=1e9).wall == "compute"
    assert bound(card, flop=0.99 * flop, bytes_moved=1e9).wall == "memory"


@pytest.mark.parametrize("wrong", ["rtx3080ti", "RTX 3080 Ti", "3080"])
def test_an_unknown_card_names_the_nearest(wrong):
    with pytest.raises(KeyError, match="rtx-3080"):
        CARDS[wrong]


def test_refusals_name_the_value():
    card = CARDS["gtx-1080-ti"]
    with pytest.raises(ValueError, match="bytes_moved must be positive, got 0"):
        bound(card, flop=1, bytes_moved=0)
    with pytest.raises(ValueError, match="flop must not be negative, got -1"):
        bound(card, flop=-1, bytes_moved=1)
    with pytest.raises(ValueError, match="GTX 1080 Ti has no 'bf16' rate"):
        bound(card, flop=1, bytes_moved=1, dtype="bf16")
