"""Which fields of a Hugging Face config.json make the shape? By `model_type`.

Defaults are those of transformers 5.24: a file leaves out what equals them.
"""

QWEN = ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe")
GATED = (*QWEN, "llama", "mistral", "mixtral", "olmo2", "phi3")
GEMMA = ("gemma", "gemma2", "gemma3_text")
PLAIN = ("gpt2", "gpt_neox", "phi", "falcon", "bert")
KNOWN = (*GATED, *GEMMA, *PLAIN, "gpt_oss", "qwen")

MISSING = {
    "deepseek_v3": "layers of multi-head latent attention",
    "mamba": "its state-space layers",
    "gemma3": "its vision layers; give the text_config",
}


def read_config(config: dict) -> dict:
    """Fields of `Shape` out of a config dict.

    >>> read_config({"model_type": "mamba"})
    Traceback (most recent call last):
    ...
    ValueError: model_type 'mamba' is not modelled: missing are its state-space layers
    """
    kind = config.get("model_type")
    if kind not in KNOWN:
        why = MISSING.get(kind, "the formulas of its layers")
        raise ValueError(f"model_type {kind!r} is not modelled: missing are {why}")
    if kind in READERS:
        return READERS[kind](config)
    c = {**DEFAULTS.get(kind, {}), **{k: v for k, v in config.items() if _said(k, v)}}
    fields = {**_common(c, kind), **_biases(c, kind), **_experts(c, kind)}
    window, windowed = _windows(config, c, kind)
    return {**fields, **_layout(c, kind), "window": window, "window_layers": windowed}


def _said(key: str, value) -> bool:
    """A null means the default, except where it switches something off."""
    return value is not None or key.endswith("_softcapping")


