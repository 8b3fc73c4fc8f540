"""Training steps without memory: against real ones, by hand, and the line through two."""

from dataclasses import replace
from unittest import mock

from gpulab_utils import device, fake_training, kernels, ledger, plan
from gpulab_utils.fake_layers import Adam8bit, Lora, Packed
from gpulab_utils.fake_training import line, run
from gpulab_utils.memory import Peak
from gpulab_utils.models import MODELS

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

pytest.importorskip("transformers")
FULL = MODELS["llama-2-13b"]
SMALL = replace(
    FULL, hidden=256, heads=4, kv_heads=2, head_dim=64, intermediate=512, vocab=512
)
WAYS = {
    "amp": {"mode": "full_train", "weights": "fp32", "amp": True},
    "8 bit": {"optimizer": "adamw8bit", "checkpointing": True},
    "lora": {"mode": "lora"},
    "qlora": {"mode": "qlora", "weights": "nf4", "checkpointing": True},
}


@pytest.mark.parametrize("way", WAYS)
def test_the_line_meets_a_deeper_model(way):
    options = {"batch": 2, "seq": 64, **WAYS[way]}
    assert line(SMALL, (2, 3), **options).at(5) == run(SMALL, layers=5, **options)


def test_sixteen_bytes_a_weight_and_four_more_for_foreach():
    few = replace(FULL, layers=2)
    same = {"weights": "fp32", "seq": 16}
    fused = run(few, optimizer="adamw_fused", **same)["optimizer"].total
    foreach = run(few, **same)["optimizer"].total
    assert fused / few.params == pytest.approx(16, abs=0.001)
    assert foreach / few.params == pytest.approx(20, abs=0.001)
    halves = run(few, optimizer="adamw8bit", seq=16)["optimizer"].total
    assert halves / few.params == pytest.approx(6 + 2 * 4 / 256, abs=0.01)


@pytest.mark.parametrize("way", ["lora", "qlora", "8 bit"])
def test_the_planner_says_the_same_of_13b(way):
    few = replace(FULL, layers=2)
    told = plan(few, **{"mode": "full_train", **WAYS[way]}, seq=1024).allocated
    seen = ledger.largest(run(few, **WAYS[way], seq=1024)).total
    assert told / seen == pytest.approx(1, abs=0.03)


def test_the_planner_counts_a_qlora_step_as_a_gpu_runs_it():
    few = replace(FULL, layers=2)  # without what cuBLAS takes, which fake tensors do not
    told = plan(few, "qlora", "nf4", seq=1024, device="cpu").allocated
    seen = ledger.largest(run(few, "qlora", "nf4", seq=1024)).total
    assert told / seen == pytest.approx(1, abs=1e-4)


def test_peft_itself_takes_the_same_bytes():
    """PEFT moves adapters to their base's device, which fake tensors refuse: not here."""
    peft = pytest.importorskip("peft")
    few = replace(SMALL, layers=2)

    def adapt(model, rank, dropout, packed):
        config = peft.LoraConfig(r=rank, target_modules=list(fake_training.TARGETS))
        with mock.patch.object(torch.nn.Module, "to", lambda self, *_, **__: self):
            peft.get_peft_model(model, config)

    own = run(few, "lora", dropout=0, seq=64, batch=2)
    with mock.patch.object(fake_training, "adapt", adapt):
        assert run(few, "lora", dropout=0, seq=64, batch=2) == own


def test_states_and_codes_weigh_what_bitsandbytes_makes():
    bnb = kernels.bitsandbytes()
    theirs, ours = (
        [torch.nn.Parameter(torch.ones(n)) for n in (256, 4096, 9000)] for _ in range(2)
    )
    kept = []
    for optimizer, parameters in ((bnb.optim.AdamW8bit, theirs), (Adam8bit, ours)):
        made = optimizer(parameters)
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        made.step()
        kept.append(sum(t.nbytes for t in ledger.states(made)))
    tables = 2 * 256 * 4  # of bitsandbytes, one pair for all
    assert kept[0] - kept[1] == tables
    layer = bnb.nn.Linear4bit(512, 256, bias=False, compress_statistics=False)
    theirs = sum(t.nbytes for t in ledger.weights(layer.to("cpu")))
    assert sum(t.nbytes for t in ledger.weights(Packed(256, 512))) == theirs


def job():
    layers = [torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)]

    class Model(torch.nn.Sequential):
        def forward(self, x, labels):
            loss = super().forward(x).square().mean()
            return type("", (), {"loss": loss})

    model = Model(*layers)
    return model, torch.optim.AdamW(model.parameters(), foreach=True)


@pytest.mark.skipif(device.here().is_gpu, reason="MemTracker's device is the CPU here")
def test_the_ledger_is_that_of_torchs_tracker():
    (model, adam), x = job(), torch.ones(512, 64)
    ledger.step(model, adam, x)
    told = ledger.largest(ledger.peaks(model, adam, x))
    tracker = MemTracker()
    tracker.track_external(model, adam, x)
    with tracker:
        ledger.step(model, adam, x)
    (seen,) = tracker.get_tracker_snapshot("peak").values()
    assert told.total == next(v for k, v in seen.items() if "otal" in str(k))


def test_fake_and_real_leave_the_same_ledger():
    real = ledger.peaks(*job(), torch.ones(32, 64))
    with FakeTensorMode():
        assert ledger.peaks(*job(), torch.ones(32, 64)) == real
    gradients = real["optimizer"].by_category["gradients"]
    assert gradients == sum(p.nbytes for p in job()[0].parameters())


def test_an_adapter_trains_and_its_base_does_not():
    layer = Lora(torch.nn.Linear(8, 8).requires_grad_(False), 8, 8, 2, 0.0)
    layer(torch.ones(1, 8)).sum().backward()
    assert layer.base.weight.grad is None
    assert layer.a.weight.grad is not None


def test_refusals_say_the_way_out():
    with pytest.raises(ValueError, match=r"mode must be one of full_train.*'qat'"):
        run(SMALL, "qat")
    with pytest.raises(ValueError, match="qlora runs with nf4, got weights 'bf16'"):
        run(SMALL, "qlora")
    with pytest.raises(ValueError, match=r"optimizer must be one of .*'lion'"):
        run(SMALL, layers=1, seq=8, optimizer="lion")
    with pytest.raises(ValueError, match="only Llama shapes run here, gpt2 is gpt2"):
        run(replace(SMALL, name="gpt2", family="gpt2"))


def test_a_line_through_two_moments_is_refused():
    def at(n):
        return dict.fromkeys(ledger.PHASES, Peak(n, {"activations": n}))

    bent = fake_training.Line((2, at(100)), (4, at(80)))
    with pytest.raises(ValueError, match="another moment with 2 layers than with 4"):
        bent.at(40)
