"""Folders for files that must not outlive the process, gigabytes of them.

A notebook's kernel may be killed, which calls no exit handler: `remove()` in its last cell.
They lie in one folder, which the process that made it removes, not a fork of it.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

_base: list[tuple[int, Path]] = []


def folder(what: str) -> Path:
    """A new empty folder, removed by `remove()` or when this process ends.

    >>> made = folder("doctest")
    >>> made.is_dir()
    True
    """
    if not _base:
        atexit.register(remove)
        _base.append((os.getpid(), Path(tempfile.mkdtemp(prefix="gpulab-"))))
    return Path(tempfile.mkdtemp(prefix=f"{what}-", dir=_base[0][1]))


def remove() -> None:
    """Remove the folders of this process, and what is in them; in a fork nothing."""
    if _base and _base[0][0] == os.getpid():
        shutil.rmtree(_base.pop()[1], ignore_errors=True)
