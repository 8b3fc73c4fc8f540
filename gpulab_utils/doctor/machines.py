"""Machines that nobody here owns, as facts; and what becomes of one that takes advice."""

import re
from dataclasses import replace

from gpulab_utils.doctor import wheels
from gpulab_utils.doctor.advice import advise
from gpulab_utils.doctor.facts import Facts, Gpu
from gpulab_utils.units import GIB

#: Of branch 580: the first for CUDA 13, and the last for Maxwell, Pascal and Volta.
DRIVER = "580.95.05"
_COMMAND = re.compile(
    r'pip install "?torch==(?P<torch>[\d.]+\d)\S*(?: --index-url \S+/(?P<build>[\w.]+))?'
)

#: Wheels and chips worth comparing: (torch, CUDA), and a name for each capability.
WHEELS = [("2.7.0", "11.8"), ("2.9.0", "12.8"), ("2.11.0", "12.8")]
WHEELS += [("2.13.0", "12.6"), ("2.13.0", "13.0")]
CHIPS = {
    "6.1\nPascal": (6, 1),
    "7.0\nVolta": (7, 0),
    "7.5\nTuring": (7, 5),
    "8.0\nA100": (8, 0),
    "8.6\n30xx": (8, 6),
    "8.9\n40xx": (8, 9),
    "9.0\nH100": (9, 0),
    "10.0\nB200": (10, 0),
    "12.0\n50xx": (12, 0),
}
#: A desktop that lacks nothing but a GPU.
BARE = Facts(
    system="Linux",
    python=(3, 12),
    cpu="AMD Ryzen 7 5800X",
    features=("avx2",),
    cores=16,
    threads=8,
    ram_bytes=32 * GIB,
    ram_free_bytes=24 * GIB,
    torch="2.13.0+cpu",
    packages=dict.fromkeys(
        ("transformers", "accelerate", "gguf", "bitsandbytes", "peft"), "5.24.0"
    ),
    model_file="/site/SmolLM2-135M-Instruct.Q4_1.gguf",
    compiler="g++ 12.2.0",
    cache_free_bytes=50 * GIB,
)
GTX_1080_TI = Gpu("NVIDIA GeForce GTX 1080 Ti", "NVIDIA", 11 * GIB, capability=(6, 1))
T4 = Gpu("Tesla T4", "NVIDIA", 15 * GIB, capability=(7, 5))
RTX_3080_TI = Gpu("NVIDIA GeForce RTX 3080 Ti", "NVIDIA", 12 * GIB, capability=(8, 6))
RTX_5070 = Gpu("NVIDIA GeForce RTX 5070", "NVIDIA", 12 * GIB, capability=(12, 0))
MI300X = Gpu("AMD Instinct MI300X", "AMD", 192 * GIB, gfx="gfx942")


def machine(gpu: Gpu, cuda: str = "13.0", **changes) -> Facts:
    """BARE with a card, the locked torch built for `cuda`, and a driver that runs it."""
    gpu = replace(gpu, driver=changes.pop("driver", DRIVER))
    facts = _with_torch(replace(BARE, gpus=(gpu,)), wheels.LOCKED, "cu" + cuda)
    return replace(facts, **changes)


def follow(facts: Facts) -> tuple[Facts, ...]:
    """Where the advice on the worst finding leads: one machine for each way out.

    Empty where nothing has to be mended. Reads the advice as a person would: a driver to
    update, a command to run.

    >>> [m.torch for m in follow(MACHINES["GTX 1080 Ti"])]
    ['2.13.0+cu126']
    """
    fix = next((f.fix for f in advise(facts) if f.level != "note"), "")
    return tuple(_after(facts, way) for way in fix.split("; or ") if way)


def coverage() -> list[dict]:
    """Whether the wheels of `WHEELS` hold binary code for the chips of `CHIPS`, a row each.

    >>> [row["chip"][:4] for row in coverage() if row["wheel"].endswith("12.6")][-1]
    '12.0'
    """
    return [
        {"wheel": f"torch {torch}, CUDA {cuda}", "chip": name, "has": _binary(held, chip)}
        for torch, cuda in WHEELS
        for held in [wheels.targets(torch, cuda)]
        for name, chip in CHIPS.items()
    ]


def _binary(held: tuple[str, ...], chip: tuple[int, int]) -> bool:
    gpu = Gpu("", "NVIDIA", 0, None, chip)
    return wheels.holds_code_for(tuple(a for a in held if a.startswith("sm_")), gpu)


def _after(facts: Facts, way: str) -> Facts:
    if "update the driver" in way:
        gpus = tuple(replace(gpu, driver=DRIVER) for gpu in facts.gpus)
        facts = replace(facts, gpus=gpus, torch_sees=True)
    if "uninstall torch" in way:
        facts = replace(facts, torch=None, torch_cuda=None, torch_hip=None, arch_list=())
    if found := _COMMAND.search(way):
        build = found["build"] or "cu" + wheels.default_cuda(found["torch"])
        return _with_torch(facts, found["torch"], build)
    return facts


def _with_torch(facts: Facts, torch: str, build: str) -> Facts:
    """This machine with a wheel of torch: `build` is cpu, rocm7.2, cu130 or cu13.0."""
    digits = re.sub(r"\D", "", build)
    sees = {"torch": f"{torch}+{build.replace('.', '')}", "torch_sees": True}
    if build.startswith("rocm"):
        version = f"{digits[0]}.{digits[1:]}"
        sees |= {"torch": f"{torch}+{build}", "torch_hip": version, "torch_cuda": None}
        return replace(facts, arch_list=wheels.amd_targets(), **sees)
    if build.startswith("cu"):
        cuda = f"{digits[:-1]}.{digits[-1]}"
        targets = wheels.targets(torch, cuda)
        return replace(facts, arch_list=targets, torch_cuda=cuda, torch_hip=None, **sees)
    return replace(facts, torch=f"{torch}+cpu", torch_cuda=None, arch_list=())


#: The machines of chapter 05: what is there, before anybody mended it.
MACHINES = {
    "GTX 1080 Ti": machine(GTX_1080_TI),
    "T4, driver 535": machine(T4, driver="535.104.05", torch_sees=False),
    "RTX 5070, old wheel": machine(RTX_5070, "12.6"),
    "MI300X, CPU wheel": replace(BARE, gpus=(MI300X,)),
    "laptop without a GPU": BARE,
    "RTX 3080 Ti in WSL": machine(RTX_3080_TI, wsl=True, ram_bytes=16 * GIB),
}
