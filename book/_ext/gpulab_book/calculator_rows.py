"""Published rows, each beside what the planner says to it: the page shows the nearest."""

from gpulab_book.calculator_choices import MODES
from gpulab_utils.plan.frameworks import setting_of
from gpulab_utils.plan.validate import answer
from gpulab_utils.plots.answered import answers
from gpulab_utils.tables import read

LEVELS = {
    "allocated": "predicted_gib",
    "reserved": "predicted_reserved_gib",
    "card": "predicted_card_gib",
}


def memory_rows() -> list[dict]:
    """Published peaks that the planner answers, each beside its answer at the row's
    level.
    """
    rows = [
        row
        for row in read("published/memory.jsonl")
        if row["scored"] and row["kind"] == "measured" and row["seq"] and row["batch"]
        if row["mode"] in MODES
    ]
    return [
        _memory_row(row, said[LEVELS[row["measured_level"]]])
        for row, said in zip(rows, answers(rows), strict=True)
        if "skipped" not in said
    ]


def _memory_row(row: dict, predicted_gib: float) -> dict:
    return {
        "words": f"{row['model']}, {row['weight_dtype']}, batch {row['batch']}, "
        f"{row['seq']:,} tokens, {row['framework']}, {row['gpu'] or 'card not stated'}",
        "mode": row["mode"],
        "params": row["params"],
        "bits": setting_of(row).fmt.bits,
        "tokens": row["batch"] * row["seq"],
        "level": row["measured_level"],
        "measured": round(row["measured_gib"], 3),
        "predicted": round(predicted_gib, 3),
        "source": row["source_url"].split(" ")[0],
    }


def speed_rows() -> list[dict]:
    """Published tokens/s on a card whose bandwidth is known, with the planner's answer."""
    made = []
    for row in read("published/decode_speed.jsonl"):
        said = answer(row)
        if row["scored"] and row["gpu_bandwidth_gbs"] and "skipped" not in said:
            rate = 1e9 * row["gpu_bandwidth_gbs"]
            words = f"{row['model']}, {row['quant']}, batch {row['batch']}, "
            made.append({
                "words": f"{words}{row['engine']}, {row['gpu']}",
                "vendor": _vendor(row["gpu"]),
                "bytes": round(row["batch"] * rate / said["bound_tokens_per_s"]),
                "bytes_per_s": rate,
                "measured": row["tokens_per_s"],
                "predicted": round(said["predicted_tokens_per_s"], 2),
                "source": row["source_url"].split(" ")[0],
            })  # fmt: skip
    return made


def _vendor(gpu: str) -> str:
    return "AMD" if gpu.startswith("RX") else "Apple" if "Apple" in gpu else "NVIDIA"
