"""How does a framework train? Optimizer, adapters, loss and gradients of a row.

null means unknown, and then the framework's own default is taken, named where it is used.
"""

from gpulab_utils.models import Shape
from gpulab_utils.plan.run import Adapter
from gpulab_utils.plan.setting import Optimizer

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


def compute_width(row: dict) -> int:
    """Bytes of the type that products run in."""
    text = (row.get("compute_dtype") or row["weight_dtype"] or "bf16").lower()
    if "mixed" in text:
        return 4
    return 4 if text.startswith(("fp32", "32")) else 2


def optimizer_of(row: dict) -> Optimizer:
    """States and the copies that the step makes.

    torch AdamW: two states; `foreach` holds one more copy of them while it takes roots
    (torch/optim/adam.py, exp_avg_sq_sqrt), `loop` one parameter's, `fused` none: its kernel
    takes roots value by value. bitsandbytes' 8-bit Adam: a byte each and a scale per 256.
    Adafactor keeps rows and columns.
    """
    detail = row.get("optimizer_detail") or {}
    text = (row.get("optimizer") or detail.get("name") or "").lower()
    trained = 4 if row["mode"] in ("lora", "qlora") else compute_width(row)
    width = WIDTHS.get(detail.get("state_dtype") or "", trained)
    impl = detail.get("impl") or DEFAULT_STEP.get(dialect_of(row), "foreach")
    master = 4 if detail.get("master_weights") else 0
    inside = impl == "in_backward" or "optimizer_in_backward" in row["flags"]
    common = {
        "master_bytes": master,
        "in_backward": inside,
        "on_host": bool(detail.get("paged")),
    }
    if "sgd" in text:
        momentum = 1 if detail.get("momentum") else 0
        return Optimizer("sgd", width * momentum, 0, **common)
    if "8-bit" in text or "8bit" in text or "adam_8bit" in row["flags"]:
        return Optimizer("adamw8bit", 2 * (1 + 4 / 256), 0, **common)
    if "adafactor" in text:
        return Optimizer("adafactor", 0, 0, loop_copies=3, **common)
    copy = width if impl == "foreach" else 0
    loops = 0 if impl == "fused" else 1
    return Optimizer("adamw", 2 * width, copy, loop_copies=loops, **common)


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
    if (
        shape.family in ("gpt_neox", "gpt2")
        and row.get("config")
        and "dense" in (row["lora_targets"] or [])
    ):
        named.add("o")
    low = 2 if dialect_of(row) == "unsloth" else 0  # its kernels cast A and B down
    rank, dropout = row["lora_rank"] or 8, bool(a.get("dropout"))
    return Adapter(rank, frozenset(named), width, dropout, low)


def dialect_of(row: dict) -> str:
    engine = (row.get("framework") or "").lower()
    for name in (
        "litgpt",
        "torchtune",
        "unsloth",
        "llm.c",
        "llama.cpp",
        "autoawq",
        "swift",
    ):
        if name in engine:
            return name
    return "hf"


def accumulates(row: dict, dialect: str) -> bool:
    """Whether gradients are there during forward.

    An earlier micro-batch left them (LitGPT's fine-tuning scripts accumulate), or
    zero_grad() fills them with zeros: torch's default until 2.0 of March 2023.
    """
    if row["mode"] != "full_train":
        return False
    n = (row.get("optimizer_detail") or {}).get("grad_accumulation")
    date = (row.get("versions") or {}).get("date") or "9999"
    if n is None:
        n = 2 if dialect == "litgpt" and "longest_first" in row["flags"] else 1
    return n > 1 or date < "2023-03"


def loss_of(row: dict, dialect: str) -> str:
    """The kind of loss; transformers copied the shifted logits until 4.46, October 2024."""
    stated = (row.get("logits") or {}).get("loss")
    if stated or dialect != "hf":
        return stated or "whole"
    return "whole" if row.get("config") else "shifted_copy"


def ragged(row: dict) -> tuple | None:
    """(shortest, mean, longest, what is done to longer ones) where batches are ragged.

    ms-swift drops what is longer than max_length: SftArguments.truncation_strategy is
    "delete".
    """
    spread = row.get("batch_lengths") or {}
    if spread.get("kind") != "ragged" or not spread.get("mean"):
        return None
    low, mean = spread.get("min") or 1, spread["mean"]
    high = max(spread.get("max") or row["seq"], mean + 1)
    over = "dropped" if dialect_of(row) == "swift" else spread.get("over")
    return (low, mean, high, over) if low < mean else None


def upcast(row: dict, dialect: str) -> bool:
    """peft.prepare_model_for_kbit_training makes all that is not packed fp32; Hugging Face
    recipes call it before QLoRA, and a row that states the type of the rest says
    otherwise.
    """
    stated = (row.get("weight_format") or {}).get("rest_dtype")
    return row["mode"] == "qlora" and dialect in ("hf", "swift") and not stated
