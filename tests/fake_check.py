"""A random run as a row of the validation format, and what the planner says to it."""

from statistics import median

from gpulab_utils.plan.bill import bill
from gpulab_utils.plan.frameworks import setting_of
from gpulab_utils.plan.validate import buffers

LIMITS = {"median": 0.01, "p90": 0.05, "worst": 0.12}


def row(s: dict) -> dict:
    """The spec in the words of data/published/README.md."""
    infers, adapter = s["mode"] == "inference", s.get("adapter")
    nf4 = "nf4 double-quant" if s.get("nested") else "nf4"
    found = {
        "model": s["family"], "mode": s["mode"], "batch": s["batch"], "flags": [],
        "config": {**s["config"], "model_type": s["family"]}, "device": "cpu (fake)",
        "weight_dtype": nf4 if s["mode"] == "qlora" else s["dtype"],
        "compute_dtype": "bf16 mixed" if s.get("autocast") else s["dtype"],
        "seq": s["seq"] + s.get("gen", 0), "prefill_tokens": s["seq"],
        "grad_checkpointing": s.get("ckpt"), "autocast": s.get("autocast", False),
        "attention_prefill": "eager" if s["attn"] == "eager" else "fused",
        "logits": {"rows": "last" if s.get("last") else "all", "dtype": s["dtype"]},
        "kv_cache": {"kind": "grown" if s.get("cache") else "none"} if infers else None,
        "weight_format": {"dequant_copies": 1, "rest_dtype": "bf16"},
        "adapter": adapter, "lora_rank": adapter and adapter["rank"],
        "lora_targets": adapter and adapter["targets"], "framework": "transformers",
        "batch_lengths": {"kind": "fixed"}, "optimizer": None,
    }  # fmt: skip
    if s.get("opt"):
        name, impl = s["opt"]
        width = adapter["dtype"] if adapter else s["dtype"]
        detail = {"name": name, "impl": impl, "state_dtype": width, "grad_accumulation": 1}
        found |= {"optimizer": name, "optimizer_detail": detail}
    return found


def predicted(s: dict) -> int:
    r = row(s)
    setting = setting_of(r)
    return bill(setting).allocated + buffers(r, setting)


def summary(errors: list[float]) -> dict[str, float]:
    """Median, 90th percentile and worst of the errors' sizes."""
    sizes = sorted(map(abs, errors))
    return {
        "median": median(sizes),
        "p90": sizes[round(0.9 * (len(sizes) - 1))],
        "worst": sizes[-1],
    }
