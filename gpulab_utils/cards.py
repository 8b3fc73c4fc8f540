"""What can a card do, and how much of its memory is yours? One entry per card, SI units.

Rates are dense; `flop_per_s["fp16"]` accumulates in fp32, which is what torch runs,
`"fp16_fp16acc"` is the larger number that some sheets print.
"""

from dataclasses import dataclass, field

from gpulab_utils.tables import Table
from gpulab_utils.units import GIB

#: What a process loses to the CUDA context until it is measured, and to a desktop.
CONTEXT_BYTES = int(0.45 * GIB)
DISPLAY_BYTES = int(0.45 * GIB)
#: Share of the driver's figure that torch reports as total, where no one has read it off.
TORCH_SHARE = 0.98


@dataclass(frozen=True)
class Card:
    """One row of `data/cards.json`: bytes, bytes/s, FLOP/s, Hz, W, USD at launch."""

    id: str
    name: str
    vendor: str
    architecture: str
    compute_capability: tuple[int, int] | None  # None: not an NVIDIA card
    mem_bytes: int  # as the driver reports it
    mem_type: str
    bus_bits: int
    data_rate_bits_per_s: int
    mem_bytes_per_s: int
    cores: int
    sms: int
    boost_hz: int
    flop_per_s: dict[str, int]
    l2_bytes: int
    pcie_gen: int
    pcie_lanes: int
    tdp_w: int
    msrp_usd: int | None
    launch_date: str
    supports: dict
    confidence: str
    torch_bytes: int | None = None
    row: dict = field(default_factory=dict, repr=False)  # everything else, as in the file

    def rate(self, dtype: str) -> int:
        """Dense FLOP/s in `dtype`; `ValueError` where the sheet gives none.

        >>> CARDS["rtx-3080-ti"].rate("bf16")
        68200000000000
        """
        if dtype not in self.flop_per_s:
            known = ", ".join(self.flop_per_s)
            raise ValueError(f"{self.name} has no {dtype!r} rate; it has {known}")
        return self.flop_per_s[dtype]

    def usable_bytes(self, desktop: bool = True) -> int:
        """Bytes that a process can allocate: less the CUDA context and, maybe, a desktop.

        >>> card = CARDS["rtx-3080-ti"]
        >>> [round(card.usable_bytes(desktop=d) / 2**30, 2) for d in (False, True)]
        [11.31, 10.86]
        """
        total = self.torch_bytes or int(TORCH_SHARE * self.mem_bytes)
        return total - CONTEXT_BYTES - (DISPLAY_BYTES if desktop else 0)

    @property
    def pcie_bytes_per_s(self) -> float:
        """Bytes/s of the slot one way, after line coding, before protocol.

        Source: PCI-SIG, 8, 16, 32 GT/s a lane for generations 3 to 5, coded 128b/130b.

        >>> round(CARDS["rtx-3080-ti"].pcie_bytes_per_s / 1e9, 1)
        31.5
        """
        return 8e9 * 2 ** (self.pcie_gen - 3) * 128 / 130 / 8 * self.pcie_lanes


def _card(row: dict) -> Card:
    capability = row["compute_capability"]
    names = Card.__dataclass_fields__
    fields = {k: v for k, v in row.items() if k in names}
    fields["compute_capability"] = (
        tuple(map(int, capability.split("."))) if capability else None
    )
    # Two cards whose driver figure nobody has published: what is on the box.
    fields["mem_bytes"] = row["driver_bytes"] or row["box_gb"] * GIB
    return Card(**fields, row=row)


#: Every card by id; an unknown one raises `KeyError` with the nearest names.
CARDS = Table("card", "cards.json", _card)
