"""What makes a healthy machine slower or smaller than its data sheet: notes, from facts."""

from collections.abc import Iterator

from gpulab_utils.doctor.facts import Facts
from gpulab_utils.units import MIB, gib

_SETTING = (
    "NVIDIA Control Panel > Manage 3D settings > CUDA - Sysmem Fallback Policy > "
    "Prefer No Sysmem Fallback"
)


def _elsewhere(facts: Facts) -> Iterator[tuple]:
    if facts.standin:
        what = "GPULAB_DEVICE=standin: the GPU is imitated on the CPU, times mean nothing"
        yield "note", what, "unset GPULAB_DEVICE"
    elif not facts.gpus and not facts.other_accelerator:
        what = "no GPU: labs run on the CPU, and GPU-only cells say what they would show"
        yield "note", what, ""


def _occupied(facts: Facts) -> Iterator[tuple]:
    for gpu in facts.gpus:
        if gpu.free_bytes is None or facts.standin:
            continue
        used = gpu.mem_bytes - gpu.free_bytes
        if used > max(400 * MIB, 0.02 * gpu.mem_bytes):
            who = [f"{gpu.processes} processes"] if gpu.processes else []
            who += ["a screen"] if gpu.display else []
            on_it = f" ({', '.join(who)})" if who else ""
            what = f"{gib(used):.2f} GiB of the {gpu.name} are taken already{on_it}"
            yield "note", what, "close browser and games, or plug the screen elsewhere"


def _spill(facts: Facts) -> Iterator[tuple]:
    if not facts.gpus or not (facts.wsl or facts.system == "Windows"):
        return
    what = "out of memory may show only as slowness: Windows' driver spills into system RAM"
    fix = "hold the planned bytes against the free ones"
    if facts.gpus[0].vendor == "NVIDIA":
        ignored = " (WSL has been seen to ignore it)" if facts.wsl else ""
        fix = f"{_SETTING}{ignored}; {fix}"
    yield "note", what, fix


def _wsl(facts: Facts) -> Iterator[tuple]:
    if facts.wsl:
        what = f"WSL has {gib(facts.ram_bytes):.1f} GiB of RAM and can pin little of it"
        yield "note", what, "memory= under [wsl2] in .wslconfig gives it more"


def _power(facts: Facts) -> Iterator[tuple]:
    for gpu in facts.gpus:
        limit, usual = gpu.power_limit_w, gpu.power_default_w
        if gpu.laptop:
            watts = f" ({limit:.0f} W here)" if limit else ""
            what = f"{gpu.name}: its maker sets the power limit{watts}, the name does not"
            yield "note", what, "plug it in, take the performance profile"
        elif limit and usual and limit < 0.95 * usual:
            what = f"the {gpu.name} may draw {limit:.0f} W, its default is {usual:.0f} W"
            yield "note", what, f"nvidia-smi -pl {usual:.0f}, as administrator"


def _link(facts: Facts) -> Iterator[tuple]:
    for gpu in facts.gpus:
        lanes = gpu.card.pcie_lanes if gpu.card else None
        if lanes and gpu.link_width and gpu.link_width < lanes:
            what = f"the {gpu.name} has {lanes} PCIe lanes, {gpu.link_width} are connected"
            fix = "try the slot next to the processor; a riser or a second card takes lanes"
            yield "note", what, fix


def _slow_bf16(facts: Facts) -> Iterator[tuple]:
    if facts.features and not facts.cpu_bf16 and not facts.gpus:
        yield "note", "this CPU emulates bf16: expect it slower than fp32", ""


HABITS = (_elsewhere, _occupied, _spill, _wsl, _power, _link, _slow_bf16)
