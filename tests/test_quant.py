"""Formats written out to be read, against the libraries: equal to the bit."""

import struct

from gpulab_utils import fourbit, ggml_blocks, kernels, load, minifloats, normalfloat, quant

import numpy as np
import pytest
import torch

SHAPES = [(64, 64), (1, 64), (3, 192), (96, 100), (576, 576), (192, 576), (576, 1536)]
SHAPES += [(257, 128), (2, 32), (1000, 64)]
DTYPES = torch.float32, torch.float16, torch.bfloat16
REAL = "blk.0.attn_q.weight", "blk.14.ffn_down.weight", "blk.29.attn_k.weight"


@pytest.fixture(scope="module")
def functional():
    pytest.importorskip("bitsandbytes")
    return kernels.bitsandbytes().functional


@pytest.fixture(scope="module")
def gguf():
    return pytest.importorskip("gguf")


@pytest.fixture(scope="module")
def file(gguf):
    """The tensors of the model file, by name."""
    return {t.name: t for t in gguf.GGUFReader(load.smollm2_file()).tensors}


@pytest.fixture(scope="module")
def weights(file):
    """Random matrices of ten shapes, three of the model, one with blocks of zeros."""
    torch.manual_seed(13)
    found = [
        (torch.randn(shape) * 0.02 * (i + 1)).to(DTYPES[i % 3])
        for i, shape in enumerate(SHAPES)
    ]
    found += [ggml_blocks.decode(np.array(file[name].data), "Q4_1") for name in REAL]
    some = torch.randn(64, 128)
    some[3:40] = 0
    return [*found, some]


def test_levels_and_map_are_those_of_bitsandbytes(functional):
    assert torch.equal(normalfloat.levels(), functional.get_4bit_type("nf4", device="cpu"))
    assert torch.equal(normalfloat.dynamic_map(), functional.create_dynamic_map())


@pytest.mark.parametrize("double", [False, True])
def test_nf4_is_that_of_bitsandbytes(functional, weights, double):
    for weight in weights:
        codes, state = functional.quantize_4bit(
            weight, quant_type="nf4", compress_statistics=double
        )
        mine = normalfloat.quantize(weight, double=double)
        assert torch.equal(mine.packed, codes)
        if double:
            assert torch.equal(mine.absmax.codes, state.absmax)
            assert torch.equal(mine.absmax.absmax, state.state2.absmax)
            assert torch.equal(mine.absmax.mean, state.offset)
        else:
            assert torch.equal(mine.absmax, state.absmax)
        state.dtype = torch.float32
        assert torch.equal(mine.values, functional.dequantize_4bit(codes, state))


def test_double_quantization_on_a_cpu_is_not_quite_the_nearest(functional):
    torch.manual_seed(13)
    absmax = torch.rand(1 << 18)
    codes, state = functional.quantize_blockwise(absmax - absmax.mean(), blocksize=256)
    mine, nearest = (normalfloat.double_quantize(absmax, n) for n in (1 << 16, 0))
    assert torch.equal(mine.codes, codes)
    assert torch.equal(mine.absmax, state.absmax)
    off = mine.codes != nearest.codes
    assert 0.0005 < off.float().mean() < 0.003
    step = (mine.values - nearest.values).abs()[off]
    error = (nearest.values - absmax).abs()[off]
    assert torch.allclose(step, 2 * error, rtol=0.02, atol=1e-4), "it was half way"


def test_nf4_by_hand():
    # block 0: the levels themselves, four times each; block 1: 3 / 2 of them
    levels = normalfloat.levels().repeat(4)
    both = normalfloat.quantize(torch.stack([levels, 1.5 * levels]))
    assert both.absmax.tolist() == [1, 1.5]
    assert both.packed[:8, 0].tolist() == [0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF]
    assert torch.equal(both.values, torch.stack([levels, 1.5 * levels]))
    assert both.nbytes == 64 + 8


def test_levels_are_even_in_probability():
    normal = torch.distributions.Normal(0, 1)
    largest = normal.icdf(torch.tensor(0.9677083))
    p = normal.cdf(normalfloat.levels() * largest)
    assert p.diff()[:7].std() < 1e-6
    assert p.diff()[7:].std() < 1e-6
    assert p.diff()[:7].mean() > p.diff()[7:].mean()  # seven steps below zero, eight above


