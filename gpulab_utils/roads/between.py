"""Two roads from one process to another: through a pipe, and through memory both map."""

import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import cycle

from gpulab_utils import device

ROADS = ("pipe", "shared memory")

# The other side: told a number of bytes it takes them from the pipe, into the memory that
# both map; told a negative number it has them there already; then it says so.
_TAKER = """
import mmap, os, sys
kept = memoryview(mmap.mmap(int(sys.argv[1]), int(sys.argv[2])))
while told := os.read(0, 8):
    at, n = 0, int.from_bytes(told, "little", signed=True)
    while at < n:
        got = os.readv(0, [kept[at:n]])
        at += got or sys.exit()  # nobody is left to send the rest
    os.write(1, b"k")
"""


@dataclass(frozen=True)
class Taker:
    """A second process, and the memory that both map."""

    process: subprocess.Popen
    shared: mmap.mmap
    source: memoryview

    def tell(self, n_bytes: int) -> None:
        os.write(self.process.stdin.fileno(), n_bytes.to_bytes(8, "little", signed=True))

    def pipe(self, at: int, n_bytes: int) -> None:
        """The kernel copies in, the other side copies out, a pipe's few pages at a time."""
        self.tell(n_bytes)
        left = self.source[at : at + n_bytes]
        while len(left):
            left = left[os.write(self.process.stdin.fileno(), left) :]
        os.read(self.process.stdout.fileno(), 1)

    def share(self, at: int, n_bytes: int) -> None:
        """One copy, into memory that the other side sees too, and a word across."""
        self.shared[at : at + n_bytes] = self.source[at : at + n_bytes]
        self.tell(-n_bytes)
        os.read(self.process.stdout.fileno(), 1)


def here() -> bool:
    """Whether this system has both roads in this form (Linux)."""
    return hasattr(os, "memfd_create")


def send(road: str, n_bytes: int) -> Callable:
    """A call that hands `n_bytes` to the other process and waits for its word.

    >>> if here():
    ...     send("pipe", 1000)()
    """
    if road not in ROADS:
        raise ValueError(f"road must be one of {', '.join(ROADS)}, got {road!r}")
    taker = _taker(max(device.pick(cpu=2**27, gpu=2**27, tiny=2**20), n_bytes))
    carry = taker.pipe if road == "pipe" else taker.share
    pieces = cycle(range(0, len(taker.source) - n_bytes + 1, n_bytes))  # no cache has all
    return lambda: carry(next(pieces), n_bytes)


@cache
def _taker(n_bytes: int) -> Taker:
    """The other process; it ends when its pipe closes, with this one."""
    fd = os.memfd_create("gpulab")
    os.ftruncate(fd, n_bytes)
    command = [sys.executable, "-S", "-c", _TAKER, str(fd), str(n_bytes)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
    apart = {"start_new_session": True}  # an interrupted notebook does not interrupt it
    process = subprocess.Popen(command, pass_fds=[fd], **pipes, **apart)
    taker = Taker(process, mmap.mmap(fd, n_bytes), memoryview(bytearray(b"1") * n_bytes))
    taker.shared[:] = taker.source  # touched once, so that no send pays for it
    return taker
