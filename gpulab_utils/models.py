"""What shape does a model have? Parameters, KV bytes, FLOP per token, from config.json.

hidden, layers, heads, kv_heads, head_dim, intermediate, vocab   counts, as in the file
*_params    counts of numbers, not bytes
*_bytes     bytes
"""

from dataclasses import dataclass
from functools import cached_property

from gpulab_utils.configs import read_config
from gpulab_utils.tables import Table
from gpulab_utils.units import BYTES


@dataclass(frozen=True)
class Shape:
    """One decoder (or BERT's encoder), as numbers.

    `window` is the sliding window in tokens of `window_layers` of the layers; the rest see
    everything. `experts` is 0 for a dense model. `family` is the file's `model_type`.

    >>> shape = MODELS["llama-2-13b"]
    >>> shape.params == 2 * 32000 * 5120 + 40 * (4 * 5120**2 + 3 * 5120 * 13824) + 81 * 5120
    True
    """

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool = False
    gated: bool = True
    norm: str = "rms"  # or "layer"
    window: int | None = None
    window_layers: int = 0
    experts: int = 0
    experts_per_token: int = 0
    moe_intermediate: int = 0
    shared_intermediate: int = 0
    moe_layers: int = 0
    family: str = "llama"
    act: str = "silu"
    parallel: bool = False  # attention and MLP side by side on one residual
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    qk_norm: str | None = None  # "head": per head_dim; "full": over all heads
    norms: int = 2  # per layer, of width hidden
    positions: int = 0  # rows of a learned position table, token types added
    rotary: float = 1.0  # share of head_dim that rotates
    max_positions: int | None = None
    expert_format: str | None = None  # "mxfp4" where the file ships the experts so
    attn_softcap: bool = False
    logit_softcap: bool = False
    source: str = ""

    @property
    def attention_linears(self) -> tuple[tuple[str, int, int], ...]:
        """(name, outputs, inputs) of the linears of one attention, fused ones apart."""
        h, q, kv = self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim
        return ("q", q, h), ("k", kv, h), ("v", kv, h), ("o", h, q)

    def mlp_linears(self, width: int) -> tuple[tuple[str, int, int], ...]:
        """(name, outputs, inputs) of the linears of one MLP of that width."""
        up = [("gate", width, self.hidden)] if self.gated else []
        return (*up, ("up", width, self.hidden), ("down", self.hidden, width))

    @cached_property
    def linears(self) -> tuple[tuple[str, int, int, int], ...]:
        """(name, outputs, inputs, how many in the model) of all linears of the blocks."""
        parts = [(x, self.layers) for x in self.attention_linears]
        dense = self.layers - self.moe_layers
        parts += [(x, dense) for x in self.mlp_linears(self.intermediate) if dense]
        many = self.moe_layers * self.experts
        parts += [(x, many) for x in self.mlp_linears(self.moe_intermediate) if many]
        if self.shared_intermediate:
            parts += [
                (x, self.moe_layers) for x in self.mlp_linears(self.shared_intermediate)
            ]
        return tuple((*x, count) for x, count in parts)

    @cached_property
    def linear_params(self) -> int:
        """Weights of the linears of all blocks: what a quantizer packs. No head, no biases.

        >>> MODELS["llama-2-13b"].linear_params
        12687769600
        """
        return sum(out * width * count for _, out, width, count in self.linears)

    @property
    def expert_params(self) -> int:
        """Weights of one expert, without biases."""
        return 3 * self.hidden * self.moe_intermediate

    @cached_property
    def expert_linear_params(self) -> int:
        """The part of `linear_params` that lies in routed experts."""
        return self.moe_layers * self.experts * self.expert_params

    @cached_property
    def active_linear_params(self) -> int:
        """The part of `linear_params` that one token meets."""
        idle = self.experts - self.experts_per_token
        return self.linear_params - self.moe_layers * idle * self.expert_params

    @property
    def embedding_params(self) -> int:
        """The input table, and the position table where it is learned."""
        return (self.vocab + self.positions) * self.hidden

    @property
    def head_params(self) -> int:
        """The output table where it is a tensor of its own."""
        own = not self.tied and self.family != "bert"
        return own * self.vocab * self.hidden + self.head_bias * self.vocab

    @cached_property
    def small_params(self) -> int:
        """Norms, biases, routers and attention sinks: kept in 16 bit by every quantizer."""
        h, attn = self.hidden, self.heads * self.head_dim
        norm = h if self.norm == "rms" else 2 * h
        a_layer = self.norms * norm + self.o_bias * h
        a_layer += self.qkv_bias * (attn + 2 * self.kv_heads * self.head_dim)
        kv = self.kv_heads * self.head_dim
        a_layer += {None: 0, "head": 2 * self.head_dim, "full": attn + kv}[self.qk_norm]
        a_layer += (self.family == "gpt_oss") * self.heads
        up_bias = self.mlp_bias * ((2 if self.gated else 1) * self.intermediate + h)
        router = self.experts * h + (h if self.shared_intermediate else 0)
        if self.family == "gpt_oss":
            router += self.experts * (1 + 2 * self.moe_intermediate + h)
        dense = (self.layers - self.moe_layers) * up_bias
        pooler = h * h + h if self.family == "bert" else 0
        return self.layers * a_layer + dense + self.moe_layers * router + norm + pooler

    @cached_property
    def params(self) -> int:
        """All parameters, a tied table once."""
        tables = self.embedding_params + self.head_params
        return self.linear_params + tables + self.small_params

    def kv_bytes_per_token(self, dtype: str = "bf16") -> int:
        """Keys and values of one token in all layers, before any window closes.

        >>> MODELS["llama-2-13b"].kv_bytes_per_token()  # 2 x 40 x 40 x 128 x 2
        819200
        """
        return int(2 * self.layers * self.kv_heads * self.head_dim * BYTES[dtype])

    def kv_bytes(self, tokens: int, dtype: str = "bf16") -> int:
        """Keys and values of `tokens` tokens, windowed layers holding only their window."""
        short = min(tokens, self.window or tokens)
        rows = (self.layers - self.window_layers) * tokens + self.window_layers * short
        return int(2 * rows * self.kv_heads * self.head_dim * BYTES[dtype])

    def flop_per_token(self, context: int = 0) -> int:
        """Multiplications and additions of one token that looks back `context` tokens.

        2 per weight met, 4 per position, head and head_dim.

        >>> MODELS["llama-2-7b"].flop_per_token() / 1e9
        13.214154752
        """
        dense = 2 * (self.active_linear_params + self.vocab * self.hidden)
        short = min(context, self.window or context)
        seen = (self.layers - self.window_layers) * context + self.window_layers * short
        return dense + 4 * seen * self.heads * self.head_dim


def shape_from_config(config: dict, name: str = "") -> Shape:
    """The shape that a Hugging Face `config.json` describes.

    Raises ValueError for a `model_type` that the planner has no arithmetic for.

    >>> shape_from_config({"model_type": "gpt2", "vocab_size": 50257}).params
    124439808
    """
    return Shape(name=name or config.get("model_type", "?"), **read_config(config))


def _shape(row: dict) -> Shape:
    return Shape(name=row["id"], source=row["source"], **read_config(row["config"]))


#: Every model by name; an unknown one raises `KeyError` with the nearest names.
MODELS = Table("model", "models.json", _shape)
