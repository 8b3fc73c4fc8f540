"""The figures of torch's allocator, in the forms that torch gives them."""

import pickle
from collections import defaultdict

from gpulab_utils.standin import card


def memory_stats(device=None) -> dict:
    """The figures of torch's allocator that have a meaning here; any other reads 0."""
    now, stats = card.now, defaultdict(int)
    for name in ("allocated_bytes", "active_bytes", "requested_bytes"):
        stats[f"{name}.all.current"], stats[f"{name}.all.peak"] = now.allocated, now.peak
    stats["reserved_bytes.all.current"] = now.reserved
    stats["reserved_bytes.all.peak"] = now.peak_reserved
    stats["allocation.all.allocated"] = now.count
    stats["allocation.all.current"] = len(card.blocks())
    stats["num_ooms"], stats["num_alloc_retries"] = now.ooms, 0
    return stats


def mem_get_info(device=None) -> tuple[int, int]:
    return card.TOTAL - card.CONTEXT - card.now.reserved, card.TOTAL


def set_fraction(fraction: float, device=None) -> None:
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    card.limit.fraction = fraction


def snapshot(*_, **__) -> dict:
    """One segment with one block for each storage, in the form of torch's snapshots."""
    segments = [
        {
            **{"device": 0, "address": address, "segment_type": "large", "stream": 0},
            **{"total_size": size, "allocated_size": size, "active_size": size},
            "blocks": [
                {"address": address, "size": size, "requested_size": size}
                | {"state": "active_allocated", "frames": []}
            ],
        }
        for address, size in card.blocks()
    ]
    return {"segments": segments, "device_traces": [[]], "allocator_settings": {}}


def dump_snapshot(filename="dump_snapshot.pickle", *_, **__) -> None:
    with open(filename, "wb") as file:
        pickle.dump(snapshot(), file)
