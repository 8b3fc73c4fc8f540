"""A step in several ways: the same loss, the planner's bytes; ledger, shelf and errors."""

import re

from gpulab_utils import device, kernels, memory, steps
from gpulab_utils.steps import clinic
from gpulab_utils.units import GIB, MIB

import pytest
import torch

SIZE = {"width": 64, "layers": 3, "batch": 4, "time": 48}
HAS_8BIT = "nf4" in kernels.quantizers()
WAYS = [w for w in steps.WAYS.values() if HAS_8BIT or w.optimizer != "adamw8bit"]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_the_planner_meets_the_ledger(way):
    step = steps.make(way, **SIZE)
    ledger, told = step.ledger(), steps.planned(step)
    assert told.allocated == pytest.approx(ledger.peak.total, rel=0.01)
    assert told.terms["weights"] == ledger.terms()["weights"]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_every_way_learns_the_same(way):
    plain, other = steps.make(WAYS[0], **SIZE), steps.make(way, **SIZE)
    losses = [(plain(), other()) for _ in range(4)]
    tolerance = 0.02 if way.amp or way.optimizer == "adamw8bit" else 1e-5
    assert all(b == pytest.approx(a, rel=tolerance) for a, b in losses)
    assert losses[-1][0] < losses[0][0]


@pytest.mark.skipif(device.here().is_gpu, reason="a GPU's peak is its allocator's")
@pytest.mark.parametrize("name", ["plain", "fused backward", "AMP"])
def test_the_ledger_is_torchs_own_count(name):
    """MemTracker holds tensors a little longer where modules have hooks."""
    step = steps.make(steps.WAYS[name], **SIZE)
    seen = step.ledger().peak.total - step.ids.nbytes
    told = memory.peak(step, modules=[step.model], optimizers=step.optimizers)
    assert told.total == pytest.approx(seen, rel=0.005)


@pytest.mark.parametrize("every", [1, 2, 3])
def test_segments_keep_what_the_planner_says(every):
    step = steps.make(steps.Way("", {"checkpointing": every, "in_backward": True}), **SIZE)
    assert steps.planned(step).allocated == pytest.approx(
        step.ledger().peak.total, rel=0.01
    )


def test_gradients_are_told_apart_from_scratch():
    step = steps.make(steps.WAYS["plain"], **SIZE)
    weights = sum(p.nbytes for p in step.model.parameters())
    ledger = step.ledger()
    assert ledger.most("gradients") == weights
    assert ledger.most("optimizer") == pytest.approx(2 * weights, rel=0.001)
    assert ledger.moments[-1].alive[steps.KINDS.index("gradients")] == 0
    begins = [phase for phase, _ in ledger.drawn(50)["begins"]]
    assert begins == ["forward", "backward", "step"]


def test_a_fused_backward_never_holds_all_gradients():
    ledger = steps.make(steps.WAYS["fused backward"], **SIZE).ledger()
    assert ledger.most("gradients") < ledger.most("weights") / 3


def test_what_is_on_the_shelf_takes_no_memory():
    x = torch.randn(256, 256, device=device.here().device).to(torch.bfloat16)
    shelf = steps.Shelf()
    away = shelf.put(x)
    assert torch.equal(shelf.fetch(away, x), x)
    assert shelf.moved == 2 * x.nbytes
    book = steps.keep(lambda enter: shelf.fetch(shelf.put(x), x), [], inputs=[x])
    assert book.peak.total == 2 * x.nbytes  # x and what was fetched


@pytest.mark.skipif(not HAS_8BIT, reason="bitsandbytes is not here")
def test_eight_bits_a_state():
    step = steps.make(steps.WAYS["8-bit Adam"], width=256, layers=1, batch=1, time=8)
    params = sum(p.numel() for p in step.model.parameters())
    seen = step.ledger().terms()["optimizer"] / params
    assert seen == pytest.approx(2.03, abs=0.02)  # a scale of 4 bytes for each 256 codes
    assert steps.planned(step).terms["optimizer"] / params == pytest.approx(seen, abs=0.02)


POSTED = (
    "CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of 15.77 "
    "GiB of which {free} is free. {process}Of the allocated memory {allocated} is "
    "allocated by PyTorch, and {pieces} is reserved by PyTorch but unallocated."
)


@pytest.mark.parametrize(
    ("figures", "sign"),
    [
        (("20.00 MiB", "5 MiB", "", "15.00 GiB", "400.00 MiB"), "fragmented"),
        (("20.00 MiB", "5 MiB", "", "15.40 GiB", "19.00 MiB"), "full"),
        (("8.00 GiB", "7.00 GiB", "", "8.00 GiB", "0 bytes"), "one tensor"),
        (("1.22 GiB", "0.9 GiB", "Process 7 has 14.83 GiB memory in use. ", "14.01 GiB",
          "0.4 GiB"), "full"),
        (("1.22 GiB", "0.9 GiB", "Process 7 has 14.83 GiB memory in use. Including non-"
          "PyTorch memory, this process has 0.5 GiB memory in use. ", "100.00 MiB",
          "0.1 GiB"), "others"),
    ],
)  # fmt: skip
def test_the_figures_say_it(figures, sign):
    keys = ("asked", "free", "process", "allocated", "pieces")
    text = POSTED.format(**dict(zip(keys, figures, strict=True)))
    assert clinic.read(text).sign == sign


def test_another_text_is_refused():
    with pytest.raises(ValueError, match="not torch's out-of-memory message: 'segfault'"):
        clinic.read("segfault")


def test_a_limit_set_by_the_program_is_read():
    text = POSTED.format(asked="1.00 GiB", free="9.00 GiB", process="2.00 GiB allowed; ",
                         allocated="1.50 GiB", pieces="0 bytes")  # fmt: skip
    told = clinic.read(text)
    assert (told.allowed, told.sign) == (2 * GIB, "one tensor")


def test_ours_is_written_as_torch_writes_it():
    def program(at):
        at("x = torch.ones")
        return torch.ones(2**22), torch.ones(2**22)  # 16 MiB each

    death = clinic.dies(program, 50 * MIB, others=20 * MIB)
    told = death.report
    assert (told.asked, told.allocated, told.others) == (16 * MIB, 16 * MIB, 20 * MIB)
    assert told.free == 14 * MIB
    assert death.at == "x = torch.ones"
    assert not re.search("none|None", death.text)


def test_a_program_that_lives_has_no_error():
    assert clinic.dies(lambda at: torch.ones(2**18), 30 * MIB) is None
