"""What does a GPU program compute? Streams as queues, and memory that holds NaN at first.

A teaching model, not a card. Work that is given to a stream is done later, in the order of
that stream; streams take turns in an order drawn by `seed`. An operation reads its inputs
when it starts and writes when it ends, so what overlaps can be seen to go wrong.
Sources: NVIDIA, "CUDA C/C++ Streams and Concurrency"; "API synchronization behavior".
"""

import random
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from gpulab_utils.cuda_source import Call, calls

POISON = b"\xff" * 4  # as float: NaN
SUCCESS, NO_DEVICE = 0, 100  # cudaSuccess, cudaErrorNoDevice


@dataclass
class Work:
    """Something in a queue, and when it ran (in steps of the model)."""

    name: str
    stream: str
    read: Callable[[], object]
    write: Callable[[object], None]
    waits: str | None = None  # an event that must have happened
    start: int | None = None
    end: int | None = None
    seen: object = field(default=None, repr=False)


class Gpu:
    """Buffers of floats, streams, events. Every call returns a status, as CUDA's do."""

    def __init__(self, seed: int = 0, present: bool = True):
        self.present, self.done = present, []
        self._turn, self._steps = random.Random(seed), 0
        self._queues, self._running, self._events = {}, {}, set()
        self._buffers, self._pageable, self.host_waited = {}, set(), 0

    def malloc(self, name: str, n: int) -> int:
        """A device buffer of `n` floats, each NaN until it is written."""
        poisoned = {name: array("f", n * POISON)}
        return self._if_present(lambda: self._buffers.update(poisoned))

    def host(self, name: str, values: list[float], pinned: bool = True) -> None:
        """A buffer of the host: page-locked, or pageable as `malloc` gives it."""
        self._buffers[name] = array("f", values)
        if not pinned:
            self._pageable.add(name)

    def values(self, name: str) -> list[float]:
        """What the buffer holds now; it does not wait for anything."""
        return list(self._buffers[name])

    def copy(self, to: str, source: str, stream: str = "0") -> int:
        """`cudaMemcpyAsync`; with pageable memory the host waits, as a driver may."""

        def give():
            self._give(f"copy {source}", stream, lambda: self._buffers[source][:], to)
            if {to, source} & self._pageable:
                self.host_waited += 1
                self.synchronize(stream)

        return self._if_present(give)

    def launch(self, name: str, fn: Callable, source: str, to: str, stream: str) -> int:
        """A kernel: `to[i] = fn(source[i])`."""

        def result():
            return array("f", [fn(x) for x in self._buffers[source]])

        return self._if_present(lambda: self._give(name, stream, result, to))

    def record(self, event: str, stream: str) -> int:
        """The event happens when all that `stream` was given so far is done."""
        work = Work(f"event {event}", stream, lambda: event, self._events.add)
        return self._if_present(lambda: self._queue(stream).append(work))

    def wait(self, event: str, stream: str) -> int:
        """What `stream` is given from now on starts after the event."""
        work = Work(f"wait {event}", stream, lambda: None, lambda _: None, waits=event)
        return self._if_present(lambda: self._queue(stream).append(work))

    def happened(self, event: str) -> bool:
        """Whether the event has happened; the host does not wait."""
        return event in self._events

    def synchronize(self, stream: str | None = None) -> int:
        """The host waits for one stream, or for all; others may go on meanwhile."""
        return self._if_present(lambda: self._drain(stream))

    def _if_present(self, act: Callable) -> int:
        if self.present:
            act()
        return SUCCESS if self.present else NO_DEVICE

    def _queue(self, stream: str) -> deque:
        return self._queues.setdefault(stream, deque())

    def _give(self, name: str, stream: str, read: Callable, to: str) -> None:
        def write(values):
            self._buffers[to][: len(values)] = values

        self._queue(stream).append(Work(name, stream, read, write))

    def _drain(self, stream: str | None) -> None:
        while any(self._queues.values()) if stream is None else self._queue(stream):
            able = [
                s for s, queue in self._queues.items() if queue and self._able(queue[0])
            ]
            if not able:
                raise RuntimeError(f"stream {stream} waits for an event nobody records")
            self._step(self._queues[self._turn.choice(able)])

    def _able(self, work: Work) -> bool:
        return work.waits in (None, *self._events)

    def _step(self, queue: deque) -> None:
        """Start the head of a queue, or end it if it runs already."""
        work, self._steps = queue[0], self._steps + 1
        if work.start is None:
            work.start, work.seen = self._steps, work.read()
            return
        work.write(work.seen)
        work.end, work.seen = self._steps, None
        self.done.append(queue.popleft())


def play(source: str, gpu: Gpu, fn: Callable) -> list[int]:
    """Run the calls of a CUDA source, each kernel as `fn`; the statuses they returned.

    >>> gpu = Gpu()
    >>> gpu.host("h", [7.0]); gpu.malloc("d", 1)
    0
    >>> play("cudaMemcpyAsync(d, h, 4, kind, s); cudaStreamSynchronize(s);", gpu, abs)
    [0, 0]
    >>> gpu.values("d")
    [7.0]
    """
    return [_do(call, gpu, fn) for call in calls(source)]


def _do(call: Call, gpu: Gpu, fn: Callable) -> int:
    if call.is_launch:
        return gpu.launch(call.what, fn, call.args[0], call.args[1], call.stream or "0")
    if call.what == "cudaMemcpyAsync":
        return gpu.copy(call.args[0], call.args[1], call.stream)
    if call.what == "cudaStreamSynchronize":
        return gpu.synchronize(call.stream)
    if call.what in ("cudaStreamCreate", "cudaStreamDestroy", "cudaGetLastError"):
        return SUCCESS if gpu.present else NO_DEVICE
    raise ValueError(f"the emulator has no {call.what}; add it to {__name__}")


class Pool:
    """The stream rule of torch's caching allocator: who may get a freed block, and when.

    Freed, a block is handed out again on the stream it was allocated on, at once, though
    another may still read it. Only `record_stream` tells the allocator of another: then it
    waits for what that was given before the free.
    Source: PyTorch, `torch.Tensor.record_stream`.
    """

    def __init__(self, gpu: Gpu):
        self.gpu, self._made, self._blocks = gpu, 0, []

    def malloc(self, n: int, stream: str) -> str:
        """The name of a block of `n` floats: a freed one of that stream, or a new one."""
        for block in self._blocks:
            free = block["free"] and all(map(self.gpu.happened, block["events"]))
            if free and (block["n"], block["stream"]) == (n, stream):
                block |= {"free": False, "events": [], "used": set()}
                return block["name"]
        self._made += 1
        name = f"block{self._made}"
        self.gpu.malloc(name, n)
        made = {"name": name, "n": n, "stream": stream, "free": False}
        self._blocks.append(made | {"events": [], "used": set()})
        return name

    def record_stream(self, name: str, stream: str) -> None:
        """Tell the allocator that `stream` uses the block too."""
        self._find(name)["used"].add(stream)

    def free(self, name: str) -> None:
        """The tensor is gone; the work that reads it may not be."""
        block = self._find(name)
        for stream in sorted(block["used"] - {block["stream"]}):
            event = f"{name} freed, {stream}"
            self.gpu.record(event, stream)
            block["events"].append(event)
        block["free"] = True

    def _find(self, name: str) -> dict:
        return next(b for b in self._blocks if b["name"] == name)
