"""The card of the stand-in: a name nobody can mistake, and a count of its bytes.

Which tensor lies where is remembered by storage: CARD, HOST, or unknown (None). Memory is
counted as torch's allocator does, each storage rounded up to 512 bytes, from the moment a
torch function returned it to the moment it is freed. What lives only inside one function,
or inside the backward pass, is not seen: the figures are a lower bound.
"""

import os
import weakref
from types import SimpleNamespace

import torch

CARD, HOST = "card", "host"
NAME = "gpulab stand-in (CPU)"
TOTAL = 12 * 2**30
CONTEXT = int(0.45 * 2**30)  # what a CUDA context takes beside the allocator
# GPULAB_STANDIN=7.5 is a card without bf16, for the branches that only such a card takes.
WORKSPACE = 8_519_680  # cuBLAS's, two of 4 MiB and eight of 16 KiB, from torch's allocator
CAPABILITY = tuple(map(int, os.environ.get("GPULAB_STANDIN", "8.6").split(".")))
CUDA_VERSION = "12.6"

PROPERTIES = SimpleNamespace(
    name=NAME,
    major=CAPABILITY[0],
    minor=CAPABILITY[1],
    total_memory=TOTAL,
    multi_processor_count=1,
    L2_cache_size=2 * 2**20,
    warp_size=32,
    max_threads_per_multi_processor=1536,
    max_threads_per_block=1024,
    regs_per_multiprocessor=65536,
    shared_memory_per_block=48 * 1024,
    shared_memory_per_block_optin=99 * 1024,
    shared_memory_per_multiprocessor=100 * 1024,
    is_integrated=False,
    is_multi_gpu_board=False,
    pci_bus_id=0,
    pci_device_id=0,
    pci_domain_id=0,
    uuid="00000000-0000-0000-0000-000000000000",
)

_places = {}  # id of a storage -> (weak reference, place, bytes)
_pinned = {}
now = SimpleNamespace(allocated=0, peak=0, reserved=0, peak_reserved=0, count=0, ooms=0)
now.workspace = False
limit = SimpleNamespace(fraction=1.0)


def place(tensor) -> str | None:
    """Where `tensor` lies, None if that is not known."""
    seen = _places.get(id(_storage(tensor)))
    return seen[1] if seen else None


def put(tensor, where: str) -> None:
    """Remember where `tensor` lies; raises `torch.OutOfMemoryError` on a full card."""
    storage = _storage(tensor)
    if storage is None or id(storage) in _places or storage.device.type != "cpu":
        return
    key, size = id(storage), -(-storage.nbytes() // 512) * 512 if where == CARD else 0
    if size:
        _allocate(size)
    _places[key] = (weakref.ref(storage, lambda _: _free(key)), where, size)


def pin(tensor) -> None:
    """Remember that `tensor` lies in page-locked memory of the host."""
    key, storage = id(_storage(tensor)), _storage(tensor)
    _pinned[key] = weakref.ref(storage, lambda _: _pinned.pop(key, None))
    put(tensor, HOST)


def pinned(tensor) -> bool:
    return id(_storage(tensor)) in _pinned


def use_workspace() -> None:
    """What the first product of two matrices takes, and never gives back."""
    if not now.workspace:
        now.workspace = True
        _allocate(WORKSPACE)


def usable() -> int:
    """What the allocator may hold: the set fraction, never what the context takes."""
    return min(int(limit.fraction * TOTAL), TOTAL - CONTEXT)


def blocks() -> list[tuple[int, int]]:
    """(address, bytes) of each storage on the card."""
    alive = [(ref(), size) for ref, where, size in list(_places.values()) if where == CARD]
    return [(storage.data_ptr(), size) for storage, size in alive if storage is not None]


def empty_cache() -> None:
    now.reserved = _segments(now.allocated)


def reset_peak() -> None:
    now.peak, now.peak_reserved = now.allocated, now.reserved


def _allocate(size: int) -> None:
    if now.allocated + size > usable():
        now.ooms += 1
        raise torch.OutOfMemoryError(
            f"CUDA out of memory. Tried to allocate {_mib(size)}. GPU 0 has a total "
            f"capacity of {_mib(TOTAL)} of which {_mib(TOTAL - CONTEXT - now.reserved)} "
            f"is free. {_mib(usable())} allowed; Of the allocated memory "
            f"{_mib(now.allocated)} is allocated by PyTorch, and "
            f"{_mib(now.reserved - now.allocated)} is reserved by PyTorch but unallocated."
        )
    now.allocated += size
    now.count += 1
    now.peak = max(now.peak, now.allocated)
    now.reserved = min(max(now.reserved, _segments(now.allocated)), usable())
    now.peak_reserved = max(now.peak_reserved, now.reserved)


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:.2f} MiB"


def _free(key: int) -> None:
    _, _, size = _places.pop(key)
    now.allocated -= size


def _segments(size: int) -> int:
    return -(-size // 2**21) * 2**21


def _storage(tensor):
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # sparse tensors have none
        return None


def same_memory(a, b) -> bool:
    return _storage(a) is not None and _storage(a) is _storage(b)
