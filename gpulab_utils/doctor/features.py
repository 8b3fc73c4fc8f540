"""Which kernels exist on this device? Each is called once, and its result must be right.

"common" ones are what any model needs; "special" ones are written for one platform or chip,
and a model that asks for them runs only there. Every input is made of ones or of small
integers, so that the right result is known without a reference.
"""

import warnings
from collections.abc import Callable

N = 64  # every matrix is [N, N]: small, and a multiple of every kernel's tile


def probe(device) -> list[dict]:
    """A row a feature: its name, its kind, whether it ran and was right, what it said.

    >>> rows = probe("cpu")
    >>> {row["kind"] for row in rows if not row["right"]} <= {"special"}
    True
    """
    return [_try(name, kind, call, device) for name, (kind, call) in _FEATURES.items()]


def _try(name: str, kind: str, call: Callable, device) -> dict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            seen, expected = call(device)
            wrong = int((seen.float() != expected).sum())
            said = f"{wrong} values are wrong" if wrong else ""
        except Exception as error:  # whatever a missing kernel says
            said = str(error).splitlines()[0][:80] or type(error).__name__
    return {"feature": name, "kind": kind, "right": not said, "said": said}


def _ones(device, dtype: str = "float32", *shape: int):
    import torch

    return torch.ones(*(shape or (N, N)), device=device).to(getattr(torch, dtype))


def _product(dtype: str) -> Callable:
    def call(device):
        ones = _ones(device, dtype)  # [N, N]
        return ones @ ones, N

    return call


def _convolution(device):
    import torch.nn.functional as F

    images, kernel = (
        _ones(device, "float32", 1, 3, 8, 8),
        _ones(device, "float32", 4, 3, 3, 3),
    )
    return F.conv2d(images, kernel), 27


def _attention(backend: str | None) -> Callable:
    """Values are all one, so that any average of them is one."""

    def call(device):
        from gpulab_utils.device import here

        import torch.nn.functional as F
        from torch.nn.attention import SDPBackend, sdpa_kernel

        x = _ones(device, str(here().dtype).split(".")[1], 1, 4, N, N)
        if backend is None:
            return F.scaled_dot_product_attention(x, x, x), 1
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return F.scaled_dot_product_attention(x, x, x), 1

    return call


def _lookup(device):
    import torch
    import torch.nn.functional as F

    table = torch.arange(float(N), device=device)[:, None]  # [N, 1]
    return F.embedding(torch.tensor([5], device=device), table), 5


def _training_step(device):
    weight = _ones(device).requires_grad_()
    (3 * _ones(device) * weight).sum().backward()
    return weight.grad, 3


def _int8(device):
    import torch

    ones = _ones(device, "int8")
    return torch._int_mm(ones, ones), N


def _fp8(device):
    import torch

    ones, scale = _ones(device, "float8_e4m3fn"), torch.ones((), device=device)
    options = {"scale_a": scale, "scale_b": scale, "out_dtype": torch.bfloat16}
    return torch._scaled_mm(ones, ones.t(), **options), N


def _int4_cpu(device):
    import torch

    codes = 9 * torch.ones(N, N, dtype=torch.int32, device=device)  # code 8 is zero
    packed = torch._convert_weight_to_int4pack_for_cpu(codes, 1)
    scale = torch.stack(
        [_ones(device, "bfloat16", 2, N), 0 * _ones(device, "bfloat16", 2, N)], -1
    )
    x = _ones(device, "bfloat16")
    return torch._weight_int4pack_mm_for_cpu(x, packed, 32, scale), N


def _int4_gpu(device):
    import torch

    codes = torch.full((N, N // 2), 0x99, dtype=torch.uint8, device=device)
    packed = torch._convert_weight_to_int4pack(codes, 2)
    scale = torch.stack(
        [_ones(device, "bfloat16", 2, N), 0 * _ones(device, "bfloat16", 2, N)], -1
    )
    return torch._weight_int4pack_mm(_ones(device, "bfloat16"), packed, 32, scale), N


def _sparse(device):
    import torch
    from torch.sparse import to_sparse_semi_structured

    half = torch.tensor([0, 0, 1, 1], dtype=torch.float16, device=device).tile(N, N // 2)
    return to_sparse_semi_structured(half) @ _ones(device, "float16", 2 * N, N), N


_FEATURES = {
    "product in fp32": ("common", _product("float32")),
    "product in bf16": ("common", _product("bfloat16")),
    "product in fp16": ("common", _product("float16")),
    "convolution": ("common", _convolution),
    "attention": ("common", _attention(None)),
    "lookup": ("common", _lookup),
    "training step": ("common", _training_step),
    "flash attention": ("special", _attention("FLASH_ATTENTION")),
    "memory-efficient attention": ("special", _attention("EFFICIENT_ATTENTION")),
    "cuDNN attention": ("special", _attention("CUDNN_ATTENTION")),
    "int8 product": ("special", _int8),
    "fp8 product": ("special", _fp8),
    "int4 product, CPU layout": ("special", _int4_cpu),
    "int4 product, GPU layout": ("special", _int4_gpu),
    "2:4 sparse product": ("special", _sparse),
}


def emulated_product(x):
    """`x @ x` in bf16 as torch computes it where no unit knows the format.

    A CPU: torch's own loops, oneDNN left out. A GPU: widen to fp32, multiply, round back.
    """
    from gpulab_utils.device import here

    import torch

    if here().is_gpu:
        return (x.float() @ x.float()).to(x.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it speaks of Intel GPUs
        with torch.backends.mkldnn.flags(enabled=False):
            return x @ x
