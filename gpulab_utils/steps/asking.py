"""How often is memory asked for while a call runs? Counted where it is asked for."""

from collections.abc import Callable

from gpulab_utils import device

import torch


def asked_for(call: Callable) -> int:
    """Calls of the driver for memory on a GPU; pages touched for the first time on a CPU.

    0 also where nobody counts: Windows, or a driver that is not NVIDIA's or AMD's.

    >>> asked_for(lambda: None) < 50
    True
    """
    before = _asked()
    call()
    return _asked() - before


def _asked() -> int:
    if device.here().is_gpu:
        return torch.cuda.memory_stats()["num_device_alloc"]
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
