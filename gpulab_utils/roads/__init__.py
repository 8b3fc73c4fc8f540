"""What does it cost to move bytes? Roads of a CPU, and between a host and its GPU.

`survey()` times copies of many sizes, `lines()` fits seconds = latency + bytes / rate to
each road, `send(road, n)` is one copy as a call. `Stack` is a model whose layers come over
a road. `pages` counts page faults and empties the page cache of a file.
"""

from gpulab_utils.roads.copies import names, send, sizes, ways
from gpulab_utils.roads.pages import PAGE, cached, evict, faults, fresh
from gpulab_utils.roads.stack import Stack
from gpulab_utils.roads.survey import DISK, cold, disk_seconds, lines, survey

__all__ = ["DISK", "PAGE", "Stack", "cached", "cold", "disk_seconds", "evict", "faults"]
__all__ += ["fresh", "lines", "names", "send", "sizes", "survey", "ways"]