@pytest.mark.parametrize("threshold", [0.0, 0.06, 6.0])
def test_int8_rows_are_those_of_bitsandbytes(functional, weights, threshold):
    for weight in weights:
        codes, absmax, outliers = quant.int8_rows(weight, threshold)
        right = functional.int8_vectorwise_quant(weight.clone(), threshold)
        assert torch.equal(codes, right[0])
        assert torch.equal(absmax, right[1])
        assert outliers.tolist() == ([] if right[2] is None else right[2].tolist())
        if not threshold:
            by_row = quant.int8(weight, per="row")
            assert torch.equal(by_row.codes, codes)
            assert torch.equal(by_row.absmax.flatten(), absmax)
            back = torch.ops.bitsandbytes.int8_vectorwise_dequant(codes, absmax)
            assert torch.equal(by_row.values, back)


def test_int8_by_hand():
    w = torch.tensor([[1.0, -2.0, 0.5, 4.0], [0.0, 0.0, 8.0, 2.0]])
    tensor, row, group = (quant.int8(w, per) for per in ("tensor", "row", 2))
    assert tensor.absmax.tolist() == [[8]]
    assert tensor.codes.tolist() == [[16, -32, 8, 64], [0, 0, 127, 32]]  # w x 127 / 8
    assert row.absmax.tolist() == [[4], [8]]
    assert row.codes.tolist()[0] == [32, -64, 16, 127]  # 31.75, -63.5 to even, 15.875
    assert group.absmax.tolist() == [[2, 4], [0, 8]]
    assert group.codes.tolist() == [[64, -127, 16, 127], [0, 0, 127, 32]]
    assert [q.nbytes for q in (tensor, row, group)] == [12, 16, 24]
    for q in (tensor, row, group):
        step = q.absmax.repeat_interleave(4 // q.absmax.shape[1], 1) / 127
        assert ((q.values - w).abs() <= step.expand(-1, 4) / 2 + 1e-6).all()


def test_a_smaller_group_has_a_smaller_error(weights):
    w = weights[SHAPES.index((576, 576))].float()
    errors = [(quant.int8(w, per).values - w).norm() for per in ("tensor", "row", 64, 32)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] / w.norm() < 0.02


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_fp8_is_that_of_torch(name):
    kind = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[name]
    codes = torch.arange(256, dtype=torch.uint8)
    right = codes.view(kind).float()
    assert torch.equal(minifloats.values(name).nan_to_num(7e9), right.nan_to_num(7e9))
    # every bf16 that does not overflow: torch's e5m2 goes to infinity, MX saturates
    x = torch.arange(2**16).to(torch.uint16).view(torch.bfloat16)
    x = x[x.isfinite()]
    fits = x.abs() <= minifloats.ELEMENTS[name].largest
    mine = minifloats.encode(x, name)
    assert torch.equal(mine[fits], x[fits].to(kind).view(torch.uint8))
    largest = minifloats.values(name)[mine[~fits].long()].abs()
    assert (largest == minifloats.ELEMENTS[name].largest).all()


def test_e2m1_by_hand():
    assert minifloats.values("e2m1").tolist()[8:] == [0, -0.5, -1, -1.5, -2, -3, -4, -6]
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 7.0, 0.26, -0.25])
    # to the even code: 0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, and 7 saturates
    assert minifloats.encode(ties, "e2m1").tolist() == [0, 2, 2, 4, 4, 6, 6, 7, 1, 8]


def test_mx_scales_by_the_specification():
    rows = torch.zeros(6, 32)
    rows[:5, 7] = torch.tensor([6.0, 7.9, 8.0, 0.1, 2.0**-140])
    block = minifloats.mx(rows, "e2m1")
    # floor(log2(6)) - 2 = 0, likewise 7.9; 3 - 2; -4 - 2; clamped at -127, zeros too
    assert block.shift.flatten().tolist() == [0, 0, 1, -6, -127, -127]
    assert block.values[:3, 7].tolist() == [6, 6, 8]  # 7.9 is above what 0 can hold
    assert block.values[5].count_nonzero() == 0
    assert block.nbytes == 6 * 17
    assert [minifloats.ELEMENTS[e].top for e in ("e2m1", "e4m3", "e5m2")] == [2, 8, 15]


