"""How long does one token take? Bytes over bandwidth, and what a launch adds.

A decode step reads every weight that the token meets once: linears, norms, head, one row of
the embedding, and the KV cache written so far.
"""

from dataclasses import dataclass

from gpulab_utils.cards import CARDS, Card
from gpulab_utils.models import MODELS, Shape
from gpulab_utils.plan.formats import Format, format_of


@dataclass(frozen=True)
class Decode:
    """One decode step: `bound_s` no such card beats, `estimate_s` what to expect."""

    bytes_read: float
    kv_bytes: float
    bound_s: float
    estimate_s: float
    batch: int = 1

    @property
    def bound_tokens_per_s(self) -> float:
        return self.batch / self.bound_s

    @property
    def tokens_per_s(self) -> float:
        return self.batch / self.estimate_s


def bytes_per_step(shape: Shape, fmt: Format, batch: int = 1) -> float:
    """Weights that one step reads: of the embedding `batch` rows, a tied one as head.

    >>> round(bytes_per_step(MODELS["llama-2-13b"], format_of("int4-g128")) / 1e9, 2)
    6.92
    """
    parts = fmt.model_bytes(shape)
    linears = parts["linears"]
    if shape.experts:
        idle = shape.experts - min(shape.experts, batch * shape.experts_per_token)
        share = shape.expert_linear_params * idle / shape.experts
        linears *= 1 - share / shape.linear_params
    per = parts["embedding"] / shape.embedding_params
    head = parts["head"] or shape.vocab * shape.hidden * per
    return linears + head + parts["small"] + batch * shape.hidden * per


def decode(
    model: str | Shape,
    card: str | Card,
    weights: str = "bf16",
    context: int = 2048,
    *,
    batch: int = 1,
    kv_dtype: str = "bf16",
) -> Decode:
    """The bound and an estimate of one decode step that looks back `context` tokens.

    >>> d = decode("llama-2-13b", "rtx-3080-ti", "int4-g128", context=0)
    >>> round(d.bound_s * 1e3, 2)  # 6.92e9 bytes / 912e9 bytes/s
    7.59
    """
    if batch < 1:
        raise ValueError(f"batch must be positive, got {batch}")
    if context < 0:
        raise ValueError(f"context must not be negative, got {context}")
    shape = MODELS[model] if isinstance(model, str) else model
    card = CARDS[card] if isinstance(card, str) else card
    weights_read = bytes_per_step(shape, format_of(weights), batch)
    kv = batch * shape.kv_bytes(context, kv_dtype)
    bound_s = (weights_read + kv) / card.mem_bytes_per_s
    estimate_s = bound_s / 0.75 + shape.layers * 15e-6
    return Decode(weights_read + kv, kv, bound_s, estimate_s, batch)
