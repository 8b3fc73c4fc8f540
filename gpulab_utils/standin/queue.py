"""Streams and events whose work is done only once somebody has waited for it.

A stream counts what it was given. Waiting moves `done` forward, and only then do the
copies to the host arrive that were asked for on the way.
"""

import threading
import time

import torch

_busy = set()  # streams that somebody still has to wait for
captures = []  # the graph being captured, if there is one
_here = threading.local()  # the current stream is the thread's own, as in CUDA


class Stream:
    """Stands for `torch.cuda.Stream` and `torch.Stream`."""

    def __init__(self, device=None, priority=0, **_):
        self.device, self.priority = torch.device("cuda", 0), priority
        self.given, self.done = 0, 0
        self._waits, self._late = [], []  # (after how many, what)
        self._outer = []

    @property
    def cuda_stream(self) -> int:
        return 0 if self is DEFAULT else id(self)

    def give(self) -> int:
        """Queue something; its number."""
        self.given += 1
        _busy.add(self)
        return self.given

    def finish(self, number: int | None = None) -> None:
        """Wait for all up to `number`, and for what that waits for on other streams."""
        number = self.given if number is None else number
        if number <= self.done:
            return
        for _, event in _until(self._waits, number):
            event.synchronize()
        self.done = number
        if self.done == self.given:
            _busy.discard(self)
        for _, arrive in _until(self._late, number):
            arrive()

    def delay(self, arrive) -> None:
        """Call `arrive()` when this point of the queue has been waited for."""
        self._late.append((self.give(), arrive))

    def synchronize(self) -> None:
        self.finish()

    def query(self) -> bool:
        """No at first, yes when asked again: a card works on while the host asks."""
        done = self.done >= self.given
        self.finish()
        return done

    def is_capturing(self) -> bool:
        return bool(captures)

    def record_event(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event) -> None:
        self._waits.append((self.give(), event.copy()))

    def wait_stream(self, stream) -> None:
        self.wait_event(stream.record_event())

    def __enter__(self):
        self._outer.append(current())
        _here.stream = self
        return self

    def __exit__(self, *_):
        _here.stream = self._outer.pop()


class Event:
    """Stands for `torch.cuda.Event` and `torch.Event`; its time is the host's."""

    def __init__(self, *args, enable_timing=False, **_):
        flags = [a for a in args if isinstance(a, bool)]
        self._timed = flags[0] if flags else enable_timing
        self._stream, self._number, self._time = None, 0, 0.0

    def copy(self):
        """The event as it is now: a later `record` does not move a wait."""
        twin = Event()
        twin._stream, twin._number = self._stream, self._number
        return twin

    def record(self, stream=None) -> None:
        self._stream = stream or current()
        self._number, self._time = self._stream.give(), time.perf_counter()

    def synchronize(self) -> None:
        if self._stream:
            self._stream.finish(self._number)

    def wait(self, stream=None) -> None:
        (stream or current()).wait_event(self)

    def query(self) -> bool:
        """No at first, yes when asked again: a card works on while the host asks."""
        done = self._done()
        self.synchronize()
        return done

    def elapsed_time(self, end) -> float:
        """Milliseconds to `end`; raises "device not ready" where nothing has waited."""
        if not (self._timed and end._timed):
            raise ValueError(
                "Both events must be created with argument 'enable_timing=True'."
            )
        if not (self._stream and end._stream):
            raise ValueError(
                "Both events must be recorded before calculating elapsed time."
            )
        if not (self._done() and end._done()):
            raise NotReady(
                "CUDA error: device not ready (nothing has waited for the event: call "
                "end.synchronize() before elapsed_time)"
            )
        return max(1e3 * (end._time - self._time), 1e-6)

    def _done(self) -> bool:
        return self._stream is None or self._stream.done >= self._number


class StreamContext:
    """Stands for `torch.cuda.StreamContext`; with None the stream stays as it is."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *error):
        if self.stream is not None:
            self.stream.__exit__(*error)


def current(_device=None) -> Stream:
    """The stream of this thread."""
    return getattr(_here, "stream", DEFAULT)


def set_current(stream: Stream | None) -> None:
    if stream is not None:
        _here.stream = stream


def synchronize(_device=None) -> None:
    """Wait for every stream."""
    for stream in list(_busy):
        stream.finish()


def wait() -> None:
    """Wait for the current stream, as whatever brings a value to the host does."""
    if captures:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
    current().finish()


def _until(queued: list, number: int) -> list:
    """Take from `queued` what comes up to `number`."""
    due = [item for item in queued if item[0] <= number]
    queued[:] = [item for item in queued if item[0] > number]
    return due


NotReady = getattr(torch, "AcceleratorError", RuntimeError)
DEFAULT = Stream()
