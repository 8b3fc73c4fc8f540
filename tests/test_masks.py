"""Scores, masks and formats: against torch's own layouts, and against what they claim."""

import re

from gpulab_utils import masks, slimming, small_gpt

import pytest
import torch
from torch.sparse import _semi_structured_conversions as conversions

SIXTEEN = torch.float16, torch.bfloat16


@pytest.fixture(scope="module")
def model():
    return small_gpt.make(width=64, layers=3, positions=32).eval()


@pytest.fixture(scope="module")
def ids():
    return next(small_gpt.batches("train", batch=3, time=32))


@pytest.mark.parametrize("dtype", SIXTEEN)
@pytest.mark.parametrize("shape", [(32, 32), (64, 128), (96, 576)])
def test_two_of_four_is_torch_s_compressed_layout(shape, dtype):
    torch.manual_seed(sum(shape))
    weight = torch.randn(shape).to(dtype)
    mask = masks.two_of_four(masks.magnitude(weight))
    packed = masks.pack(weight, mask)
    values, meta = conversions.sparse_semi_structured_from_dense_cutlass(weight * mask)
    assert torch.equal(packed.values, values)
    assert packed.nbytes == values.nbytes + meta.nbytes == weight.nbytes * 9 // 16
    # torch shuffles its metadata for the kernel; the bits themselves are the same
    ours = packed.places.view(torch.int16).flatten().sort().values
    assert torch.equal(ours, meta.flatten().sort().values)
    assert torch.equal(packed.dense(), weight * mask)


def test_zeros_among_the_kept_survive():
    weight = torch.tensor([[0.0, 0, 0, 0, 1, 0, 0, 2]]).half()
    mask = torch.tensor([[1, 1, 0, 0, 1, 0, 0, 1]]).bool()
    assert torch.equal(masks.pack(weight, mask).dense(), weight)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda w: masks.pack(w, w > -9), "two of every four"),
        (lambda w: masks.pack(w[:, :4], w[:, :4] > 0), "multiple of 8, got 4"),
        (lambda w: masks.two_of_four(w[:, :6]), "multiple of 4, got 6"),
        (lambda w: masks.best_of_row(w, 1.2), "share must be 0 to 1, got 1.2"),
    ],
)
def test_what_does_not_fit_is_refused(make, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        make(torch.randn(2, 16))


def test_a_row_keeps_its_share_and_a_group_its_two():
    scores = torch.rand(5, 64)
    kept = masks.best_of_row(scores, 0.25)
    assert kept.sum(1).tolist() == [16] * 5
    assert all(s[k].min() > s[~k].max() for s, k in zip(scores, kept, strict=True))
    groups = masks.two_of_four(scores).view(5, 16, 4)
    assert (groups.sum(-1) == 2).all()


def test_activation_aware_is_right_where_inputs_have_different_scales():
    """One output: the columns whose products matter most are those it keeps."""
    torch.manual_seed(0)
    x = torch.randn(512, 16) * torch.linspace(0.1, 4, 16)
    weight = torch.randn(8, 16)
    errors = {}
    for score in masks.magnitude, masks.activation_aware:
        kept = masks.best_of_row(score(weight, x.norm(dim=0)), 0.5)
        errors[score.__name__] = float((x @ (weight * ~kept).T).norm())
    assert errors["activation_aware"] < 0.8 * errors["magnitude"]


@torch.no_grad()
def test_watch_sees_the_inputs_and_the_turn_of_each_layer(model, ids):
    norms, influence = masks.watch(model, ids)
    assert norms.keys() == masks.linears(model).keys()
    assert len(influence) == 3
    assert not model.model.layers[0]._forward_hooks
    hidden = model(ids, output_hidden_states=True).hidden_states
    first = model.model.layers[0].input_layernorm(hidden[0]).flatten(0, 1)
    assert torch.allclose(norms["0.self_attn.q_proj"], first.norm(dim=0), rtol=1e-4)
    turn = 1 - torch.cosine_similarity(hidden[0], hidden[1], dim=-1).mean()
    assert influence[0] == pytest.approx(float(turn), abs=1e-5)


def test_an_idle_layer_has_no_influence(model, ids):
    idle = slimming.drop_layers(model, [0])
    idle.model.layers[1].self_attn.o_proj.weight.data.zero_()
    idle.model.layers[1].mlp.down_proj.weight.data.zero_()
    _, influence = masks.watch(idle, ids)
    assert influence[1] == pytest.approx(0, abs=1e-6)
    assert influence[0] > 1e-3


def test_zeroed_keeps_what_the_rule_says_and_nothing_else(model, ids):
    norms, _ = masks.watch(model, ids)
    small = masks.zeroed(model, norms, masks.activation_aware, masks.two_of_four)
    for name, part in masks.linears(small).items():
        before = masks.linears(model)[name].weight
        kept = masks.two_of_four(masks.activation_aware(before, norms[name]))
        assert torch.equal(part.weight, before * kept)
    assert torch.equal(small.lm_head.weight, model.lm_head.weight)


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float32, *SIXTEEN])
def test_csr_takes_the_bytes_that_are_counted(dtype, index):
    torch.manual_seed(0)
    weight = torch.randn(40, 100)
    weight = (weight * masks.best_of_row(weight.abs(), 0.3)).to(dtype)
    found = masks.csr(weight, index)
    assert torch.equal(found.to_dense(), weight)
    told = masks.csr_bytes(40, 1200, dtype.itemsize, index.itemsize)
    assert masks.nbytes(found) == told
