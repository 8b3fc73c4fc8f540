"""How good is SmolLM2 in each format? The linears of its blocks, written and read again.

A score tells of the format and of no kernel. SmolLM2 decoded from Q4_1 lies on a 4-bit
grid; `shuffle` takes it off: every weight keeps its value and its row, and the model
computes what it did before. `products` multiplies by the codes instead.
"""

from contextlib import contextmanager
from importlib.util import find_spec

from gpulab_utils import ggml_blocks, language, quant
from gpulab_utils.weights_table.shuffling import shuffle

__all__ = ["SAME_GRID", "judge", "predictions", "score", "shuffle", "written"]

GGUF = ("Q8_0", "Q4_0", "Q4_1")  # what the package gguf writes
PLAIN = ("fp32", "bf16")
SAME_GRID = ("int4 g32", "Q4_1")  # that of a model which was decoded from Q4_1


def linears(model, only: str = "") -> dict:
    """The linears of the blocks whose name has `only` in it: never embedding or head."""
    import torch

    found = model.model.named_modules()
    return {n: m for n, m in found if isinstance(m, torch.nn.Linear) and only in n}


def formats() -> list[str]:
    """Names that `write` knows here: those of gguf only where it is installed.

    >>> formats()[:3], "nf4 double" in formats()
    (['fp32', 'bf16', 'int8 tensor'], True)
    """
    return [*PLAIN, *quant.FORMATS, *(GGUF if find_spec("gguf") else ())]


def write(weight, name: str) -> quant.Written:
    """`weight` [out, in] written as `name`: "fp32", "bf16", of `quant.FORMATS` or gguf's.

    Raises `ValueError` for another name.

    >>> import torch
    >>> write(torch.ones(2, 64), "bf16").nbytes
    256
    """
    import torch

    if name in PLAIN:
        kept = weight.to({"fp32": torch.float32, "bf16": torch.bfloat16}[name])
        return quant.Written(kept.float(), kept.nbytes)
    if name not in GGUF:
        return quant.write(weight, name)
    import gguf

    raw = gguf.quantize(weight.float().cpu().numpy(), gguf.GGMLQuantizationType[name])
    return quant.Written(ggml_blocks.decode(raw, name).to(weight.device), raw.nbytes)


@contextmanager
def written(model, name: str, only: str = ""):
    """`model` with its linears in format `name`; yields their bits a weight and bytes."""
    kept = {m: m.weight.data for m in linears(model, only).values()}
    n_bytes, n = 0, sum(w.numel() for w in kept.values())
    try:
        for module, weight in kept.items():
            told = write(weight, name)
            n_bytes += told.nbytes
            module.weight.data = told.values.to(weight.dtype)
        yield {"bits": 8 * n_bytes / n, "bytes": n_bytes}
    finally:
        for module, weight in kept.items():
            module.weight.data = weight


def score(model, name: str, ids, right=(), only: str = "") -> dict:
    """A row: format, bits a weight and bytes of the linears, and what `judge` says."""
    with written(model, name, only) as told:
        return {"format": name, **told, **judge(model, ids, right)}


def judge(model, ids, right=()) -> dict:
    """Perplexity over ids [n, time], and how far predictions went from `right`, in nats.

    `right` are log-probabilities of the first windows, as `predictions` gives them; the
    mean Kullback-Leibler divergence cannot fall by luck, as perplexity can.
    """
    from torch.nn.functional import kl_div

    apart = []

    def watch(_, args, out):
        if len(apart) < len(right):
            mine, target = _log_softmax(out.logits), right[len(apart)]
            apart.append(kl_div(mine, target, reduction="batchmean", log_target=True))

    hook = model.register_forward_hook(watch)
    try:
        told = {"perplexity": language.perplexity(model, ids)}
    finally:
        hook.remove()
    return told | ({"kl": float(sum(apart)) / len(apart)} if apart else {})


def predictions(model, ids) -> list:
    """Log-probabilities of every next token, [time, vocab] for each window of `ids`."""
    import torch

    with torch.inference_mode():
        return [_log_softmax(model(window).logits) for window in ids.split(1)]


def _log_softmax(logits):
    return logits[0].float().log_softmax(-1)
