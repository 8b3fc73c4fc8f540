"""What multiplies matrices here: Tensor Cores, AMX, AVX512-BF16, or nothing of its own.

torch's names that are not public, or are new, stand in this module alone.
"""

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from gpulab_utils import device
from gpulab_utils.cards import CARDS
from gpulab_utils.timing import Ratio, compare

SEEN_IN = "2.13.0"
#: oneDNN's switch, and a value that leaves AVX-512 and takes the 16-bit units away.
SWITCH, OFF = "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_VNNI"


@dataclass(frozen=True)
class Unit:
    """Products of 16 bit over products of 32 bit in a cycle, as the maker states them."""

    name: str  # "" where 16 bit has no unit
    gain: float | None  # None where nobody says


# AMX: 1,024 operations a cycle in bf16, 64 in fp32 (PyTorch's AMX recipe, after Intel).
# AVX512-BF16: VDPBF16PS does two products a lane where VFMADD does one (Intel's manual):
# twice as many where a core starts both equally often.
CPU_UNITS = {"amx_bf16": Unit("AMX", 16), "avx512_bf16": Unit("AVX512-BF16", 2)}


def capabilities() -> dict[str, bool]:
    """What the CPU says of itself, for the names of `CPU_UNITS`."""
    import torch

    if hasattr(torch.cpu, "get_capabilities"):
        told = torch.cpu.get_capabilities()
        return {name: bool(told.get(name)) for name in CPU_UNITS}
    asked = {"amx_bf16": "_is_amx_tile_supported"}  # torch 2.10
    asked |= {"avx512_bf16": "_is_avx512_bf16_supported"}
    return {k: bool(getattr(torch.cpu, v, lambda: False)()) for k, v in asked.items()}


def unit() -> Unit:
    """The unit that torch can use here; oneDNN may be told not to.

    >>> unit().gain is None or unit().gain >= 1
    True
    """
    here = device.here()
    if here.is_gpu:
        return card_unit(here.name)
    limit = os.environ.get(SWITCH, "ALL").upper()
    for name, found in CPU_UNITS.items():
        allowed = limit in ("ALL", "DEFAULT") or _reaches(limit, name)
        if allowed and capabilities()[name]:
            return found
    return Unit("", None)


def _reaches(limit: str, name: str) -> bool:
    """Whether oneDNN, limited to an instruction set, may still use the unit."""
    if name == "amx_bf16":
        return "AMX" in limit
    return any(word in limit for word in ("AMX", "BF16", "FP16", "AVX10"))


def card_unit(name: str) -> Unit:
    """The unit of the card that the driver calls `name`: 16-bit rate over fp32 rate.

    >>> card_unit("NVIDIA GeForce RTX 3080 Ti").gain, card_unit("Tesla T4").gain
    (2.0, 8.0)
    >>> card_unit("a card that no table has").gain
    """
    for card in CARDS.values():
        if _model(card.name) == _model(name) and "fp16" in card.flop_per_s:
            return Unit("Tensor Cores", round(card.rate("fp16") / card.rate("fp32"), 1))
    return Unit("a matrix unit", None)


def _model(name: str) -> set[str]:
    """The words of a card's name without maker, memory size and form."""
    words = set(re.split(r"[\s-]+", name.upper()))
    other = re.compile(r"NVIDIA|TESLA|AMD|\d+GB|HBM\d*E?|SXM\d*|PCIE|NVL|\(.*\)")
    return {w for w in words if not other.fullmatch(w)}


@contextmanager
def tf32():
    """fp32 products on Tensor Cores, their factors rounded to TF32; no effect on a CPU."""
    import torch

    place = torch.backends.cuda.matmul
    before, place.fp32_precision = place.fp32_precision, "tf32"
    try:
        yield
    finally:
        place.fp32_precision = before


def pair(rows: int):
    """[rows, n] through weights [n, n]: the calls in fp32 and in 16 bit.

    The weights together fill the cache twice in 16 bit, 64 of them at most; for a large
    batch, which reuses what it has read, there is one.
    """
    import torch
    import torch.nn.functional as F

    here = device.here()
    n = device.pick(cpu=1024, gpu=8192, tiny=32)
    count = 1 if rows > 8 else max(1, here.cache_bytes // n**2)
    count = device.pick(cpu=min(count, 64), gpu=min(count, 8), tiny=1)
    wide = [torch.randn(n, n, device=here.device) for _ in range(count)]
    x = torch.randn(rows, n, device=here.device)  # [rows, n]

    def through(x, weights):
        return lambda: [F.linear(x, w) for w in weights]

    return through(x, wide), through(x.to(here.dtype), [w.to(here.dtype) for w in wide])


def gains(rows: tuple[int, ...], budget_s: float = 1.0) -> dict[int, Ratio]:
    """How many times as long fp32 takes as 16 bit, for each batch of `rows`."""
    return {n: compare(*pair(n), budget_s=budget_s) for n in rows}


def without_unit(rows: tuple[int, ...], budget_s: float = 1.0) -> dict[int, Ratio]:
    """`gains` in a process of its own that may not use the CPU's 16-bit unit (oneDNN)."""
    code = f"from {__name__} import tell; tell({rows}, {budget_s})"
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {SWITCH: OFF, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the process without the unit failed: {done.stderr[-500:]}")
    seen = json.loads(done.stdout.splitlines()[-1])
    return {int(k): Ratio(**v) for k, v in seen.items()}


def tell(rows: tuple[int, ...], budget_s: float) -> None:
    """What the process without the unit prints: `gains` as JSON."""
    print(json.dumps({k: asdict(v) for k, v in gains(rows, budget_s).items()}))
