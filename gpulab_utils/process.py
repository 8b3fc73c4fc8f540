"""What does the operating system say of a process? Resident memory, in bytes, and heirs."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path


def rss_bytes() -> int:
    """Resident memory of this process now."""
    try:
        import psutil

        return psutil.Process().memory_info().rss
    except ImportError:  # Linux tells it without
        with open("/proc/self/statm") as told:
            return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def trim() -> None:
    """Give the freed part of the heap back, so that what grows next shows; glibc only."""
    import ctypes

    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):  # another C library: growth shows less
        return


def peak_rss_bytes() -> int:
    """Most resident memory this process ever had.

    >>> peak_rss_bytes() >= rss_bytes() // 2
    True
    """
    try:
        import resource
    except ImportError:  # Windows
        import psutil

        return psutil.Process().memory_info().peak_wset
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def run_peak_rss(command: list[str], **options) -> tuple[int, int, str]:
    """Run `command`: (peak RSS in bytes, exit status, what it printed); POSIX only.

    A small process stands between: a child's peak begins with its parent's memory.
    """
    read, write = os.pipe()
    between = [sys.executable, "-S", "-c", _WAIT, str(write), *command]
    kept = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(between, pass_fds=[write], check=False, **kept, **options)
    os.close(write)
    with os.fdopen(read) as told:
        status, peak = map(int, told.read().split())
    return peak * (1 if sys.platform == "darwin" else 1024), status, done.stdout


def below(pid: int) -> list[int]:
    """The processes that `pid` started and those that they started, by id.

    >>> below(os.getpid()) == [] or below(os.getpid())[0] > 0
    True
    """
    proc = Path("/proc")
    if not proc.is_dir():
        import psutil

        with suppress(psutil.NoSuchProcess):
            return [p.pid for p in psutil.Process(pid).children(recursive=True)]
        return []
    parents = {}
    for stat in proc.glob("[0-9]*/stat"):
        with suppress(OSError):  # has ended meanwhile
            parents[int(stat.parent.name)] = int(
                stat.read_text().rpartition(")")[2].split()[1]
            )
    found = [pid]
    for one in found:  # grows while it is walked
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def naming(text: str) -> list[int]:
    """The running processes whose command line has `text` in it, by id.

    >>> naming("no command line has this " + "in it")
    []
    """
    proc = Path("/proc")
    if not proc.is_dir():
        import psutil

        seen = psutil.process_iter(["cmdline"])
        return [p.pid for p in seen if text in " ".join(p.info["cmdline"] or ())]
    found = []
    for line in proc.glob("[0-9]*/cmdline"):
        with suppress(OSError):  # has ended meanwhile
            if text.encode() in line.read_bytes().replace(b"\0", b" "):
                found.append(int(line.parent.name))
    return found


def gone(text: str, limit_s: float = 10) -> bool:
    """Wait until no command line has `text` in it, `limit_s` at most; whether it is so.

    >>> gone("no command line has this " + "in it")
    True
    """
    end = time.monotonic() + limit_s
    while left := naming(text):
        if time.monotonic() > end:
            break
        time.sleep(0.01)
    return not left


_WAIT = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[2:])
_, status, usage = os.wait4(child.pid, 0)
told = f"{os.waitstatus_to_exitcode(status)} {usage.ru_maxrss}"
os.write(int(sys.argv[1]), told.encode())
"""
