"""What does a training step of 13 billion weights keep alive? Run it, without the memory.

Fake tensors have a shape and a type and no values. torch runs the real `transformers`
model on them, its backward and torch's own optimizers, and the ledger books bytes that a
real run would take. Adapters, NF4 and 8-bit Adam are stand-ins of the same size
(`fake_layers`): PEFT and bitsandbytes refuse fake tensors. All of them are on the CPU.
"""

from contextlib import contextmanager
from dataclasses import dataclass, replace

from gpulab_utils import ledger
from gpulab_utils.fake_layers import Adam8bit, Lora, Packed
from gpulab_utils.memory import Peak
from gpulab_utils.models import MODELS, Shape

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
OPTIMIZERS = ("adamw", "adamw_fused", "adamw8bit", "momentum", "sgd")
MODES = ("full_train", "lora", "qlora")


@contextmanager
def _as_on_a_gpu():
    """transformers reads positions to see whether sequences are packed; fake tensors have
    none to read, so that it would build a mask [batch, 1, time, time] that no real run has.
    """
    from transformers import masking_utils

    old = masking_utils.find_packed_sequence_indices
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    try:
        with FakeTensorMode(allow_fallback_kernels=False):  # a fallback takes real memory
            yield
    finally:
        masking_utils.find_packed_sequence_indices = old


def model_of(shape: Shape, weights: str, checkpointing: bool = False):
    """transformers' Llama of that shape, in train mode, wherever new tensors are made."""
    from transformers import LlamaConfig, LlamaForCausalLM

    if shape.family != "llama":
        raise ValueError(f"only Llama shapes run here, {shape.name} is {shape.family}")
    config = LlamaConfig(
        vocab_size=shape.vocab, hidden_size=shape.hidden, head_dim=shape.head_dim,
        intermediate_size=shape.intermediate, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
        tie_word_embeddings=shape.tied, use_cache=False, attn_implementation="sdpa",
    )  # fmt: skip
    old = torch.get_default_dtype()
    torch.set_default_dtype(DTYPES[weights])
    try:
        model = LlamaForCausalLM(config).train()
    finally:
        torch.set_default_dtype(old)
    if checkpointing:  # renamed in transformers 5
        name = "activation_checkpointing_enable"
        enable = getattr(model, name, None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    return model


def adapt(model, rank: int, dropout: float, packed: bool) -> None:
    """Freeze `model`, pack its linears where asked, put an adapter beside each of them."""
    model.requires_grad_(False)
    for module in list(model.model.layers.modules()):
        for name, base in list(module.named_children()):
            if name in TARGETS:
                rows, columns = base.weight.shape
                base = Packed(rows, columns) if packed else base
                setattr(module, name, Lora(base, rows, columns, rank, dropout))


def optimizer_of(name: str, parameters):
    """Of `OPTIMIZERS`; "adamw" and the SGDs are torch's foreach, its default on a GPU."""
    if name not in OPTIMIZERS:
        raise ValueError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {name!r}")
    if name == "adamw8bit":
        return Adam8bit(parameters)
    if name.startswith("adamw"):
        fused = name.endswith("_fused")
        return torch.optim.AdamW(parameters, foreach=not fused, fused=fused)
    return torch.optim.SGD(parameters, momentum=0.9 * (name == "momentum"), foreach=True)


def run(
    model: str | Shape,
    mode: str = "full_train",
    weights: str = "bf16",
    batch: int = 1,
    seq: int = 2048,
    *,
    layers: int | None = None,
    checkpointing: bool = False,
    optimizer: str = "adamw",
    amp: bool = False,
    rank: int = 16,
    dropout: float = 0.05,
) -> dict[str, Peak]:
    """The most bytes alive in each phase of a training step, by category: `ledger.peaks`.

    The options are those of `plan`, and `layers` instead of the shape's own. With
    adapters, and with `amp`, products run in bf16 by autocast. Raises `ValueError` for an
    unknown mode, format or optimizer, or a model that is no Llama.

    >>> bill = run("llama-2-13b", layers=1, optimizer="adamw_fused", seq=8)
    >>> told = bill["optimizer"].by_category
    >>> [round(told[k] / told["weights"], 3) for k in ("gradients", "optimizer")]
    [1.0, 2.0]
    """
    shape = MODELS[model] if isinstance(model, str) else model
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    rest = "bf16" if mode == "qlora" else weights
    if rest not in DTYPES or (mode == "qlora") != (weights == "nf4"):
        raise ValueError(f"{mode} runs with {_known(mode)}, got weights {weights!r}")
    with _as_on_a_gpu():
        made = model_of(replace(shape, layers=layers or shape.layers), rest, checkpointing)
        if mode != "full_train":
            adapt(made, rank, dropout, packed=mode == "qlora")
        trained = [p for p in made.parameters() if p.requires_grad]
        ids = torch.zeros(batch, seq, dtype=torch.long)
        mixed = amp or mode != "full_train"
        lower = torch.autocast("cpu", torch.bfloat16, enabled=mixed)
        return ledger.peaks(made, optimizer_of(optimizer, trained), ids, lower)


def _known(mode: str) -> str:
    return "nf4" if mode == "qlora" else " or ".join(DTYPES)


@dataclass(frozen=True)
class Line:
    """Bytes of every phase and category at two depths, and by a line at any other.

    `low` and `high` are (number of layers, peaks in bytes by phase). Exact where the peak
    of a phase is the same moment at both depths; where a category would be negative it is
    not, and `at` raises `ValueError`.
    """

    low: tuple[int, dict[str, Peak]]
    high: tuple[int, dict[str, Peak]]

    def at(self, layers: int) -> dict[str, Peak]:
        """As `run` would tell for that many layers."""
        return {phase: self._phase(phase, layers) for phase in ledger.PHASES}

    def _phase(self, phase: str, layers: int) -> Peak:
        (few, low), (many, high) = self.low, self.high
        share = (layers - few) / (many - few)
        a, b = low[phase].by_category, high[phase].by_category
        kinds = {k: (a.get(k, 0), b.get(k, 0)) for k in {**a, **b}}
        told = {k: round(x + share * (y - x)) for k, (x, y) in kinds.items()}
        if min(told.values()) < 0:
            raise ValueError(
                f"the peak of {phase} is another moment with {few} layers than with "
                f"{many}: take a deeper pair"
            )
        return Peak(sum(told.values()), told)


def line(model: str | Shape, depths: tuple[int, int] = (2, 4), **options) -> Line:
    """The line through two shallow runs; `options` are those of `run`.

    >>> through = line("llama-2-13b", (1, 2), optimizer="sgd", seq=8)
    >>> told = through.at(40)["optimizer"].by_category
    >>> told["weights"] - 2 * MODELS["llama-2-13b"].params  # the table of rotary angles
    512
    """
    few, many = ((n, run(model, layers=n, **options)) for n in depths)
    return Line(few, many)
