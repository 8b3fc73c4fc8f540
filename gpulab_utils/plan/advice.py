"""What would make it fit? The changes, from the cheapest on."""

from bisect import bisect_right
from dataclasses import replace

from gpulab_utils.cards import CARDS, Card
from gpulab_utils.plan.formats import format_of
from gpulab_utils.plan.options import states
from gpulab_utils.plan.planner import Plan, representative
from gpulab_utils.plan.setting import Setting
from gpulab_utils.plan.table import table


def cheapest_change(p: Plan, card: str | Card, desktop: bool = True) -> str | None:
    """The first change, from the cheapest in quality and speed, that makes the plan fit.

    Last comes a shorter context; None where one token does not fit either.

    >>> from gpulab_utils.plan import plan
    >>> cheapest_change(plan("llama-2-13b", weights="nf4", seq=4096), "rtx-3080-ti")
    'KV cache in int8'
    """
    card = CARDS[card] if isinstance(card, str) else card
    room, s = card.usable_bytes(desktop), p.setting
    for words, changed, kv_dtype in [*_speed(p, s), *_quality(p, s)]:
        if _peak(changed, kv_dtype, p.seq) <= room:
            return words
    best = replace(s, batch=1)
    lengths = range(1, p.seq)
    fitting = bisect_right(lengths, room, key=lambda n: _peak(best, p.kv_dtype, n))
    return f"batch 1 and at most {fitting} tokens" if fitting else None


def _peak(s: Setting, kv_dtype: str, seq: int) -> int:
    return sum(table(representative(s), kv_dtype).peak(s.batch, seq)[1].values())


def _speed(p: Plan, s: Setting):
    """Changes that cost time alone."""
    if p.mode != "inference" and not s.checkpoint:
        s = replace(s, checkpoint=1)
        yield "gradient checkpointing", s, p.kv_dtype
    if not s.fused and not s.shape.attn_softcap:
        s = replace(s, fused=True)
        yield "fused attention", s, p.kv_dtype
    for batch in (s.batch // 2**i for i in range(1, 12) if s.batch // 2**i):
        yield f"batch {batch}", replace(s, batch=batch), p.kv_dtype


def _quality(p: Plan, s: Setting):
    """Changes that keep numbers in fewer bits, at batch 1."""
    s = replace(s, batch=1, checkpoint=s.checkpoint or int(p.mode != "inference"))
    if p.mode == "full_train":
        yield "8-bit AdamW", replace(s, optimizer=states("adamw8bit", s.width)), p.kv_dtype
    if p.mode != "inference":
        return
    if p.kv_dtype != "int8":
        yield "KV cache in int8", s, "int8"
    for name in ("fp8", "int8", "int4-g128"):
        if format_of(name).bits < s.fmt.bits:
            fewer = replace(s, fmt=format_of(name), packed=0)
            yield f"weights in {name}", fewer, p.kv_dtype
