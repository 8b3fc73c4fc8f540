"""What do the ranks of one training step send each other? Calls, bytes, seconds.

`Call` bytes are those of the whole tensor that is summed, gathered or scattered; `sent`
is what each rank puts on the wire for it. `parts` are bytes of the groups of a model that
are gathered together: the root (tables, last norm), then each layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

#: Of n ranks in a ring: how many times (n - 1) / n of the bytes each sends; and messages.
ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}


@dataclass(frozen=True)
class Call:
    """One collective: its kind, and the bytes of the whole tensor."""

    kind: str
    n_bytes: float


@dataclass(frozen=True)
class Road:
    """A rank's outgoing link: latency of a message (s), bandwidth (bytes/s)."""

    latency_s: float
    bytes_per_s: float


def _rounds(kind: str, ranks: int) -> int:
    if kind not in ROUNDS:
        raise ValueError(f"kind must be one of {', '.join(ROUNDS)}, got {kind!r}")
    if ranks < 1:
        raise ValueError(f"ranks must be positive, got {ranks}")
    return ROUNDS[kind] * (ranks - 1)


def sent(kind: str, n_bytes: float, ranks: int) -> float:
    """Bytes that each of `ranks` sends for one collective in a ring.

    Sources: Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
    workstations", 2009; NVIDIA, nccl-tests, doc/PERFORMANCE.md. Raises `ValueError` for
    another kind and for no ranks.

    >>> [sent("all_reduce", 1000, n) for n in (1, 2, 4, 8)]
    [0.0, 1000.0, 1500.0, 1750.0]
    >>> sent("all_gather", 1000, 4)
    750.0
    """
    return _rounds(kind, ranks) * n_bytes / ranks


def by_gloo(calls: Sequence[Call], ranks: int) -> float:
    """Bytes that all ranks together send where gloo is asked: it scatters by summing.

    Source: pytorch, ProcessGroupGloo.cpp: a reduce-scatter is an all-reduce of which
    each keeps its part; the loopback's counter says the same.

    >>> by_gloo([Call("reduce_scatter", 1000)], 2)
    2000.0
    """
    sums = {"reduce_scatter": "all_reduce"}
    return ranks * sum(sent(sums.get(c.kind, c.kind), c.n_bytes, ranks) for c in calls)


def seconds(call: Call, ranks: int, road: Road) -> float:
    """Seconds of one collective in a ring: a latency for each message, then the bytes.

    >>> seconds(Call("all_reduce", 1e9), 2, Road(0.5, 1e9))
    2.0
    """
    messages = _rounds(call.kind, ranks)
    own = sent(call.kind, call.n_bytes, ranks)
    return messages * road.latency_s + own / road.bytes_per_s


def ddp(parts: Sequence[float], *, bucket_bytes: float = 25 * 2**20) -> list[Call]:
    """The collectives of one step under DDP: every gradient is summed once.

    Source: Li et al., "PyTorch distributed", VLDB 2020; buckets of 25 MiB by default. DDP's
    first is smaller (1 MiB) and it cuts between tensors, which is left out here: the bytes
    agree, the number of calls and where they are cut need not.

    >>> ddp([2**20], bucket_bytes=2**19)
    [Call(kind='all_reduce', n_bytes=524288), Call(kind='all_reduce', n_bytes=524288)]
    """
    whole = sum(parts)
    full, rest = divmod(whole, bucket_bytes)
    return [Call("all_reduce", n) for n in [bucket_bytes] * int(full) + [rest] if n]


def fsdp(parts: Sequence[float], *, reshard: bool = True) -> list[Call]:
    """The collectives of one step under FSDP2, in their order; the root is `parts[0]`.

    Parameters are gathered forward, and again backward where `reshard` gave them away
    (never the root's), one group ahead; gradients are scattered. Source: ZeRO,
    Rajbhandari et al., 2020, section 7: 3 x the parameters against the 2 x of an
    all-reduce.

    >>> [c.n_bytes for c in fsdp([10, 20]) if c.kind == "all_gather"]
    [10, 20, 20]
    >>> [c.n_bytes for c in fsdp([10, 20]) if c.kind == "reduce_scatter"]
    [20, 10]
    """
    root, *layers = parts
    forward = [Call("all_gather", n) for n in (root, *layers)]
    again = [Call("all_gather", n) for n in reversed(layers) if reshard]
    backward = again[:1]
    for i, n in enumerate((*reversed(layers), root)):  # the next is on its way by then
        backward += [*again[i + 1 : i + 2], Call("reduce_scatter", n)]
    return forward + backward


def tensor_parallel(tokens: int, hidden: int, layers: int, *, width: int = 2) -> list[Call]:
    """The collectives of one step under tensor parallelism: four sums a layer.

    `width` is the bytes of one activation. One sum after attention and one after the MLP,
    forward and backward. Source: Shoeybi et al., "Megatron-LM", 2019, section 3, figure 4.

    >>> len(tensor_parallel(2048, 5120, 40)), tensor_parallel(2048, 5120, 40)[0].n_bytes
    (160, 20971520)
    """
    return 4 * layers * [Call("all_reduce", tokens * hidden * width)]
