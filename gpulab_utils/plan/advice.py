"""What would make it fit? The changes, from the cheapest on."""

from dataclasses import replace

from gpulab_utils.cards import CARDS, Card
from gpulab_utils.plan.formats import format_of
from gpulab_utils.plan.planner import Plan, representative, states
from gpulab_utils.plan.setting import Setting
from gpulab_utils.plan.table import table


def cheapest_change(p: Plan, card: str | Card, desktop: bool = True) -> str | None:
    """The first change, from the cheapest in quality and speed, that makes the plan fit."""
    card = CARDS[card] if isinstance(card, str) else card
    s, room = p.setting, card.usable_bytes(desktop)
    tries: list[tuple[str, Setting]] = []
    if p.mode != "inference" and not s.checkpoint:
        s = replace(s, checkpoint=True)
        tries.append(("gradient checkpointing", s))
    if not s.fused and not s.shape.attn_softcap:
        s = replace(s, fused=True)
        tries.append(("fused attention", s))
    for batch in (p.batch // 2**i for i in range(1, 12) if p.batch // 2**i):
        tries.append((f"batch {batch}", replace(s, batch=batch)))
    s = replace(s, batch=1)
    if p.mode == "full_train":
        tries.append(("8-bit AdamW", replace(s, optimizer=states("adamw8bit", s.width))))
    if p.mode == "inference":
        for name in ("fp8", "int8", "int4-g128"):
            if format_of(name).bits < s.fmt.bits:
                tries.append(
                    (f"weights in {name}", replace(s, fmt=format_of(name), packed=0))
                )
    for words, t in tries:
        terms = table(representative(t), p.kv_dtype).peak(t.batch, p.seq)[1]
        if sum(terms.values()) <= room:
            return words
    return None
