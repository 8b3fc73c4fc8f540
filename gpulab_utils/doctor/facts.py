"""What a machine is, in plain values: no torch, no driver, nothing that cannot be typed."""

import re
from dataclasses import dataclass, field

from gpulab_utils.cards import CARDS, Card
from gpulab_utils.device import gpu_dtype

_CPU_BF16 = ("amx_bf16", "avx512_bf16", "bf16")
_SIZE = re.compile(r"\d+gb$|sxm\d?$")
_NO_NAME = {"nvidia", "amd", "geforce", "tesla", "radeon", "instinct", "generation", "pcie"}


@dataclass(frozen=True)
class Gpu:
    """One card as driver and torch describe it; None is "cannot be told"."""

    name: str
    vendor: str  # NVIDIA, AMD
    mem_bytes: int
    free_bytes: int | None = None
    capability: tuple[int, int] | None = None  # NVIDIA
    gfx: str | None = None  # AMD
    driver: str | None = None
    power_limit_w: float | None = None  # enforced now
    power_default_w: float | None = None
    link_width: int | None = None  # PCIe lanes in use
    display: bool | None = None  # a screen is attached
    processes: int | None = None  # others on the card

    @property
    def laptop(self) -> bool:
        """Whether the name is a laptop chip's.

        >>> Gpu("NVIDIA GeForce RTX 4070 Laptop GPU", "NVIDIA", 8 * 2**30).laptop
        True
        """
        words = self.name.lower().split()
        return "laptop" in words or "max-q" in words or "mobile" in words

    @property
    def bf16(self) -> bool:
        """Whether it computes in bf16 itself; torch answers yes for emulation too."""
        gfx = (self.gfx or "") if self.vendor == "AMD" else None
        return gpu_dtype(self.capability, gfx) == "bf16"

    @property
    def card(self) -> Card | None:
        """The entry of `cards.json` with this name, and the nearest memory.

        >>> Gpu("NVIDIA GeForce RTX 3080 Ti", "NVIDIA", 12 * 2**30).card.id
        'rtx-3080-ti'
        >>> Gpu("NVIDIA GeForce RTX 3080 Ti Laptop GPU", "NVIDIA", 16 * 2**30).card
        """
        same = [c for c in CARDS.values() if _words(c.name) == _words(self.name)]
        return min(same, key=lambda c: abs(c.mem_bytes - self.mem_bytes), default=None)


@dataclass(frozen=True)
class Trial:
    """One real operation that was run: where, in which format, what went wrong."""

    device: str
    dtype: str
    error: str = ""


@dataclass(frozen=True)
class Facts:
    """Everything the advice looks at; bytes, counts, version strings, None where absent."""

    system: str  # Linux, Windows, Darwin
    python: tuple[int, int]
    cpu: str
    features: tuple[str, ...]  # instruction sets that matter here
    cores: int
    threads: int  # torch's, or the cores where there is no torch
    ram_bytes: int
    ram_free_bytes: int
    torch: str | None  # version, build suffix included
    torch_error: str = ""  # installed, but does not import
    torch_cuda: str | None = None
    torch_hip: str | None = None
    arch_list: tuple[str, ...] = ()
    torch_sees: bool = False  # torch.cuda.is_available()
    torch_said: str = ""  # its warning while looking for a card
    other_accelerator: str | None = None  # mps, xpu
    gpus: tuple[Gpu, ...] = ()
    packages: dict = field(default_factory=dict)  # name -> version or None
    model_file: str | None = None
    compiler: str | None = None
    compiler_error: str = ""
    cache_folder: str = ""
    cache_free_bytes: int | None = None
    wsl: bool = False
    checkout_python: str = ""  # a set-up .venv that is not the one in use
    standin: bool = False
    trials: tuple[Trial, ...] = ()

    @property
    def cpu_bf16(self) -> str | None:
        """The instruction set that computes in bf16; None where it is emulated."""
        return next((f for f in _CPU_BF16 if f in self.features), None)


def _words(name: str) -> frozenset[str]:
    """The words that tell one card from another, sizes and sockets left out."""
    text = "".join(c if c.isalnum() else " " for c in name.lower().split("(")[0])
    return frozenset(w for w in text.split() if w not in _NO_NAME and not _SIZE.match(w))
