"""Does a second thread take the copies off the first? Two stages, chunk by chunk, for real.

The copy reads a file into a buffer, the work takes the sine of it; torch and `readinto`
give up Python's lock meanwhile. Both take about as long, each measured alone.
"""

import math
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from gpulab_utils.probes import seconds

FILE_PIECES = 16  # the file is read again and again: it stays in the page cache


class Stages:
    """`pieces` of a file of float32: `copy(p)` reads one, `work(p)` computes on it.

    `copy_s` and `work_s` are the seconds that all pieces take, one thread, each alone.
    """

    def __init__(self, pieces: int = 64, piece_bytes: int = 2**22):
        import torch

        self.pieces, n = pieces, piece_bytes // 4
        self._bytes, self._sine = piece_bytes, torch.zeros(n)
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115, as long as self
        self._file.write(torch.rand(n).numpy().tobytes() * FILE_PIECES)
        self._room = torch.zeros(pieces, n)  # [pieces, values]
        self._views = [memoryview(part.numpy()) for part in self._room]
        self._rounds, self._width = 1, n
        self.copy_s = self._took(self.copy)
        times = self.copy_s / self._took(self.work)
        self._rounds = math.ceil(times)
        self._width = max(1, int(n * times / self._rounds))
        self.work_s = self._took(self.work)

    def copy(self, piece: int) -> None:
        """Read a piece of the file into its place."""
        self._file.seek(piece % FILE_PIECES * self._bytes)
        self._file.readinto(self._views[piece])

    def work(self, piece: int) -> None:
        """The sine of a part of it, as often as makes it as long as the copy."""
        import torch

        for _ in range(self._rounds):
            torch.sin(self._room[piece, : self._width], out=self._sine[: self._width])

    def of(self, chunks: int) -> tuple[Callable, Callable]:
        """`copy(i)` and `work(i)` of chunk i when the pieces are cut into `chunks`."""
        if self.pieces % chunks:
            raise ValueError(f"{chunks} chunks do not divide {self.pieces} pieces")
        each = self.pieces // chunks

        def of_chunk(do: Callable) -> Callable:
            return lambda i: [do(p) for p in range(i * each, (i + 1) * each)]

        return of_chunk(self.copy), of_chunk(self.work)

    def job(self, chunks: int, ahead: bool | None = None) -> Callable:
        """All chunks; where `ahead` is None a reader helps if torch is set to 2 threads."""
        import torch

        copy, work = self.of(chunks)

        def run() -> None:
            helped = torch.get_num_threads() > 1 if ahead is None else ahead
            torch.set_num_threads(1)  # the reader is the second thread
            double_buffer(copy, work, chunks, helped)

        return run

    def predicted(self, chunks: int) -> float:
        """How many times as long the caller is busy if nobody reads for it."""
        alone = self.copy_s + self.work_s
        return alone / (self.copy_s / chunks + self.work_s)

    def watched(self, chunks: int) -> list[dict]:
        """One run with a reader: what each thread did, in seconds from the first start."""
        seen = []

        def watch(what: str, lane: Callable, do: Callable) -> Callable:
            def run(i: int) -> None:
                start = time.perf_counter()
                do(i)
                told = {"what": what, "lane": lane(i), "chunk": i, "start": start}
                seen.append(told | {"end": time.perf_counter()})

            return run

        copy, work = self.of(chunks)
        copy = watch("copy", lambda i: "reading thread" if i else "calling thread", copy)
        work = watch("work", lambda i: "calling thread", work)
        double_buffer(copy, work, chunks, ahead=True)
        first = min(s["start"] for s in seen)
        return [s | {"start": s["start"] - first, "end": s["end"] - first} for s in seen]

    def _took(self, do: Callable) -> float:
        return seconds(lambda: [do(p) for p in range(self.pieces)], budget_s=0.5)


def double_buffer(fill: Callable, work: Callable, n: int, ahead: bool) -> None:
    """For each of `n` chunks `fill(i)`, then `work(i)`; `ahead`: a thread fills the next.

    Two buffers do: `fill(i)` runs beside `work(i - 1)` only.

    >>> seen = []
    >>> double_buffer(seen.append, lambda i: seen.append(-i), 3, ahead=False)
    >>> seen
    [0, 0, 1, -1, 2, -2]
    """
    if not ahead:
        for i in range(n):
            fill(i), work(i)
        return
    with ThreadPoolExecutor(1) as reader:
        fill(0)
        for i in range(n):
            coming = reader.submit(fill, i + 1) if i + 1 < n else None
            work(i)
            if coming:
                coming.result()
