"""Formats put into a model, a model taken off its grid, products in place of linears."""

from gpulab_utils import load, quant, weights_table
from gpulab_utils.weights_table import products

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM


@pytest.fixture
def model():
    """A small Llama with shared value heads, random."""
    torch.manual_seed(13)
    config = LlamaConfig(
        vocab_size=99,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture
def ids():
    return torch.arange(2 * 24).view(2, 24)


@torch.no_grad()
@pytest.mark.parametrize("tied", [True, False])
def test_a_shuffled_model_computes_the_same(model, ids, tied):
    if not tied:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight * 2)
    before = model(ids).logits
    norms = [torch.rand_like(p) for p in model.parameters() if p.dim() == 1]
    for norm, values in zip(
        (p for p in model.parameters() if p.dim() == 1), norms, strict=True
    ):
        norm.data = values  # else all are 1, and their order does not show
    before = model(ids).logits
    kept = {n: m.weight.data for n, m in weights_table.linears(model).items()}
    weights_table.shuffle(model)
    assert torch.allclose(model(ids).logits, before, atol=1e-5)
    for name, linear in weights_table.linears(model).items():
        now, old = linear.weight.data, kept[name]
        assert not torch.equal(now, old), name
        assert torch.equal(now.flatten().sort()[0], old.flatten().sort()[0]), name


@torch.no_grad()
def test_a_format_is_written_and_taken_out_again(model, ids):
    before = model(ids).logits
    n = sum(m.weight.numel() for m in weights_table.linears(model).values())
    with weights_table.written(model, "nf4") as told:
        assert told == {"bits": 4.5, "bytes": n * 4.5 / 8}
        assert not torch.equal(model(ids).logits, before)
    assert torch.equal(model(ids).logits, before)
    with weights_table.written(model, "nf4", "down_proj") as told:
        assert told["bytes"] == 2 * 64 * 128 * 4.5 / 8


def test_divergence_sees_what_a_format_does(model, ids):
    right = weights_table.predictions(model, ids[:1])
    assert weights_table.judge(model, ids, right)["kl"] == pytest.approx(0, abs=1e-7)
    kl = [weights_table.score(model, n, ids, right)["kl"] for n in ("int8 g64", "mxfp4")]
    assert 0 < kl[0] < kl[1] / 10
    assert "kl" not in weights_table.judge(model, ids)
    assert not model._forward_hooks


@torch.no_grad()
def test_products_take_the_place_of_linears(model, ids):
    before = model(ids).logits
    with products.multiplying(model, lambda w: lambda x: x @ w.T):
        assert torch.allclose(model(ids).logits, before, atol=1e-6)
    with (
        weights_table.written(model, "int8 row"),
        products.multiplying(model, lambda w: lambda x: x @ w.T * 0),
    ):
        assert not torch.allclose(model(ids).logits, before, atol=1e-3)
    assert torch.equal(model(ids).logits, before)
    with products.multiplying(model, products.dequantized("nf4")):
        slow = model(ids).logits
    with weights_table.written(model, "nf4"):
        assert torch.allclose(model(ids).logits, slow, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("name", products.KERNELS)
def test_kernels_are_right(name):
    if name not in products.available():
        pytest.skip(f"no {name} product here")
    torch.manual_seed(13)
    weight, x = torch.randn(192, 576) * 0.05, torch.randn(2, 3, 576).bfloat16()
    y = products.KERNELS[name](weight.bfloat16())(x).float()
    right = x.float() @ quant.write(weight.bfloat16(), name).values.T
    assert y.shape == (2, 3, 192)
    assert (y - right).norm() < 0.02 * right.norm()


def test_ggufs_formats_are_among_them():
    pytest.importorskip("gguf")
    weight = torch.randn(8, 64)
    bits = {"Q8_0": 8.5, "Q4_0": 4.5, "Q4_1": 5}
    for name in weights_table.GGUF:
        told = weights_table.write(weight, name)
        assert told.nbytes * 8 / weight.numel() == bits[name]
        assert (told.values - weight).norm() < 0.13 * weight.norm()
    assert weights_table.write(weight, "fp32").nbytes == 8 * 64 * 4
    with pytest.raises(ValueError, match="got 'int5'"):
        weights_table.write(weight, "int5")


def test_the_default_model_lies_on_the_grid():
    pytest.importorskip("gguf")
    try:
        model, _ = load.language_model()
    except load.MissingInput as missing:
        pytest.skip(str(missing))
    weight = model.model.layers[7].mlp.up_proj.weight.data
    for name in weights_table.SAME_GRID:
        moved = (weights_table.write(weight, name).values - weight).norm() / weight.norm()
        assert moved < 0.01, name
    weights_table.shuffle(model)
    weight = model.model.layers[7].mlp.up_proj.weight.data
    for name in weights_table.SAME_GRID:
        moved = (weights_table.write(weight, name).values - weight).norm() / weight.norm()
        assert moved > 0.05, name
