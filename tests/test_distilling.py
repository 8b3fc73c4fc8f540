"""Distillation: the soft loss against torch's own, stacked nets against torch's, stores."""

import math
import re

from gpulab_utils import distilling, slimming, small_gpt

import pytest
import torch
import torch.nn.functional as F


@pytest.mark.parametrize("temperature", [1.0, 2.0, 4.0])
def test_soft_loss_is_hinton_s(temperature):
    student, teacher = torch.randn(2, 6, 10).unbind(0)
    by_torch = F.kl_div(
        (student / temperature).log_softmax(-1),
        (teacher / temperature).softmax(-1),
        reduction="batchmean",
    )
    ours = distilling.soft_loss(student, teacher, temperature)
    assert ours.item() == pytest.approx(temperature**2 * by_torch.item(), rel=1e-4)


def test_all_logits_stored_are_the_teacher_s():
    """The k largest with k = all, in any order, are the same loss as no store at all."""
    student, teacher = torch.randn(2, 1, 5, 8).unbind(0)
    some = distilling.Stored(torch.arange(5)[None], teacher).largest(8)
    logits, places = some.of(torch.arange(5)[None])
    ours = distilling.soft_loss(student, logits, 2.0, places)
    whole = distilling.soft_loss(student, teacher, 2.0)
    assert ours.item() == pytest.approx(whole.item(), rel=1e-5)


def test_only_the_teacher_s_largest_are_scaled_up():
    """Two of four alike: 1/2 each for the teacher, 1/4 for a student that says nothing."""
    some = distilling.Stored(torch.zeros(1, 1), torch.tensor([[[5.0, 5.0, 0.0, -1.0]]]))
    some = some.largest(2)
    told = distilling.soft_loss(torch.zeros(1, 1, 4), some.logits, 1.0, some.places)
    assert told.item() == pytest.approx(math.log(2))


def test_a_store_knows_its_windows():
    windows = torch.tensor([[1, 2], [3, 4]])
    stored = distilling.Stored(windows, torch.arange(8.0).view(2, 2, 2))
    logits, places = stored.of(torch.tensor([[3, 4]]))
    assert logits.tolist() == [[[4, 5], [6, 7]]]
    assert places is None
    with pytest.raises(ValueError, match="logits were not stored"):
        stored.of(torch.tensor([[1, 4]]))


def test_stacked_nets_learn_as_if_alone():
    """Two nets in a stack against each by itself, on the same draws: the same weights."""
    x, y = torch.randn(20, 6), torch.randint(3, (20,))
    places = distilling.subsets(2, 20, 12)

    def trained(nets, at):
        def loss(at):
            return F.cross_entropy(nets(x[at])[1].flatten(0, 1), y[at].flatten())

        return distilling.fit(nets, at, loss, steps=5, batch=12)

    both = distilling.Nets(2, (6, 4, 3))
    single = distilling.Nets(1, (6, 4, 3))
    for one, two in zip(single.parameters(), both.parameters(), strict=True):
        one.data = two.data[:1].clone()
    # a batch is drawn for each net: give the single one the first row's draws
    drawn = torch.Generator().manual_seed(2)
    rows = [torch.randint(12, (2, 12), generator=drawn)[:1] for _ in range(5)]
    trained(both, places)
    adam = torch.optim.Adam(single.parameters(), lr=5e-3)
    fall = torch.optim.lr_scheduler.LinearLR(adam, 1.0, 0.05, total_iters=5)
    for row in rows:
        at = places[:1].gather(1, row)
        told = F.cross_entropy(single(x[at])[1].flatten(0, 1), y[at].flatten())
        adam.zero_grad()
        told.backward()
        adam.step()
        fall.step()
    for one, two in zip(single.parameters(), both.parameters(), strict=True):
        assert torch.allclose(one[0], two[0], atol=1e-5)


def test_interval_by_hand():
    """0, 2: mean 1, deviation sqrt(2), over sqrt(2) is 1, times 12.706; 15 and 1: 4 / 4."""
    assert distilling.interval([0.0, 2.0]) == pytest.approx((1.0, 12.706))
    assert distilling.interval([0.0] * 15 + [16.0]) == pytest.approx((1.0, 2.131))
    with pytest.raises(ValueError, match="needs 2 to 20 values, got 1"):
        distilling.interval([1.0])


def test_a_temperature_is_positive():
    with pytest.raises(ValueError, match=re.escape("must be positive, got 0")):
        distilling.soft_loss(torch.zeros(1, 2), torch.zeros(1, 2), 0)


def test_distilling_brings_a_student_to_its_teacher():
    teacher = small_gpt.make(width=64, layers=2, positions=16, seed=1).eval()
    ids = next(small_gpt.batches("train", batch=4, time=16))
    student = small_gpt.make(width=64, layers=1, positions=16, seed=2)
    loss = distilling.from_teacher(distilling.store(teacher, ids))
    seen = slimming.recover(student, ids, steps=30, lr=5e-3, batch=4, loss=loss)
    assert seen[-1] < seen[0] / 3
    online = distilling.from_teacher(distilling.Online(teacher))
    assert online(student, ids).item() == pytest.approx(loss(student, ids).item(), rel=0.05)


def test_held_bytes_by_hand():
    """A layer of width 64: 4 x 64 x 64 and 3 x 64 x 256 in linears, 4.5 bits each."""
    model = small_gpt.make(width=64, layers=1, positions=8)
    n_linear, n_all = 4 * 64**2 + 3 * 64 * 256, 98_496
    four, n_bytes = distilling.held(model, "int4 g64")
    assert n_bytes == n_linear * 4.5 / 8 + 2 * (n_all - n_linear)
    kept = four.model.layers[0].mlp.up_proj.weight[0]  # a row is one group
    assert len(kept.unique()) <= 16
    with pytest.raises(ValueError, match="format must be one of"):
        distilling.held(model, "int3")


def test_a_pass_meets_every_linear_and_the_head():
    model = small_gpt.make(width=64, layers=2, positions=8)
    for name in ("fp32", "bf16"):
        shapes = [
            tuple(y.shape) for y in distilling.token_pass(model, name, torch.bfloat16)()
        ]
        assert len(shapes) == 2 * 7 + 1
        assert shapes[-1] == (1, small_gpt.VOCAB)
