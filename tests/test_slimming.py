"""Parts really taken out: the numbers of a model with those parts switched off."""

import re

from gpulab_utils import slimming, small_gpt
from gpulab_utils.models import shape_from_config

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

IDS = torch.arange(24).view(2, 12) * 7 % 64


@pytest.fixture
def model():
    """Four layers, six query heads that share two key-value heads, a tied head."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=48,
        intermediate_size=40,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        eos_token_id=None,
        initializer_range=0.2,
    )
    return LlamaForCausalLM(config).eval()


@torch.no_grad()
def logits(model):
    return model(IDS).logits


def holds_together(small) -> None:
    """The config tells what is there, the head is tied, the cache changes no token."""
    assert small.lm_head.weight is small.model.embed_tokens.weight
    assert small.config is small.model.config
    told = shape_from_config(small.config.to_dict())
    assert told.params == sum(p.numel() for p in small.parameters())
    assert LlamaForCausalLM(small.config).state_dict().keys() == small.state_dict().keys()
    with_cache, without = (
        small.generate(IDS[:1, :4], max_new_tokens=8, do_sample=False, use_cache=use)
        for use in (True, False)
    )
    assert torch.equal(with_cache, without)


def test_layers_are_gone(model):
    before = logits(model)
    small = slimming.drop_layers(model, [1, 2])
    assert torch.equal(logits(model), before), "the model itself is as it was"
    holds_together(small)
    assert small.config.num_hidden_layers == 2
    assert [layer.self_attn.layer_idx for layer in small.model.layers] == [0, 1]
    for i in 1, 2:  # nothing added to the residual stream
        model.model.layers[i].self_attn.o_proj.weight.data.zero_()
        model.model.layers[i].mlp.down_proj.weight.data.zero_()
    assert torch.allclose(logits(small), logits(model), atol=1e-5)


def test_a_copy_shares_nothing(model):
    small = slimming.drop_layers(model, [3])
    before = logits(model)
    for p in small.parameters():
        p.data.zero_()
    assert torch.equal(logits(model), before)
    assert not {p.data_ptr() for p in model.parameters()} & {
        p.data_ptr() for p in small.parameters()
    }


def test_what_layers_are_there_is_said(model):
    for which in [4], [0, 1, 2, 3], [-1]:
        with pytest.raises(
            ValueError, match=re.escape(f"some of 0 to 3, not all, got {which}")
        ):
            slimming.drop_layers(model, which)


def test_kept_rows_of_the_mlp_are_those_asked_for(model):
    rows = [torch.randperm(40)[:25] for _ in range(4)]
    small = slimming.narrow(model, mlp=rows)
    holds_together(small)
    assert small.config.intermediate_size == 25
    for layer, kept in zip(model.model.layers, rows, strict=True):
        gone = [i for i in range(40) if i not in kept.tolist()]
        layer.mlp.up_proj.weight.data[gone] = 0
    assert torch.allclose(logits(small), logits(model), atol=1e-5)


@pytest.mark.parametrize(
    ("heads", "kv_heads"),
    [([0, 1, 2], 1), ([3, 4, 5], 1), ([0, 2, 3, 4], 2), ([1, 5], 2), ([4], 1)],
)
def test_kept_heads_are_those_asked_for(model, heads, kv_heads):
    small = slimming.narrow(model, heads=[heads] * 4)
    holds_together(small)
    assert small.config.num_key_value_heads == kv_heads
    for layer in model.model.layers:
        for head in set(range(6)) - set(heads):
            layer.self_attn.o_proj.weight.data[:, 8 * head : 8 * head + 8] = 0
    assert torch.allclose(logits(small), logits(model), atol=1e-5)


def test_heads_may_differ_by_layer_and_with_the_mlp(model):
    heads, rows = [[0, 3], [1, 4], [2, 5], [0, 5]], [range(20)] * 4
    holds_together(slimming.narrow(model, mlp=rows, heads=heads))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"heads": [[0, 1, 3]] * 4}, "there stay [{0: 2, 1: 1}"),
        ({"heads": [[0], [0], [0], [0, 3]]}, "as many in each layer, got [1, 2]"),
        ({"heads": [[0, 3], [0, 1], [0, 3], [0, 3]]}, "must serve as many queries"),
        ({"heads": [[6]] * 4}, "different numbers of 0 to 5"),
        ({"mlp": [[1, 1]] * 4}, "different numbers of 0 to 39"),
        ({"mlp": [[]] * 4}, "as many in each layer, got [0]"),
        ({"mlp": [[1]]}, "a list for each of 4 layers, got 1"),
    ],
)
def test_what_no_config_can_tell_is_refused(model, options, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        slimming.narrow(model, **options)


def test_a_smaller_model_can_be_kept_and_loaded(model, tmp_path):
    small = slimming.narrow(slimming.drop_layers(model, [0]), heads=[[0, 3]] * 3)
    small.save_pretrained(tmp_path)
    again = LlamaForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(logits(again), logits(small))


def test_recovery_learns_and_repeats():
    windows = next(small_gpt.batches("train", batch=8, time=16))
    told = []
    for _ in range(2):
        model = small_gpt.make(width=64, layers=1, positions=16)
        told.append(slimming.recover(model, windows, steps=12, lr=3e-3, batch=4))
    assert told[0] == told[1]
    assert told[0][-1] < told[0][0] - 0.5
    assert not model.training
    assert all(p.grad is None for p in model.parameters())


def test_arms_with_one_seed_see_the_same_text():
    windows, seen = torch.arange(20).view(10, 2), []
    for seed in 3, 3, 4:
        model, told = small_gpt.make(width=64, layers=1, positions=8), []

        def loss(model, ids, told=told):
            told.append(ids.tolist())
            return model.lm_head.weight.square().mean()

        slimming.recover(model, windows, steps=3, lr=1e-3, batch=4, seed=seed, loss=loss)
        seen.append(told)
    assert seen[0] == seen[1] != seen[2]


def test_no_step_and_too_few_windows_are_refused():
    model = small_gpt.make(width=64, layers=1, positions=8)
    for steps, batch in (0, 1), (1, 3), (1, 0):
        with pytest.raises(ValueError, match=f"{steps} steps of {batch} from 2 windows"):
            slimming.recover(
                model, torch.zeros(2, 8).long(), steps=steps, lr=1, batch=batch
            )
