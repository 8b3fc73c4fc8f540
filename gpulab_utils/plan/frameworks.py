"""What does a framework keep? From a row's description, or a few options, to a `Setting`.

A row says what ran in the vocabulary of data/published/README.md. Nothing here reads a
figure that the row measured. null means unknown, and then the framework's own default is
taken: each is named where it is used.
"""

import re

from gpulab_utils.models import Shape, shape_from_config
from gpulab_utils.plan.formats import Format, format_of, formats
from gpulab_utils.plan.recipes import (
    WIDTHS,
    accumulates,
    adapter_of,
    compute_width,
    dialect_of,
    loss_of,
    optimizer_of,
    ragged,
    upcast,
)
from gpulab_utils.plan.setting import Setting

#: Tokens of a run whose length nobody states: LitGPT's default prompt and 50 new ones.
SHORT_RUN = 64


def shape_of(row: dict) -> Shape:
    """The row's `config` if it has one, else its architecture fields."""
    if row.get("config"):
        return shape_from_config(row["config"], row["model"])
    name, gated = row["model"].lower(), row.get("gated_mlp", True) is not False
    parallel, heads = bool(row.get("parallel_residual")), row["heads"]
    family = family_of(name, gated, parallel)
    windows = (4096, row["layers"]) if "mistral" in name and "v0.1" in name else (None, 0)
    new_gelu = dialect_of(row) == "hf" and re.match(r"phi-?(1|2)|gpt-?2", name)
    return Shape(
        name=row["model"],
        hidden=row["hidden"],
        layers=row["layers"],
        heads=heads,
        kv_heads=row["kv_heads"] or heads,
        head_dim=row.get("head_dim") or row["hidden"] // heads,
        intermediate=row["intermediate"] or 4 * row["hidden"],
        vocab=row["vocab"],
        tied=bool(row["tied_embeddings"]) and family != "bert",
        gated=gated,
        norm=row.get("norm") or "rms",
        family=family,
        act="silu" if gated else "gelu_new" if new_gelu else "gelu",
        parallel=parallel,
        qkv_bias="qwen" in name and "qwen3" not in name,
        qk_norm="head" if family in ("qwen3", "gemma3_text") else None,
        norms=4 if family in ("gemma2", "gemma3_text") else 2,
        window=windows[0],
        window_layers=windows[1],
        rotary=1.0 if gated else 0.25 if parallel else 0.0,
        positions=512 + 2 if family == "bert" else 0,
    )


def family_of(name: str, gated: bool, parallel: bool) -> str:
    """Whose layers a model has that is only named: by name, else by its plainest kin."""
    if not gated:
        return "bert" if "bert" in name else "gpt_neox" if parallel else "plain"
    for word, family in (
        (r"gemma-?2-?\d+b|gemma-2", "gemma2"),
        (r"gemma-?3", "gemma3_text"),
        ("gemma", "gemma"),
        ("qwen-?3", "qwen3"),
        (r"qwen-\d", "qwen"),
        ("olmo-?2", "olmo2"),
    ):
        if re.search(word, name):
            return family
    return "llama"


def format_from(text: str, dialect: str = "hf") -> Format:
    """The storage format that a source's words mean; Unsloth always nests NF4's scales."""
    low = text.lower() + (" double" if dialect == "unsloth" else "")
    files = [f.name for f in formats().values() if f.whole_file and f.name in low]
    if files:
        return format_of(max(files, key=len))
    if "gptq" in low or "awq" in low:
        bits = 8 if "int8" in low else 4
        return format_of(f"int{bits}-g128")
    if "llm.int8" in low or low == "int8":
        return format_of("llm-int8")
    nested = "double" in low or "torchao" in low
    if "nf4" in low or "fp4" in low or "4-bit" in low or "4bit" in low:
        kind = "fp4" if "fp4" in low else "nf4"
        return format_of(kind + ("-dq" if nested else ""))
    return format_of(re.match(r"\w+", low)[0])


def setting_of(row: dict) -> Setting:
    """The run that a row describes; ValueError where it is not modelled."""
    shape, dialect = shape_of(row), dialect_of(row)
    if dialect == "llm.c":
        raise ValueError("llm.c lays out its own buffers: not modelled")
    if row["mode"] == "inference_kv_capacity":
        raise ValueError("how much cache an engine takes is its own setting: not modelled")
    more = 0 if row.get("config") else max(0, (row.get("params") or 0) - shape.params)
    return Setting(
        shape=shape,
        mode="inference" if row["mode"] == "load_only" else row["mode"],
        batch=row["batch"] or 1,
        seq=row["seq"] or SHORT_RUN,
        prefill=row.get("prefill_tokens"),
        rows=(row.get("logits") or {}).get("rows") or "all",
        wide_logits=(row.get("logits") or {}).get("dtype") == "fp32",
        loss=loss_of(row, dialect),
        fused=fused(row),
        checkpoint=int(bool(row.get("grad_checkpointing"))),
        adapter=adapter_of(row, shape),
        optimizer=optimizer_of(row),
        dialect=dialect,
        gpu="fake" not in (row.get("device") or ""),
        flags=flags_of(row),
        upcast=upcast(row, dialect),
        untied=dialect == "litgpt" and shape.tied,
        accumulates=accumulates(row, dialect),
        more_params=more,
        extra={"lengths": ragged(row)},
        **storage_of(row, dialect),
    )


def fused(row: dict) -> bool:
    """Whether scores never exist as a tensor; attention that nobody names is not SDPA."""
    ran, asked = row.get("attention_prefill"), (row.get("attention_impl") or "").lower()
    if ran:
        return ran == "fused"
    named = any(word in asked for word in ("sdpa", "flash", "flex", "xformers"))
    return named and "eager" not in asked


def storage_of(row: dict, dialect: str) -> dict:
    """Formats and widths: of weights, of what products run in, of the cache."""
    fmt, width = format_from(row["weight_dtype"], dialect), compute_width(row)
    packing, cache = row.get("weight_format") or {}, row.get("kv_cache") or {}
    mixed = row.get("autocast") or "mixed" in (row.get("compute_dtype") or "")
    if row.get("autocast") is None and row["mode"] == "qlora" and dialect == "hf":
        mixed = True  # the Trainer's bf16=True
    unpacks = fmt.packed and (row["mode"] == "qlora" or fmt.name[:3] in ("nf4", "fp4"))
    if mixed and row["mode"] != "full_train":
        width = WIDTHS.get(fmt.rest, width)
    return {
        "fmt": fmt,
        "width": width,
        "autocast": 2 if mixed else 0,
        "packed": (packing.get("dequant_copies") or 1) if unpacks else 0,
        "head_packed": bool(packing.get("head_quantized")),
        "cache": None if cache.get("kind") == "none" else cache.get("kind"),
        "cache_tokens": cache.get("tokens") or row["seq"] or SHORT_RUN,
    }


def flags_of(row: dict) -> frozenset[str]:
    """The row's flags, and `again` where the next batch can be as long as the longest."""
    lengths = row.get("batch_lengths") or {}
    again = lengths.get("kind") == "fixed" or lengths.get("over") == "cut"
    return frozenset([*row["flags"], *(["again"] if again else [])])
