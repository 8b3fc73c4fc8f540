"""Who gets room for a KV cache, and when does it run out? Three ways to lay it out.

Sizes are tokens. `Contiguous` gives each request one stretch, first fit; `Reserved` a
stretch of the longest answer, as a cache made in advance is; `Paged` blocks of a few
tokens, wherever they lie, as vLLM does (Kwon et al. 2023, arXiv:2309.06180).
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from gpulab_utils.paging.stores import Contiguous, Paged, Reserved

__all__ = ["Churn", "Contiguous", "Paged", "Request", "Reserved", "Served", "caches"]
__all__ += ["churn", "dies_at", "serve", "traffic"]


@dataclass(frozen=True)
class Request:
    """Tokens that come in, and tokens that go out."""

    prompt: int
    answer: int

    @property
    def tokens(self) -> int:
        return self.prompt + self.answer


def traffic(n: int, *, low: int = 200, high: int = 1500, seed: int = 0) -> list[Request]:
    """`n` requests whose lengths lie anywhere between `low` and `high`, half of it prompt.

    >>> [r.tokens for r in traffic(3)]
    [988, 1061, 282]
    """
    draw = random.Random(seed)
    lengths = [draw.randrange(low, high + 1) for _ in range(n)]
    return [Request(tokens // 2, tokens - tokens // 2) for tokens in lengths]


@dataclass(frozen=True)
class Churn:
    """How often no room was found, how often although enough tokens were free, and the
    share of the capacity that held tokens of requests at those moments.
    """

    failures: int
    although_enough: int
    used: float
    beside: float  # how many requests ran, at those moments


def churn(store, requests: Iterable[Request], seed: int = 1) -> Churn:
    """Requests arrive; where one finds no room, running ones end at random until it does.

    Raises `ValueError` for a request that an empty store has no room for.
    """
    draw, live = random.Random(seed), {}
    fails = enough = used = beside = 0
    for key, request in enumerate(requests):
        while not store.take(key, request.tokens):
            if not live:
                raise ValueError(f"{request.tokens} tokens never fit {store.capacity}")
            fails += 1
            enough += store.free >= request.tokens
            used += sum(live.values()) / store.capacity
            beside += len(live)
            done = draw.choice(list(live))
            store.give(done)
            del live[done]
        live[key] = request.tokens
    return Churn(fails, enough, used / max(fails, 1), beside / max(fails, 1))


@dataclass(frozen=True)
class Served:
    """Requests finished, the step at which memory ran out (or None), most blocks in use."""

    finished: int
    oom_step: int | None
    most_blocks: int
    together: float  # requests that ran in a step, the mean


def serve(store: Paged, requests: Iterable[Request], budget: bool, steps: int = 10**9):
    """Decode a token a step for all that run; a `Served`.

    Without a budget a request is let in when its prompt fits now. With one it is let in
    when everything that runs, and it, fit at their full length.
    """
    queue, live, finished, most, ran, step = list(requests)[::-1], {}, 0, 0, 0, 0
    whole = len(store.stack)
    while (queue or live) and step < steps:
        while queue and _lets_in(store, queue[-1], live, budget, whole):
            request = queue.pop()
            key = (step, len(queue))
            store.take(key, request.prompt)
            live[key] = [request, 0]
        for key, entry in list(live.items()):
            entry[1] += 1
            if not store.grow(key, entry[0].prompt + entry[1]):
                return Served(finished, step, whole, ran / max(step, 1))
            if entry[1] == entry[0].answer:
                store.give(key)
                del live[key]
                finished += 1
            most = max(most, whole - len(store.stack))
        ran += len(live)
        step += 1
    return Served(finished, None, most, ran / max(step, 1))


def _lets_in(store: Paged, request: Request, live: dict, budget: bool, whole: int) -> bool:
    blocks = lambda tokens: -(-tokens // store.block)  # noqa: E731
    if not budget:
        return blocks(request.prompt) <= len(store.stack)
    promised = sum(blocks(entry[0].tokens) for entry in live.values())
    return promised + blocks(request.tokens) <= whole


def dies_at(prompts: Iterable[int], capacity: int, block: int = 16) -> int:
    """The step at which prompts that all decode together find no block, by arithmetic.

    >>> dies_at([100, 50], 208)  # 13 blocks: 8 + 5 until 100 + 29 tokens need a ninth
    28
    """
    prompts = list(prompts)
    step = 0
    while sum(-(-(p + step + 1) // block) for p in prompts) <= capacity // block:
        step += 1
    return step


def caches(tokens: Iterable[int], budget: int, shape, seed: int = 1) -> None:
    """Hold a KV cache a request, made whole in advance, as a server without pages does.

    A key and a value tensor a layer, [heads, tokens, head_dim] in bf16. Where `budget`
    tokens are held, a request at random ends first. For `allocations.record`.
    """
    import torch

    draw, live = random.Random(seed), {}
    one = {"dtype": torch.bfloat16}
    for key, n in enumerate(tokens):
        while sum(len_ for len_, _ in live.values()) + n > budget:
            del live[draw.choice(list(live))]
        size = (shape.kv_heads, n, shape.head_dim)
        live[key] = (n, [torch.empty(size, **one) for _ in range(2 * shape.layers)])
