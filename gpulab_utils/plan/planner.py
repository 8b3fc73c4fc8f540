"""`plan`: a few options, and the bill with its verdict on a card."""

from dataclasses import dataclass, field, replace

from gpulab_utils.cards import CARDS, CONTEXT_BYTES, Card
from gpulab_utils.models import MODELS, Shape
from gpulab_utils.plan.options import MODES, setting
from gpulab_utils.plan.road import road
from gpulab_utils.plan.setting import Setting
from gpulab_utils.plan.table import conditions, table
from gpulab_utils.units import BYTES

__all__ = ["MODES", "Plan", "coefficients", "plan", "representative", "setting"]


@dataclass(frozen=True)
class Plan:
    """The bill: named terms in bytes, the phase that they belong to, and the run itself."""

    shape: Shape
    mode: str
    weights: str
    batch: int
    seq: int
    terms: dict[str, int]
    phase: str
    setting: Setting = field(repr=False)
    kv_dtype: str = "bf16"
    context_bytes: int = CONTEXT_BYTES

    @property
    def allocated(self) -> int:
        """Peak bytes of tensors alive, workspaces and block rounding included."""
        return sum(self.terms.values())

    @property
    def reserved(self) -> int:
        """What torch's caching allocator would hold: a simulation, up to a second."""
        from gpulab_utils.plan.replay import reserved

        if not self.setting.gpu:
            return self.allocated
        return max(self.allocated, reserved(self.setting))

    @property
    def card(self) -> int:
        """What the driver shows at least: `allocated` and the CUDA context."""
        return self.allocated + self.context_bytes

    @property
    def road(self) -> dict[str, int]:
        """Bytes between device and host in one step of the optimizer, by direction."""
        there, back = road(self.setting)
        return {"to_host": there, "from_host": back}

    def fits(self, card: str | Card, desktop: bool = True) -> bool:
        """Whether `allocated` is at most the card's usable memory."""
        if not self.setting.gpu:
            raise ValueError('planned for device="cpu", which is no card: leave it out')
        card = CARDS[card] if isinstance(card, str) else card
        return self.allocated <= card.usable_bytes(desktop)

    def kv_tokens(self, usable_bytes: float) -> int:
        """Tokens of KV cache beside the weights, rounded, before logits and scratch."""
        left = usable_bytes - self.terms["weights"]
        return max(0, round(left / self.shape.kv_bytes_per_token(self.kv_dtype)))

    def as_dict(self) -> dict:
        return {
            "model": self.shape.name, "mode": self.mode, "weights": self.weights,
            "batch": self.batch, "seq": self.seq, "phase": self.phase, "terms": self.terms,
            "allocated": self.allocated, "card": self.card, "road": self.road,
        }  # fmt: skip


def plan(
    model: str | Shape,
    mode: str = "inference",
    weights: str | None = None,
    batch: int = 1,
    seq: int = 2048,
    **options,
) -> Plan:
    """Plan one run of transformers on a GPU; `weights` is bf16, or nf4 for qlora.

    Options: `kv_dtype` ("bf16"), `logits` ("last" or "all" positions of a prompt),
    `attention` ("fused" or "eager"), `amp` (fp32 weights, 16-bit products), `host_layers`,
    `loss` ("whole", "shifted_copy", "chunked", "fused"), `rank` (16) and `targets` (all
    linears) of LoRA. `device="cpu"` leaves out cuBLAS and the allocator's rounding.
    Of a training step, where `batch` is all that one step of the optimizer sees:
    checkpointing: True, or the layers of a segment: its input is kept, the rest redone
    accumulation: micro-batches a step; gradients of the earlier ones are there in forward
    optimizer: "adamw" (foreach), "adamw_loop", "adamw_fused", "adamw8bit", "sgd",
    "momentum"
    in_backward: each parameter is stepped, and its gradient freed, in backward
    offload: "activations" (what autograd saves waits in host memory, but no parameters),
    "save_on_cpu" (torch's context: copies of parameters too), "states" (fetched parameter
    by parameter for a step on the device), "optimizer" (states and step on the host);
    `road` has the bytes that this moves

    >>> p = plan("llama-2-13b", weights="nf4", seq=0)
    >>> round(p.terms["weights"] / 2**30, 2)
    7.26
    """
    for name, given, least in (("batch", batch, 1), ("seq", seq, 0)):
        if given < least:
            raise ValueError(f"{name} must be at least {least}, got {given}")
    shape = MODELS[model] if isinstance(model, str) else model
    kv_dtype = options.pop("kv_dtype", "bf16")
    if kv_dtype not in BYTES:
        raise ValueError(f"kv_dtype must be one of {', '.join(BYTES)}, got {kv_dtype!r}")
    s = setting(shape, mode, weights, batch, seq, **options)
    phase, terms = table(representative(s), kv_dtype).peak(s.batch, seq)
    return Plan(shape, mode, s.fmt.name, batch, seq, terms, phase, s, kv_dtype)


def representative(s: Setting) -> Setting:
    """The same run at a batch and length that stand for all under its conditions."""
    low, high = conditions(s).get("seq", [0, None])
    return replace(s, batch=min(s.batch, 2), seq=high or max(low, 16))


def coefficients(
    model: str | Shape, mode: str = "inference", weights: str | None = None, **options
) -> list[dict]:
    """All tables of one run, a condition each: what the static page evaluates."""
    shape = MODELS[model] if isinstance(model, str) else model
    kv_dtype = options.pop("kv_dtype", "bf16")
    window = shape.window if shape.window_layers else None
    found, seen = [], []
    for batch in (1, 2):
        for seq in (1, window or 1):
            s = representative(setting(shape, mode, weights, batch, seq, **options))
            when = conditions(s)
            if when not in seen:
                seen.append(when)
                found.append(table(s, kv_dtype).as_dict())
    return found
