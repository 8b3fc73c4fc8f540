"""Facts and findings as one screen of text, 92 columns wide."""

import re
import textwrap
from pathlib import Path

from gpulab_utils.doctor.facts import Facts, Gpu
from gpulab_utils.units import gib

_WIDTH = 92
_LABEL = 14
_COMMAND = re.compile(r"pip install [^;,()]*[^;,() ]")  # stays on one line, to be copied
_HARD = "\u00a0"
_TITLES = {
    "broken": "Labs cannot run like this:",
    "missing": "Missing here:",
    "note": "Good to know:",
}


def text(facts: Facts, findings: tuple) -> str:
    """The whole screen: what is here, then what to do."""
    lines = [_row(label, said) for label, said in _here(facts) if said]
    for level, title in _TITLES.items():
        told = [f for f in findings if f.level == level]
        if told:
            lines += ["", title, *(_finding(f) for f in told)]
    if not any(f.level != "note" for f in findings):
        lines += ["", "Nothing is missing."]
    return "\n".join(lines)


def _here(facts: Facts):
    place = f"{facts.system}{' (WSL)' if facts.wsl else ''}"
    yield "system", f"{place}, Python {'.'.join(map(str, facts.python))}"
    yield "CPU", f"{facts.cpu}, {facts.cores} cores, {facts.threads} threads in use"
    yield "it knows", " ".join(facts.features)
    free, total = gib(facts.ram_free_bytes), gib(facts.ram_bytes)
    yield "RAM", f"{free:.1f} GiB free of {total:.1f}"
    for gpu in facts.gpus:
        yield "GPU", _gpu(gpu)
    if not facts.gpus:
        yield "GPU", facts.other_accelerator or "none"
    yield "torch", _torch(facts)
    yield "bf16", _bf16(facts)
    yield "ran", _trials(facts)
    have = [f"{name} {v}" for name, v in facts.packages.items() if v]
    yield "packages", ", ".join(have)
    yield "model", Path(facts.model_file or "").name
    yield "C++ compiler", facts.compiler


def _gpu(gpu: Gpu) -> str:
    told = [gpu.name, f"{gib(gpu.mem_bytes):.2f} GiB"]
    if gpu.free_bytes is not None:
        told[-1] = f"{gib(gpu.free_bytes):.2f} GiB free of {gib(gpu.mem_bytes):.2f}"
    if gpu.card:
        told.append(f"{gib(gpu.card.usable_bytes()):.2f} to plan with beside a desktop")
    if gpu.capability:
        told.append("compute capability {}.{}".format(*gpu.capability))
    told += [gpu.gfx] if gpu.gfx else []
    told += [f"driver {gpu.driver}"] if gpu.driver else []
    told += [f"{gpu.power_limit_w:.0f} W"] if gpu.power_limit_w else []
    told += [f"PCIe x{gpu.link_width}"] if gpu.link_width else []
    return ", ".join(told)


def _torch(facts: Facts) -> str:
    if facts.torch is None:
        return "not installed"
    built = (facts.torch_cuda and f"CUDA {facts.torch_cuda}") or (
        facts.torch_hip and f"ROCm {facts.torch_hip}"
    )
    targets = f" for {' '.join(facts.arch_list)}" if facts.arch_list else ""
    return f"{facts.torch}, {built or 'CPU only'}{targets}"


def _bf16(facts: Facts) -> str:
    told = [f"CPU: {f'for real ({facts.cpu_bf16})' if facts.cpu_bf16 else 'emulated'}"]
    told += [f"{g.name}: {'for real' if g.bf16 else 'emulated'}" for g in facts.gpus]
    return "; ".join(told)


def _trials(facts: Facts) -> str:
    told: dict[str, list[str]] = {}
    for trial in facts.trials:
        word = f"{trial.dtype} {'failed' if trial.error else 'right'}"
        told.setdefault(trial.device, []).append(word)
    return "; ".join(f"{device}: {', '.join(words)}" for device, words in told.items())


def _row(label: str, said: str) -> str:
    return _fill(f"{label:<{_LABEL}}", said, " " * _LABEL)


def _finding(finding) -> str:
    fix = _COMMAND.sub(lambda found: found[0].replace(" ", _HARD), finding.fix)
    mend = f"\n{_fill('    -> ', fix, ' ' * 7)}".replace(_HARD, " ") if fix else ""
    return _fill("  * ", finding.what, "    ") + mend


def _fill(first: str, said: str, later: str) -> str:
    return textwrap.fill(
        said,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )
