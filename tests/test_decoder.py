"""Four-bit weights and the decoder over them: hand arithmetic, transformers as oracle."""

from dataclasses import replace
from importlib.metadata import version

from gpulab_utils import MODELS, decoder, device, fourbit, kernels, oracle, real13b
from gpulab_utils.tables import read

import pytest
import torch

TINY = replace(
    MODELS["llama-2-13b"],
    **{"hidden": 256, "layers": 2, "heads": 2, "kv_heads": 2, "intermediate": 384},
    vocab=500,
)
NAMES = kernels.available()


@pytest.fixture(autouse=True)
def no_grad():
    torch.manual_seed(18)
    with torch.no_grad():
        yield


def build(shape, name):
    """A random decoder in 4 bits, and the weights that its layers stand for."""
    written, linears = {}, {}
    for key, size in decoder.linear_sizes(shape).items():
        written[key] = torch.empty(size)
        table = decoder.random_table(*size, std=0.05)
        linears[key] = fourbit.PACK[name](table, values=written[key])
    ones = torch.ones(shape.hidden, dtype=device.here().dtype)
    block = decoder.Block(**linears, norm_attention=ones, norm_mlp=ones.clone())
    tables = (decoder.random_table(shape.vocab, shape.hidden) for _ in range(2))
    blocks = [block.clone() for _ in range(shape.layers)]
    return decoder.Decoder(shape, blocks, *tables, ones), written


def logits_of(model, ids, at_once):
    """Logits [tokens, vocab]: the first `at_once` tokens together, the rest one by one."""
    cache = model.cache(len(ids))
    steps = [model(ids[:at_once], cache), *(model(i[None], cache) for i in ids[at_once:])]
    return torch.cat(steps).float()


def test_codes_by_hand():
    # -2 to 1.75 in steps of 0.25: scale 3.75 / 15 = 0.25, offset -2 + 8 x 0.25 = 0
    group = torch.tensor([[(i % 16 - 8) / 4 for i in range(128)]])
    codes, scales = fourbit.quantize_int4(group)
    assert codes[0, :16].tolist() == list(range(16))
    assert scales.flatten().tolist() == [0.25, 0.0]
    assert torch.equal(fourbit.dequantize_int4(codes, scales), group)


def test_equal_weights_survive():
    group = torch.full((1, 128), 0.5)
    assert torch.equal(fourbit.round_trip(group, "int4"), group)


@pytest.mark.parametrize("name", NAMES)
def test_product_is_the_one_of_the_dequantised_weights(name):
    weight, x = decoder.random_table(320, 512), decoder.random_table(3, 512, std=1)
    values = torch.empty(weight.shape)
    layer = fourbit.PACK[name](weight, values=values)
    assert torch.equal(values, fourbit.round_trip(weight, name))
    right = x.float() @ values.T
    assert (layer(x).float() - right).norm() < 0.01 * right.norm()
    assert layer.nbytes == 320 * 512 * 4.25 / 8  # 16 bits for 64, or 32 for 128
    assert torch.equal(layer.clone()(x), layer(x))


@pytest.mark.parametrize("name", NAMES)
def test_a_clone_has_memory_of_its_own(name):
    layer = fourbit.PACK[name](decoder.random_table(64, 128))
    for mine, other in zip(layer.tensors, layer.clone().tensors, strict=True):
        assert mine.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()


@pytest.mark.parametrize("kv_heads", [2, 1])
@pytest.mark.parametrize("name", NAMES)
def test_decoder_agrees_with_transformers(name, kv_heads):
    model, written = build(replace(TINY, kv_heads=kv_heads), name)
    ids = torch.randint(TINY.vocab, (12,))
    right = oracle.reference(model, written)(ids[None]).logits[0]
    for at_once in (1, 7, 12):
        assert (
            logits_of(model, ids, at_once) - right
        ).abs().max() < 0.05 * right.abs().max()


def test_greedy_decoding_feeds_back_what_it_made():
    model, _ = build(TINY, NAMES[0])
    prompt, cache = torch.tensor([3, 1, 4]), model.cache(8)
    made = list(decoder.generate(model, prompt, cache, 5))
    whole = torch.tensor([3, 1, 4, *made[:-1]])
    assert cache.length == 7
    assert logits_of(model, whole, len(whole))[2:].argmax(-1).tolist() == made


