"""A small GPT in plain torch, for ranks: they need not wait for transformers to load.

Bytes in, logits of the next byte out; norms, a gated MLP and no biases, as in a Llama;
positions are learned.
"""

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu

VOCAB = 256


class GatedMLP(nn.Module):
    """The MLP of a Llama layer: [batch, time, width] to the same."""

    def __init__(self, width: int, inner: int):
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down(silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    """Attention in heads of 64, then the MLP, each on a residual: [batch, time, width]."""

    def __init__(self, width: int):
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.mlp = GatedMLP(width, 4 * width)

    def forward(self, x):
        batch, time, width = x.shape
        parts = self.qkv(self.norms[0](x)).chunk(3, dim=-1)
        heads = [p.view(batch, time, -1, 64).transpose(1, 2) for p in parts]
        mixed = scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, time, width))
        return x + self.mlp(self.norms[1](x))


class GPT(nn.Module):
    """Tokens [batch, time] to logits [batch, time, 256]."""

    def __init__(self, width: int, layers: int, positions: int):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, width)
        self.positions = nn.Embedding(positions, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, VOCAB, bias=False)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(places)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def make(*, width: int = 64, layers: int = 2, positions: int = 256, seed: int = 0) -> GPT:
    """A model with random weights, the same for every rank; `width` a multiple of 64.

    >>> sum(p.numel() for p in make(width=64, layers=1, positions=64).parameters())
    102592
    """
    if width < 64 or width % 64:
        raise ValueError(f"width must be a multiple of 64, got {width}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GPT(width, layers, positions)


def parts(*, width: int = 64, layers: int = 2, positions: int = 256) -> list[int]:
    """Parameters of the root (tables, head, last norm), then of each layer; by hand.

    >>> parts(layers=1, positions=64)
    [36928, 65664]
    """
    root = (2 * VOCAB + positions) * width + width
    return [root, *[4 * width**2 + 3 * width * 4 * width + 2 * width] * layers]
