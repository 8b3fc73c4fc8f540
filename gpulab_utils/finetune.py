"""LoRA and QLoRA by PEFT and bitsandbytes on a model that fits a CPU: train, keep, merge.

The model is any `transformers` causal model of the Llama kind, its blocks' linears named as
`fake_training.TARGETS`. Adapters are fp32; products run in 16 bit by autocast (`lower`).
"""

import warnings
from contextlib import contextmanager
from pathlib import Path

from gpulab_utils import device, kernels, ledger
from gpulab_utils.fake_layers import Dropout
from gpulab_utils.fake_training import TARGETS, model_of
from gpulab_utils.models import Shape
from gpulab_utils.progress import progress, quiet

NOISE = "Merge lora module to 4-bit|.*is_gradient_checkpointing"


def peft():
    """The library; `kernels.KernelMissing` with the way out where it is not installed."""
    try:
        with quiet():
            import peft
    except ImportError as error:
        raise kernels.KernelMissing(
            f"adapters need peft ({error}): pip install peft"
        ) from error
    return peft


@contextmanager
def _calm():
    """Without two warnings that a compared cell would show."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", NOISE)
        yield


def lower():
    """Autocast to this machine's 16-bit type: what `plan` assumes of adapters.

    On a card without bf16 that is fp16, and no loss is scaled: tiny gradients are lost.
    """
    import torch

    here = device.here()
    return torch.autocast(here.device.type, here.dtype)


def packed(model, nested: bool = False):
    """`model` with its blocks' linears in NF4, in place; embedding, head, norms stay.

    `nested` quantises the scales once more. bitsandbytes repacks its weights for AVX512 at
    the first forward in eval mode; what is trained, merged or compared must not be, so
    that is switched off. Raises `kernels.KernelMissing` without bitsandbytes, `ValueError`
    where nothing is to be packed.
    """
    kernels.bitsandbytes()
    found = list(_linears(model))
    if not found:
        raise ValueError(f"no linear named {', '.join(TARGETS)} in {type(model).__name__}")
    for parent, name, base in progress(found, "packing"):
        setattr(parent, name, _packed_linear(base.weight.data, base.bias, nested))
    model.is_loaded_in_4bit = True  # PEFT asks for it
    return model


def _packed_linear(weight, bias, nested: bool):
    """bitsandbytes' 4-bit linear of that weight [out, in], on the weight's device."""
    nn = kernels.bitsandbytes().nn
    layer = nn.Linear4bit(
        weight.shape[1], weight.shape[0], bias=bias is not None, compute_dtype=weight.dtype,
        compress_statistics=nested, quant_type="nf4", device="meta",
    )  # fmt: skip
    layer.weight = nn.Params4bit(
        weight, requires_grad=False, compress_statistics=nested, quant_type="nf4",
        module=layer,
    )  # fmt: skip
    layer.bias, layer.support_avx512bf16_for_cpu = bias, False
    return layer.to(weight.device)  # quantises


def random_packed(shape: Shape, nested: bool = False, checkpointing: bool = True):
    """A Llama with random weights on this machine's device, its linears packed one by one:
    in 16 bit it is never there whole, and no freed piece lies between what stays."""
    import torch

    here = device.here()
    with torch.device("meta"):
        model = model_of(shape, "bf16", checkpointing)
    linears = list(_linears(model))
    most = max(base.weight.numel() for *_, base in linears)
    room = torch.empty(most, dtype=here.dtype, device=here.device)  # for each in turn
    for parent, name, base in progress(linears, "packing"):
        weight = room[: base.weight.numel()].view(base.weight.shape).normal_(0, 0.02)
        setattr(parent, name, _packed_linear(weight, None, nested))
    for module in model.modules():
        for name, value in list(module.named_parameters(recurse=False)):
            if value.is_meta:
                made = torch.empty_like(value, dtype=here.dtype, device=here.device)
                setattr(module, name, torch.nn.Parameter(made.normal_(0, 0.02), False))
    with torch.device(here.device):  # its angles are computed, not loaded
        model.model.rotary_emb = type(model.model.rotary_emb)(config=model.config)
    model.is_loaded_in_4bit = True
    return model


def unpacked(model):
    """`model` with each NF4 linear written out again as an fp32 one, in place.

    The values are those that NF4 stands for: what a QLoRA has been trained on.
    """
    import torch

    unpack = kernels.bitsandbytes().functional.dequantize_4bit
    for parent, name, base in list(_linears(model)):
        layer = torch.nn.Linear(1, 1, bias=False)
        values = unpack(base.weight.data, base.weight.quant_state).float()
        layer.weight = torch.nn.Parameter(values, requires_grad=False)
        layer.in_features, layer.out_features = base.in_features, base.out_features
        layer.bias = base.bias
        setattr(parent, name, layer)
    model.is_loaded_in_4bit = False
    return model.float()


def _linears(model):
    """(module, name, linear) of every target in the blocks."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if name in TARGETS:
                yield parent, name, child


