"""A KV cache in eight and four bits: its codes by hand, its bytes, what a model reads."""

from gpulab_utils import kv_cache, small_gpt

import pytest
import torch


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(13)
    return small_gpt.make(width=64, layers=2, positions=128).eval()


@pytest.fixture(scope="module")
def ids():
    return torch.randint(256, (1, 96), generator=torch.Generator().manual_seed(13))


def test_codes_by_hand():
    # low 1, scale (31 - 1) / 15 = 2: codes 0, 15, 1, 8; two a byte, the first one high
    kept = kv_cache.pack(torch.tensor([[1.0, 31.0, 3.0, 17.0]]), bits=4, dim=-1)
    assert kept.codes.tolist() == [[0x0F, 0x18]]
    assert kept.values.tolist() == [[1, 31, 3, 17]]
    assert kept.nbytes == 2 + 2 + 2
    # along time: each of two channels has its own scale, 1 and 0.25
    kept = kv_cache.pack(torch.tensor([[0.0, 1.0], [255.0, 64.75]]), bits=8, dim=-2)
    assert kept.codes.tolist() == [[0, 0], [255, 255]]
    assert kept.nbytes == 4 + 2 * 4


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("per", kv_cache.PER)
def test_what_comes_out_is_what_went_in(bits, per):
    torch.manual_seed(13)
    x = torch.randn(1, 2, 70, 16)
    side, parts = kv_cache.Side(bits, per), x.split([40, 1, 29], dim=-2)
    for part in parts:
        got = side.add(part)
    assert got.shape == x.shape
    step = 8 / (2**bits - 1)  # of a range of eight at most
    assert (got - x).abs().max() < 0.6 * step
    if per == "channel":  # the last six tokens wait
        assert torch.equal(got[..., 64:, :], x[..., 64:, :])
        assert side.nbytes == 2 * 64 * 16 * bits / 8 + 2 * 2 * 16 * 4 + 2 * 6 * 16 * 4
    else:
        assert side.nbytes == 2 * 70 * 16 * bits / 8 + 2 * 70 * 4


@torch.no_grad()
def test_steps_agree_with_the_whole(model, ids):
    """Prefill and single tokens read the same codes as one pass."""
    whole = kv_cache.run(model, ids, kv_cache.make(model, 8)).logits[0, -1]
    kept = kv_cache.make(model, 8)
    kv_cache.run(model, ids[:, :90], kept)
    for i in range(90, 96):
        last = kv_cache.run(model, ids[:, i : i + 1], kept).logits[0, -1]
    assert kept.get_seq_length() == 96
    assert torch.allclose(last, whole, atol=1e-4)


def test_more_bits_are_nearer(model, ids):
    told = {b: kv_cache.nats(model, ids, b) for b in (16, 8, 4)}
    off = {b: abs(told[b][0][0] - told[16][0][0]) for b in (8, 4)}
    assert off[8] < 0.01
    assert off[8] <= off[4] < 0.5
    # of 4 bytes a number 1 and a half remain, and 4 of scale and low a head of a token
    width = model.config.hidden_size // model.config.num_attention_heads
    assert told[8][1] / told[16][1] == (width + 4) / (4 * width)
    assert told[4][1] / told[16][1] == (width / 2 + 4) / (4 * width)


def test_refusals():
    with pytest.raises(ValueError, match="bits must be 8 or 4, got 2"):
        kv_cache.pack(torch.ones(2, 2), 2, -1)
    with pytest.raises(ValueError, match="got 'head'"):
        kv_cache.Side(8, "head")
