"""Every technique of chapter 12: the plan against a real step on a CPU, by MemTracker."""

from gpulab_utils.models import MODELS, shape_from_config
from gpulab_utils.plan import plan

import pytest

SIZES = {"width": 256, "layers": 4, "batch": 4, "time": 128}
UNEVEN = {"width": 256, "layers": 7, "batch": 4, "time": 64}
QUIET = {"optimizer": "adamw_fused"}  # its step copies nothing, so that backward peaks
WAYS = [
    (SIZES, {}),
    (SIZES, {"amp": True}),
    (SIZES, QUIET | {"checkpointing": True}),
    (SIZES, QUIET | {"checkpointing": 2}),
    (UNEVEN, QUIET | {"checkpointing": 3}),
    (SIZES, QUIET | {"checkpointing": 2, "amp": True}),
    (SIZES, {"accumulation": 2}),
    (UNEVEN, {"accumulation": 4}),
    (SIZES, {"optimizer": "adamw8bit"}),
    (SIZES, {"optimizer": "momentum"}),
    (UNEVEN, {"optimizer": "adamw_loop", "checkpointing": True}),
    (SIZES, {"in_backward": True}),
    (UNEVEN, {"in_backward": True, "optimizer": "adamw_loop"}),
    (SIZES, {"in_backward": True, "optimizer": "adamw8bit", "checkpointing": True}),
    (SIZES, QUIET | {"offload": "activations"}),
    (SIZES, QUIET | {"offload": "activations", "amp": True}),
    (SIZES, QUIET | {"offload": "activations", "checkpointing": 2}),
    (SIZES, QUIET | {"offload": "save_on_cpu"}),
    (SIZES, {"offload": "optimizer"}),
    (UNEVEN, {"offload": "states", "optimizer": "adamw_loop"}),
]


@pytest.mark.parametrize(
    ("sizes", "options"), WAYS, ids=[f"{s['layers']}-{o}" for s, o in WAYS]
)
def test_a_real_step_agrees(sizes, options):
    pytest.importorskip("transformers")
    pytest.importorskip("bitsandbytes")
    from technique_runs import Run

    ran = Run(options=options, **sizes)
    measured = ran.peak_bytes()
    shape = shape_from_config(ran.model.config.to_dict())
    batch, time = sizes["batch"], sizes["time"]
    p = plan(shape, "full_train", "fp32", batch, time, device="cpu", **options)
    assert p.allocated == pytest.approx(measured, rel=0.005)
    assert p.road == pytest.approx(ran.road(), rel=0.005)


def test_a_layer_redone_outweighs_many_inputs():
    """The square-root rule counts layers as units; a layer keeps 34 times its input."""
    every, four, whole, none = (
        plan("llama-2-7b", "full_train", batch=4, checkpointing=k, **QUIET).allocated
        for k in (True, 4, 32, False)
    )
    one = plan("llama-2-7b", "full_train", batch=4, checkpointing=1, **QUIET).allocated
    assert one == every < four < whole < 1.01 * none


def test_accumulation_holds_the_gradients_of_all_weights():
    n, small = (
        MODELS["llama-2-7b"].params,
        plan("llama-2-7b", "full_train", batch=2, **QUIET),
    )
    p = plan("llama-2-7b", "full_train", batch=8, accumulation=4, **QUIET)
    assert p.batch == 8
    assert p.terms["gradients"] == 2 * n
    assert p.terms["activations"] <= small.terms["activations"]


def test_a_step_in_backward_never_holds_all_gradients():
    options = {"seq": 16, "weights": "bf16", "optimizer": "sgd"}
    whole, fused = (
        plan("llama-2-7b", "full_train", in_backward=b, **options) for b in (False, True)
    )
    n = MODELS["llama-2-7b"].params
    assert 1.9 * n < whole.terms["gradients"] <= 2 * n
    assert fused.allocated < whole.allocated - 1.7 * n


def test_what_the_host_takes_over():
    """Adam in 16 bit: two states of 2 bytes, or 2 bytes of gradient and of weight."""
    n = MODELS["llama-2-7b"].params
    home = plan("llama-2-7b", "full_train")
    states = plan("llama-2-7b", "full_train", offload="states")
    both = plan("llama-2-7b", "full_train", offload="optimizer")
    assert home.terms["optimizer"] == 4 * n
    assert states.terms["optimizer"] == both.terms["optimizer"] == 0
    assert home.road == {"to_host": 0, "from_host": 0}
    assert states.road == {"to_host": 4 * n, "from_host": 4 * n}
    assert both.road == {"to_host": 2 * n, "from_host": 2 * n}


def test_micro_batches_move_as_much_as_the_batch():
    roads = [
        plan("smollm2-135m", "full_train", batch=8, offload="activations", **more).road
        for more in ({}, {"accumulation": 4})
    ]
    assert roads[0]["to_host"] == pytest.approx(roads[1]["to_host"], rel=0.01)


def test_a_cpu_has_no_blocks_to_round_to():
    p = plan("smollm2-135m", "full_train", "fp32", batch=4, seq=256, device="cpu")
    gpu = plan("smollm2-135m", "full_train", "fp32", batch=4, seq=256)
    assert p.terms["workspace"] == 0 < gpu.terms["workspace"]
    assert p.reserved == p.allocated
    with pytest.raises(ValueError, match='planned for device="cpu", which is no card'):
        p.fits("rtx-3080-ti")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checkpointing": 33}, "at most the model's 32 layers in a segment, got 33"),
        ({"checkpointing": -1}, "got -1"),
        ({"accumulation": 3}, "accumulation must divide the batch of 4 .* got 3"),
        ({"accumulation": 0}, "got 0"),
        ({"accumulation": 2, "in_backward": True}, "accumulation must be 1, got 2"),
        ({"offload": "disk"}, "offload must be one of None, activations, .* got 'disk'"),
        ({"device": "tpu"}, "device must be one of gpu, cpu, got 'tpu'"),
        ({"offload": "states", "optimizer": "sgd"}, "'sgd' keeps no states"),
        ({"mode": "inference", "offload": "states"}, "offload is for a mode that trains"),
        ({"mode": "inference", "in_backward": True}, "in_backward is for a mode"),
        ({"mode": "inference", "accumulation": 2}, "accumulation is for a mode"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        plan("llama-2-7b", batch=4, **({"mode": "full_train"} | options))
