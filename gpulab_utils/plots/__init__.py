"""The figures of the book, one module a theme. Functions take a list of `results.Run`.

Every figure names the device in its labels, draws the bound, and reads in light and dark
and without colour vision: Okabe-Ito colours, and a marker or dash of its own for each line.
"""

from importlib import import_module

_HOME = {
    "figure": "base",
    "legend": "base",
    "LINES": "base",
    "MUTED": "base",
    "bytes_by_format": "model_size",
    "bytes_held": "model_size",
    "bytes_per_parameter": "model_size",
    "passes_against_bytes": "model_size",
    "promised_and_reached": "cards",
    "misranked": "cards",
    "tokens_by_card": "cards",
    "time_against_room": "cards",
    "gain_by_job": "cards",
    "time_against_bytes": "roofline",
    "bandwidth_against_bytes": "roofline",
    "rate_against_intensity": "roofline",
    "growth_by_op": "roofline",
    "wait_against_chains": "roofline",
    "time_against_rows": "roofline",
    "speed_by_threads": "roofline",
    "share_of_bound": "roofline",
    "timeline": "streams",
    "gain_against_chunks": "streams",
    "epoch_by_workers": "loading",
    "images_by_workers": "loading",
    "time_by_batch": "loading",
    "time_by_start": "loading",
    "time_against_copy": "transfer",
    "times_by_habit": "transfer",
    "time_by_layers_away": "transfer",
    "slowdown_by_extra": "transfer",
    "tokens_from_afar": "transfer",
    "gain_against_size": "operators",
    "calls_to_pay_back": "operators",
    "use_of_peak": "operators",
    "error_by_kernel": "operators",
    "attention_bytes": "operators",
    "attention_time": "operators",
    "times_without_library": "libraries",
    "times_by_layout": "libraries",
    "time_of_all_reduce": "libraries",
    "gain_of_two_processes": "libraries",
    "rate_by_side": "precision",
    "gain_of_unit": "precision",
    "error_by_format": "precision",
    "gradient_exponents": "precision",
    "lost_by_scale": "precision",
    "loss_by_recipe": "precision",
    "bytes_of_step": "precision",
    "gain_of_steps": "precision",
    "int8_errors": "quantization",
    "outlier_columns": "quantization",
    "grid_errors": "quantization",
    "quality_by_bits": "quantization",
    "time_by_int8_rows": "quantization",
    "what_shrinks": "pruning",
    "csr_against_dense": "pruning",
    "quality_against_size": "pruning",
    "quality_by_layer": "pruning",
    "recovery": "pruning",
    "busy_and_share": "scheduling",
    "time_by_waiting": "scheduling",
    "time_against_size": "scheduling",
    "gain_by_link": "scheduling",
    "rows_by_step": "scheduling",
    "counted_and_timed": "scheduling",
    "bytes_over_step": "memory",
    "plans_met": "memory",
    "memory_time_plane": "memory",
    "peak_by_segment": "memory",
    "trace_until_death": "memory",
    "room_for_requests": "memory",
    "gain_by_teaching": "distillation",
    "accuracy_by_width": "distillation",
    "perplexity_by_start": "distillation",
    "bytes_of_teaching": "distillation",
    "kept_by_bytes": "distillation",
    "stack_by_bytes": "distillation",
    "bytes_against_time": "advice",
}


def __getattr__(name: str):
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError:
        raise AttributeError(f"module {__name__!r} has no plot {name!r}") from None
