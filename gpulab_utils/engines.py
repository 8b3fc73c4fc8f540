"""When do copies and kernels overlap? Engines that each serve one queue, in issue order.

h2d, d2h  copies to and from the card; with one copy engine they share it
kernel    the SMs: kernels run together while their shares of the SMs fit

An operation starts when its stream, its engine and the host are ready; an engine serves in
the order of issue (since Hyper-Q, capability 3.5, a card may do better). What runs beside
something else is taken to keep its speed: a bound, not a forecast.
Sources: NVIDIA, "CUDA C/C++ Streams and Concurrency"; CUDA programming guide, "Asynchronous
Execution"; CUDA runtime API, "Stream synchronization behavior".
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

ENGINES = ("h2d", "kernel", "d2h")
WHAT = {"h2d": "copy", "kernel": "work", "d2h": "copy back"}
DEFAULT = "0"  # CUDA's legacy default stream, which waits for all and lets all wait


@dataclass(frozen=True)
class Op:
    """One operation as the host issues it, and when it ran."""

    engine: str  # h2d, kernel or d2h
    stream: str
    seconds: float
    share: float = 1.0  # of the SMs, for a kernel
    pageable: bool = False  # a copy: the host waits until it is done (a driver may)
    start_s: float = 0.0
    end_s: float = 0.0


def timeline(ops: Iterable[Op], copy_engines: int = 2) -> list[Op]:
    """`ops`, in issue order, with the times at which the model runs them.

    >>> two = [Op("h2d", "a", 1), Op("kernel", "a", 1), Op("h2d", "b", 1)]
    >>> [(op.start_s, op.end_s) for op in timeline(two)]
    [(0, 1), (1, 2), (1, 2)]
    """
    if copy_engines not in (1, 2):
        raise ValueError(f"copy_engines must be 1 or 2, got {copy_engines}")
    done, host_s = [], 0
    for op in ops:
        if op.engine not in ENGINES or not 0 < op.share <= 1:
            raise ValueError(
                f"engine is one of {', '.join(ENGINES)}, share in (0, 1]: {op}"
            )
        start = max([host_s, *(d.end_s for d in done if _before(d, op, copy_engines))])
        start = _room(op, start, done) if op.engine == "kernel" else start
        done.append(replace(op, start_s=start, end_s=start + op.seconds))
        host_s = done[-1].end_s if op.pageable else host_s
    return done


def _before(first: Op, then: Op, copy_engines: int) -> bool:
    """Whether `then`, issued later, has to wait for the end of `first`."""
    if first.stream == then.stream or DEFAULT in (first.stream, then.stream):
        return True
    if "kernel" in (first.engine, then.engine):
        return False
    return first.engine == then.engine or copy_engines == 1


def _room(op: Op, start: float, done: list[Op]) -> float:
    """The earliest time from `start` at which the SMs have room; no kernel overtakes."""
    kernels = [d for d in done if d.engine == "kernel"]
    start = max([start, *(d.start_s for d in kernels)])
    for time in sorted({start, *(d.end_s for d in kernels if d.end_s > start)}):
        if sum(d.share for d in kernels if d.end_s > time) + op.share <= 1 + 1e-9:
            return time
    raise AssertionError("an empty card has room for any kernel")


def chunked(
    n: int, h2d: float, kernel: float, d2h: float = 0, breadth: bool = False, **how
):
    """`n` chunks, a stream each, of stages that take so long in all: ops in issue order.

    Depth first issues chunk by chunk, `breadth` first stage by stage. `how` goes to all.

    >>> [op.engine for op in chunked(2, 1, 1)]
    ['h2d', 'kernel', 'h2d', 'kernel']
    """
    if n < 1:
        raise ValueError(f"n must be 1 or more, got {n}")
    stages = [(e, s) for e, s in zip(ENGINES, (h2d, kernel, d2h), strict=True) if s]
    ops = [[Op(e, str(i + 1), s / n, **how) for e, s in stages] for i in range(n)]
    return [op for group in (zip(*ops, strict=True) if breadth else ops) for op in group]


def total_s(spans: Iterable[Op]) -> float:
    """Seconds from the first start to the last end."""
    spans = list(spans)
    return max(s.end_s for s in spans) - min(s.start_s for s in spans)


def gain(ops: Iterable[Op], copy_engines: int = 2) -> float:
    """How many times as fast the model runs `ops` as one after the other.

    >>> round(gain(chunked(4, 1, 1)), 2)
    1.6
    """
    ops = list(ops)
    return sum(op.seconds for op in ops) / total_s(timeline(ops, copy_engines))


def law(n: int, *stages: float) -> float:
    """The gain of `n` equal chunks through stages of these times, each with its engine.

    n chunks take one way through all stages and n - 1 times the longest: for two equal ones
    2n / (n + 1), for three 3n / (n + 2), and never more than sum over longest.

    >>> law(2, 1, 1) == 4 / 3, law(4, 1, 1, 1) == 12 / 6
    (True, True)
    """
    return sum(stages) * n / (sum(stages) + (n - 1) * max(stages))


def overlap_s(spans: Iterable[Op], a: str, b: str) -> float:
    """Seconds in which an operation of engine `a` runs beside another of engine `b`."""
    spans = list(spans)
    pairs = [(x, y) for i, x in enumerate(spans) for y in spans[i + 1 :]]
    both = [(x, y) for x, y in pairs if sorted((x.engine, y.engine)) == sorted((a, b))]
    return sum(max(0, min(x.end_s, y.end_s) - max(x.start_s, y.start_s)) for x, y in both)


def share(blocks: int, threads: int, sms: int, threads_per_sm: int) -> float:
    """How often a grid of `blocks` x `threads` fills the card: above 1 it comes in waves.

    By threads alone; registers and shared memory can only make a block larger.
    Source: CUDA programming guide, "Compute Capabilities" (resident threads per SM).

    >>> share(80, 256, sms=80, threads_per_sm=1536) == 1 / 6
    True
    """
    if not 0 < threads <= min(1024, threads_per_sm):
        raise ValueError(f"a block has 1 to 1024 threads, got {threads}")
    return blocks / (sms * (threads_per_sm // threads))


def spans(trace: dict) -> list[Op]:
    """What ran on the card, from a trace that `torch.profiler` exported (as JSON).

    >>> one = {"cat": "kernel", "ts": 5, "dur": 2, "name": "k", "args": {"stream": 7}}
    >>> [(op.engine, op.stream, op.seconds) for op in spans({"traceEvents": [one]})]
    [('kernel', '7', 2e-06)]
    """
    found = []
    for event in trace["traceEvents"]:
        engine = "kernel" if event.get("cat") == "kernel" else None
        if event.get("cat") == "gpu_memcpy":  # a copy on the card itself is neither
            marks = {"HtoD": "h2d", "DtoH": "d2h"}
            engine = next((marks[m] for m in marks if m in event["name"]), None)
        if engine:
            start, took = float(event["ts"]) / 1e6, float(event["dur"]) / 1e6
            stream = str(event.get("args", {}).get("stream"))
            found.append(Op(engine, stream, took, start_s=start, end_s=start + took))
    return sorted(found, key=lambda op: op.start_s)


def joined(spans: Iterable[Op], gap_s: float = 2e-5) -> list[Op]:
    """Spans of one engine and stream that follow within `gap_s` as one: fewer bars.

    >>> [(op.start_s, op.end_s) for op in joined(timeline([Op("kernel", "a", 1)] * 3))]
    [(0, 3)]
    """
    whole, last = [], {}
    for op in spans:
        at = last.get((op.engine, op.stream))
        if at is not None and op.start_s - whole[at].end_s <= gap_s:
            seconds = whole[at].seconds + op.seconds
            whole[at] = replace(whole[at], seconds=seconds, end_s=op.end_s)
        else:
            last[op.engine, op.stream] = len(whole)
            whole.append(op)
    return whole


def bars(case: str, spans: list[Op], by: str = "engine") -> list[dict]:
    """Rows for `plots.timeline`, a lane an engine or a stream; 1 is all spans in a row.

    >>> [row["end"] for row in bars("predicted", timeline([Op("h2d", s, 2) for s in "ab"]))]
    [0.5, 1.0]
    """
    first = min((op.start_s for op in spans), default=0)
    unit = sum(op.seconds for op in spans)
    rows = []
    for op in spans:
        lane = f"stream {op.stream}" if by == "stream" else _LANES[op.engine]
        told = {"kind": "span", "case": case, "what": WHAT[op.engine], "lane": lane}
        times = {"start": (op.start_s - first) / unit, "end": (op.end_s - first) / unit}
        rows.append(told | times)
    return rows


_LANES = {"h2d": "copy engine", "kernel": "SMs", "d2h": "copy engine back"}
