"""Formats against torch's casts, units against what makers print, bytes by hand."""

import os
import re
import subprocess
import sys
from types import SimpleNamespace

from gpulab_utils import device, numerics
from gpulab_utils.numerics import FORMATS, hardware
from gpulab_utils.timing import Ratio

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

CASTS = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}


@pytest.mark.parametrize("name", CASTS)
def test_rounding_is_torch_s_own(name):
    """Every sign, subnormals, ties and the whole range below the largest value."""
    values = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.float16)
    values = values.float()[values.isfinite()]
    values = values[values.abs() <= FORMATS[name].max]
    assert torch.equal(numerics.rounded(values, name), values.to(CASTS[name]).float())


@pytest.mark.parametrize("name", CASTS)
def test_limits_are_torch_s_own(name):
    told, form = torch.finfo(CASTS[name]), FORMATS[name]
    assert (told.max, told.tiny, told.bits) == (form.max, form.smallest_normal, form.bits)
    assert told.eps == 2.0**-form.mantissa_bits


def test_tf32_keeps_ten_bits_of_mantissa():
    # 1 + 2^-11 lies half way between 1 and 1 + 2^-10: to the even one
    x = torch.tensor([1 + 2**-11, 1 + 3 * 2**-11, 1e30])
    assert numerics.rounded(x, "tf32").tolist()[:2] == [1.0, 1 + 2**-9]
    assert abs(numerics.rounded(x, "tf32")[2] / 1e30 - 1) < 2**-11


def test_fp4_has_eight_magnitudes():
    grid = numerics.rounded(torch.linspace(-9, 9, 1001), "e2m1").abs().unique()
    assert grid.tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def test_a_block_shares_a_power_of_two():
    # the largest, 40 = 1.25 x 2^5, goes to the binade of 4 to 6: the scale is 8, and in it
    # lie 5 (a tie, to the even 4), 1/8, 2.5 (a tie, to the even 2) and 3/8 (nearest 0.5)
    x = torch.tensor([[40.0, 1.0, 20.0, 3.0]])
    assert numerics.scaled(x, "e2m1", 4).tolist() == [[32.0, 0.0, 16.0, 4.0]]
    with pytest.raises(ValueError, match="multiple of 3, got 4"):
        numerics.scaled(x, "e2m1", 3)


def test_expected_error_by_hand():
    # sqrt(2 / 28) = 0.26726; times 2^-7
    assert numerics.expected_error("bf16") == pytest.approx(0.26726 / 128, rel=1e-4)
    ratio = numerics.expected_error("bf16", 3) / numerics.expected_error("bf16", 2)
    assert ratio == pytest.approx(1.5**0.5)


@pytest.mark.parametrize(
    ("name", "gain"),
    [  # dense 16-bit rate over fp32 rate, as the sheets give them
        ("NVIDIA GeForce RTX 3080 Ti", 2.0),  # 68.2 / 34.1
        ("NVIDIA H200", 14.8),  # 989.4 / 66.9
        ("NVIDIA A100-SXM4-80GB", 16.0),  # 312 / 19.5
        ("NVIDIA GeForce RTX 3060", 2.0),
        ("Tesla T4", 8.0),
        ("NVIDIA GeForce GTX 1080 Ti", None),  # no matrix unit
        ("gpulab stand-in (CPU)", None),
    ],
)
def test_the_driver_s_name_finds_the_card(name, gain):
    assert hardware.card_unit(name).gain == gain


def test_units_of_cpus_as_their_makers_state_them():
    # 1,024 operations a cycle over 64; two products a lane over one
    assert hardware.CPU_UNITS["amx_bf16"].gain == 1024 / 64
    assert hardware.CPU_UNITS["avx512_bf16"].gain == 2 / 1


@pytest.mark.parametrize(
    ("has", "limit", "name"),
    [
        ({"amx_bf16", "avx512_bf16"}, None, "AMX"),
        ({"amx_bf16", "avx512_bf16"}, "AVX512_CORE_BF16", "AVX512-BF16"),
        ({"avx512_bf16"}, None, "AVX512-BF16"),
        ({"avx512_bf16"}, hardware.OFF, ""),
        ({"avx512_bf16"}, "AVX2", ""),
        (set(), None, ""),
    ],
)
def test_the_unit_is_what_the_library_may_use(monkeypatch, has, limit, name):
    monkeypatch.setenv("GPULAB_DEVICE", "cpu")
    told = {k: k in has for k in hardware.CPU_UNITS}
    monkeypatch.setattr(hardware, "capabilities", lambda: told)
    monkeypatch.delenv(hardware.SWITCH, raising=False)
    if limit:
        monkeypatch.setenv(hardware.SWITCH, limit)
    assert hardware.unit().name == name


