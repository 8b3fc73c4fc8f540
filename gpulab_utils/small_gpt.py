"""A small language model that a lab trains in seconds, and real text for it, byte by byte.

The architecture is transformers' Llama with few and narrow layers; a token is a byte, so
that the head of 256 columns does not outweigh the layers.
"""

from collections.abc import Iterator

from gpulab_utils import load

VOCAB = 256


def make(*, width: int = 256, layers: int = 4, positions: int = 256, seed: int = 0):
    """A model with random weights: float32, in train mode, on the CPU.

    `width` is the hidden size, a multiple of 64 (heads of 64 wide); the MLP is 4 x `width`
    wide and gated. Called with `input_ids` [batch, time] and `labels` it returns `.loss`
    and `.logits` [batch, time, 256]. Raises `ValueError` for another width.

    >>> model = make(width=64, layers=1, positions=8)
    >>> sum(p.numel() for p in model.parameters())
    98496
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    if width < 64 or width % 64:
        raise ValueError(f"width must be a multiple of 64, got {width}")
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        max_position_embeddings=positions,
        use_cache=False,
    )
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay as they are
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).train()


def byte_tokens(split: str):
    """`load.text(split)` as bytes: LongTensor [n], 0 to 255.

    >>> bytes(byte_tokens("test")[:12].tolist())
    b'The "assert"'
    """
    import torch

    return torch.frombuffer(bytearray(load.text(split), "utf-8"), dtype=torch.uint8).long()


def batches(split: str, *, batch: int, time: int, seed: int = 0) -> Iterator:
    """Endless windows of the text at random places: LongTensor [batch, time].

    A window serves as `input_ids` and as `labels`: the model shifts them itself.

    >>> next(batches("train", batch=2, time=8)).shape
    torch.Size([2, 8])
    """
    import torch

    text = byte_tokens(split)
    draw = torch.Generator().manual_seed(seed)
    steps = torch.arange(time)
    while True:
        starts = torch.randint(len(text) - time, (batch, 1), generator=draw)
        yield text[starts + steps]
