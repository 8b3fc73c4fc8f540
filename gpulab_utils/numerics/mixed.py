"""What does a step of mixed precision hold, lose and multiply?

Byte counts read the tensors themselves; nothing here reads a clock.
"""

from collections.abc import Callable, Iterable

from gpulab_utils import device


def autocast(dtype=None):
    """torch.autocast on this machine in `dtype`; with None it changes nothing."""
    import torch

    kind = device.here().device.type
    return torch.autocast(kind, dtype=dtype or torch.bfloat16, enabled=dtype is not None)


def scaler(enabled: bool, **options):
    """torch's loss scaler on this machine; not enabled it passes everything through."""
    import torch

    return torch.amp.GradScaler(device.here().device.type, enabled=enabled, **options)


def state_bytes(model, optimizer) -> dict[str, int]:
    """Bytes of parameters, their gradients, and the optimizer's tensors (counters aside).

    >>> import torch
    >>> layer = torch.nn.Linear(4, 8, bias=False)
    >>> state_bytes(layer, torch.optim.Adam(layer.parameters()))
    {'parameters': 128, 'gradients': 0, 'optimizer': 0}
    """
    params = list(model.parameters())
    kept = [v for s in optimizer.state.values() for v in s.values() if hasattr(v, "dim")]
    return {
        "parameters": sum(p.nbytes for p in params),
        "gradients": sum(p.grad.nbytes for p in params if p.grad is not None),
        "optimizer": sum(v.nbytes for v in kept if v.dim()),
    }


def saved_bytes(model, forward: Callable) -> dict[str, int]:
    """Bytes that autograd keeps of `forward()` for its backward pass, by dtype.

    A storage counts once however many views of it are kept, the parameters not at all.

    >>> import torch
    >>> layer, x = torch.nn.Linear(4, 8, bias=False), torch.ones(2, 4, requires_grad=True)
    >>> saved_bytes(layer, lambda: layer(x).exp())
    {'torch.float32': 96}
    """
    import torch

    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    seen = {}  # the storage itself is kept, so that its address is not given out again

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = (str(tensor.dtype), storage)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        kept = forward()
    found = {}
    for dtype, storage in seen.values():
        found[dtype] = found.get(dtype, 0) + storage.nbytes()
    del kept
    return found


def backward_values(model, ids, *, scale: float = 1.0, dtype=None):
    """Gradients of the loss at the outputs of all linears, flat, as float32 [n].

    They are what mixed precision computes in 16 bit. `ids` [batch, time] goes through
    `model` under autocast to `dtype`, and the loss is multiplied by `scale`.
    """
    import torch

    found, hooks = [], []

    def note(module, grad_input, grad_output):
        found.append(grad_output[0].detach().float().flatten().clone())

    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            hooks.append(module.register_full_backward_hook(note))
    with autocast(dtype):
        loss = model(input_ids=ids, labels=ids).loss
    (loss * scale).backward()
    for hook in hooks:
        hook.remove()
    model.zero_grad()
    return torch.cat(found)


def products(model, tokens: int, dtype) -> Callable:
    """A call that does the three products of each linear of `model` and nothing else.

    Forward x W^T, backward dY W and dY^T x, for `tokens` rows of random values in `dtype`.
    """
    import torch

    kind = {"device": device.here().device, "dtype": dtype}
    sets = [
        (torch.randn(tokens, m.in_features, **kind), m.weight.detach().to(dtype),
         torch.randn(tokens, m.out_features, **kind))
        for m in model.modules() if isinstance(m, torch.nn.Linear)
    ]  # fmt: skip

    def run():
        for x, w, grad in sets:
            x @ w.T
            grad @ w
            grad.T @ x

    return run


def lenet():
    """The network of an article on adapting a card: two convolutions, two linears."""
    from torch import nn

    block = [nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.ReLU()]
    block += [nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten()]
    head = [nn.Linear(50 * 4 * 4, 500), nn.ReLU(), nn.Linear(500, 10)]
    return nn.Sequential(*block, *head).to(device.here().device)


def largest(fits: Callable[[int], bool], sizes: Iterable[int]) -> int:
    """The last of the rising `sizes` that fits, by bisection; 0 where none does.

    >>> largest(lambda n: n * n < 50, range(1, 100))
    7
    """
    sizes = list(sizes)
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if fits(sizes[middle]) else (low, middle)
    return sizes[low - 1] if low else 0
