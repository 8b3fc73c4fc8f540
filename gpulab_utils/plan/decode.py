"""How long does one token take? Bytes over bandwidth, and what a launch adds.

A decode step reads every weight that the token meets once: linears, norms, head, one row of
the embedding, and the KV cache written so far.
"""

import re
from dataclasses import dataclass

from gpulab_utils.cards import CARDS, Card
from gpulab_utils.models import MODELS, Shape
from gpulab_utils.plan.backends import backend_of, seconds
from gpulab_utils.plan.formats import Format, format_of
from gpulab_utils.units import GIB


@dataclass(frozen=True)
class Decode:
    """One decode step: `bound_s` no such card beats, `estimate_s` what to expect."""

    bytes_read: float
    kv_bytes: float
    bound_s: float
    estimate_s: float
    batch: int = 1

    @property
    def bound_tokens_per_s(self) -> float:
        return self.batch / self.bound_s

    @property
    def tokens_per_s(self) -> float:
        return self.batch / self.estimate_s


def bytes_per_step(shape: Shape, fmt: Format, batch: int = 1) -> float:
    """Weights that one step reads: of the embedding `batch` rows, a tied one as head.

    >>> round(bytes_per_step(MODELS["llama-2-13b"], format_of("int4-g128")) / 1e9, 2)
    6.92
    """
    parts = fmt.model_bytes(shape)
    linears = parts["linears"]
    if shape.experts:
        idle = shape.experts - min(shape.experts, batch * shape.experts_per_token)
        share = shape.expert_linear_params * idle / shape.experts
        linears *= 1 - share / shape.linear_params
    per = parts["embedding"] / shape.embedding_params
    head = parts["head"] or shape.vocab * shape.hidden * per
    return linears + head + parts["small"] + batch * shape.hidden * per


def decode(
    model: str | Shape,
    card: str | Card,
    weights: str = "bf16",
    context: int = 2048,
    *,
    batch: int = 1,
    kv_dtype: str = "bf16",
    engine: str = "llama.cpp",
) -> Decode:
    """The bound and an estimate of one decode step that looks back `context` tokens.

    The estimate takes the constants of `engine` (see `backends`) as of today.

    >>> d = decode("llama-2-13b", "rtx-3080-ti", "int4-g128", context=0)
    >>> round(d.bound_s * 1e3, 2)  # 6.92e9 bytes / 912e9 bytes/s
    7.59
    """
    if batch < 1:
        raise ValueError(f"batch must be positive, got {batch}")
    if context < 0:
        raise ValueError(f"context must not be negative, got {context}")
    shape = MODELS[model] if isinstance(model, str) else model
    card = CARDS[card] if isinstance(card, str) else card
    weights_read = bytes_per_step(shape, format_of(weights), batch)
    kv = batch * shape.kv_bytes(context, kv_dtype)
    rate = card.mem_bytes_per_s
    line = backend_of(engine, None, None, card.vendor.lower())
    estimate_s = seconds(
        line, weights_read / rate, kv / rate, shape.layers, shape.heads * context * batch,
        hbm="HBM" in card.mem_type.upper(), batch=batch,
    )  # fmt: skip
    return Decode(weights_read + kv, kv, (weights_read + kv) / rate, estimate_s, batch)


def prefill_s(
    model: str | Shape, card: str | Card, tokens: int, dtype: str = "fp16", batch: int = 1
) -> float:
    """The least seconds for a prompt: its FLOP over the card's dense rate in `dtype`.

    A position looks back on half the prompt in the mean.

    >>> round(prefill_s("llama-2-7b", "rtx-3080-ti", 1024), 3)  # 13.8e12 / 68.2e12
    0.202
    """
    if tokens < 1:
        raise ValueError(f"tokens must be positive, got {tokens}")
    shape = MODELS[model] if isinstance(model, str) else model
    card = CARDS[card] if isinstance(card, str) else card
    return batch * tokens * shape.flop_per_token(tokens // 2) / card.rate(dtype)


def mean_context(row: dict) -> float:
    """Positions that an average step of the row looks back on."""
    n, meaning = row.get("context") or 0, row.get("context_meaning") or ""
    if "prefill" in meaning:
        return 0.75 * n  # half is there from the start, the rest grows
    if "/2" in meaning or "from an empty cache" in meaning or "tg128" in meaning:
        return n / 2
    found = re.search(r"mean KV about (\d+)", meaning)
    return float(found[1]) if found else n / 2


def row_bytes(row: dict) -> float:
    """Weights that the row's step reads: file or bits, less an embedding of its own."""
    params, table = row["params"], row["vocab"] * row["hidden"]
    bits = row.get("bits_per_weight")
    if row.get("file_size_gib"):
        total = row["file_size_gib"] * GIB
        bits = min(16, 8 * total / params)
        return total - (0 if row["tied_embeddings"] else table * bits / 8)
    bits = bits or (16 if row["quant"] in ("bf16", "fp16") else 4.25)
    linears = params - table * (1 if row["tied_embeddings"] else 2)
    return linears * bits / 8 + table * (bits if "EXL2" in row["quant"] else 16) / 8


def answer(row: dict) -> dict:
    """Bound and estimate in tokens per second for a published row."""
    rates = [row["gpu_bandwidth_gbs"]] if row["gpu_bandwidth_gbs"] else None
    rates = rates or row.get("candidate_bandwidths_gbs")
    if not rates:
        raise ValueError(f"no bandwidth for {row['gpu']!r}")
    batch, heads = row["batch"] or 1, row["kv_heads"] or row["heads"]
    per_token = (
        4 * row["layers"] * heads * (row["head_dim"] or row["hidden"] // row["heads"])
    )
    context = mean_context(row)
    weights, kv = row_bytes(row), batch * per_token * context
    gpu, rate = row["gpu"], 1e9 * sum(rates) / len(rates)
    vendor = (
        "apple" if "Apple" in gpu else "amd" if re.search("RX |Radeon|MI\\d", gpu) else ""
    )
    line = backend_of(row["engine"], row.get("backend"), row.get("engine_date"), vendor)
    hbm = bool(re.search("A100|H100|H200|B200|V100|MI\\d", gpu))
    looks = row["heads"] * context * batch
    expected = seconds(
        line, weights / rate, kv / rate, row["layers"], looks, hbm=hbm, batch=batch
    )
    return {
        "predicted_tokens_per_s": batch / expected,
        "bound_tokens_per_s": batch * max(rates) * 1e9 / (weights + kv),
        "note": line.engine,
    }
