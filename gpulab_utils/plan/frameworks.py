"""What does a framework keep? From a row's description, or a few options, to a `Setting`.

A row says what ran in the vocabulary of data/published/README.md. Nothing here reads a figure
that the row measured. null means unknown, and then the framework's own default is taken:
each is named where it is used.
"""

import re

from gpulab_utils.models import Shape, shape_from_config
from gpulab_utils.plan.formats import Format, format_of
from gpulab_utils.plan.run import Adapter
from gpulab_utils.plan.setting import Optimizer, Setting

WIDTHS = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}

#: torchtune's recipes set fused=True; elsewhere torch's own choice on a GPU.
DEFAULT_STEP = {"torchtune": "fused"}
FUSED = ("gpt2", "gpt_neox", "phi3", "qwen")
GROUPS = {"mlp": ("gate", "up", "down"), "all": ("all",)}
#: The name that a linear has in a family's code, to the name it has here.
TARGETS = {
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o", "dense": "o",
    "gate_proj": "gate", "up_proj": "up", "down_proj": "down", "fc1": "up", "fc2": "down",
    "query_key_value": "qkv", "dense_h_to_4h": "up", "dense_4h_to_h": "down",
    "query": "q", "key": "k", "value": "v", "projection": "o", "w1": "up", "w2": "gate",
    "c_attn": "qkv", "c_fc": "up", "c_proj": "down",
}  # fmt: skip


def shape_of(row: dict) -> Shape:
    """The row's `config` if it has one, else its architecture fields."""
    if row.get("config"):
        return shape_from_config(row["config"], row["model"])
    heads = row["heads"]
    name = row["model"].lower()
    parallel = bool(row.get("parallel_residual"))
    norm = row.get("norm") or "rms"
    gated = row.get("gated_mlp", True) is not False
    bert = "bert" in name and not gated
    qwen = "qwen" in name and "qwen3" not in name
    windows = (4096, row["layers"]) if "mistral" in name and "v0.1" in name else (None, 0)
    qwen1 = re.match(r"qwen-", name) is not None
    family = "qwen" if qwen1 else "bert" if bert else "llama" if gated else "gpt_neox" if parallel else "plain"
    shape = Shape(
        name=row["model"], hidden=row["hidden"], layers=row["layers"], heads=heads,
        kv_heads=row["kv_heads"] or heads,
        head_dim=row.get("head_dim") or row["hidden"] // heads,
        intermediate=row["intermediate"] or 4 * row["hidden"], vocab=row["vocab"],
        tied=bool(row["tied_embeddings"]) and not bert, gated=gated, norm=norm,
        family=family, act="silu" if gated else "gelu", parallel=parallel, qkv_bias=qwen,
        norms=2, window=windows[0], window_layers=windows[1],
        rotary=1.0 if gated else 0.25 if parallel else 0.0,
        positions=512 + 2 if bert else 0,
    )  # fmt: skip
    return shape


def format_from(text: str, dialect: str = "hf") -> Format:
    """The storage format that a source's words mean; Unsloth always nests NF4's scales."""
    low = text.lower() + (" double" if dialect == "unsloth" else "")
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


def compute_width(row: dict) -> int:
    """Bytes of the type that products run in."""
    text = (row.get("compute_dtype") or row["weight_dtype"] or "bf16").lower()
    if "mixed" in text:
        return 4
    return 4 if text.startswith(("fp32", "32")) else 2


def optimizer_of(row: dict) -> Optimizer:
    """States and the copies that the step makes.

    torch AdamW: two states; `foreach` holds one more copy of them while it takes roots
    (torch/optim/adam.py, exp_avg_sq_sqrt), `loop` one parameter's. bitsandbytes' 8-bit Adam: a byte
    each and a scale per 256. Adafactor keeps rows and columns.
    """
    detail = row.get("optimizer_detail") or {}
    text = (row.get("optimizer") or detail.get("name") or "").lower()
    trained = 4 if row["mode"] in ("lora", "qlora") else compute_width(row)
    width = WIDTHS.get(detail.get("state_dtype") or "", trained)
    impl = detail.get("impl") or DEFAULT_STEP.get(dialect_of(row), "foreach")
    master = 4 if detail.get("master_weights") else 0
    inside = impl == "in_backward" or "optimizer_in_backward" in row["flags"]
    common = {"master_bytes": master, "in_backward": inside, "on_host": bool(detail.get("paged"))}
    if "sgd" in text:
        momentum = 1 if detail.get("momentum") else 0
        return Optimizer("sgd", width * momentum, 0, **common)
    if "8-bit" in text or "8bit" in text or "adam_8bit" in row["flags"]:
        return Optimizer("adamw8bit", 2 * (1 + 4 / 256), 0, **common)
    if "adafactor" in text:
        return Optimizer("adafactor", 0, 0, loop_copies=3, **common)
    copy = width if impl == "foreach" else 0
    return Optimizer("adamw", 2 * width, copy, loop_copies=1, **common)


