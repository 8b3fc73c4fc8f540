"""What does a KV cache weigh in eight or four bits, and what does attention then see?

A key or value is a code and, for each group, a scale and a smallest value in bf16. "token":
a group is the head of one token. "channel": a group is 32 tokens of one channel, for keys,
whose channels differ in size (KIVI, arXiv:2402.02750); tokens that fill no group yet wait
as they came. Written for transformers' models.
"""

from dataclasses import dataclass

from gpulab_utils.progress import progress

TOKENS = 32  # a group of keys along time
PER = ("token", "channel")


@dataclass(frozen=True)
class Packed:
    """Codes uint8 [..., n, d], two a byte where bits is 4; bf16 scale and low."""

    codes: object
    scale: object
    low: object
    bits: int

    @property
    def values(self):
        """code x scale + low: fp32 [..., n, d]."""
        import torch

        codes = self.codes
        if self.bits == 4:
            codes = torch.stack([codes >> 4, codes & 15], dim=-1).flatten(-2)
        return codes.float() * self.scale.float() + self.low.float()

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and smallest values."""
        return self.codes.nbytes + self.scale.nbytes + self.low.nbytes


def pack(x, bits: int, dim: int) -> Packed:
    """`x` [..., n, d] with a scale for each group that lies along `dim` (-1 or -2).

    Raises `ValueError` for bits other than 8 and 4.

    >>> import torch
    >>> kept = pack(torch.tensor([[0.0, 1.0, 2.0, 15.0]]), bits=4, dim=-1)
    >>> kept.values.tolist(), kept.nbytes
    ([[0.0, 1.0, 2.0, 15.0]], 6)
    """
    import torch

    if bits not in (8, 4):
        raise ValueError(f"bits must be 8 or 4, got {bits}")
    low, high = x.float().aminmax(dim=dim, keepdim=True)
    low = low.bfloat16()
    scale = ((high - low.float()) / (2**bits - 1)).clamp(min=1e-8).bfloat16()
    codes = ((x.float() - low.float()) / scale.float()).round_().clamp_(0, 2**bits - 1)
    codes = codes.to(torch.uint8)
    if bits == 4:
        codes = codes[..., ::2] << 4 | codes[..., 1::2]
    return Packed(codes, scale, low, bits)


class Side:
    """The keys, or the values, of one layer: packed groups, and the tokens that wait."""

    def __init__(self, bits: int, per: str):
        if per not in PER:
            raise ValueError(f"per must be one of {', '.join(PER)}, got {per!r}")
        self.bits, self.per, self.packed, self.waiting = bits, per, [], None

    def add(self, x):
        """Put x [batch, heads, n, d] in; all that is there comes out, in x's dtype."""
        import torch

        new = x if self.waiting is None else torch.cat([self.waiting, x], dim=-2)
        n = new.shape[-2]
        full = n if self.per == "token" else n - n % TOKENS
        if full:
            self.packed.append(self._pack(new[..., :full, :]))
        self.waiting = new[..., full:, :]
        old = [p.values.reshape(*x.shape[:2], -1, x.shape[-1]) for p in self.packed]
        return torch.cat([o.to(x.dtype) for o in old] + [self.waiting], dim=-2)

    def _pack(self, x) -> Packed:
        if self.per == "token":
            return pack(x, self.bits, -1)
        return pack(x.unflatten(-2, (-1, TOKENS)), self.bits, -2)

    @property
    def nbytes(self) -> int:
        """Bytes of what is packed and of what waits."""
        waits = 0 if self.waiting is None else self.waiting.nbytes
        return sum(p.nbytes for p in self.packed) + waits


def make(model, bits: int, keys: str = "token"):
    """A transformers cache: `bits` 16 is its own, 8 and 4 are packed, keys per `keys`."""
    from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

    class Layer(DynamicLayer):
        def __init__(self):
            super().__init__()
            self.key, self.value, self.length = Side(bits, keys), Side(bits, "token"), 0

        def update(self, key_states, value_states, *args, **kwargs):
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
            self.length += key_states.shape[-2]
            return self.key.add(key_states), self.value.add(value_states)

        def get_seq_length(self, *args) -> int:
            return self.length

    if bits == 16:
        return DynamicCache()
    return Cache(layers=[Layer() for _ in range(model.config.num_hidden_layers)])


def run(model, ids, kept, **options):
    """`model` on ids [1, n] after what `kept` holds; `kept` then holds them too."""
    import inspect

    name = "cache" if "cache" in inspect.signature(model.forward).parameters else ""
    return model(ids, **{name or "past_key_values": kept}, **options)


def nats(model, ids, bits: int, keys: str = "token") -> tuple[list[float], int]:
    """Mean loss a token of each window of ids [n, time], and bytes of one cache.

    Attention reads every key and value, the newest too, through the cache.
    """
    import torch

    told = []
    with torch.inference_mode():
        for window in progress(ids.split(1), f"KV in {bits} bits"):
            kept = make(model, bits, keys)
            told.append(float(run(model, window, kept, labels=window).loss))
    return told, nbytes(kept)


def nbytes(kept) -> int:
    """Bytes that a cache of this module, or transformers' own, holds."""
    total = 0
    for layer in kept.layers:
        own = hasattr(layer, "key")
        sides = (layer.key, layer.value) if own else (layer.keys, layer.values)
        total += sum(side.nbytes for side in sides)
    return total