def test_bytes_of_the_13b_layer_by_hand():
    # 4 x 5120² + 3 x 5120 x 13824 = 317,194,240 weights
    sizes = decoder.linear_sizes(MODELS["llama-2-13b"]).values()
    assert sum(out * inputs for out, inputs in sizes) == 317_194_240


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda: fourbit.quantize_int4(torch.ones(2, 100)),
            "group 128 does not divide rows of 100",
        ),
        (lambda: fourbit.round_trip(torch.ones(2, 100), "nf4"), "block 64 does not divide"),
        (lambda: fourbit.round_trip(torch.ones(2, 128), "fp3"), "int4, nf4, got 'fp3'"),
        (lambda: next(decoder.generate(None, None, None, 0)), "n must be positive, got 0"),
    ],
)
def test_wrong_input_is_named(call, told):
    with pytest.raises(ValueError, match=told):
        call()


def test_a_cache_without_room_is_named():
    model, _ = build(TINY, NAMES[0])
    cache = model.cache(2)
    with pytest.raises(ValueError, match="holds 2 tokens, 3 were asked"):
        model(torch.tensor([1, 2, 3]), cache)
    model(torch.tensor([1]), cache)
    with pytest.raises(ValueError, match="2 tokens after 1: feed them one by one"):
        model(torch.tensor([1, 2]), cache)


def test_private_names_are_where_they_were_seen():
    """Fails first when a new torch or bitsandbytes moves what `kernels` calls."""
    for library, seen in kernels.SEEN_IN.items():
        assert version(library).split("+")[0] == seen, f"read kernels.py against {library}"
    assert "int4" in NAMES


def test_a_moved_name_says_what_to_do(monkeypatch):
    monkeypatch.delattr(torch, "_weight_int4pack_mm_for_cpu")
    kernels._int4.cache_clear()
    try:
        assert "int4" not in kernels.available()
        with pytest.raises(kernels.KernelMissing, match="had; install that version"):
            fourbit.int4(torch.ones(64, 128))
    finally:
        kernels._int4.cache_clear()


def test_no_bitsandbytes_says_what_to_do(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "bitsandbytes", None)
    assert kernels.available() == kernels.quantizers() == ["int4"]
    with pytest.raises(kernels.KernelMissing, match="pip install bitsandbytes"):
        fourbit.nf4(torch.ones(64, 128))


def test_the_real_13b_is_asked_for_in_vain_without_a_gpu(monkeypatch):
    monkeypatch.setenv(real13b.FLAG, "1")
    with pytest.raises(RuntimeError, match="needs a CUDA or ROCm card, here is"):
        real13b.asked()


def test_the_real_13b_is_loaded_by_a_pinned_revision(monkeypatch):
    import transformers

    asked = []
    monkeypatch.setattr(torch.nn.Module, "eval", lambda self: self)
    for name in ("AutoModelForCausalLM", "AutoTokenizer"):
        keep = lambda *a, **k: asked.append((a, k)) or torch.nn.Module()  # noqa: E731
        monkeypatch.setattr(getattr(transformers, name), "from_pretrained", keep)
    real13b.olmo()
    for args, options in asked:
        assert args == ("allenai/OLMo-2-1124-13B-Instruct",)
        assert len(options["revision"]) == 40
        assert options["trust_remote_code"] is False
    told = asked[0][1]["quantization_config"]
    assert (told.bnb_4bit_quant_type, told.bnb_4bit_use_double_quant) == ("nf4", True)


def test_published_perplexities_have_sources():
    told = read("published/perplexity.json")
    for row in told["rows"]:
        assert told["sources"][row["source"]]["url"].startswith("https://")
        assert row["perplexity"] > 1
    for name in told["sources"]:
        bits = {(r["model"], r["bits"]) for r in told["rows"] if r["source"] == name}
        assert {("LLaMA-7B", 4), ("LLaMA-13B", 4), ("LLaMA-13B", 16)} <= bits
    with pytest.raises(KeyError, match="there are llama"):
        real13b.rises("a blog")
