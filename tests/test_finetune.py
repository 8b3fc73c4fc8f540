"""LoRA and QLoRA on a small random model: they train, come back, and merge."""

import sys
from dataclasses import replace

from gpulab_utils import (
    fake_training,
    finetune,
    kernels,
    language,
    ledger,
    packing,
    plan,
    small_gpt,
)
from gpulab_utils.models import MODELS

import pytest
import torch

pytest.importorskip("peft")
pytest.importorskip("bitsandbytes")
WIDTH = 128


def base(dtype=torch.float32):
    return small_gpt.make(width=WIDTH, layers=2, positions=64).to(dtype).eval()


def windows(n, split="train"):
    return small_gpt.byte_tokens(split)[: n * 64].view(n, 64)


def score(model):
    return sum(language.nats(model, windows(8, "test"))) / 8


def trained(folder, made):
    """An adapted model after 24 steps, its adapters in `folder`."""
    model = finetune.adapted(made, dropout=0.0)
    finetune.train(model, windows(48), finetune.optimizer(model, 5e-3), ledger.PLAIN)
    finetune.save(model, folder)
    return model


@pytest.fixture(scope="module")
def qlora(tmp_path_factory):
    folder = tmp_path_factory.mktemp("qlora")
    return trained(folder, packing.packed(base())), folder


@pytest.fixture(scope="module")
def lora(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lora")
    return trained(folder, base()), folder


def test_held_out_loss_falls(lora, qlora):
    before = score(base())
    assert score(lora[0]) < before - 0.1
    assert score(qlora[0]) < before - 0.1


def test_reloaded_adapters_give_the_same_bits(lora, qlora):
    for (model, folder), fresh in ((lora, base()), (qlora, packing.packed(base()))):
        again = finetune.onto(fresh, folder)
        ids = windows(2, "test")
        assert torch.equal(finetune.logits(again, ids), finetune.logits(model, ids))


def test_merged_in_fp32(lora):
    ids = windows(2, "test")
    apart = finetune.onto(base(), lora[1])
    want = finetune.logits(apart, ids)
    whole = finetune.merged(apart)
    assert not [name for name, _ in whole.named_parameters() if "lora" in name]
    assert (finetune.logits(whole, ids) - want).abs().max() < 1e-4


def test_qlora_merges_into_what_it_was_trained_on(qlora):
    """Into the dequantised base nothing is lost, into NF4 most of what moved a little."""
    model, folder = qlora
    ids = windows(2, "test")
    want = finetune.logits(model, ids)

    def off(made):
        return (finetune.logits(made, ids) - want).norm().item()

    wide = finetune.merged(finetune.onto(packing.unpacked(packing.packed(base())), folder))
    narrow = finetune.merged(finetune.onto(packing.packed(base()), folder))
    assert kernels.bitsandbytes().nn.Linear4bit in map(type, narrow.modules())
    assert off(wide) < 1e-3 * want.norm().item()
    assert off(narrow) > 20 * off(wide)


def test_codes_by_hand():
    made = base()
    layer = made.model.layers[0].self_attn.q_proj  # the first of all
    layer.weight.data.zero_()[0, :2] = torch.tensor([1.0, -1.0])  # NF4's last and first
    told = packing.codes(packing.packed(made))
    wide = made.config.intermediate_size
    assert told.numel() == 2 * (4 * WIDTH * WIDTH + 3 * WIDTH * wide)
    assert (told.min(), told.max()) == (0, 15)
    assert [told[0].item(), told[told.numel() // 2].item()] == [15, 0]


def test_scoring_first_costs_no_gradient():
    """bitsandbytes would repack for AVX512 in eval mode, and lose the gradient after it."""
    model = finetune.adapted(packing.packed(base(torch.bfloat16)))
    score(model)
    model.train()
    with finetune.lower():
        model(windows(1), labels=windows(1)).loss.backward()
    first = model.base_model.model.model.layers[0].self_attn.q_proj
    assert first.lora_B["default"].weight.grad.abs().max() > 0


@pytest.mark.parametrize("mode", ["lora", "qlora"])
def test_bytes_are_the_planners(mode):
    shape = replace(MODELS["smollm2-135m"], layers=3, vocab=4096)
    made = fake_training.model_of(shape, "bf16")
    made = packing.packed(made) if mode == "qlora" else made
    model = finetune.adapted(made).train()
    ids = windows(8).view(2, 256)
    adam = finetune.optimizer(model)
    seen = ledger.largest(ledger.peaks(model, adam, ids, finetune.lower())).total
    told = plan(shape, mode, batch=2, seq=256, device="cpu").allocated
    assert told / seen == pytest.approx(1, abs=0.02)
    weights = "nf4" if mode == "qlora" else "bf16"
    fake = ledger.largest(fake_training.run(shape, mode, weights, 2, 256)).total
    assert fake / seen == pytest.approx(1, abs=0.001)  # small tables are shared, or not


def test_nested_scales_come_back():
    made = base()
    weight = made.model.layers[0].mlp.up_proj.weight.detach().clone()
    packing.unpacked(packing.packed(made, nested=True))
    moved = (made.model.layers[0].mlp.up_proj.weight - weight).norm() / weight.norm()
    assert 0.05 < moved < 0.15  # 1.4 where it had been repacked


def test_what_is_missing_is_named(monkeypatch):
    with pytest.raises(ValueError, match=r"no linear named q_proj, .* in Linear"):
        packing.packed(torch.nn.Linear(4, 4))
    for name, call in (("peft", finetune.adapted), ("bitsandbytes", packing.packed)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(kernels.KernelMissing, match=f"pip install {name}"):
            call(base())


def test_a_packed_model_without_its_16_bit_one():
    """Random weights, as the step of a 13B takes them: the planner's bytes, and a loss."""
    shape = replace(
        MODELS["llama-2-13b"], hidden=512, layers=2, heads=4, kv_heads=4, intermediate=1408
    )
    model = finetune.adapted(packing.random_packed(shape)).train()
    assert not [n for n, p in model.named_parameters() if p.is_meta]
    ids, adam = windows(2).view(1, 128), finetune.optimizer(model)
    seen = ledger.largest(ledger.peaks(model, adam, ids, finetune.lower())).total
    told = plan(shape, "qlora", seq=128, checkpointing=True, device="cpu").allocated
    assert told / seen == pytest.approx(1, abs=0.02)
    loss = float(ledger.step(model, adam, ids, finetune.lower()))
    assert abs(loss - 10.4) < 1  # of 32,000 tokens, none is known: log(32000)
