"""Random small runs for the planner's cross-check: a family, a shape, a mode."""

import random

DENSE = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text")
OLD = ("gpt2", "gpt_neox", "phi")
MOE = ("mixtral", "qwen2_moe", "qwen3_moe")
MODES = ("inference", "full_train", "lora", "qlora")
Q, K, V, O = "q_proj", "k_proj", "v_proj", "o_proj"  # noqa: E741
MLP = ["gate_proj", "up_proj", "down_proj"]
TARGETS = {
    "gpt2": [["c_attn"], ["c_attn", "c_fc"]],
    "gpt_neox": [["query_key_value"], ["query_key_value", "dense", "dense_h_to_4h"]],
    "phi": [[Q, V], [Q, K, V, "dense", "fc1", "fc2"]],
}


def spec(mode: str, seed: int, deep: bool = False) -> dict:
    """The run of that mode and seed, in the words of `fake_models`."""
    rng = random.Random(f"{mode} {seed}")
    families = DENSE + OLD + (MOE if mode == "inference" else ())
    family = families[seed % len(families)]
    config = shape(family, rng, 9 if deep else 4)
    batch = rng.choice([1, 1, 2, 3])
    tokens = rng.randrange(1600, 3000) if mode == "qlora" else rng.randrange(64, 1500)
    found = {
        "mode": mode, "family": family, "config": config, "batch": batch,
        "seq": tokens // batch, "attn": rng.choice(["sdpa", "eager"]), "dtype": "bf16",
    }  # fmt: skip
    if family == "gemma2":
        found["attn"] = "eager"
    if mode == "inference":
        last, cache = rng.random() < 0.5, rng.random() < 0.5
        return found | {"last": last, "cache": cache, "gen": 2 if cache else 0}
    kinds = [["AdamW", "fused"], ["AdamW", "foreach"], ["SGD", "foreach"]]
    found |= {
        "opt": rng.choice(kinds[: 3 if mode == "full_train" else 2]),
        "autocast": False,
    }
    found["ckpt"] = rng.random() < 0.5
    if mode == "full_train":
        found["dtype"] = rng.choice(["fp32", "bf16"])
        found["autocast"] = found["dtype"] == "fp32" and rng.random() < 0.5
        return found
    found["adapter"] = {
        "dtype": rng.choice(["fp32", "bf16"]), "rank": rng.choice([4, 16, 64]),
        "targets": rng.choice(TARGETS.get(family, [[Q, V], [Q, K, V, O], MLP])),
        "dropout": rng.choice([0.0, 0.1]),
    }  # fmt: skip
    return found | {"nested": rng.random() < 0.5}


def shape(family: str, rng: random.Random, deepest: int) -> dict:
    """A config of that family, a few layers deep."""
    head_dim, heads = rng.choice([32, 64, 128]), rng.choice([4, 6, 8])
    hidden, layers = heads * head_dim, rng.randrange(2, deepest)
    vocab, wide = rng.randrange(1000, 40000), 64 * rng.randrange(4, 40)
    if family == "gpt2":
        return {
            "vocab_size": vocab, "n_embd": hidden, "n_layer": layers, "n_head": heads,
            "n_positions": 4096, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
        }  # fmt: skip
    config = {
        "vocab_size": vocab, "hidden_size": hidden, "intermediate_size": wide,
        "num_hidden_layers": layers, "num_attention_heads": heads,
        "max_position_embeddings": 4096, "tie_word_embeddings": rng.random() < 0.4,
    }  # fmt: skip
    if family not in OLD:
        config["num_key_value_heads"] = rng.choice(
            [n for n in (1, 2, heads) if not heads % n]
        )
    if family in ("qwen3", "gemma", "gemma2", "gemma3_text", "qwen3_moe"):
        config["head_dim"] = head_dim
    if family in ("mistral", "gemma2", "gemma3_text"):
        config["sliding_window"] = rng.choice([256, 4096])
    if family in ("qwen2_moe", "qwen3_moe", "mixtral"):
        many = "num_local_experts" if family == "mixtral" else "num_experts"
        config |= {many: 8, "num_experts_per_tok": 2}
    if family in ("qwen2_moe", "qwen3_moe"):
        config["moe_intermediate_size"] = wide // 2
    if family == "qwen2_moe":
        config["shared_expert_intermediate_size"] = wide
    return config
