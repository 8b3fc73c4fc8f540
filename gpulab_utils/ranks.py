"""Processes that work together on this machine: start them, wait for what each found.

`launch` runs a script with `python -m torch.distributed.run`, one copy a rank. The script
uses `gpulab_utils.workers`: `joined` for its process group and what is asked of it, `tell`
for what it found; both travel as JSON. Only the loopback interface is used. A launch has a
time limit: then every process below it is ended. Where this process is killed first, the
ranks see their standard input close, and end.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gpulab_utils import device, folders
from gpulab_utils.process import below, gone, naming

WORKERS = Path(__file__).parent / "workers"
_launches: list[str] = []  # folders: each stands in the command lines of its processes


class RankFailed(RuntimeError):
    """A rank ended with an error, or without telling what it found."""


class RankLate(TimeoutError):
    """The ranks were still running at the time limit, and were ended."""


def road(ranks: int) -> tuple[str, str]:
    """Backend and kind of device for so many ranks: NCCL wants a card for each.

    >>> road(1000)
    ('gloo', 'cpu')
    >>> road(1)[0] in ("gloo", "nccl")
    True
    """
    if device.here().is_gpu:
        import torch

        if torch.cuda.device_count() >= ranks:
            return "nccl", "cuda"
    return "gloo", "cpu"


class Running:
    """Ranks under way: `pids()`, `wait()` for what they found, `stop()` to end them."""

    def __init__(self, command: list[str], own: dict, ranks: int, env: dict):
        self.ranks, self.limit_s = ranks, own["limit_s"]
        self.folder = folders.folder("ranks")
        _launches.append(str(self.folder))
        self._end = time.monotonic() + self.limit_s
        command = [*command[:3], f"--log-dir={self.folder / 'logs'}", *command[3:]]
        command += [json.dumps(own | {"folder": str(self.folder)})]
        with open(self.folder / "output", "w") as output:
            self.process = subprocess.Popen(
                command, env=env, stdin=subprocess.PIPE, stdout=output, stderr=output
            )

    def pids(self) -> list[int]:
        """The launcher and every process below it, by id; workers of the ranks too."""
        return [self.process.pid, *below(self.process.pid)]

    def told(self) -> dict[int, dict]:
        """What each rank has told so far, by rank."""
        seen = (self.folder / f"rank{r}.json" for r in range(self.ranks))
        return {r: json.loads(p.read_text()) for r, p in enumerate(seen) if p.exists()}

    def output(self) -> str:
        """What the launcher has printed, then what each rank has, in each of its lives."""
        logs = [self.folder / "output", *sorted(self.folder.glob("logs/**/std*.log"))]
        return "".join(path.read_text(errors="replace") for path in logs)

    def wait(self) -> list[dict]:
        """What each rank found; raises `RankFailed`, or `RankLate` at the limit."""
        try:
            status = self.process.wait(max(0, self._end - time.monotonic()))
            told = self.told()
            if status or len(told) < self.ranks:
                raise RankFailed(f"status {status}, ranks that told: {self._seen()}")
            return [told[r] for r in range(self.ranks)]
        except subprocess.TimeoutExpired:
            raise RankLate(
                f"{self.ranks} ranks were still running after {self.limit_s:g} s and were "
                f"ended; limit_s gives them more. Ranks that told: {self._seen()}"
            ) from None
        finally:
            self.stop()

    def stop(self) -> None:
        """End the launcher and every process below it, by id; then the folder goes too."""
        if hasattr(signal, "SIGSTOP"):
            self.process.send_signal(signal.SIGSTOP)  # so that it starts no more of them
        for pid in reversed(self.pids() if self.process.poll() is None else []):
            with suppress(OSError):  # has ended meanwhile
                os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        self.process.wait()
        self.process.stdin.close()  # at which a rank without a launcher ends
        gone(str(self.folder))  # on a busy machine even SIGKILL takes a while
        shutil.rmtree(self.folder, ignore_errors=True)

    def _seen(self) -> str:
        lines = self.output().splitlines()[-40:]
        return "\n    | ".join([str(sorted(self.told())), *lines])


def start(
    script: str | Path,
    ask: dict | None = None,
    *,
    ranks: int = 2,
    limit_s: float = 60,
    threads: int = 1,
    options: Sequence[str] = (),
) -> Running:
    """Start `ranks` copies of a script and return at once; `wait` or `stop` must follow.

    `script` is a path, or the name of one in `gpulab_utils/workers`. `ask` goes to it as
    JSON. `threads` is for each rank's OpenMP; `options` go to the launcher. Raises
    `ValueError` for fewer than one rank or no time, `FileNotFoundError` for no script.
    """
    if ranks < 1 or limit_s <= 0:
        raise ValueError(f"ranks and limit_s must be positive, got {ranks} and {limit_s}")
    path = script if Path(script).suffix else WORKERS / f"{script}.py"
    if not Path(path).is_file():
        known = ", ".join(p.stem for p in sorted(WORKERS.glob("[a-z]*.py")))
        raise FileNotFoundError(f"no script {path}; gpulab_utils/workers has {known}")
    backend, kind = road(ranks)
    own = {"ask": ask or {}, "backend": backend, "device": kind, "limit_s": limit_s}
    here = [
        "--redirects=3",
        "--nnodes=1",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=127.0.0.1:0",
    ]
    here += ["--local-addr=127.0.0.1", f"--nproc-per-node={ranks}", *options]
    command = [sys.executable, "-m", "torch.distributed.run", *here, str(path)]
    return Running(command, own, ranks, _environment(kind, threads))


def launch(script: str | Path, ask: dict | None = None, **options) -> list[dict]:
    """`start` a script, wait, and return what each rank told, by rank.

    No process is left when it returns or raises (`RankFailed`, `RankLate`).
    """
    return start(script, ask, **options).wait()


def left() -> list[int]:
    """Processes of this one's launches that still run, by id, found by command lines.

    >>> left()  # after each `wait` there are none
    []
    """
    return sorted({pid for folder in _launches for pid in naming(folder)})


def slowest(told: Sequence[Sequence[float | None]]) -> list[float]:
    """Round by round the seconds of the slowest of the ranks; one that sat out told None.

    >>> slowest([[0.25, 0.5], [0.125, None]])
    [0.25, 0.5]
    """
    return [max(one or 0 for one in each) for each in zip(*told, strict=True)]


def _environment(kind: str, threads: int) -> dict[str, str]:
    loopback = [name for _, name in socket.if_nameindex() if name.startswith("lo")]
    names = dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), loopback[0])
    root = os.pathsep.join(
        filter(None, [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH")])
    )
    env = os.environ | names | {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": root}
    env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # a new store in each life
    hidden = {"GPULAB_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}  # torch looks for itself
    return env | (hidden if kind == "cpu" else {})


@contextmanager
def alone() -> Iterator[object]:
    """A process group of this process and no other, while the block runs; its device."""
    import torch
    import torch.distributed as dist

    backend, kind = road(1)
    store = dist.HashStore()
    dist.init_process_group(backend, store=store, rank=0, world_size=1)
    try:
        yield torch.device(kind)
    finally:
        dist.destroy_process_group()