def test_e8m0_is_that_of_torch():
    codes = torch.arange(255, dtype=torch.uint8)
    scale = minifloats.Mx(torch.full((255, 32), 2), codes.view(-1, 1), "e2m1").values[:, 0]
    assert torch.equal(scale, codes.view(torch.float8_e8m0fnu).float())


@pytest.mark.parametrize("element", minifloats.ELEMENTS)
def test_mx_rounds_to_the_nearest(weights, element):
    units = minifloats.values(element)
    units = units[units.isfinite()]
    for weight in weights[:5:2]:
        if weight.shape[1] % 32:
            continue
        block = minifloats.mx(weight, element)
        w = weight.float().unflatten(1, (-1, 32)) / (2.0**block.shift).unsqueeze(-1)
        v = block.values.unflatten(1, (-1, 32)) / (2.0**block.shift).unsqueeze(-1)
        best = (w.flatten()[:1024, None] - units).abs().amin(1)
        assert torch.equal((w - v).abs().flatten()[:1024], best)


def test_mxfp4_is_that_of_gguf(gguf, weights):
    """Codes too, except in ties, which the specification sends to the even code."""
    for weight in weights:
        if weight.shape[1] % 32:
            continue
        mine = minifloats.mx(weight, "e2m1")
        kind = gguf.GGMLQuantizationType.MXFP4
        raw = gguf.quantize(weight.float().numpy(), kind)
        right = torch.from_numpy(raw).unflatten(1, (-1, 17))
        some = weight.float().unflatten(1, (-1, 32)).abs().amax(-1) > 0
        assert torch.equal(mine.scales[some], right[..., 0][some])
        theirs = torch.from_numpy(gguf.dequantize(raw, kind))
        off = (mine.values != theirs).unflatten(1, (-1, 32))
        gap = (mine.values - weight).abs() - (theirs - weight).abs()
        assert gap.abs().max() <= 1e-6 * weight.abs().max(), "as near, where they differ"
        assert off.float().mean() < 0.02


def raw_blocks(name, n=300):
    """Random bytes as blocks, their halves finite, subnormal ones among them."""
    draw = np.random.default_rng(len(name))
    raw = draw.integers(0, 256, (n, 2, ggml_blocks.LAYOUTS[name].n_bytes), dtype=np.uint8)
    at = {"Q4_0": (0,), "Q4_1": (0, 2), "Q8_0": (0,), "Q4_K": (0, 2), "Q6_K": (208,)}
    for i in at.get(name, ()):
        halves = draw.normal(size=(n, 2)) * 10.0 ** draw.integers(-7, 4, (n, 2))
        raw[..., i : i + 2] = halves.astype(np.float16)[..., None].view(np.uint8)
    if name == "MXFP4":
        raw[..., 0] = draw.integers(0, 253, (n, 2))  # up to 6 x 2**125
    return raw.reshape(n, -1)


@pytest.mark.parametrize("name", ggml_blocks.LAYOUTS)
def test_blocks_are_those_of_gguf(gguf, name):
    kind = gguf.GGMLQuantizationType[name]
    layout = ggml_blocks.LAYOUTS[name]
    assert gguf.GGML_QUANT_SIZES[kind] == (layout.weights, layout.n_bytes)
    raw = raw_blocks(name)
    right = torch.from_numpy(gguf.dequantize(raw, kind))
    mine = ggml_blocks.decode(raw, name)
    assert mine.shape == (300, 2 * layout.weights)
    assert mine.isfinite().all()
    assert torch.equal(mine, right)
    assert torch.equal(ggml_blocks.decode(raw[3].tobytes(), name), right[3])


