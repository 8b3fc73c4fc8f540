"""Which cards are here? The driver is asked (NVML, nvidia-smi, /sys), then torch."""

import subprocess
from pathlib import Path

from gpulab_utils.doctor.facts import Gpu
from gpulab_utils.units import GIB, MIB

_COLUMNS = (
    "name,driver_version,compute_cap,memory.total,memory.free,"
    "power.limit,power.default_limit,pcie.link.width.current"
)


def nvidia() -> tuple[Gpu, ...]:
    """NVIDIA cards as the driver knows them, whether or not torch can use them."""
    try:
        import pynvml as nvml

        nvml.nvmlInit()
    except Exception:  # no package, no driver library, no card: ask the tool instead
        return from_smi(_smi())
    try:
        return tuple(_by_nvml(nvml, i) for i in range(nvml.nvmlDeviceGetCount()))
    except Exception:
        return from_smi(_smi())
    finally:
        nvml.nvmlShutdown()


def _by_nvml(nvml, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(query: str):
        try:  # laptops, virtual machines and old drivers refuse some questions
            return getattr(nvml, query)(handle)
        except Exception:
            return None

    memory = ask("nvmlDeviceGetMemoryInfo")
    capability = ask("nvmlDeviceGetCudaComputeCapability")
    limit = ask("nvmlDeviceGetEnforcedPowerLimit")
    default = ask("nvmlDeviceGetPowerManagementDefaultLimit")
    display = ask("nvmlDeviceGetDisplayActive")
    kinds = ("Compute", "Graphics")
    running = [ask(f"nvmlDeviceGet{kind}RunningProcesses") for kind in kinds]
    others = {p.pid for told in running for p in told or ()}
    return Gpu(
        name=str(ask("nvmlDeviceGetName")),
        vendor="NVIDIA",
        mem_bytes=memory.total if memory else 0,
        free_bytes=memory.free if memory else None,
        capability=tuple(capability) if capability else None,
        driver=nvml.nvmlSystemGetDriverVersion(),
        power_limit_w=limit / 1e3 if limit else None,
        power_default_w=default / 1e3 if default else None,
        link_width=ask("nvmlDeviceGetCurrPcieLinkWidth"),
        display=None if display is None else bool(display),
        processes=None if running == [None, None] else len(others),
    )


def _smi() -> str:
    command = ["nvidia-smi", f"--query-gpu={_COLUMNS}", "--format=csv,noheader,nounits"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def from_smi(csv: str) -> tuple[Gpu, ...]:
    """Cards from nvidia-smi's table; what it cannot tell reads "[N/A]" there.

    >>> line = "Tesla T4, 535.104.05, 7.5, 15360, 15001, 70.00, [N/A], 16"
    >>> gpu, = from_smi(line)
    >>> gpu.capability, gpu.mem_bytes // 2**20, gpu.power_limit_w, gpu.power_default_w
    ((7, 5), 15360, 70.0, None)
    """
    found = []
    for line in csv.splitlines():
        name, *told = [cell.strip() for cell in line.split(",")]
        if len(told) != 7:  # an error message, or a tool too old for a column
            continue
        driver, capability, total, free, limit, default, width = told
        major = _number(capability)
        found.append(
            Gpu(
                name=name,
                vendor="NVIDIA",
                mem_bytes=int((_number(total) or 0) * MIB),
                free_bytes=None if _number(free) is None else int(_number(free) * MIB),
                capability=tuple(map(int, capability.split("."))) if major else None,
                driver=driver,
                power_limit_w=_number(limit),
                power_default_w=_number(default),
                link_width=None if _number(width) is None else int(_number(width)),
            )
        )
    return tuple(found)


def amd(sys: Path = Path("/sys")) -> tuple[Gpu, ...]:
    """AMD cards as Linux knows them, whether or not torch can use them.

    Less than 4 GiB of memory of its own is a processor's graphics. The target is in the
    topology of the compute driver: 90402 is gfx942.
    """
    targets = []
    for node in sorted(sys.glob("class/kfd/kfd/topology/nodes/*/properties")):
        told = dict(line.split() for line in node.read_text().splitlines())
        if code := int(told.get("gfx_target_version", 0)):
            targets.append(f"gfx{code // 10000}{code // 100 % 100:x}{code % 100:x}")
    found = []
    for card in sorted(sys.glob("class/drm/card[0-9]*/device")):
        vendor, total, used = (
            _read(card / name)
            for name in ("vendor", "mem_info_vram_total", "mem_info_vram_used")
        )
        if vendor == "0x1002" and int(total or 0) >= 4 * GIB:
            found.append((card, int(total), int(used or 0)))
    known = targets if len(targets) == len(found) else [None] * len(found)
    return tuple(
        Gpu(
            name=_read(card / "product_name") or "AMD card",
            vendor="AMD",
            mem_bytes=total,
            free_bytes=total - used,
            gfx=gfx,
        )
        for (card, total, used), gfx in zip(found, known, strict=True)
    )


def by_torch(torch) -> tuple[Gpu, ...]:
    """Cards as torch sees them: AMD's, those of the stand-in, all where NVML is silent."""
    amd = bool(torch.version.hip)
    found = []
    for index in range(torch.cuda.device_count()):
        seen = torch.cuda.get_device_properties(index)
        try:
            free, _ = torch.cuda.mem_get_info(index)
        except RuntimeError:  # a card that torch lists and cannot use
            free = None
        found.append(
            Gpu(
                name=seen.name,
                vendor="AMD" if amd else "NVIDIA",
                mem_bytes=seen.total_memory,
                free_bytes=free,
                capability=None if amd else (seen.major, seen.minor),
                gfx=seen.gcnArchName.split(":")[0] if amd else None,
            )
        )
    return tuple(found)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
