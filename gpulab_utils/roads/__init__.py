"""What does it cost to move bytes? Roads of a CPU, and between a host and its GPU.

`survey()` times copies of many sizes, `lines()` fits seconds = latency + bytes / rate to
each road, `send(road, n)` is one copy as a call. `Stack` is a model whose layers come over
a road. `pages` counts page faults and empties the page cache of a file.
"""

from gpulab_utils import folders
from gpulab_utils.folders import folder
from gpulab_utils.roads import copies
from gpulab_utils.roads.copies import names, send, sizes, ways
from gpulab_utils.roads.fitted import (
    DISK,
    cold,
    disk_seconds,
    fetch_rate,
    gap,
    lines,
    survey,
)
from gpulab_utils.roads.pages import PAGE, cached, evict, faulted, faults, fresh
from gpulab_utils.roads.stack import Stack

__all__ = ["DISK", "PAGE", "Stack", "cached", "clear", "cold", "disk_seconds", "evict"]
__all__ += ["faulted", "faults", "fetch_rate", "folder", "fresh", "gap", "lines", "names"]
__all__ += ["send", "sizes", "survey", "ways"]


def clear() -> None:
    """Remove the files and buffers of the roads; what needs them makes them anew."""
    folders.remove()
    copies.place.cache_clear()
