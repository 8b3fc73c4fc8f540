"""From the words of `plan` to a `Setting`: what each option may be, and what it means."""

from dataclasses import replace

from gpulab_utils.models import Shape
from gpulab_utils.plan.formats import format_of
from gpulab_utils.plan.run import Adapter
from gpulab_utils.plan.setting import Optimizer, Setting

MODES = ("inference", "full_train", "lora", "qlora")
LINEARS = ("q", "k", "v", "o", "gate", "up", "down")
OFFLOADS = ("activations", "save_on_cpu", "states", "optimizer")
ALLOWED = {
    "mode": MODES,
    "logits": ("last", "all"),
    "attention": ("fused", "eager"),
    "loss": ("whole", "shifted_copy", "chunked", "fused"),
    "device": ("gpu", "cpu"),
    "offload": (None, *OFFLOADS),
}
#: Bytes of state by width of a number; copies of all parameters; copies of one at a time.
#: torch/optim/adam.py: foreach holds the roots of all second moments, the loop one
#: parameter's root and its quotient, the fused kernel neither.
OPTIMIZERS = {
    "sgd": (0, 0, 0),
    "momentum": (1, 0, 0),
    "adamw": (2, 1, 0),
    "adamw_loop": (2, 0, 2),
    "adamw_fused": (2, 0, 0),
}


def setting(
    shape: Shape,
    mode: str,
    weights: str | None,
    batch: int,
    seq: int,
    *,
    logits: str = "last",
    attention: str = "fused",
    checkpointing: bool | int = False,
    optimizer: str = "adamw",
    amp: bool = False,
    rank: int = 16,
    targets: tuple[str, ...] = LINEARS,
    host_layers: int = 0,
    loss: str = "whole",
    device: str = "gpu",
    **stepping,
) -> Setting:
    """Options to a `Setting`; ValueError for a value that no option has."""
    given = {"mode": mode, "logits": logits, "attention": attention, "loss": loss}
    for name, value in (given | {"device": device}).items():
        one_of(name, value)
    fmt = format_of(weights or ("nf4" if mode == "qlora" else "bf16"))
    if mode == "qlora" and not fmt.packed:
        raise ValueError(f"qlora needs packed weights such as nf4, got {fmt.name!r}")
    width = 4 if fmt.name == "fp32" else 2
    unpacks = mode != "full_train" and fmt.name[:3] in ("nf4", "fp4")
    adapter = None
    if mode in ("lora", "qlora"):
        adapter = Adapter(rank, adapted(shape, targets), 4, dropout=True)
    made = Setting(
        shape, mode, fmt, batch, seq, width=width, loss=loss, host_layers=host_layers,
        rows="all" if mode != "inference" else logits, fused=attention == "fused",
        checkpoint=segment(shape, checkpointing), autocast=2 if amp or adapter else 0,
        adapter=adapter, optimizer=states(optimizer, 4 if adapter else width),
        packed=int(unpacks), gpu=device == "gpu",
    )  # fmt: skip
    return stepped(made, **stepping)


def segment(shape: Shape, checkpointing: bool | int) -> int:
    """Layers a segment, 0 where nothing is recomputed."""
    if not 0 <= checkpointing <= shape.layers:
        raise ValueError(
            f"checkpointing must be True, or at most the model's {shape.layers} layers in "
            f"a segment, got {checkpointing}"
        )
    return int(checkpointing)


def one_of(name: str, value) -> None:
    if value not in ALLOWED[name]:
        known = ", ".join(map(str, ALLOWED[name]))
        raise ValueError(f"{name} must be one of {known}, got {value!r}")


def stepped(
    s: Setting,
    *,
    accumulation: int = 1,
    in_backward: bool = False,
    offload: str | None = None,
) -> Setting:
    """How a step is cut: micro-batches, parameter by parameter, what waits on the host."""
    one_of("offload", offload)
    asked = {"accumulation": accumulation != 1, "in_backward": in_backward}
    for name, on in (asked | {"offload": offload}).items():
        if on and s.mode == "inference":
            trains = ", ".join(MODES[1:])
            raise ValueError(f"{name} is for a mode that trains: {trains}, got {s.mode!r}")
    if accumulation < 1 or s.batch % accumulation:
        raise ValueError(
            f"accumulation must divide the batch of {s.batch} into micro-batches, got "
            f"{accumulation}"
        )
    if in_backward and accumulation > 1:
        raise ValueError(
            "in_backward uses each gradient up at once: accumulation must be 1, got "
            f"{accumulation}"
        )
    if offload == "states" and not s.optimizer.state_bytes:
        raise ValueError(f"offload='states': {s.optimizer.name!r} keeps no states")
    optimizer, flags = replace(s.optimizer, in_backward=in_backward), s.flags
    if offload in ("activations", "save_on_cpu"):
        flags = flags | {offload, "activation_offload"}
    elif offload:
        optimizer = away(optimizer, step=offload == "optimizer")
    return replace(
        s, batch=s.batch // accumulation, accumulates=accumulation > 1, flags=flags,
        optimizer=optimizer, micro_batches=accumulation,
    )  # fmt: skip


def away(o: Optimizer, step: bool) -> Optimizer:
    """States on the host; the step too, or on the device with one parameter's states."""
    if step:
        return replace(o, on_host=True, copy_bytes=0, loop_copies=0)
    fetched = round(o.state_bytes / o.loop_width)
    temporaries = OPTIMIZERS["adamw_loop"][2] if o.name.startswith("adamw") else 0
    return replace(o, on_host=True, copy_bytes=0, loop_copies=fetched + temporaries)


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
    """What torch's AdamW and SGD keep, and bitsandbytes' 8-bit AdamW."""
    if name == "adamw8bit":
        return Optimizer(name, 2 * (1 + 4 / 256))
    if name not in OPTIMIZERS:
        raise ValueError(
            f"optimizer must be one of {', '.join(OPTIMIZERS)}, adamw8bit, got {name!r}"
        )
    kept, copies, loops = OPTIMIZERS[name]
    return Optimizer(
        name, kept * width, copies * width, loop_copies=loops, loop_width=width
    )
