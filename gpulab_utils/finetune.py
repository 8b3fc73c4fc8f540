"""LoRA and QLoRA by PEFT and bitsandbytes on a model that fits a CPU: train, keep, merge.

The model is any `transformers` causal model of the Llama kind, its blocks' linears named as
`fake_training.TARGETS`. Adapters are fp32; products run in 16 bit by autocast (`lower`).
"""

import warnings
from contextlib import contextmanager
from pathlib import Path

from gpulab_utils import device, kernels, ledger
from gpulab_utils.fake_layers import Dropout
from gpulab_utils.fake_training import TARGETS
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
    merge into `packing.unpacked(base)` instead, or into the 16-bit weights and score that.
    """
    with _calm():
        return model.merge_and_unload().eval()


def logits(model, ids):
    """Of `ids` [batch, time] in eval mode, without gradients: fp32 [batch, time, vocab]."""
    import torch

    model.eval()
    with torch.inference_mode():
        return model(ids).logits.float()
