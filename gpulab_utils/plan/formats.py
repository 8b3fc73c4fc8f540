"""What does a weight weigh? Bytes of the block linears in each storage format.

Every quantizer here packs the linears of the blocks and leaves embedding, head, norms and
biases in `rest`; only GGUF packs those too, so its rows give bits over the whole file.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from math import ceil

from gpulab_utils.models import Shape
from gpulab_utils.tables import read
from gpulab_utils.units import BYTES


@dataclass(frozen=True)
class Format:
    """Bits of one weight, and what comes on top per group or per output row.

    A tensor of n weights with r output rows takes n x bits / 8, its groups' scales,
    r x row_bytes and `table_bytes`. `nested` scales are one byte a group, four per 256.
    """

    name: str
    bits: float
    group: int = 0
    scale_bits: float = 0
    row_bytes: int = 0
    table_bytes: int = 0
    nested: bool = False
    rest: str = "bf16"
    whole_file: bool = False  # bits are the mean over all parameters
    experts_only: bool = False  # where the model's own file packs its experts alone
    note: str = ""

    @property
    def packed(self) -> bool:
        return self.name not in BYTES or self.name == "fp8"

    def tensor_bytes(self, rows: int, columns: int) -> float:
        """Bytes of one weight of `rows` outputs.

        >>> format_of("nf4").tensor_bytes(1, 128)  # codes, 2 scales, table
        136.0
        """
        n = rows * columns
        groups = ceil(n / self.group) if self.group else 0
        scales = groups * self.scale_bits / 8
        if self.nested:
            scales = groups + 4 * ceil(groups / 256)
        return n * self.bits / 8 + scales + rows * self.row_bytes + self.table_bytes

    def model_bytes(self, shape: Shape) -> dict[str, float]:
        """Bytes of all weights: `linears`, `embedding`, `head`, `small` (norms, biases)."""
        rest = self.bits / 8 if self.whole_file else BYTES[self.rest]
        bare = shape.linear_params
        if self.experts_only and shape.expert_format:
            bare -= shape.expert_linear_params
        else:
            bare = 0
        packed = shape.linears[-3:] if bare else shape.linears
        linears = sum(self.tensor_bytes(r, c) * many for _, r, c, many in packed)
        return {
            "linears": linears + bare * rest,
            "embedding": shape.embedding_params * rest,
            "head": shape.head_params * rest,
            "small": shape.small_params * rest,
        }


def _plain() -> list[Format]:
    return [
        Format(d, 8 * BYTES[d], rest="bf16" if d == "fp8" else d)
        for d in ("fp32", "bf16", "fp16", "fp8")
    ]


def _packed() -> list[Format]:
    """bitsandbytes keeps a 16-entry code per tensor; nested also 256 entries and a mean."""
    gptq = {"rest": "fp16", "note": "GPTQ and AWQ: 16-bit scale, zero as wide as a weight"}
    bnb8 = {"rest": "fp16", "note": "bitsandbytes LLM.int8: fp32 scale per output row"}
    cpu = "torch's CPU int4 product: bf16 scale and zero"
    fours = [Format(kind, 4, 64, 32, table_bytes=64) for kind in ("nf4", "fp4")]
    nested = [
        Format(f"{kind}-dq", 4, 64, table_bytes=64 + 1024 + 4, nested=True)
        for kind in ("nf4", "fp4")
    ]
    return [
        *fours,
        *nested,
        Format("int8", 8, row_bytes=2, note="a 16-bit scale per output row"),
        Format("llm-int8", 8, row_bytes=4, **bnb8),
        Format("int4-g128", 4, 128, 16 + 4, **gptq),
        Format("int8-g128", 8, 128, 16 + 8, **gptq),
        Format("int4-cpu", 4, 128, 32, note=cpu),
        Format("mxfp4", 4, 32, 8, experts_only=True, note="an 8-bit exponent per 32"),
    ]


def _gguf() -> list[Format]:
    """GGUF types by their bits over the whole of Llama-3.1-8B's file."""
    rows = read("published/gguf_sizes.jsonl")
    return [
        Format(r["quant"].lower(), r["bits_per_weight"], rest="fp16", whole_file=True)
        for r in rows
        if r["bits_per_weight"]
    ]


ALIASES = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "nf4-double-quant": "nf4-dq",
    "fp4-double-quant": "fp4-dq",
    "gptq": "int4-g128",
    "awq": "int4-g128",
    "gptq-int4": "int4-g128",
    "gptq-int8": "int8-g128",
    "int4": "int4-g128",
    "int4-torch": "int4-cpu",
    "llm.int8": "llm-int8",
}


@cache
def formats() -> dict[str, Format]:
    """Every format by name."""
    return {f.name: f for f in (*_plain(), *_packed(), *_gguf())}


def format_of(name: str | Format) -> Format:
    """The format of that name; ValueError with the nearest names for any other.

    >>> format_of("nf4 double-quant").name
    'nf4-dq'
    """
    if isinstance(name, Format):
        return name
    key = str(name).lower().replace(" ", "-")
    key = ALIASES.get(key, key)
    if key not in formats():
        near = get_close_matches(key, formats(), 3, 0.3) or ["bf16", "nf4", "int4-g128"]
        raise ValueError(f"no weight format {name!r}; nearest: {', '.join(near)}")
    return formats()[key]