_GEMMA = {"head_dim": 256, "tie_word_embeddings": True, "act": "gelu_pytorch_tanh"}
DEFAULTS = {
    **dict.fromkeys(GEMMA, _GEMMA),
    "gemma2": {**_GEMMA, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "qwen3": {"head_dim": 128},
    "qwen3_moe": {"head_dim": 128},
    "gpt_oss": {"head_dim": 64, "attention_bias": True},
    "bert": {"tie_word_embeddings": True, "act": "gelu"},
    "phi": {"act": "gelu_new"},
    "gpt_neox": {"act": "gelu"},
}
QK_NORM = {"qwen3": "head", "qwen3_moe": "head", "gemma3_text": "head", "olmo2": "full"}
ROTARY = {"phi": 0.5, "gpt_neox": 0.25}


def _common(c: dict, kind: str) -> dict:
    hidden, heads = c["hidden_size"], c["num_attention_heads"]
    return {
        "hidden": hidden,
        "layers": c["num_hidden_layers"],
        "heads": heads,
        "kv_heads": c.get("num_key_value_heads", heads),
        "head_dim": c.get("head_dim") or hidden // heads,
        "intermediate": c.get("intermediate_size", 4 * hidden),
        "vocab": c["vocab_size"],
        "tied": bool(c.get("tie_word_embeddings", False)),
        "gated": kind not in PLAIN,
        "norm": "layer" if kind in PLAIN else "rms",
        "family": kind,
        "act": c.get("hidden_activation") or c.get("hidden_act") or c.get("act", "silu"),
        "max_positions": c.get("max_position_embeddings"),
    }


def _biases(c: dict, kind: str) -> dict:
    every = kind in ("phi", "bert")
    every |= kind == "gpt_neox" and c.get("attention_bias", True)
    asked = bool(c.get("attention_bias"))
    return {
        "qkv_bias": every or kind in ("qwen2", "qwen2_moe") or asked,
        "o_bias": every or (asked and kind not in ("qwen2", "qwen2_moe")),
        "mlp_bias": kind in ("phi", "bert", "gpt_neox") or bool(c.get("mlp_bias", False)),
        "head_bias": kind == "phi",
    }


def _layout(c: dict, kind: str) -> dict:
    rope = c.get("rope_parameters") or {}
    rotary = c.get("partial_rotary_factor", c.get("rotary_pct"))
    if rotary is None:
        rotary = rope.get("partial_rotary_factor", ROTARY.get(kind, 1.0))
    side_by_side = kind == "gpt_neox" and c.get("use_parallel_residual", True)
    fields = {
        "norms": {"gemma2": 4, "gemma3_text": 4, "phi": 1}.get(kind, 2),
        "qk_norm": QK_NORM.get(kind),
        "parallel": kind == "phi" or side_by_side,
        "rotary": float(rotary),
        "attn_softcap": kind == "gemma2" and c["attn_logit_softcapping"] is not None,
        "logit_softcap": kind == "gemma2" and c["final_logit_softcapping"] is not None,
    }
    if kind == "bert":
        rows = c["max_position_embeddings"] + c.get("type_vocab_size", 2)
        fields |= {"positions": rows, "rotary": 0.0}
    return fields


def _experts(c: dict, kind: str) -> dict:
    if kind in ("mixtral", "gpt_oss"):
        many, some = (8, 2) if kind == "mixtral" else (128, 4)
        return {
            "experts": c.get("num_local_experts", many),
            "experts_per_token": c.get("num_experts_per_tok", some),
            "moe_intermediate": c["intermediate_size"],
            "moe_layers": c["num_hidden_layers"],
            "expert_format": "mxfp4" if kind == "gpt_oss" else None,
        }
    if kind not in ("qwen2_moe", "qwen3_moe"):
        return {}
    old = kind == "qwen2_moe"
    step, dense = c.get("decoder_sparse_step", 1), c.get("mlp_only_layers") or []
    n = c["num_hidden_layers"]
    return {
        "experts": c.get("num_experts", 60 if old else 128),
        "experts_per_token": c.get("num_experts_per_tok", 4 if old else 8),
        "moe_intermediate": c.get("moe_intermediate_size", 1408 if old else 768),
        "shared_intermediate": c.get("shared_expert_intermediate_size", 5632) if old else 0,
        "moe_layers": sum(i not in dense and (i + 1) % step == 0 for i in range(n)),
    }


def _windows(raw: dict, c: dict, kind: str) -> tuple[int | None, int]:
    """The window and how many layers have it; `sliding_window: null` switches it off."""
    layers, window = c["num_hidden_layers"], raw.get("sliding_window")
    if kind in QWEN and not c.get("use_sliding_window"):
        return None, 0
    defaults = {"mistral": 4096, "gemma2": 4096, "gemma3_text": 4096, "gpt_oss": 128}
    if "sliding_window" not in raw:
        window = defaults.get(kind)
    if window is None or kind in ("llama", "gemma", "olmo2", *PLAIN):
        return None, 0
    types = c.get("layer_types")
    if types:
        return window, sum(t == "sliding_attention" for t in types)
    if kind in ("gemma2", "gpt_oss"):
        return window, (layers + 1) // 2
    if kind == "gemma3_text":
        pattern = c.get("sliding_window_pattern", 6)
        return window, layers - layers // pattern
    if kind.startswith("qwen"):
        return window, max(0, layers - c.get("max_window_layers", 28))
    return window, layers


def _gpt2(c: dict) -> dict:
    """GPT-2's file has names of its own; its q, k and v are one linear."""
    hidden, places = c.get("n_embd", 768), c.get("n_positions", 1024)
    common = {
        "hidden_size": hidden,
        "num_hidden_layers": c.get("n_layer", 12),
        "num_attention_heads": c.get("n_head", 12),
        "intermediate_size": c.get("n_inner") or 4 * hidden,
        "vocab_size": c.get("vocab_size", 50257),
        "tie_word_embeddings": c.get("tie_word_embeddings", True),
        "hidden_act": c.get("activation_function", "gelu_new"),
        "max_position_embeddings": places,
    }
    biases = dict.fromkeys(("qkv_bias", "o_bias", "mlp_bias"), True)
    return {**_common(common, "gpt2"), **biases, "positions": places, "rotary": 0.0}


def _qwen1(c: dict) -> dict:
    """Qwen-7B's own file: `intermediate_size` counts both up projections together."""
    fields = _common({**c, "intermediate_size": c["intermediate_size"] // 2}, "qwen")
    return {**fields, "qkv_bias": True, "max_positions": c.get("seq_length")}


def _falcon(c: dict) -> dict:
    """Falcon: one norm (7B, multi-query) or two (40B, grouped), branches in parallel."""
    new = c.get("new_decoder_architecture", False)
    kv = c.get("num_kv_heads") or c["num_attention_heads"]
    kv = kv if new else (1 if c.get("multi_query", True) else c["num_attention_heads"])
    if c.get("alibi"):
        raise ValueError("model_type 'falcon' with alibi is not modelled: rotary only")
    c = {**c, "num_key_value_heads": kv, "intermediate_size": c.get("ffn_hidden_size")}
    c = {"tie_word_embeddings": True, **{k: v for k, v in c.items() if v is not None}}
    parallel = bool(c.get("parallel_attn", True)) or new
    return {
        **_common(c, "falcon"),
        "act": "gelu",
        "parallel": parallel,
        "norms": 2 if new or not parallel else 1,
        **dict.fromkeys(("qkv_bias", "o_bias", "mlp_bias"), bool(c.get("bias"))),
    }


READERS = {"gpt2": _gpt2, "qwen": _qwen1, "falcon": _falcon}
