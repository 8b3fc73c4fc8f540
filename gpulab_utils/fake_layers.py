"""LoRA, NF4 and 8-bit Adam as they allocate, in plain torch: they run on fake tensors too.

PEFT and bitsandbytes refuse fake tensors. Bytes are those of PEFT 0.21 and bitsandbytes
0.50 on a GPU; the values of `Packed` and `Adam8bit` mean nothing.
"""

import torch
from torch import nn


class Dropout(nn.Module):
    """CUDA's: a mask of a byte a value, where `nn.Dropout` on a CPU keeps the full type."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x):
        return torch.native_dropout(x, self.p, True)[0] if self.training else x


class Lora(nn.Module):
    """`base`, which is frozen, and beside it two narrow fp32 matrices: PEFT's forward.

    Beside a packed base PEFT casts its input only where CUDA's autocast is off, so not
    here: this is a GPU's run. (On a CPU it asks for CUDA's all the same, and casts.)
    """

    def __init__(self, base: nn.Module, rows: int, columns: int, rank: int, dropout: float):
        super().__init__()
        self.base, self.dropout = base, Dropout(dropout) if dropout else nn.Identity()
        self.a = nn.Linear(columns, rank, bias=False)
        self.b = nn.Linear(rank, rows, bias=False)

    def forward(self, x):
        result = self.base(x)
        kind, packed = result.dtype, isinstance(self.base, Packed)
        result = result.clone() if packed else result
        x = x if packed else x.to(self.a.weight.dtype)  # alive to the end, as in PEFT
        delta = self.b(self.a(self.dropout(x))) * 2.0
        return result + delta.to(kind) if packed else (result + delta).to(kind)


class Packed(nn.Module):
    """A linear in NF4 as bitsandbytes keeps it: two codes a byte, a scale for 64."""

    def __init__(self, rows: int, columns: int):
        super().__init__()
        self.rows, self.columns = rows, columns
        self.codes = _frozen(rows * columns // 2, torch.uint8)
        self.absmax = _frozen(rows * columns // 64, torch.float32)
        self.table = _frozen(16, torch.float32)

    def forward(self, x):
        return _Unpacked.apply(x, self)


class _Unpacked(torch.autograd.Function):
    """Unpack, multiply, free: neither the 16-bit weight nor the input is kept."""

    @staticmethod
    def forward(ctx, x, layer):
        ctx.layer = layer
        return x @ x.new_empty(layer.rows, layer.columns).T

    @staticmethod
    def backward(ctx, gradient):
        weight = gradient.new_empty(ctx.layer.rows, ctx.layer.columns)
        return gradient @ weight, None


def _frozen(n: int, dtype) -> nn.Parameter:
    return nn.Parameter(torch.empty(n, dtype=dtype), requires_grad=False)


class Adam8bit(torch.optim.Optimizer):
    """The states of bitsandbytes' AdamW8bit: two of a byte, and fp32 scales for 256 each.

    Tensors of less than 4,096 numbers keep fp32 states. It only allocates.
    """

    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            n = parameter.numel()
            for name in () if self.state[parameter] else ("first", "second"):
                small = n < 4096
                kept = torch.zeros(n, dtype=torch.float32 if small else torch.uint8)
                self.state[parameter][name] = kept
                if not small:
                    self.state[parameter][name + " scales"] = torch.zeros(-(-n // 256))
