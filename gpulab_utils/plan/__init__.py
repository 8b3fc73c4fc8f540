"""Will it fit? The bytes of a model at work, term by term, by arithmetic alone.

Nothing here imports torch or reads a measurement. All sizes are bytes.
"""

import sys
import types
from dataclasses import dataclass, field

from gpulab_utils.cards import CARDS, CONTEXT_BYTES, Card
from gpulab_utils.models import MODELS, Shape
from gpulab_utils.plan.decode import Decode, decode
from gpulab_utils.plan.formats import Format, format_of
from gpulab_utils.units import BYTES

__all__ = ["Decode", "Format", "Plan", "decode", "format_of", "plan"]

MODES = ("inference", "full_train", "lora", "qlora")


@dataclass(frozen=True)
class Plan:
    """The bill: named terms in bytes, and what the allocator and the driver add."""

    shape: Shape
    mode: str
    weights: str
    batch: int
    seq: int
    terms: dict[str, int] = field(default_factory=dict)
    slack: int = 0
    context_bytes: int = CONTEXT_BYTES
    kv_dtype: str = "bf16"

    @property
    def allocated(self) -> int:
        """Peak bytes of tensors alive, workspaces included."""
        return sum(self.terms.values())

    @property
    def reserved(self) -> int:
        """What the allocator holds: `allocated` and its slack."""
        return self.allocated + self.slack

    @property
    def card(self) -> int:
        """What the driver shows: `reserved` and the context."""
        return self.reserved + self.context_bytes

    def fits(self, card: str | Card, desktop: bool = True) -> bool:
        """Whether `reserved` is at most the card's usable memory."""
        card = CARDS[card] if isinstance(card, str) else card
        return self.reserved <= card.usable_bytes(desktop)

    def kv_tokens(self, usable_bytes: float) -> int:
        """Tokens of KV cache beside the weights, rounded, before logits and scratch."""
        left = usable_bytes - self.terms["weights"]
        return max(0, round(left / self.shape.kv_bytes_per_token(self.kv_dtype)))


def plan(
    model: str | Shape,
    mode: str = "inference",
    weights: str = "bf16",
    batch: int = 1,
    seq: int = 2048,
    *,
    kv_dtype: str = "bf16",
    logits: str = "last",
    optimizer: str = "adamw",
    amp: bool = False,
) -> Plan:
    """Plan one run.

    >>> p = plan("llama-2-13b", weights="nf4", seq=0)
    >>> round(p.terms["weights"] / 2**30, 2)
    7.26
    """
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    for name, value, least in (("batch", batch, 1), ("seq", seq, 0)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    shape = MODELS[model] if isinstance(model, str) else model
    fmt = format_of(weights)
    terms = {"weights": round(sum(fmt.model_bytes(shape).values()))}
    wide = max(2 * shape.intermediate, shape.heads * shape.head_dim)
    scratch = batch * seq * (2 * wide + 3 * shape.hidden) * BYTES[fmt.rest]
    rows = seq if logits == "all" or mode != "inference" else min(seq, 1)
    terms["kv_cache"] = batch * shape.kv_bytes(seq, kv_dtype) if mode == "inference" else 0
    terms["activations"] = scratch
    terms["logits"] = batch * rows * shape.vocab * (6 if mode == "inference" else 10)
    terms["gradients"] = terms["optimizer"] = 0
    if mode == "full_train":
        per = BYTES[fmt.rest]
        states = {"sgd": 0, "adamw": 2 * per, "adamw8bit": 2 + 2 * 4 / 256}
        if optimizer not in states:
            known = ", ".join(states)
            raise ValueError(f"optimizer must be one of {known}, got {optimizer!r}")
        terms["gradients"] = shape.params * per
        terms["optimizer"] = round(shape.params * states[optimizer])
    terms["workspace"] = 8_519_680
    return Plan(shape, mode, fmt.name, batch, seq, terms, kv_dtype=kv_dtype)


class _Callable(types.ModuleType):
    """`gpulab_utils.plan` names the function too: the package must not hide it."""

    def __call__(self, *args, **options) -> Plan:
        return plan(*args, **options)


sys.modules[__name__].__class__ = _Callable
