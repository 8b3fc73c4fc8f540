"""A model's linears in NF4: packed by bitsandbytes, written out again, and their codes.

The model is any `transformers` causal model of the Llama kind, its blocks' linears named as
`fake_training.TARGETS`.
"""

from gpulab_utils import device, kernels
from gpulab_utils.fake_training import TARGETS, model_of
from gpulab_utils.models import Shape
from gpulab_utils.progress import progress


def packed(model, nested: bool = False):
    """`model` with its blocks' linears in NF4, in place; embedding, head, norms stay.

    `nested` quantises the scales once more. bitsandbytes repacks its weights for AVX512 at
    the first forward in eval mode; what is trained, merged or compared must not be, so
    that is switched off. Raises `kernels.KernelMissing` without bitsandbytes, `ValueError`
    where nothing is to be packed.
    """
    kernels.bitsandbytes()
    found = list(_linears(model))
    if not found:
        raise ValueError(f"no linear named {', '.join(TARGETS)} in {type(model).__name__}")
    for parent, name, base in progress(found, "packing"):
        setattr(parent, name, _packed_linear(base.weight.data, base.bias, nested))
    model.is_loaded_in_4bit = True  # PEFT asks for it
    return model


def _packed_linear(weight, bias, nested: bool):
    """bitsandbytes' 4-bit linear of that weight [out, in], on the weight's device."""
    nn = kernels.bitsandbytes().nn
    layer = nn.Linear4bit(
        weight.shape[1], weight.shape[0], bias=bias is not None, compute_dtype=weight.dtype,
        compress_statistics=nested, quant_type="nf4", device="meta",
    )  # fmt: skip
    layer.weight = nn.Params4bit(
        weight, requires_grad=False, compress_statistics=nested, quant_type="nf4",
        module=layer,
    )  # fmt: skip
    layer.bias, layer.support_avx512bf16_for_cpu = bias, False
    return layer.to(weight.device)  # quantises


def random_packed(shape: Shape, nested: bool = False, checkpointing: bool = True):
    """A Llama with random weights on this machine's device, its linears packed one by one:
    in 16 bit it is never there whole, and no freed piece lies between what stays."""
    import torch

    here = device.here()
    with torch.device("meta"):
        model = model_of(shape, "bf16", checkpointing)
    linears = list(_linears(model))
    most = max(base.weight.numel() for *_, base in linears)
    room = torch.empty(most, dtype=here.dtype, device=here.device)  # for each in turn
    for parent, name, base in progress(linears, "packing"):
        weight = room[: base.weight.numel()].view(base.weight.shape).normal_(0, 0.02)
        setattr(parent, name, _packed_linear(weight, None, nested))
    for module in model.modules():
        for name, value in list(module.named_parameters(recurse=False)):
            if value.is_meta:
                made = torch.empty_like(value, dtype=here.dtype, device=here.device)
                setattr(module, name, torch.nn.Parameter(made.normal_(0, 0.02), False))
    with torch.device(here.device):  # its angles are computed, not loaded
        model.model.rotary_emb = type(model.model.rotary_emb)(config=model.config)
    model.is_loaded_in_4bit = True
    return model


def unpacked(model):
    """`model` with each NF4 linear written out again as an fp32 one, in place.

    The values are those that NF4 stands for: what a QLoRA has been trained on.
    """
    import torch

    unpack = kernels.bitsandbytes().functional.dequantize_4bit
    for parent, name, base in list(_linears(model)):
        layer = torch.nn.Linear(1, 1, bias=False)
        values = unpack(base.weight.data, base.weight.quant_state).float()
        layer.weight = torch.nn.Parameter(values, requires_grad=False)
        layer.in_features, layer.out_features = base.in_features, base.out_features
        layer.bias = base.bias
        setattr(parent, name, layer)
    model.is_loaded_in_4bit = False
    return model.float()


def _linears(model):
    """(module, name, linear) of every target in the blocks."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if name in TARGETS:
                yield parent, name, child


def codes(model):
    """Every 4-bit code of a packed model, in a row [n] of numbers from 0 to 15."""
    import torch

    rows = [base.weight.data.flatten() for *_, base in _linears(model)]
    both = torch.cat(rows)  # two codes a byte
    return torch.cat([both >> 4, both & 15])
