"""One run, as the layers see it: sizes, widths, what trains, what is packed."""

from dataclasses import dataclass

from gpulab_utils.models import Shape
from gpulab_utils.plan.ops import Ops
from gpulab_utils.plan.tape import Param


@dataclass(frozen=True)
class Adapter:
    """LoRA: `rank`, the canonical names of its targets, width of its numbers, dropout or
    not.
    """

    rank: int
    targets: frozenset[str]
    width: int = 4
    dropout: bool = False
    compute: int = 0  # bytes of the type it multiplies in, where not its own
    count: int = 0  # trained numbers, where a source states them

    @staticmethod
    def linears(s: Shape) -> list[tuple[str, int, int]]:
        """(name, outputs, inputs) of what one layer can adapt."""
        fused = ("qkv", s.head_dim * (s.heads + 2 * s.kv_heads), s.hidden)
        width = s.intermediate if not s.experts else s.moe_intermediate
        return [*s.attention_linears, *s.mlp_linears(width), fused]


@dataclass
class Run:
    """`batch` and `seq` are integers or packed polynomials; `past` is tokens in the cache.

    `width`: bytes of a weight and, without autocast, of everything computed from it.
    """

    tape: Ops
    shape: Shape
    batch: int
    seq: int
    past: int = 0
    many: bool = True  # more than one sequence: what then cannot be viewed is copied
    width: int = 2
    train: bool = False  # all weights
    adapter: Adapter | None = None
    packed: int = 0  # copies of one unpacked weight during its product
    fused: bool = True
    masked: bool = False  # a window is shorter than the sequence
    kv: list | None = None  # a growing cache, where there is one
    setting: object = None
    dialect: str = "hf"
    compiled: bool = False  # pointwise chains keep their inputs only
    expands: bool = False  # keys and values repeated for the fused kernel
    offloads: bool = False  # checkpoints wait in host memory

    @property
    def tokens(self) -> int:
        return self.batch * self.seq

    @property
    def keys(self) -> int:
        """Positions that attention looks at."""
        return self.seq + self.past

    def param(self, n: int, linear: bool = False) -> Param:
        """A weight of the base model."""
        packed = self.packed if linear else 0
        return Param(n, self.width, self.train, packed, n // 64 * 4 if packed else 0)


def layer_params(run: Run) -> dict[str, Param]:
    """All weights of one block by canonical name; biases are counted with their weight."""
    s = run.shape
    attn = s.attention_linears
    bias = dict.fromkeys("qkv", s.qkv_bias) | {"o": s.o_bias}
    width = s.intermediate if not s.experts else s.moe_intermediate
    params = {}
    for name, rows, columns in (*attn, *s.mlp_linears(width)):
        biased = bias.get(name, s.mlp_bias)
        params[name] = run.param(rows * columns + biased * rows, linear=True)
    if s.family in ("gpt2", "gpt_neox", "phi3", "qwen") or run.dialect == "litgpt":
        rows = s.head_dim * (s.heads + 2 * s.kv_heads)
        params["qkv"] = run.param(rows * (s.hidden + s.qkv_bias), linear=True)
    norm = s.hidden * (1 if s.norm == "rms" else 2)
    for name in ("norm1", "norm2", "norm3", "norm4")[: s.norms]:
        params[name] = run.param(norm)
    if s.qk_norm == "head":
        params["q_norm"], params["k_norm"] = run.param(s.head_dim), run.param(s.head_dim)
    if s.qk_norm == "full":
        params["q_norm"] = run.param(s.heads * s.head_dim)
        params["k_norm"] = run.param(s.kv_heads * s.head_dim)
    return params | adapter_params(run)


def adapter_params(run: Run) -> dict[str, Param]:
    """A (rank x inputs) and B (outputs x rank) of every adapted linear."""
    s, a = run.shape, run.adapter
    if a is None:
        return {}
    params = {}
    for name, outputs, inputs in a.linears(s):
        if name in a.targets:
            params[name + ".A"] = Param(a.rank * inputs, a.compute or a.width, True)
            params[name + ".B"] = Param(a.rank * outputs, a.compute or a.width, True)
    return params
