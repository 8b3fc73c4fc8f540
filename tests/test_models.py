"""The shapes: counts by hand, and by transformers on the meta device."""

from gpulab_utils.models import MODELS, shape_from_config
from gpulab_utils.tables import read

import pytest

ROWS = {row["id"]: row for row in read("models.json")}


def test_llama_2_13b_by_hand():
    s = MODELS["llama-2-13b"]
    linears = 40 * (4 * 5120**2 + 3 * 5120 * 13824)
    assert s.linear_params == linears == 12_687_769_600
    assert s.params == linears + 2 * 32000 * 5120 + 81 * 5120 == 13_015_864_320
    assert s.kv_bytes_per_token() == 2 * 40 * 40 * 128 * 2 == 819_200


def test_at_least_what_the_book_names():
    assert len(MODELS) >= 25
    families = {s.family for s in MODELS.values()}
    assert {"llama", "mistral", "qwen", "qwen2", "qwen3", "gemma2"} <= families
    assert {"gemma3_text", "phi", "olmo2", "gpt2", "bert", "gpt_oss", "mixtral"} <= families


@pytest.mark.parametrize("name", ROWS)
def test_a_shape_says_what_was_opened(name):
    # read: the publisher's own config.json; second hand: a copy that others keep of it
    row = ROWS[name]
    assert row["source_status"] in ("read", "second hand", "recalled")
    assert row["source"].strip()
    assert (", copied in " in row["source"]) <= (row["source_status"] == "second hand")


@pytest.mark.parametrize("name", ROWS)
def test_params_agree_with_the_published_total(name):
    assert MODELS[name].params == ROWS[name]["params"]


@pytest.mark.parametrize("name", [n for n in ROWS if n != "qwen-7b"])
def test_params_agree_with_transformers(name):
    torch, transformers = (pytest.importorskip(m) for m in ("torch", "transformers"))
    config = dict(ROWS[name]["config"])
    kind = config.pop("model_type")
    auto = transformers.AutoModel if kind == "bert" else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(transformers.AutoConfig.for_model(kind, **config))
    model.tie_weights()
    assert sum(p.numel() for p in model.parameters()) == MODELS[name].params


def test_a_window_caps_the_cache():
    # gemma-3-1b: 26 layers, every sixth sees everything: 22 windowed at 512, 4 full
    s = MODELS["gemma-3-1b"]
    assert s.kv_bytes(4096) == 2 * (22 * 512 + 4 * 4096) * 1 * 256 * 2


@pytest.mark.parametrize(
    ("kind", "why"),
    [("deepseek_v3", "latent attention"), ("nonesuch", "formulas of its layers")],
)
def test_an_unknown_type_is_refused_by_name(kind, why):
    with pytest.raises(ValueError, match=f"'{kind}' is not modelled.*{why}"):
        shape_from_config({"model_type": kind})


def test_an_unknown_name_names_the_nearest():
    with pytest.raises(KeyError, match="llama-2-13b"):
        MODELS["llama-2-13"]
