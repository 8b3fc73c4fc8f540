"""What machine is this? Asked once, so that no lab asks torch.

`GPULAB_DEVICE` = cpu, cuda, mps, xpu or standin overrides what is found; `GPULAB_TINY=1`
asks for the smallest sizes. Accelerators are CUDA and ROCm: on a machine with MPS or XPU
labs run on the CPU and `here().note` says so.
"""

import os
import platform
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DEVICES = ("cpu", "cuda", "mps", "xpu", "standin")
_NO_BF16 = ("gfx900", "gfx906", "gfx101", "gfx103")  # Vega, RDNA 1, RDNA 2


@dataclass(frozen=True)
class Here:
    """The machine a lab runs on: bytes, threads, and how to address it."""

    device: object  # torch.device
    name: str  # the driver's name of the card, or the processor's
    is_gpu: bool
    dtype: object  # torch.bfloat16, or torch.float16 where bf16 would be emulated
    tiny: bool
    standin: bool
    cache_bytes: int  # the last-level cache: L2 of a GPU, L3 of a CPU
    mem_bytes: int
    threads: int
    capability: tuple[int, int] | None = None
    note: str = ""

    @property
    def slug(self) -> str:
        """The name as a folder: lower case, digits and dashes."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")


def asked() -> str | None:
    """What `GPULAB_DEVICE` asks for, or None; `ValueError` on another word."""
    word = os.environ.get("GPULAB_DEVICE", "").lower() or None
    if word not in (None, *DEVICES):
        raise ValueError(f"GPULAB_DEVICE must be one of {', '.join(DEVICES)}, got {word!r}")
    return word


def here() -> Here:
    """The machine, read anew where the environment changed.

    >>> here().threads >= 1
    True
    """
    return _here(asked(), os.environ.get("GPULAB_TINY") == "1")


def pick(*, cpu, gpu, tiny):
    """One of three sizes: for this CPU, for a GPU, for a quick check of the arithmetic.

    >>> pick(cpu=1, gpu=2, tiny=3) in (1, 2, 3)
    True
    """
    machine = here()
    return tiny if machine.tiny else gpu if machine.is_gpu else cpu


def gpu_dtype(capability: tuple[int, int] | None, gfx: str | None = None) -> str:
    """The 16-bit format to use: "bf16" where the card computes in it, else "fp16".

    By compute capability (NVIDIA) or target (AMD). Never `torch.cuda.is_bf16_supported()`:
    it counts emulation, and says yes to a T4 and to every AMD card. Source: "Hardware
    features" of the HIP documentation, no bf16 on RDNA 1 and 2; ROCm #855, none on Vega.

    >>> gpu_dtype((7, 5)), gpu_dtype((8, 6)), gpu_dtype((12, 0))
    ('fp16', 'bf16', 'bf16')
    >>> gpu_dtype(None, "gfx1030"), gpu_dtype(None, "gfx1100"), gpu_dtype(None, "gfx90a")
    ('fp16', 'bf16', 'bf16')
    """
    if gfx is not None:
        return "fp16" if gfx.startswith(_NO_BF16) else "bf16"
    return "bf16" if capability and capability >= (8, 0) else "fp16"


@cache
def _here(word: str | None, tiny: bool) -> Here:
    import torch  # here: planning and the book need no torch

    found = torch.accelerator.current_accelerator(check_available=True)
    kind = (
        "cuda" if word in ("cuda", "standin") else word or (found.type if found else "cpu")
    )
    if kind == "cuda":
        if not torch.cuda.is_available():
            raise RuntimeError(
                f"GPULAB_DEVICE={word} but torch {torch.__version__} sees no CUDA device; "
                "`python -m gpulab_utils doctor` says why, GPULAB_DEVICE=cpu runs without"
            )
        return _gpu(tiny, word == "standin")
    note = f"{kind} is here, but labs run on the CPU" if kind in ("mps", "xpu") else ""
    return _cpu(tiny, note)


def _cpu(tiny: bool, note: str) -> Here:
    import torch

    return Here(
        device=torch.device("cpu"),
        name=cpu_name(),
        is_gpu=False,
        dtype=torch.bfloat16,
        tiny=tiny,
        standin=False,
        cache_bytes=_cpu_cache_bytes(),
        mem_bytes=ram_bytes(),
        threads=torch.get_num_threads(),
        note=note,
    )


def _gpu(tiny: bool, standin: bool) -> Here:
    import torch

    seen = torch.cuda.get_device_properties(0)
    rocm = bool(torch.version.hip)
    capability = None if rocm else (seen.major, seen.minor)
    gfx = seen.gcnArchName if rocm else None
    return Here(
        device=torch.device("cuda", 0),
        name=seen.name,
        is_gpu=True,
        dtype=torch.bfloat16 if gpu_dtype(capability, gfx) == "bf16" else torch.float16,
        tiny=tiny,
        standin=standin,
        cache_bytes=seen.L2_cache_size,
        mem_bytes=seen.total_memory,
        threads=torch.get_num_threads(),
        capability=capability,
    )


@cache
def cpu_name() -> str:
    """The processor's own name, with its family and model where the name is generic."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        told = {
            k.strip(): v.strip() for k, v in (s.split(":", 1) for s in lines if ":" in s)
        }
    except OSError:
        return platform.processor() or platform.machine()
    name = told.get("model name", platform.machine())
    if any(c.isdigit() for c in name):
        return name
    return f"{name} family {told.get('cpu family', '?')} model {told.get('model', '?')}"


def _cpu_cache_bytes() -> int:
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    kib = [int(p.read_text().strip().rstrip("K")) for p in sizes]
    return max(kib, default=32 * 1024) * 1024


def ram_bytes() -> int:
    """All the memory of this machine, or of the container it is."""
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.exists() else "max"
    total = _machine_ram()
    return total if text == "max" else min(total, int(text))


def _machine_ram() -> int:
    try:
        import psutil

        return psutil.virtual_memory().total
    except ImportError:  # a borrowed machine with torch and little else
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