def adapter_of(row: dict, shape: Shape) -> Adapter | None:
    if row["mode"] not in ("lora", "qlora"):
        return None
    a = row.get("adapter") or {}
    # PEFT makes adapters fp32 (autocast_adapter_dtype); LitGPT and torchtune do not
    own = compute_width(row) if dialect_of(row) in ("litgpt", "torchtune") else 4
    width = WIDTHS.get(a.get("dtype") or "", own)
    named = set()
    for target in row["lora_targets"] or ["q", "v"]:
        low = target.lower().split()[0]
        names = GROUPS.get(low, (TARGETS.get(low, low),))
        named.update(names)
    if "all" in named:
        named |= {"qkv"} if shape.family in FUSED else {"q", "k", "v"}
        named |= {"o", "gate", "up", "down"}
    if shape.family in ("gpt_neox", "gpt2") and row.get("config") and "dense" in (row["lora_targets"] or []):
        named.add("o")
    low = 2 if dialect_of(row) == "unsloth" else 0  # its kernels cast A and B down
    rank, dropout = row["lora_rank"] or 8, bool(a.get("dropout"))
    return Adapter(rank, frozenset(named), width, dropout, low)


def dialect_of(row: dict) -> str:
    engine = (row.get("framework") or "").lower()
    for name in ("litgpt", "torchtune", "unsloth", "llm.c", "autoawq", "swift"):
        if name in engine:
            return name
    return "hf"


def setting_of(row: dict) -> Setting:
    """The run that a row describes; ValueError where it is not modelled."""
    shape = shape_of(row)
    dialect = dialect_of(row)
    if dialect == "llm.c":
        raise ValueError("llm.c lays out its own buffers: not modelled")
    fake = "fake" in (row.get("device") or "")
    fmt = format_from(row["weight_dtype"], dialect)
    logits = row.get("logits") or {}
    cache = row.get("kv_cache") or {}
    width = compute_width(row)
    autocast = 2 if row.get("autocast") or "mixed" in (row.get("compute_dtype") or "") else 0
    if row.get("autocast") is None and row["mode"] == "qlora" and dialect == "hf":
        autocast = 2  # the Trainer's bf16=True
    wf = row.get("weight_format") or {}
    packed = 0
    if fmt.packed and (row["mode"] == "qlora" or fmt.name[:3] in ("nf4", "fp4")):
        packed = wf.get("dequant_copies") or 1
    kind = cache.get("kind")
    flags = set(row["flags"])
    lengths = row.get("batch_lengths") or {}
    if lengths.get("kind") == "fixed" or lengths.get("over") == "cut":
        flags.add("again")  # the next batch can be as long as the longest
    return Setting(
        shape=shape, mode="inference" if row["mode"] == "load_only" else row["mode"], fmt=fmt,
        batch=row["batch"] or 1, seq=row["seq"] or 64,
        prefill=row.get("prefill_tokens"), width=width if not autocast or row["mode"] == "full_train" else WIDTHS.get(fmt.rest, width),
        rows=logits.get("rows") or "all", wide_logits=logits.get("dtype") == "fp32",
        loss=loss_of(row, dialect), cache=None if kind == "none" else kind,
        fused=row.get("attention_prefill") != "eager" and row.get("attention_prefill") != "math",
        checkpoint=bool(row.get("grad_checkpointing")), autocast=autocast,
        adapter=adapter_of(row, shape), optimizer=optimizer_of(row), packed=packed,
        dialect=dialect, gpu=not fake, flags=frozenset(flags),
        cache_tokens=cache.get("tokens") or (row["seq"] or 64),
        upcast=upcast(row, dialect),
        more_params=0 if row.get("config") else max(0, (row.get("params") or 0) - shape.params),
        accumulates=accumulates(row, dialect), extra={"lengths": ragged(row)},
        untied=dialect == "litgpt" and shape.tied, head_packed=bool(wf.get("head_quantized")),
    )  # fmt: skip


def accumulates(row: dict, dialect: str) -> bool:
    """Whether gradients are there during forward.

    An earlier micro-batch left them (LitGPT's fine-tuning scripts accumulate), or zero_grad()
    fills them with zeros: torch's default until 2.0 of March 2023.
    """
    if row["mode"] != "full_train":
        return False
    n = (row.get("optimizer_detail") or {}).get("grad_accumulation")
    date = (row.get("versions") or {}).get("date") or "9999"
    if n is None:
        n = 2 if dialect == "litgpt" and "longest_first" in row["flags"] else 1
    return n > 1 or date < "2023-03"


def loss_of(row: dict, dialect: str) -> str:
    """The kind of loss; transformers copied the shifted logits until 4.46 (October 2024)."""
    stated = (row.get("logits") or {}).get("loss")
    if stated or dialect != "hf":
        return stated or "whole"
    return "whole" if row.get("config") else "shifted_copy"


def ragged(row: dict) -> tuple | None:
    """(shortest, mean) of the data where batches differ in length."""
    spread = row.get("batch_lengths") or {}
    if spread.get("kind") != "ragged" or not spread.get("mean"):
        return None
    return spread.get("min") or 1, spread["mean"]


def upcast(row: dict, dialect: str) -> bool:
    """peft.prepare_model_for_kbit_training makes all that is not packed fp32; Hugging Face recipes
    call it before QLoRA, and a row that states the type of the rest says otherwise."""
    stated = (row.get("weight_format") or {}).get("rest_dtype")
    return row["mode"] == "qlora" and dialect in ("hf", "swift") and not stated
