"""A kernel of your own: RMSNorm over rows in Triton, each byte read and written once.

y = x / sqrt(mean(x^2) + eps) * w for each row; source: B. Zhang and R. Sennrich, "Root Mean
Square Layer Normalization", 2019. Sums are fp32 whatever the rows are.

Triton compiles for a GPU. Where there is none its interpreter runs the same source on
numpy, one row after the other. `TRITON_INTERPRET=1` has to be set before triton is
imported, so `in_interpreter` starts a process of its own.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

try:
    import triton
    import triton.language as tl
except ImportError:  # Triton has no wheel for this system
    triton = None

MOST_ROWS = 64  # the interpreter takes milliseconds a row
EPS = 1e-6
GUARD = 7.0  # what lies behind the output, and must still lie there afterwards


class TritonMissing(ImportError):
    """Triton is not installed, or has no wheel for this system."""


@dataclass(frozen=True)
class Seen:
    """Relative errors of one shape against float64, and did the kernel keep its place?"""

    rows: int
    columns: int
    dtype: str
    masked: bool
    kernel: float  # norm of the difference over norm of the result
    eager: float  # the formula, one torch operation after the other
    library: float  # torch.nn.functional.rms_norm
    inside: bool  # nothing behind the last row was written


if triton:

    @triton.jit
    def kernel(x_at, w_at, y_at, columns, eps, BLOCK: tl.constexpr, MASKED: tl.constexpr):
        row = tl.program_id(0)  # one program a row
        at = tl.arange(0, BLOCK)  # BLOCK is a power of two: the last values are not ours
        inside = at < columns if MASKED else at < BLOCK
        x = tl.load(x_at + row * columns + at, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(w_at + at, mask=inside, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(x * x, axis=0) / columns + eps)
        y = (x * scale * w).to(y_at.dtype.element_ty)  # rounded once, here
        tl.store(y_at + row * columns + at, y, mask=inside)


def available() -> bool:
    """Whether triton is installed; it needs a GPU to compile, none to interpret.

    >>> available() in (True, False)
    True
    """
    return triton is not None


def source() -> str:
    """The kernel as it stands in this file."""
    text = Path(__file__).read_text(encoding="utf-8")
    return dedent(text.split("if triton:\n\n")[1].split("\n\n\n")[0])


def rms_norm(x, weight):
    """The kernel on x [rows, columns] and weight [columns]: [rows, columns], like `x`.

    Compiles for the GPU that `x` lies on. Raises `TritonMissing`.
    """
    import torch

    if triton is None:
        raise TritonMissing("triton is not installed: pip install triton (Linux)")
    out, (rows, columns) = torch.empty_like(x), x.shape
    block = triton.next_power_of_2(columns)
    kernel[(rows,)](x, weight, out, columns, EPS, BLOCK=block, MASKED=True)
    return out


def eager(x, weight):
    """The formula in torch operations, each of which rounds to the dtype of `x`.

    >>> import torch
    >>> eager(torch.tensor([[3.0, 4.0]]), torch.ones(2)).mul(12.5**0.5).round().tolist()
    [[3.0, 4.0]]
    """
    import torch

    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight


def in_interpreter(cases: Sequence[tuple[int, int, str, bool]]) -> list[Seen]:
    """Run (rows, columns, dtype, masked) each in Triton's interpreter: a few seconds.

    Raises `ValueError` for more than 64 rows, `TritonMissing`, `RuntimeError` where the
    interpreter fails.
    """
    if most := [rows for rows, *_ in cases if not 0 < rows <= MOST_ROWS]:
        raise ValueError(f"rows must be 1 to {MOST_ROWS} in the interpreter, got {most[0]}")
    if triton is None:
        raise TritonMissing("triton is not installed: pip install triton (Linux)")
    path = os.pathsep.join([str(Path(__file__).parent.parent), *sys.path])
    env = os.environ | {"TRITON_INTERPRET": "1", "GPULAB_DEVICE": "cpu", "PYTHONPATH": path}
    command = [sys.executable, "-m", "gpulab_utils.triton_ops", json.dumps(cases)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"Triton's interpreter failed: {done.stderr[-500:]}")
    return [Seen(**told) for told in json.loads(done.stdout)]


def try_case(rows: int, columns: int, dtype: str, masked: bool) -> dict:
    """One case in this process, whose triton interprets; see `Seen`."""
    import torch
    import torch.nn.functional as F

    draw = torch.Generator().manual_seed(rows)
    beyond = triton.next_power_of_2(columns)
    flat = torch.randn(rows * columns + beyond, generator=draw).to(getattr(torch, dtype))
    flat[rows * columns :] = 3.0  # an unmasked load of the last row finds these
    weight = torch.rand(beyond, generator=draw).to(flat.dtype)
    x, w = flat[: rows * columns].view(rows, columns), weight[:columns]
    padded = torch.full_like(flat, GUARD)
    kernel[(rows,)](flat, weight, padded, columns, EPS, BLOCK=beyond, MASKED=masked)
    exact = eager(x.double(), w.double())
    found = {"kernel": padded[: rows * columns].view(rows, columns), "eager": eager(x, w)}
    found["library"] = F.rms_norm(x, (columns,), w, EPS)
    errors = {
        k: float((y.double() - exact).norm() / exact.norm()) for k, y in found.items()
    }
    inside = bool((padded[rows * columns :] == GUARD).all())
    told = {"rows": rows, "columns": columns, "dtype": dtype, "masked": masked}
    return told | errors | {"inside": inside}


if __name__ == "__main__":
    print(json.dumps([try_case(*case) for case in json.loads(sys.argv[1])]))