def adapted(model, rank: int = 16, dropout: float = 0.05, seed: int = 0):
    """A PEFT model: `model` frozen, and an fp32 adapter on each linear of its blocks.

    Scaled by 2 (alpha is twice the rank). The dropout keeps a byte a value, as on a GPU.
    Raises `kernels.KernelMissing` without PEFT.
    """
    import torch

    library = peft()
    config = library.LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=dropout,
        target_modules=list(TARGETS), task_type="CAUSAL_LM",
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]), _calm():
        torch.manual_seed(seed)
        made = library.get_peft_model(model, config)
    for module in made.modules():
        if hasattr(module, "lora_dropout") and dropout:
            module.lora_dropout["default"] = Dropout(dropout)
    made.config.use_cache = False
    return made


def optimizer(model, lr: float = 1e-3):
    """torch's foreach AdamW over what is trained."""
    import torch

    trained = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(trained, lr=lr, foreach=True)


def ramp(step: int, warm: int) -> float:
    """Share of the learning rate at `step`, counted from 0, of `warm` steps of warm-up.

    >>> [ramp(step, 4) for step in range(6)]
    [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    >>> ramp(0, 0)
    1.0
    """
    return min(1.0, (step + 1) / warm) if warm else 1.0


def train(model, windows, adam, lower, batch: int = 2) -> list[float]:
    """One step for each `batch` rows of `windows` [n, time]: the losses, in order."""
    model.train()
    steps = progress(windows.split(batch), "training")
    return [float(ledger.step(model, adam, ids, lower)) for ids in steps]


def save(model, folder: Path) -> int:
    """The adapters alone, into `folder`: bytes of the file."""
    model.save_pretrained(folder, save_embedding_layers=False)
    return (Path(folder) / "adapter_model.safetensors").stat().st_size


def onto(base, folder: Path):
    """The adapters in `folder` on `base`, which changes; in eval mode."""
    with _calm():
        return peft().PeftModel.from_pretrained(base, folder).eval()


def merged(model):
    """The base with the adapters added to its weights, in place; no PEFT is left in it.

    Where the base is in NF4 the sum is rounded to NF4 again, which undoes small changes:
    merge into `unpacked(base)` instead, or into the 16-bit weights and score the result.
    """
    with _calm():
        return model.merge_and_unload().eval()


def codes(model):
    """Every 4-bit code of a packed model, in a row [n] of numbers from 0 to 15."""
    import torch

    rows = [base.weight.data.flatten() for *_, base in _linears(model)]
    both = torch.cat(rows)  # two codes a byte
    return torch.cat([both >> 4, both & 15])


def logits(model, ids):
    """Of `ids` [batch, time] in eval mode, without gradients: fp32 [batch, time, vocab]."""
    import torch

    model.eval()
    with torch.inference_mode():
        return model(ids).logits.float()
