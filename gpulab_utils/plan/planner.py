"""`plan`: a few options, and the bill with its verdict on a card."""

from dataclasses import dataclass, field, replace

from gpulab_utils.cards import CARDS, CONTEXT_BYTES, Card
from gpulab_utils.models import MODELS, Shape
from gpulab_utils.plan.formats import format_of
from gpulab_utils.plan.run import Adapter
from gpulab_utils.plan.setting import Optimizer, Setting
from gpulab_utils.plan.table import conditions, table
from gpulab_utils.units import BYTES

MODES = ("inference", "full_train", "lora", "qlora")
LINEARS = ("q", "k", "v", "o", "gate", "up", "down")
ALLOWED = {
    "mode": MODES,
    "logits": ("last", "all"),
    "attention": ("fused", "eager"),
    "loss": ("whole", "shifted_copy", "chunked", "fused"),
}
STATES = {"sgd": 0, "momentum": 1, "adamw": 2}


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

        return max(self.allocated, reserved(self.setting))

    @property
    def card(self) -> int:
        """What the driver shows at least: `allocated` and the CUDA context."""
        return self.allocated + self.context_bytes

    def fits(self, card: str | Card, desktop: bool = True) -> bool:
        """Whether `allocated` is at most the card's usable memory."""
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
            "allocated": self.allocated, "card": self.card,
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
    `attention` ("fused" or "eager"), `checkpointing`, `optimizer` ("adamw", "adamw8bit",
    "momentum", "sgd"), `amp` (fp32 weights, 16-bit products), `rank` (16) and `targets`
    (all linears) of LoRA, `host_layers`, `loss` ("whole", "shifted_copy", "chunked",
    "fused").

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
    phase, terms = table(representative(s), kv_dtype).peak(batch, seq)
    return Plan(shape, mode, s.fmt.name, batch, seq, terms, phase, s, kv_dtype)


def representative(s: Setting) -> Setting:
    """The same run at a batch and length that stand for all under its conditions."""
    low, high = conditions(s).get("seq", [0, None])
    return replace(s, batch=min(s.batch, 2), seq=high or max(low, 16))


def setting(
    shape: Shape,
    mode: str,
    weights: str | None,
    batch: int,
    seq: int,
    *,
    logits: str = "last",
    attention: str = "fused",
    checkpointing: bool = False,
    optimizer: str = "adamw",
    amp: bool = False,
    rank: int = 16,
    targets: tuple[str, ...] = LINEARS,
    host_layers: int = 0,
    loss: str = "whole",
) -> Setting:
    """Options to a `Setting`; ValueError for a value that no option has."""
    given = {"mode": mode, "logits": logits, "attention": attention, "loss": loss}
    for name, value in given.items():
        if value not in ALLOWED[name]:
            known = ", ".join(ALLOWED[name])
            raise ValueError(f"{name} must be one of {known}, got {value!r}")
    fmt = format_of(weights or ("nf4" if mode == "qlora" else "bf16"))
    if mode == "qlora" and not fmt.packed:
        raise ValueError(f"qlora needs packed weights such as nf4, got {fmt.name!r}")
    width = 4 if fmt.name == "fp32" else 2
    unpacks = mode != "full_train" and fmt.name[:3] in ("nf4", "fp4")
    adapter = None
    if mode in ("lora", "qlora"):
        adapter = Adapter(rank, adapted(shape, targets), 4, dropout=True)
    return Setting(
        shape, mode, fmt, batch, seq, width=width, loss=loss, host_layers=host_layers,
        rows="all" if mode != "inference" else logits, fused=attention == "fused",
        checkpoint=checkpointing, autocast=2 if amp or adapter else 0, adapter=adapter,
        optimizer=states(optimizer, 4 if adapter else width), packed=int(unpacks),
    )  # fmt: skip


def adapted(shape: Shape, targets: tuple[str, ...]) -> frozenset[str]:
    """The targets that this family has; a fused q, k, v counts as one."""
    named = set(targets)
    if shape.family in ("gpt2", "gpt_neox", "phi3", "qwen") and named & {"q", "k", "v"}:
        named = (named - {"q", "k", "v"}) | {"qkv"}
    known = {*LINEARS, "qkv"}
    if named - known:
        raise ValueError(
            f"targets must be of {', '.join(LINEARS)}, got {sorted(named - known)}"
        )
    return frozenset(named if shape.gated else named - {"gate"})


def states(name: str, width: int) -> Optimizer:
    """torch's foreach AdamW, SGD without and with momentum, bitsandbytes' 8-bit AdamW."""
    if name == "adamw8bit":
        return Optimizer(name, 2 * (1 + 4 / 256))
    if name not in STATES:
        raise ValueError(
            f"optimizer must be one of {', '.join(STATES)}, adamw8bit, got {name!r}"
        )
    return Optimizer(name, STATES[name] * width, width if name == "adamw" else 0)


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
