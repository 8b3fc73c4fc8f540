"""Decode: the bound holds on every published row; the constants, card by card."""

import re
from collections import defaultdict
from statistics import median

from gpulab_utils.plan.backends import BACKENDS, backend_of
from gpulab_utils.plan.decode import answer, decode, mean_context, row_bytes
from gpulab_utils.tables import read

import pytest

ROWS = [r for r in read("published/decode_speed.jsonl") if r["scored"]]


def error(row):
    return answer(row)["predicted_tokens_per_s"] / row["tokens_per_s"] - 1


def test_bound_is_never_beaten():
    beaten = [r["id"] for r in ROWS if answer(r)["bound_tokens_per_s"] < r["tokens_per_s"]]
    assert beaten == []


def test_estimate_within_limits():
    sizes = sorted(abs(error(r)) for r in ROWS)
    assert median(sizes) <= 0.10
    assert sizes[round(0.9 * (len(sizes) - 1))] <= 0.25


def fitted(rows):
    """(1 / share, layer_s, head_s): least squares of relative errors, three equations."""
    a, y = [[0.0] * 3 for _ in range(3)], [0.0] * 3
    for r in rows:
        t, rate, context = (
            1 / r["tokens_per_s"],
            r["gpu_bandwidth_gbs"] * 1e9,
            mean_context(r),
        )
        kv = 4 * r["layers"] * r["kv_heads"] * r["head_dim"] * context
        x = [(row_bytes(r) + kv) / rate, r["layers"], r["layers"] * r["heads"] * context]
        x = [v / t for v in x]
        for i in range(3):
            y[i] += x[i]
            for j in range(3):
                a[i][j] += x[i] * x[j]
    for i in range(3):
        for k in (k for k in range(3) if k != i):
            f = a[k][i] / a[i][i]
            a[k] = [p - f * q for p, q in zip(a[k], a[i], strict=True)]
            y[k] -= f * y[i]
    return [y[i] / a[i][i] for i in range(3)]


def llama_cpp_rows():
    old = [r for r in ROWS if "llama.cpp" in r["engine"] and r["backend"] == "cuda"]
    return [r for r in old if not re.search("A100|H100", r["gpu"])]


def test_llama_cpp_constants_follow_from_their_rows():
    line = BACKENDS["llama.cpp-cuda-2024"]
    slope, layer_s, head_s = fitted(llama_cpp_rows())
    assert 1 / slope == pytest.approx(line.share, rel=0.05)
    assert layer_s == pytest.approx(line.layer_s, rel=0.25)
    assert head_s == pytest.approx(line.head_s, rel=0.6)


def test_leaving_a_card_out_costs_little():
    rows, moved = llama_cpp_rows(), {}
    for gpu in {r["gpu"] for r in rows}:
        slope, layer_s, head_s = fitted([r for r in rows if r["gpu"] != gpu])
        left = defaultdict(list)
        for r in (r for r in rows if r["gpu"] == gpu):
            context = mean_context(r)
            kv = 4 * r["layers"] * r["kv_heads"] * r["head_dim"] * context
            t = slope * (row_bytes(r) + kv) / (r["gpu_bandwidth_gbs"] * 1e9)
            t += r["layers"] * (layer_s + head_s * r["heads"] * context)
            left[gpu].append(abs(1 / t / r["tokens_per_s"] - 1))
        moved[gpu] = median(left[gpu])
    assert max(moved.values()) <= 0.15, moved


def test_an_unknown_engine_is_refused():
    with pytest.raises(ValueError, match="no decode constants for the engine 'nonesuch'"):
        backend_of("nonesuch", None, None, "nvidia")


def test_context_costs_time():
    short, long = (decode("llama-3.1-8b", "rtx-4090", "int4-g128", n) for n in (0, 8192))
    # 32 layers x 2 x 8 heads x 128 x 2 bytes x 8192 tokens
    assert long.bytes_read - short.bytes_read == 32 * 2 * 8 * 128 * 2 * 8192
    assert long.bound_s > short.bound_s
    assert long.estimate_s > long.bound_s
