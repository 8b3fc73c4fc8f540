"""The 13B budget, by hand: what the book's table says of a 12 GB card."""

from gpulab_utils.models import MODELS
from gpulab_utils.plan import decode, plan
from gpulab_utils.plan.formats import format_of

import pytest

LINEARS = 12_687_769_600
NESTED = LINEARS // 2 + LINEARS // 64 + LINEARS // 4096  # codes, int8 scales, theirs
REST = (13_015_864_320 - LINEARS) * 2  # embedding, head and norms in 16 bit
ROWS = 40 * (4 * 5120 + 2 * 13824 + 5120)
TABLES = 280  # tensors, each with bitsandbytes' 16-entry code, nested ones 256 entries more


@pytest.mark.parametrize(
    ("weights", "n_bytes", "gib", "headless", "desktop"),
    [
        ("fp16", 2 * LINEARS + REST, 24.24, 0, 0),
        ("int8", LINEARS + 2 * ROWS + REST, 12.43, 0, 0),
        ("nf4", LINEARS // 2 + LINEARS // 64 * 4 + 64 * TABLES + REST, 7.26, 5311, 4708),
        ("int4-cpu", LINEARS // 2 + LINEARS // 128 * 4 + REST, 6.89, 5795, 5192),
        ("int4-g128", LINEARS // 2 + LINEARS // 256 * 5 + REST, 6.75, 5977, 5374),
        ("nf4-dq", NESTED + 1092 * TABLES + REST, 6.71, 6033, 5430),
    ],
)
def test_llama_2_13b_on_a_12_gb_card(weights, n_bytes, gib, headless, desktop):
    p = plan("llama-2-13b", weights=weights, seq=0)
    assert p.terms["weights"] == n_bytes, weights
    assert round(n_bytes / 2**30, 2) == gib
    assert [p.kv_tokens(room * 2**30) for room in (11.31, 10.85)] == [headless, desktop]


def test_kv_cache_term():
    assert plan("llama-2-13b", seq=4096).terms["kv_cache"] == 4096 * 819_200


def test_full_fine_tune_is_16_bytes_per_parameter():
    terms = plan("llama-2-13b", "full_train", weights="fp32", seq=1).terms
    states = terms["weights"] + terms["gradients"] + terms["optimizer"]
    assert states == 16 * 13_015_864_320


def test_a_decode_step_of_the_int4_model_reads_6_92_gb():
    d = decode("llama-2-13b", "rtx-3080-ti", weights="int4-g128", context=0)
    assert round(d.bytes_read / 1e9, 2) == 6.92
    assert d.bound_s == pytest.approx(d.bytes_read / 912e9, rel=1e-3)
    assert d.bound_s < d.estimate_s


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"seq": -1}, "seq must be at least 0, got -1"),
        ({"mode": "train"}, "mode must be one of .*, got 'train'"),
        ({"weights": "nf5"}, "no weight format 'nf5'; nearest: nf4"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        plan("llama-2-7b", **options)


def test_gpt_oss_experts_in_mxfp4():
    # 24 layers x 32 experts x 3 x 2880 x 2880 weights at 4 bits and 8 bits per 32
    s = MODELS["gpt-oss-20b"]
    experts = 24 * 32 * 3 * 2880**2
    assert s.expert_linear_params == experts
    assert sum(format_of("mxfp4").model_bytes(s).values()) == pytest.approx(
        experts * 4.25 / 8 + (s.params - experts) * 2
    )