def test_torch_still_tells_what_the_cpu_has():
    """Seen in the version named there; an older torch is asked by its private names."""
    assert hardware.SEEN_IN
    told = torch.cpu.get_capabilities()
    assert set(hardware.CPU_UNITS) <= set(told) or told["architecture"] != "x86_64"
    assert hardware.capabilities()["avx512_bf16"] == torch.cpu._is_avx512_bf16_supported()


def test_an_older_torch_is_asked_by_its_private_names(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    assert hardware.capabilities() == {"amx_bf16": False, "avx512_bf16": True}


def test_tf32_is_put_back():
    before = torch.backends.cuda.matmul.fp32_precision
    with numerics.tf32():
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    assert torch.backends.cuda.matmul.fp32_precision == before


def test_the_pair_is_the_same_product_in_fp32_and_in_16_bit(monkeypatch):
    monkeypatch.setenv("GPULAB_TINY", "1")
    wide, narrow = (call() for call in hardware.pair(4))
    assert [y.dtype for y in wide] == [torch.float32]
    assert [y.dtype for y in narrow] == [device.here().dtype] != [torch.float32]
    assert [y.shape for y in wide] == [y.shape for y in narrow] == [(4, 32)]
    assert torch.allclose(wide[0], narrow[0].float(), atol=0.3)  # of a root of 32


def test_the_switch_takes_the_unit_from_onednn():
    """Asked of oneDNN itself, which says what it may use and which kernel it took."""
    code, used = "import torch; a = torch.ones(64, 64).bfloat16(); a @ a", {}
    for limit in ("ALL", hardware.OFF):
        env = os.environ | {"ONEDNN_VERBOSE": "1", hardware.SWITCH: limit}
        told = subprocess.check_output([sys.executable, "-c", code], env=env, text=True)
        used[limit] = bool(re.search(r"bfloat16 support|AMX|avx512_core_(bf16|amx)", told))
    assert used == {"ALL": any(hardware.capabilities().values()), hardware.OFF: False}


def test_the_other_process_may_not_use_the_unit(monkeypatch):
    seen = {}

    def run(command, *, env, **options):
        seen.update(env)
        told = '{"1": {"value": 2.0, "aa": 1.0}}'
        return subprocess.CompletedProcess(command, 0, stdout=told, stderr="")

    monkeypatch.setattr(hardware.subprocess, "run", run)
    assert hardware.without_unit((1,)) == {1: Ratio(2.0, 1.0)}
    assert seen["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_VNNI"


def test_products_are_the_three_of_each_linear():
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
    )
    with FlopCounterMode(display=False) as counter:
        numerics.products(model, 10, torch.float32)()
    # 2 operations x 3 products x 10 rows x (8 x 16 + 16 x 4) weights
    assert counter.get_total_flops() == 2 * 3 * 10 * (8 * 16 + 16 * 4)


class Squares(torch.nn.Module):
    """A loss of half the squares of a linear's outputs: their gradients are themselves."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2, bias=False)

    def forward(self, input_ids, labels):
        self.out = self.linear(input_ids)
        return SimpleNamespace(loss=(self.out**2).sum() / 2)


def test_backward_values_are_gradients_at_outputs_times_the_scale():
    model, x = Squares(), torch.ones(4, 3, requires_grad=True)
    seen = numerics.backward_values(model, x, scale=8.0)
    assert torch.allclose(seen, 8 * model.out.flatten())
    assert seen.shape == (8,)
    assert model.linear.weight.grad is None


def test_a_process_that_fails_says_why(monkeypatch):
    monkeypatch.setattr(hardware.sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="without the unit failed"):
        hardware.without_unit((1,), 0.1)


def test_state_by_hand():
    # 4 x 8 weights of 4 bytes: as many gradients, and Adam keeps two of each
    layer = torch.nn.Linear(4, 8, bias=False)
    adam = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 4)).sum().backward()
    adam.step()
    assert list(numerics.state_bytes(layer, adam).values()) == [128, 128, 256]


def test_saved_bytes_count_a_storage_once():
    layer = torch.nn.Linear(4, 8, bias=False)
    x = torch.ones(2, 4, requires_grad=True)
    # x (32 bytes, for the weight's gradient) and the result of exp (64), not the weight
    assert numerics.saved_bytes(layer, lambda: (layer(x).exp(), layer(x))) == {
        "torch.float32": 96
    }


def test_autocast_saves_a_copy_of_the_weight():
    layer, x = torch.nn.Linear(4, 8, bias=False), torch.ones(2, 4, requires_grad=True)

    def forward():
        with numerics.autocast(torch.bfloat16):
            return layer(x)

    # x in bf16 (16 bytes), and the weight's bf16 copy (64) for the gradient of x
    assert numerics.saved_bytes(layer, forward) == {"torch.bfloat16": 80}
