"""`torch.compile`, with what a lab asks for on each machine in one place."""

from collections.abc import Callable

from gpulab_utils import device


def compiled(fn: Callable, **options) -> Callable:
    """`torch.compile(fn, **options)`; under GPULAB_TINY traced only, no code is generated.

    A module comes back as a module. On a CPU inductor needs a C++ compiler: ask
    `doctor.has_compiler()` first and show the recorded result where there is none.

    >>> import torch
    >>> double = compiled(lambda x: 2 * x, backend="eager")
    >>> double(torch.ones(2)).tolist()
    [2.0, 2.0]
    """
    import torch

    if device.here().tiny:
        options.pop("mode", None)  # a mode is inductor's
        options["backend"] = "aot_eager"
    return torch.compile(fn, **options)
