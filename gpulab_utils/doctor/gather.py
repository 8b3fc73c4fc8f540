"""Ask this machine. Every question is guarded: the doctor must not fall ill itself."""

import os
import platform
import shutil
import sys
import warnings
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from gpulab_utils import device, load
from gpulab_utils.doctor import gpus
from gpulab_utils.doctor.compiler import compiler
from gpulab_utils.doctor.facts import Facts, Trial

PACKAGES = ("transformers", "accelerate", "gguf", "bitsandbytes", "peft")
FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16", "asimd", "bf16")
_CGROUP = Path("/sys/fs/cgroup")


def gather() -> Facts:
    """Everything that `advise` looks at, of this machine, now."""
    told_by_torch = _torch_facts()
    total, free = ram()
    name, why_not = compiler()
    folder = load.cache_folder()
    return Facts(
        system=platform.system(),
        python=sys.version_info[:2],
        cpu=device.cpu_name(),
        features=features(),
        cores=os.cpu_count() or 1,
        ram_bytes=total,
        ram_free_bytes=free,
        packages={package: _version(package) for package in PACKAGES},
        model_file=_model_file(),
        compiler=name,
        compiler_error=why_not,
        cache_folder=str(folder),
        cache_free_bytes=_disk_free(folder),
        checkout_python=_checkout_python(Path(load.__file__).parents[1] / ".venv"),
        wsl="microsoft" in platform.release().lower(),
        standin=device.asked() == "standin",
        **told_by_torch,
    )


def _torch_facts() -> dict:
    found = {"torch": _version("torch"), "threads": os.cpu_count() or 1}
    cards = gpus.nvidia() or gpus.amd()
    if found["torch"] is None:
        return {**found, "gpus": cards}
    try:
        import torch
    except Exception as error:  # a library that it links to is missing
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        return {**found, "gpus": cards, "torch_error": said}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        sees = torch.cuda.is_available()
    seen = gpus.by_torch(torch) if sees else ()
    other = next((k for k in ("mps", "xpu") if _available(torch, k)), None)
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "torch_cuda": torch.version.cuda,
        "torch_hip": torch.version.hip,
        "arch_list": tuple(_arch_list(torch)),
        "torch_sees": sees,
        "torch_said": str(said[0].message).splitlines()[0] if said else "",
        "other_accelerator": other,
        "gpus": seen if torch.version.hip and seen else cards or seen,
        "trials": tuple(_trials(torch, ["cpu", *(["cuda"] if sees else []), other])),
    }


def _arch_list(torch) -> list[str]:
    """The targets compiled into this build; torch hides them where it sees no card."""
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: "")
    return torch.cuda.get_arch_list() or (flags() or "").split()


def _available(torch, kind: str) -> bool:
    module = getattr(torch.backends if kind == "mps" else torch, kind, None)
    return bool(module and module.is_available())


def _trials(torch, kinds: list):
    for kind in filter(None, kinds):
        for dtype in ("float32", "float16", "bfloat16"):
            yield Trial(kind, dtype, _try(torch, kind, getattr(torch, dtype)))


def _try(torch, kind: str, dtype) -> str:
    """Multiply two matrices whose product is known; what went wrong, or nothing."""
    try:
        ones = torch.ones(64, 64, dtype=dtype, device=kind)  # [64, 64]
        wrong = int(((2 * ones) @ ones != 128).sum())
        return f"{wrong} of 4096 products are wrong" if wrong else ""
    except Exception as error:
        return str(error).splitlines()[0]


def features() -> tuple[str, ...]:
    """Instruction sets of this processor that the labs make use of."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux: torch knows some of them
        return _features_by_torch()
    told = next((s for s in lines if s.startswith(("flags", "Features"))), "")
    have = set(told.split())
    return tuple(f for f in FEATURES if f in have)


def _features_by_torch() -> tuple[str, ...]:
    try:
        import torch

        words = torch.backends.cpu.get_cpu_capability().lower()
    except Exception:
        return ()
    known = {"avx2": ("avx2",), "avx512": ("avx2", "avx512f")}
    return known.get(words, ("asimd",) if platform.machine() == "arm64" else ())


def ram() -> tuple[int, int]:
    """(all, free) bytes of memory of this machine, or of the container it is."""
    total, free = _machine_ram()
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        told = (_CGROUP / "memory.stat").read_text().split()
        cached = int(told[told.index("inactive_file") + 1])  # given up when it is needed
        used = int((_CGROUP / "memory.current").read_text()) - cached
    except (OSError, ValueError):
        return total, free
    if limit == "max" or int(limit) >= total:
        return total, free
    return int(limit), min(free, max(0, int(limit) - used))


def _machine_ram() -> tuple[int, int]:
    try:
        import psutil

        told = psutil.virtual_memory()
        return told.total, told.available
    except ImportError:
        pass
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0, 0
    kib = {s.split(":")[0]: int(s.split()[1]) for s in lines if s.endswith("kB")}
    return kib["MemTotal"] * 1024, kib["MemAvailable"] * 1024


def _checkout_python(venv: Path) -> str:
    """The Python that `make` set up in this checkout, unless it is the one that runs."""
    if not (venv / "pyvenv.cfg").exists() or Path(sys.prefix).resolve() == venv.resolve():
        return ""
    return str(venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))


def _version(package: str) -> str | None:
    if find_spec(package) is None:
        return None
    try:
        return version(package)
    except PackageNotFoundError:  # built in place, or a conda package without metadata
        return "of unknown version"


def _model_file() -> str | None:
    try:
        return str(load.smollm2_file())
    except FileNotFoundError:
        return None


def _disk_free(folder: Path) -> int | None:
    there = next((p for p in (folder, *folder.parents) if p.exists()), None)
    return shutil.disk_usage(there).free if there else None
