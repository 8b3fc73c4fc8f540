"""Which build of torch runs on this card with this driver? All from driver_support.json."""

import re
from functools import cache

from gpulab_utils import tables
from gpulab_utils.doctor.facts import Facts, Gpu

#: The release that the lock names, and the oldest that the labs run on.
LOCKED = "2.13.0"
OLDEST = (2, 10)
INDEX = "https://download.pytorch.org/whl"


@cache
def support() -> dict:
    """`driver_support.json` as it is."""
    return tables.read("driver_support.json")


def release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version.

    >>> release("2.13.0+cu130")
    (2, 13, 0)
    """
    return tuple(int(n) for n in re.findall(r"\d+", version.split("+")[0]))


def driver_for(cuda: str) -> int:
    """The oldest driver branch that runs wheels of this CUDA version.

    >>> driver_for("13.0"), driver_for("12.6")
    (580, 525)
    """
    rows = support()["driver_by_cuda_major"]["rows"]
    return next((r["driver"] for r in rows if r["cuda"] == release(cuda)[0]), 0)


def newest_with(cuda: str) -> str:
    """The last torch release that our table knows to have a build for this CUDA version.

    >>> newest_with("12.6"), newest_with("12.8")
    ('2.14', '2.11')
    """
    rows = support()["torch_releases"]["rows"]
    having = [r["torch"] for r in rows if cuda in r["cuda"]]
    return max(having, key=release)


def rocm_of(version: str) -> str:
    """The ROCm version that this torch release is built for.

    >>> rocm_of("2.13.0")
    '7.2'
    """
    rows = support()["torch_releases"]["rows"]
    return next(r["rocm"] for r in rows if release(r["torch"]) == release(version)[:2])


def default_cuda(version: str) -> str:
    """The CUDA version of the wheel for Linux that the registry has of this release.

    >>> default_cuda("2.13.0"), default_cuda("2.10.0")
    ('13.0', '12.8')
    """
    rows = support()["torch_releases"]["rows"]
    row = next(r for r in rows if release(r["torch"]) == release(version)[:2])
    return row["pypi_linux"].split()[0]


def targets(version: str, cuda: str) -> tuple[str, ...]:
    """What the wheel of this release for this CUDA version is compiled for.

    Raises `ValueError` where our table does not know the pair.

    >>> targets("2.13.0", "12.6")
    ('sm_50', 'sm_60', 'sm_70', 'sm_75', 'sm_80', 'sm_86', 'sm_90')
    >>> targets("2.13.0", "13.0")[-2:]
    ('sm_120', 'compute_120')
    """
    build = f"cu{cuda.replace('.', '')}"
    for row in support()["torch_wheels"]["rows"]:
        known = [release(v) for v in re.findall(r"\d+\.\d+", row["torch"])]
        first = (2, 0) if "<=" in row["torch"] else min(known)
        inside = first <= release(version)[:2] <= max(known)
        if inside and build in row["build"].split(", "):
            return tuple(name for sm in row["sm"] for name in _names(sm))
    raise ValueError(f"no list of targets for torch {version} with CUDA {cuda}")


def _names(sm: str) -> list[str]:
    """`12.0 (+PTX on Linux)` as the names that torch prints."""
    digits = re.match(r"[\d.]+", sm)[0].replace(".", "")
    return [f"sm_{digits}"] + [f"compute_{digits}"] * ("PTX" in sm)


def amd_targets() -> tuple[str, ...]:
    """What the wheels for ROCm are compiled for."""
    return tuple(support()["rocm"]["pytorch_rocm_wheel_targets"]["targets"])


def holds_code_for(arch_list: tuple[str, ...], gpu: Gpu) -> bool:
    """Whether a build with these targets has something that this card can run.

    Binary code runs on the same major version and a higher minor, `sm_90a` and the like on
    that very chip. PTX (`compute_…`) is compiled by the driver of anything newer; leave it
    out of `arch_list` to ask for binary code.

    >>> holds_code_for(("sm_60",), Gpu("GTX 1080 Ti", "NVIDIA", 0, capability=(6, 1)))
    True
    >>> holds_code_for(("sm_90",), Gpu("RTX 5070", "NVIDIA", 0, capability=(12, 0)))
    False
    """
    if gpu.vendor == "AMD":
        return gpu.gfx in {a.split(":")[0] for a in arch_list}
    if gpu.capability is None:
        return True
    return any(_runs(arch, gpu.capability) for arch in arch_list)


def _runs(arch: str, capability: tuple[int, int]) -> bool:
    kind, _, digits = arch.partition("_")
    number = re.match(r"\d+", digits)
    if not number:
        return False
    target = divmod(int(number[0]), 10)
    if kind == "compute":
        return target <= capability
    if not digits.isdigit():  # a suffix: no other chip
        return target == capability
    return target[0] == capability[0] and target[1] <= capability[1]


def install(facts: Facts, gpu: Gpu | None) -> str:
    """The command, or the sentence, that gives this machine a torch for this card."""
    if gpu is None:
        return _pip("cpu")
    if gpu.vendor == "AMD":
        if facts.system == "Linux":
            return _pip(f"rocm{rocm_of(LOCKED)}")
        return f"{_pip('cpu')} (ROCm builds of torch are for Linux)"
    driver = release(gpu.driver or "0")[0]
    if gpu.capability and gpu.capability < (5, 0):
        return (
            f"torch {newest_with('11.8')} was the last for this card and the labs need "
            f"{OLDEST[0]}.{OLDEST[1]}: use the CPU build, {_pip('cpu')}"
        )
    if gpu.capability and gpu.capability < (7, 5):
        return _older_card(driver)
    if driver and driver < driver_for("13.0"):
        return _older_driver(facts, gpu, driver)
    return _pip("" if facts.system == "Linux" else "cu130")


def _older_card(driver: int) -> str:
    """A card that the CUDA 13 builds have no code for."""
    first = "" if driver >= driver_for("12.6") else "update the driver, then "
    return (
        f"{first}{_pip('cu126')} (the CUDA 12.6 build; torch {newest_with('12.6')} is the "
        "last release known to have one)"
    )


def _older_driver(facts: Facts, gpu: Gpu, driver: int) -> str:
    """A card that CUDA 13 has code for, under a driver that does not run it."""
    update = f"update the driver to {driver_for('13.0')} or newer"
    if not (facts.torch_cuda and holds_code_for(facts.arch_list, gpu)):
        update += f" and {_pip('' if facts.system == 'Linux' else 'cu130')}"
    if gpu.capability and gpu.capability >= (10, 0):
        other = f'pip install "torch=={newest_with("12.8")}.*" --index-url {INDEX}/cu128'
    elif driver >= driver_for("12.6"):
        other = _pip("cu126")
    else:
        return update
    return f"{update}; or keep it and take {other}"


def _pip(build: str) -> str:
    index = f" --index-url {INDEX}/{build}" if build else ""
    return f"pip install torch=={LOCKED}{index}"
