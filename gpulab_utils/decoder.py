"""What does a decoder do for one token? A Llama, small enough to read, over any linears.

A linear is called with x [tokens, in] and returns [tokens, out]. Queries are
[1, heads, tokens, head_dim], the cache [1, kv_heads, positions, head_dim] a layer.
Checked against `transformers` (module `oracle`), logits and tokens.
"""

from dataclasses import dataclass, fields

from gpulab_utils import device

THETA, EPS = 10_000.0, 1e-5  # of Llama 1 and 2
LINEARS = ("q", "k", "v", "o", "gate", "up", "down")


@dataclass(frozen=True)
class Block:
    """One layer: seven linears and two norms."""

    q: object
    k: object
    v: object
    o: object
    gate: object
    up: object
    down: object
    norm_attention: object  # [hidden]
    norm_mlp: object  # [hidden]

    def clone(self) -> "Block":
        """The same layer in memory of its own."""
        return Block(*(getattr(self, f.name).clone() for f in fields(self)))

    @property
    def tensors(self) -> list:
        """Everything that it keeps in memory."""
        linears = [t for name in LINEARS for t in getattr(self, name).tensors]
        return [*linears, self.norm_attention, self.norm_mlp]

    @property
    def nbytes(self) -> int:
        """Bytes of all its weights."""
        return sum(t.nbytes for t in self.tensors)


@dataclass
class Cache:
    """Keys and values of every layer, allocated whole and touched."""

    keys: list
    values: list
    length: int = 0

    @property
    def positions(self) -> int:
        """Tokens that it has room for."""
        return self.keys[0].shape[2]


@dataclass(frozen=True)
class Decoder:
    """A Llama-shaped decoder; `shape` is a `models.Shape`."""

    shape: object
    blocks: list
    embedding: object  # [vocab, hidden]
    head: object  # [vocab, hidden]
    norm: object  # [hidden]

    @property
    def tensors(self) -> list:
        """Everything that it keeps in memory."""
        layers = [t for block in self.blocks for t in block.tensors]
        return [*layers, self.embedding, self.head, self.norm]

    def cache(self, positions: int) -> Cache:
        """Room for `positions` tokens."""
        import torch

        size = 1, self.shape.kv_heads, positions, self.shape.head_dim
        like = {"dtype": self.norm.dtype, "device": self.norm.device}
        made = [torch.empty(size, **like).zero_() for _ in range(2 * len(self.blocks))]
        return Cache(made[::2], made[1::2])

    def __call__(self, tokens, cache: Cache):
        """Logits of the position after each of `tokens` [tokens]: [tokens, vocab].

        Appends to `cache`. A prompt goes into an empty cache, then one token at a time:
        anything else raises `ValueError`, as does a cache without room.
        """
        import torch.nn.functional as F

        start, end = cache.length, cache.length + len(tokens)
        if start and len(tokens) > 1:
            raise ValueError(f"{len(tokens)} tokens after {start}: feed them one by one")
        if end > cache.positions:
            raise ValueError(f"the cache holds {cache.positions} tokens, {end} were asked")
        x = F.embedding(tokens, self.embedding)  # [tokens, hidden]
        turn = rotation(start, end, self.shape.head_dim, x)
        for block, keys, values in zip(self.blocks, cache.keys, cache.values, strict=True):
            x = x + self._attention(block, x, turn, keys, values, start)
            h = F.rms_norm(x, x.shape[-1:], block.norm_mlp, EPS)
            x = x + block.down(F.silu(block.gate(h)) * block.up(h))
        cache.length = end
        return F.linear(F.rms_norm(x, x.shape[-1:], self.norm, EPS), self.head)

    def _attention(self, block, x, turn, keys, values, start):
        import torch.nn.functional as F

        h = F.rms_norm(x, x.shape[-1:], block.norm_attention, EPS)
        q, k, v = (self._heads(linear(h)) for linear in (block.q, block.k, block.v))
        end = start + len(x)
        keys[:, :, start:end], values[:, :, start:end] = rotate(k, turn), v
        y = F.scaled_dot_product_attention(
            rotate(q, turn),
            keys[:, :, :end],
            values[:, :, :end],
            is_causal=start == 0,
            enable_gqa=self.shape.kv_heads < self.shape.heads,
        )
        return block.o(y.squeeze(0).transpose(0, 1).flatten(1))

    def _heads(self, x):
        """[tokens, n * head_dim] as [1, n, tokens, head_dim]."""
        return x.unflatten(1, (-1, self.shape.head_dim)).transpose(0, 1).unsqueeze(0)


def generate(decoder: Decoder, prompt, cache: Cache, n: int):
    """Yield the `n` likeliest tokens after `prompt` [tokens], one by one, as int.

    The last one is not fed back. Raises `ValueError` for n < 1.
    """
    import torch

    if n < 1:
        raise ValueError(f"n must be positive, got {n}")
    tokens = prompt
    for _ in range(n):
        with torch.inference_mode():
            likeliest = decoder(tokens, cache)[-1].argmax()
        yield int(likeliest)
        tokens = likeliest.unsqueeze(0)


def rotation(start: int, end: int, head_dim: int, like):
    """Cosine and sine of each position's angles: two tensors [end - start, head_dim]."""
    import torch

    pair = torch.arange(0, head_dim, 2, device=like.device) / head_dim
    angle = torch.outer(torch.arange(start, end, device=like.device), THETA**-pair)
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos().to(like.dtype), angle.sin().to(like.dtype)


def rotate(x, turn):
    """x [1, heads, tokens, head_dim] turned by its position (RoPE, arXiv:2104.09864)."""
    import torch

    left, right = x.chunk(2, dim=-1)
    cos, sin = turn
    return x * cos + torch.cat([-right, left], dim=-1) * sin


def linear_sizes(shape) -> dict[str, tuple[int, int]]:
    """(out, in) of a layer's seven linears.

    >>> from gpulab_utils import MODELS
    >>> linear_sizes(MODELS["llama-2-13b"])["down"]
    (5120, 13824)
    """
    attn, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    sizes = [(attn, shape.hidden), (kv, shape.hidden), (kv, shape.hidden)]
    sizes += [(shape.hidden, attn), *[(shape.intermediate, shape.hidden)] * 2]
    return dict(zip(LINEARS, [*sizes, (shape.hidden, shape.intermediate)], strict=True))


def random_table(rows: int, columns: int, std: float = 0.02):
    """Normal numbers [rows, columns] in this machine's 16-bit format."""
    import torch

    here = device.here()
    return torch.empty(rows, columns, dtype=here.dtype, device=here.device).normal_(0, std)


def holder(*tensors):
    """A module that holds `tensors`, for tools that ask a module what it holds.

    >>> import torch
    >>> sum(t.nbytes for t in holder(torch.ones(3), torch.ones(5)).buffers())
    32
    """
    import torch

    module = torch.nn.Module()
    for i, tensor in enumerate(tensors):
        module.register_buffer(str(i), tensor)
    return module
