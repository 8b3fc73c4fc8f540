"""KV caches in one stretch and in blocks: by hand, and what always holds."""

from gpulab_utils import allocations, paging
from gpulab_utils.models import MODELS
from gpulab_utils.plan import trace
from gpulab_utils.units import MIB

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode


def test_first_fit_takes_the_first_gap_that_is_large_enough():
    arena = paging.Contiguous(100)
    assert all(
        arena.take(key, n) for key, n in (("a", 10), ("b", 30), ("c", 20), ("d", 40))
    )
    arena.give("a")
    arena.give("c")
    assert arena.take("e", 15)  # not into a's 10, into c's 20
    assert arena.at["e"] == (40, 15)
    assert not arena.take("f", 11)  # 10 and 5 are free
    assert arena.free == 15


def test_blocks_come_back_and_a_failed_growth_changes_nothing():
    pool = paging.Paged(64, block=16)
    assert pool.take("a", 33)  # three blocks
    assert not pool.grow("a", 80)
    assert (len(pool.tables["a"]), pool.free) == (3, 16)
    assert not pool.take("b", 17)
    assert "b" not in pool.tables
    pool.give("a")
    assert sorted(pool.stack) == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(5))
def test_blocks_never_refuse_while_enough_is_free(seed):
    requests = paging.traffic(300, seed=seed)
    paged = paging.churn(paging.Paged(6500), requests, seed)
    one = paging.churn(paging.Contiguous(6500), requests, seed)
    assert paged.although_enough == 0
    assert one.although_enough > 0.3 * one.failures
    assert 0.88 < paged.used <= 1
    assert one.used < paged.used


def test_a_request_that_never_fits_is_refused_by_name():
    with pytest.raises(ValueError, match="1200 tokens never fit 1000"):
        paging.churn(paging.Contiguous(1000), [paging.Request(600, 600)])


@pytest.mark.parametrize("seed", range(5))
def test_a_budget_never_runs_out(seed):
    requests = paging.traffic(200, seed=seed)
    kept = paging.serve(paging.Paged(6500), requests, budget=True)
    assert (kept.finished, kept.oom_step) == (200, None)
    assert kept.most_blocks * 16 <= 6500
    assert paging.serve(paging.Paged(6500), requests, budget=False).oom_step is not None


@pytest.mark.parametrize(
    ("prompts", "capacity"), [([100, 50], 208), ([1], 16), ([7] * 9, 999)]
)
def test_arithmetic_and_simulation_agree(prompts, capacity):
    endless = [paging.Request(p, 10**6) for p in prompts]
    seen = paging.serve(paging.Paged(capacity), endless, budget=False)
    assert seen.oom_step == paging.dies_at(prompts, capacity)


def test_caches_hold_what_their_tokens_need():
    shape = MODELS["llama-2-13b"]
    with FakeTensorMode():
        entries = allocations.record(lambda: paging.caches([300, 200, 400], 700, shape))
    sizes = [e["size"] for e in entries if e["action"] == "alloc"]
    assert len(sizes) == 3 * 2 * 40
    assert sum(sizes) == 900 * shape.kv_bytes_per_token("bf16")
    assert trace.replay(entries).peak("requested") <= 700 * shape.kv_bytes_per_token("bf16")
    assert max(sizes) < 20 * MIB


def test_attention_through_a_table_is_the_same():
    q, k, v = torch.randn(3, 4, 32, 8)  # [heads, tokens, head_dim] each
    order = torch.randperm(2)
    told = torch.nn.functional.scaled_dot_product_attention
    blocks = [x.unflatten(1, (2, 16))[:, order].flatten(1, 2) for x in (k, v)]
    back = [x.unflatten(1, (2, 16))[:, order.argsort()].flatten(1, 2) for x in blocks]
    assert torch.equal(told(q, *back), told(q, k, v))
