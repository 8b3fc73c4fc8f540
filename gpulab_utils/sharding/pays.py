"""When do n cards end sooner than one? Seconds of a step, from a card and a road.

One card computes a step in `compute_s`. n share its tokens, each computes a part, and then
waits for what of the sending the computing did not hide.
"""

from collections.abc import Mapping, Sequence

from gpulab_utils.cards import Card
from gpulab_utils.fit import Line
from gpulab_utils.models import Shape
from gpulab_utils.sharding.wire import Call, Road, ddp, fsdp, seconds
from gpulab_utils.tables import read

#: Share of a card's dense rate that training reaches, unless told otherwise; an assumption.
EFFICIENCY = 0.4


def parts(shape: Shape) -> list[int]:
    """Parameters of the groups that FSDP2 gathers together: root, then each layer.

    >>> from gpulab_utils.models import MODELS
    >>> groups = parts(MODELS["llama-2-13b"])
    >>> len(groups), sum(groups) == MODELS["llama-2-13b"].params
    (41, True)
    """
    norm = shape.hidden if shape.norm == "rms" else 2 * shape.hidden
    root = shape.embedding_params + shape.head_params + norm
    layer, odd = divmod(shape.params - root, shape.layers)
    return [root + odd, *[layer] * shape.layers]


def compute_s(
    shape: Shape, card: Card, tokens: float, *, dtype: str = "bf16", efficiency=EFFICIENCY
) -> float:
    """Seconds that one card computes for `tokens`: forward, and twice that backward.

    Source: Kaplan et al., "Scaling laws for neural language models", 2020, section 2.1.

    >>> from gpulab_utils import CARDS, MODELS
    >>> round(compute_s(MODELS["llama-2-7b"], CARDS["rtx-4090"], 4096), 2)
    2.46
    """
    return 3 * tokens * shape.flop_per_token() / (card.rate(dtype) * efficiency)


def step_s(
    compute: float, calls: Sequence[Call], ranks: int, road: Road, hidden: float = 0.0
) -> float:
    """Seconds of a step in which `ranks` share `compute` seconds of work.

    `hidden` is the share of the computing under which sending can go on: 0 none of it,
    1 all. `calls` are those of the whole step.

    >>> step_s(2.0, [Call("all_reduce", 1e9)], 2, Road(0, 1e9))
    2.0
    >>> step_s(2.0, [Call("all_reduce", 1e9)], 2, Road(0, 1e9), hidden=0.5)
    1.5
    """
    own = compute / ranks
    sending = sum(seconds(call, ranks, road) for call in calls) if ranks > 1 else 0.0
    return own + max(0.0, sending - hidden * own)


def gain(
    compute: float, calls: Sequence[Call], ranks: int, road: Road, hidden: float = 0.0
) -> float:
    """How many times as fast as one card `ranks` of them are, on the same tokens.

    >>> gain(2.0, [Call("all_reduce", 1e9)], 2, Road(0, 1e9))
    1.0
    """
    return compute / step_s(compute, calls, ranks, road, hidden)


def tokens_to_pay(
    shape: Shape,
    card: Card,
    road: Road,
    ranks: int,
    *,
    way: str = "ddp",
    at_least: float = 1.0,
    hidden: float = 0.0,
    **how,
) -> float:
    """Tokens of a step, all cards together, from which `ranks` gain `at_least` that much.

    Gradients and weights travel in 2 bytes. `way` is ddp or fsdp, `hidden` as in `step_s`;
    `how` goes to `compute_s`. Infinite where the gain is out of reach.

    >>> from gpulab_utils import CARDS, MODELS
    >>> card, road = CARDS["rtx-3080-ti"], Road(0, CARDS["rtx-3080-ti"].pcie_bytes_per_s)
    >>> round(tokens_to_pay(MODELS["llama-2-13b"], card, road, 2))
    585
    """
    if at_least >= ranks:
        return float("inf")
    sizes = [2 * n for n in parts(shape)]
    calls = {"ddp": ddp, "fsdp": fsdp}[way](sizes)
    sending = sum(seconds(call, ranks, road) for call in calls)
    a_token = compute_s(shape, card, 1, **how)
    # at_least * (c / n + max(0, sending - hidden * c / n)) = c, for c seconds of computing
    shown = at_least * sending / (1 - at_least * (1 - hidden) / ranks)
    return shown / a_token


def foretold(
    apart_s: float, calls: Sequence[Call], lines: Mapping[str, Line], hidden: float = 0.0
) -> float:
    """Seconds of a step from measured lines, by kind: computing, then each collective.

    `apart_s` is the step in which all ranks compute and nobody speaks.

    >>> foretold(1.0, [Call("all_reduce", 1e9)], {"all_reduce": Line(0.5, 1e9, 1.0)})
    2.5
    """
    sending = sum(lines[call.kind].seconds(call.n_bytes) for call in calls)
    return apart_s + max(0.0, sending - hidden * apart_s)


def published() -> dict[str, dict]:
    """By name the roads that others measured with nccl-tests, with their sources.

    `bus_bytes_per_s` is what a rank sent one way; `datasheet_bytes_per_s` what its link
    could have (NVLink's sheets add both directions: half of that).

    >>> published()["pcie-4-x16, 6 x RTX 4090"]["bus_bytes_per_s"]
    24500000000.0
    """
    return {row["name"]: row for row in read("published/roads.json")}