def test_the_model_file_is_decoded_alike(gguf, file):
    kinds = set()
    for name in (*REAL, "token_embd.weight"):
        tensor = file[name]
        raw = np.array(tensor.data[:2000])
        right = torch.from_numpy(gguf.dequantize(raw, tensor.tensor_type))
        assert torch.equal(ggml_blocks.decode(raw, tensor.tensor_type.name), right)
        kinds.add(tensor.tensor_type.name)
    assert kinds == {"Q4_1", "Q8_0"}


def test_blocks_by_hand():
    # half 0.5, then 16 bytes 0x1F: codes 15 for the first 16 weights, 1 for the others
    q4_0 = struct.pack("<e", 0.5) + bytes([0x1F] * 16)
    assert ggml_blocks.decode(q4_0, "Q4_0").tolist() == [3.5] * 16 + [-3.5] * 16
    q4_1 = struct.pack("<ee", 0.5, -1) + bytes([0x1F] * 16)
    assert ggml_blocks.decode(q4_1, "Q4_1").tolist() == [6.5] * 16 + [-0.5] * 16
    q8_0 = struct.pack("<e32b", 2, *range(-16, 16))
    assert ggml_blocks.decode(q8_0, "Q8_0").tolist() == [2 * i for i in range(-16, 16)]
    bits = {name: layout.bits for name, layout in ggml_blocks.LAYOUTS.items()}
    assert bits == {
        **{"Q4_0": 4.5, "Q4_1": 5, "Q8_0": 8.5, "Q4_K": 4.5, "Q6_K": 6.5625},
        "MXFP4": 4.25,
    }


@pytest.mark.parametrize(
    ("name", "bits"),  # 512 x 512 weights; scales of 32, 16 or 8 bits
    [
        ("int8 tensor", 8 + 32 / 2**18),
        ("int8 row", 8 + 32 / 512),
        ("int8 g64", 8 + 32 / 64),
        ("int4 g32", 4 + 32 / 32),
        ("int4 g64", 4 + 32 / 64),
        ("nf4", 4 + 32 / 64),
        ("nf4 double", 4 + 8 / 64 + 32 / 64 / 256 + 32 / 2**18),
        ("mxfp4", 4 + 8 / 32),
        ("mxfp8 e4m3", 8 + 8 / 32),
        ("mxfp8 e5m2", 8 + 8 / 32),
    ],
)
def test_bits_a_weight(name, bits):
    torch.manual_seed(13)
    weight = torch.randn(512, 512)
    written = quant.write(weight, name)
    assert written.nbytes * 8 / weight.numel() == bits
    error = (written.values - weight).norm() / weight.norm()
    # 16 levels are off by a tenth; of the 8-bit ones e5m2 has the shortest fraction
    assert error < {"mxfp8 e5m2": 0.06}.get(name, 0.04 if "8" in name else 0.13), error


def test_every_format_is_in_the_table():
    marks = test_bits_a_weight.pytestmark[0].args[1]
    assert [name for name, _ in marks] == list(quant.FORMATS)
    group = torch.randn(64, 64)
    same = fourbit.round_trip(group, "int4", group=32)
    assert torch.equal(quant.write(group, "int4 g32").values, same)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: quant.int8(torch.ones(2, 6), 4), "divide rows of 6, got 4"),
        (lambda: quant.int8(torch.ones(2, 6), "column"), "got 'column'"),
        (lambda: quant.write(torch.ones(2, 64), "int3"), "got 'int3'"),
        (lambda: normalfloat.quantize(torch.ones(3, 30)), "64 does not divide 90 weights"),
        (lambda: minifloats.mx(torch.ones(3, 30), "e2m1"), "32 does not divide rows of 30"),
        (lambda: minifloats.values("e3m2"), "got 'e3m2'"),
        (lambda: minifloats.mx(torch.full((1, 32), torch.nan), "e4m3"), "32 are not"),
        (
            lambda: ggml_blocks.decode(bytes(19), "Q4_0"),
            "19 bytes a row are no blocks of 18",
        ),
        (lambda: ggml_blocks.decode(bytes(18), "Q2_K"), "got 'Q2_K'"),
    ],
)
def test_refusals(call, says):
    with pytest.raises(ValueError, match=says):
        call()
