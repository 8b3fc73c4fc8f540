"""A real 13B, where there is a GPU and a network; and what others measured of such models.

OLMo 2 13B Instruct has the shape of Llama-2-13B and a vocabulary of 100,352: Apache-2.0,
not gated, safetensors. Nothing here is downloaded unless `GPULAB_REAL_13B=1` asks for it.
"""

import os

from gpulab_utils import device, kernels
from gpulab_utils.tables import read

NAME = "allenai/OLMo-2-1124-13B-Instruct"
#: The head of its history as listed in January 2025; the weights are of December 2024.
REVISION = "84d8c7cbfc0afb79bbbdca78ff8bf47f488f4ac6"
FLAG = "GPULAB_REAL_13B"


def gguf(model: str = "olmo-2-13b") -> dict:
    """A GGUF file of `model`, read by llama.cpp as it is: for hosts with little RAM.

    >>> gguf()["file"]
    'OLMo-2-1124-13B-Instruct-Q4_K_M.gguf'
    """
    rows = {row["model"]: row for row in read("published/gguf_files.json")}
    if model not in rows:
        raise KeyError(f"no GGUF file of {model!r}; there are {', '.join(rows)}")
    return rows[model]


def asked() -> bool:
    """Whether the real model is wanted; `RuntimeError` where it could not be used.

    >>> os.environ.pop("GPULAB_REAL_13B", None) and None
    >>> asked()
    False
    """
    if os.environ.get(FLAG) != "1":
        return False
    if not device.here().is_gpu:
        raise RuntimeError(
            f"{FLAG}=1 needs a CUDA or ROCm card, here is {device.here().name}; without "
            f"one run the {gguf()['file']} of {gguf()['repo']} by llama.cpp"
        )
    if os.environ.get("HF_HUB_OFFLINE") == "1":
        raise RuntimeError(f"{FLAG}=1 downloads {NAME}: unset HF_HUB_OFFLINE")
    return True


def olmo():
    """(model, tokenizer): OLMo 2 13B in NF4 with double quantisation on the card.

    transformers quantises shard by shard while it loads. Raises `kernels.KernelMissing`
    without bitsandbytes, `OSError` without a network.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

    kernels.bitsandbytes()
    four_bits = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=device.here().dtype,
    )
    pinned = {"revision": REVISION, "trust_remote_code": False}
    model = AutoModelForCausalLM.from_pretrained(
        NAME,
        **pinned,
        quantization_config=four_bits,
        dtype=device.here().dtype,
        device_map={"": torch.device("cuda", 0)},
        use_safetensors=True,
    )
    return model.eval(), AutoTokenizer.from_pretrained(NAME, **pinned)


def rises(source: str) -> dict[str, dict[str, float]]:
    """Published perplexity over that of 16 bits, in percent: model -> format -> percent.

    `source` is the name of a source in `data/published/perplexity.json`; `KeyError` else.

    >>> round(rises("llama.cpp")["LLaMA-13B"]["Q4_0"], 1)  # 5.3860 over 5.2543
    2.5
    """
    told = read("published/perplexity.json")
    if source not in told["sources"]:
        raise KeyError(f"no source {source!r}; there are {', '.join(told['sources'])}")
    rows = [r for r in told["rows"] if r["source"] == source]
    base = {r["model"]: r["perplexity"] for r in rows if r["bits"] == 16}
    found = {name: {} for name in base}
    for row in rows:
        rise = 100 * (row["perplexity"] / base[row["model"]] - 1)
        found[row["model"]][row["format"]] = rise
    return found
