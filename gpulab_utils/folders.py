"""Folders for files that must not outlive the process, gigabytes of them.

They lie in one folder, which the process that made it removes, not a fork of it. The kernel
of a notebook may be killed, which calls no exit handler: `remove()` in its last cell. What
a killed one has left the next process removes; not on Windows, which has no `flock`.
"""

import atexit
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LOCK = "in-use"  # locked as long as its process lives, however that ends
_base: list[tuple[int, Path, int]] = []


def folder(what: str) -> Path:
    """A new empty folder, removed by `remove()` or when this process ends.

    >>> made = folder("doctest")
    >>> made.is_dir()
    True
    """
    if not _base:
        atexit.register(remove)
        _sweep(Path(tempfile.gettempdir()))
        made = Path(tempfile.mkdtemp(prefix="gpulab-"))
        _base.append((os.getpid(), made, _mark(made)))
    return Path(tempfile.mkdtemp(prefix=f"{what}-", dir=_base[0][1]))


def remove() -> None:
    """Remove the folders of this process, and what is in them; in a fork nothing."""
    if _base and _base[0][0] == os.getpid():
        _, made, lock = _base.pop()
        shutil.rmtree(made, ignore_errors=True)
        os.close(lock)


def _mark(made: Path) -> int:
    """A locked file in the folder, locked before it has the name that is looked for."""
    part = made / f"{LOCK}.part"
    lock = os.open(part, os.O_RDWR | os.O_CREAT)
    if fcntl:
        fcntl.flock(lock, fcntl.LOCK_EX)
        part.rename(made / LOCK)
    return lock


def _sweep(top: Path) -> None:
    """Remove the folders in `top` whose process is gone: nobody holds their lock."""
    for left in top.glob(f"gpulab-*/{LOCK}") if fcntl else ():
        with suppress(OSError):  # held, or another user's
            lock = os.open(left, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left.parent, ignore_errors=True)
            finally:
                os.close(lock)
