"""What "Will it fit?" offers: formats by mode, and the words for modes and terms."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """One choice of the page's format list in one mode; `options` are those of `plan`."""

    label: str
    weights: str
    options: tuple = ()


LABELS = {
    "fp32": "fp32",
    "bf16": "bf16 or fp16",
    "fp8": "fp8",
    "llm-int8": "int8 (LLM.int8)",
    "nf4": "NF4",
    "nf4-dq": "NF4, double quantization",
    "int4-g128": "int4, groups of 128 (GPTQ, AWQ)",
    "mxfp4": "MXFP4",
}
GGUF = ("q8_0", "q6_k", "q5_k_s", "q4_k_m", "iq4_xs", "q3_k_s", "q2_k")


def _same(*names: str) -> dict[str, Recipe]:
    return {n: Recipe(LABELS.get(n, n.upper() + " (GGUF)"), n) for n in names}


MODES = {
    "inference": _same(*LABELS, *GGUF),
    "full_train": {
        "fp32": Recipe("fp32, AdamW", "fp32"),
        "amp": Recipe("fp32 under autocast, AdamW", "fp32", (("amp", True),)),
        "bf16": Recipe("pure bf16, AdamW", "bf16"),
        "bf16-adamw8bit": Recipe(
            "pure bf16, 8-bit AdamW", "bf16", (("optimizer", "adamw8bit"),)
        ),
    },
    "lora": _same("bf16", "fp32"),
    "qlora": _same("nf4", "nf4-dq"),
}

MODE_LABELS = {
    "inference": "inference: read a prompt, then write",
    "full_train": "full training: every weight",
    "lora": "LoRA: adapters of rank 16",
    "qlora": "QLoRA: LoRA over NF4 weights",
}
TERM_LABELS = {
    "weights": "weights",
    "kv_cache": "KV cache",
    "activations": "activations",
    "logits": "logits and loss",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "workspace": "workspace and rounding",
}
