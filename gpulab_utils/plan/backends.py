"""What does an engine lose against the bound? One line of constants per back end and date.

t = weights / (bandwidth x share) + layers x layer_s + layers x heads x context x head_s

`share` of the bandwidth that weights reach, `hbm_share` on cards with HBM where old kernels
do not keep up, `layer_s` the launches and the small work of a layer, `head_s` unfused
attention over one position of one head. Fitted on the rows of data/published/
decode_speed.jsonl whose engine and date each line names. For llama.cpp on NVIDIA cards with
GDDR memory (37 rows, seven cards) a fit without one card misses that card's rows by 1.8 to
10.2 % in the median, and its three constants move by at most 2, 11 and 12 %
(tests/test_plan_decode.py fits them again). The lines of one card
(AutoAWQ, ExLlama, MLC-LLM, vLLM) cannot be tried that way.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Backend:
    """Constants of one engine on one kind of card, at one time."""

    engine: str
    until: str  # the last month that they speak for
    share: float
    layer_s: float
    head_s: float = 0.0
    hbm_share: float | None = None
    row_share: float = 0.0  # of the weights read again for each further sequence


BACKENDS = {
    # llama-bench and main on nine NVIDIA cards, Q4_0 to F16, no flash attention
    "llama.cpp-cuda-2024": Backend("llama.cpp", "2024-06", 0.915, 95e-6, 0.25e-9, 0.57),
    # Vulkan and CUDA builds of 2025 and later, three NVIDIA cards
    "llama.cpp-cuda": Backend("llama.cpp", "9999", 0.86, 28e-6, 0.05e-9, 0.7),
    # M2 Ultra and M3 Max, August 2023 to May 2024
    "llama.cpp-metal": Backend("llama.cpp", "9999", 0.94, 190e-6, 1.8e-9),
    # RX 7900 XT and XTX, 2026
    "llama.cpp-amd": Backend("llama.cpp", "9999", 0.85, 70e-6, 0.10e-9, 0.7),
    "vllm": Backend("vLLM", "9999", 0.85, 118e-6, 0.02e-9, 0.85),
    "awq-gemm": Backend("AutoAWQ", "9999", 0.85, 60e-6, 0.30e-9),
    "awq-gemv": Backend("AutoAWQ", "9999", 0.85, 33e-6, 0.25e-9, None, 0.36),
    "exllama-2023-05": Backend("ExLlama", "2023-06", 0.75, 135e-6),
    "exllama": Backend("ExLlama", "9999", 0.85, 76e-6),
    "exllamav2": Backend("ExLlamaV2", "9999", 0.87, 36e-6),
    "mlc": Backend("MLC-LLM", "9999", 0.85, 28e-6),
    # transformers in eager mode: a dozen launches a layer, derived, not fitted
    "transformers": Backend("transformers", "9999", 0.80, 250e-6, 0.05e-9),
}


def seconds(
    backend: Backend,
    weights_s: float,
    kv_s: float,
    layers: int,
    looks: float,
    *,
    hbm: bool = False,
    batch: int = 1,
) -> float:
    """One step; `weights_s` and `kv_s` at full bandwidth, `looks` = heads x context x
    batch.

    >>> round(seconds(BACKENDS["mlc"], 3.69e-3, 0, 32, 0) * 1e3, 2)
    5.24
    """
    share = (backend.hbm_share or backend.share) if hbm else backend.share
    again = 1 + backend.row_share * (batch - 1)
    return (weights_s * again + kv_s) / share + layers * (
        backend.layer_s + backend.head_s * looks
    )


def backend_of(engine: str, kind: str | None, date: str | None, vendor: str) -> Backend:
    """The line for an engine's name, its back end, a month and the card's maker."""
    low, when = engine.lower(), date or "9999"
    for word, name in (("vllm", "vllm"), ("gemv", "awq-gemv"), ("awq", "awq-gemm"),
                       ("exllamav2", "exllamav2"), ("mlc", "mlc")):  # fmt: skip
        if word in low:
            return BACKENDS[name]
    if "exllama" in low:
        return BACKENDS["exllama-2023-05" if when < "2023-07" else "exllama"]
    if vendor == "apple" or kind == "metal":
        return BACKENDS["llama.cpp-metal"]
    if vendor == "amd" or kind == "rocm":
        return BACKENDS["llama.cpp-amd"]
    if "llama.cpp" in low:
        return BACKENDS["llama.cpp-cuda-2024" if when < "2024-07" else "llama.cpp-cuda"]
    if "transformers" in low or "gptq-for" in low:
        return BACKENDS["transformers"]
    raise ValueError(f"no decode constants for the engine {engine!r}")
