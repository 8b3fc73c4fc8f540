"""What no CPU can run: one table of named stubs, each with its reason.

A stub keeps a lab going and proves nothing. The lines of package and labs that called one
are appended to the file that `GPULAB_STUBS` names, so that the coverage of the GPU branches
does not count them as executed.
"""

import atexit
import functools
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from gpulab_utils.standin import graphs, mode

import torch

HERE = Path(__file__).parent
ROOTS = (str(HERE.parent), str(HERE.parent.parent / "labs"))
_lines = set()  # (file, line, name of the stub)


@dataclass(frozen=True)
class Stub:
    """What stands for a name of torch or of another package, and why."""

    name: str
    reason: str
    make: Callable | None  # from the original, or None: noted elsewhere


def note(name: str) -> None:
    """Remember the line of package or lab from which stub `name` is being called."""
    frame = sys._getframe(1)
    while frame and not _ours(frame.f_code.co_filename):
        frame = frame.f_back
    if frame:
        _lines.add((frame.f_code.co_filename, frame.f_lineno, name))


def replace() -> None:
    """Put every stub of the table in place."""
    for stub in STUBS:
        home, name = stub.name.rsplit(".", 1)
        owner = import_module(home) if stub.make and find_spec(home.split(".")[0]) else None
        if hasattr(owner, name):  # older and newer torch lack some
            setattr(owner, name, _noted(stub, getattr(owner, name)))
    mode.NOTE.append(note)
    atexit.register(_tell)


def _noted(stub: Stub, original):
    made = stub.make(original)
    if isinstance(made, type):
        made.__init__ = _before(made.__init__, stub.name)
        return made
    return _before(made, stub.name)


def _before(fn, name: str):
    @functools.wraps(fn)
    def run(*args, **kwargs):
        note(name)
        return fn(*args, **kwargs)

    return run


def _ours(file: str) -> bool:
    return file.startswith(ROOTS) and not file.startswith(str(HERE))


def _tell() -> None:
    if path := os.environ.get("GPULAB_STUBS"):
        with open(path, "a") as file:
            file.writelines(json.dumps(line) + "\n" for line in sorted(_lines))


def _nccl(original):
    def init_process_group(backend=None, *args, device_id=None, **kwargs):
        if "nccl" in (backend or ""):
            backend, device_id = "gloo", None
        return original(backend, *args, device_id=device_id, **kwargs)

    return init_process_group


def _semi_structured(original):
    def to_sparse_semi_structured(dense):
        kept = (dense.unflatten(-1, (-1, 4)) != 0).sum(-1)
        if (kept > 2).any():
            raise RuntimeError("not 2:4 sparse: a group of four holds more than two values")
        return dense.clone()

    return to_sparse_semi_structured


def _pack_int4(original):
    def _convert_weight_to_int4pack(pairs, tiles):
        codes = torch.stack([pairs >> 4, pairs & 15], -1).flatten(1).int()  # [out, in]
        packed = torch._convert_weight_to_int4pack_for_cpu(codes, 1)
        rows, columns = codes.shape
        return packed.view(torch.int32).view(
            rows // 8, columns // (tiles * 16), 32, tiles // 2
        )

    return _convert_weight_to_int4pack


def _multiply_int4(original):
    def _weight_int4pack_mm(x, packed, group, scales):
        rows = 8 * len(packed)
        flat = packed.view(rows, -1).view(torch.uint8)  # [out, in / 2]
        return torch._weight_int4pack_mm_for_cpu(x, flat, group, scales)

    return _weight_int4pack_mm


def _attention(original):
    def sdpa_kernel(backends, set_priority=False):
        backends = list(backends) if isinstance(backends, (list, tuple)) else [backends]
        return original([*backends, torch.nn.attention.SDPBackend.MATH])

    return sdpa_kernel


def _activities(original):
    class profile(original):
        def __init__(self, *, activities=None, **options):
            on_cpu = [torch.profiler.ProfilerActivity.CPU]
            super().__init__(activities=on_cpu, **options)

    return profile


def _do_bench(original):
    def do_bench(fn, *_, **__):
        start = time.perf_counter()
        fn()
        return 1e3 * (time.perf_counter() - start)

    return do_bench


def _says(value):
    return lambda original: lambda *_, **__: value


GRAPH = "a graph is captured and launched by the CUDA driver"
INT4 = "torch's int4 product is a CUDA kernel on a card: its CPU kernel stands in"
NVML = "the driver's management library reads a real card"
NVTX = "marks go to NVIDIA's profilers"

STUBS = (
    Stub("torch.cuda.CUDAGraph", GRAPH, lambda original: graphs.Graph),
    Stub("torch.cuda.graph", GRAPH, lambda original: graphs.Capture),
    Stub("torch.cuda.graph_pool_handle", GRAPH, _says((0, 0))),
    Stub(
        "torch.cuda.make_graphed_callables", GRAPH, lambda _: graphs.make_graphed_callables
    ),
    Stub(
        "torch.sparse.to_sparse_semi_structured",
        "cuSPARSELt and sparse Tensor Cores are NVIDIA's: the dense tensor stands in",
        _semi_structured,
    ),
    Stub(
        "torch.nn.attention.sdpa_kernel",
        "memory-efficient and cuDNN attention are CUDA kernels: plain attention stands in",
        _attention,
    ),
    Stub("torch._convert_weight_to_int4pack", INT4, _pack_int4),
    Stub("torch._weight_int4pack_mm", INT4, _multiply_int4),
    Stub("torch.distributed.init_process_group", "NCCL needs cards: gloo", _nccl),
    Stub("torch.distributed.is_nccl_available", "NCCL needs cards: gloo", _says(True)),
    Stub("torch.profiler.profile", "CUPTI counts kernels on a real card", _activities),
    Stub("torch.cuda.utilization", NVML, _says(0)),
    Stub("torch.cuda.memory_usage", NVML, _says(0)),
    Stub("torch.cuda.temperature", NVML, _says(40)),
    Stub("torch.cuda.power_draw", NVML, _says(0)),
    Stub("torch.cuda.clock_rate", NVML, _says(0)),
    Stub("torch.cuda.device_memory_used", NVML, _says(0)),
    Stub("torch.cuda.list_gpu_processes", NVML, _says("")),
    Stub("torch.cuda.nvtx.range_push", NVTX, _says(0)),
    Stub("torch.cuda.nvtx.range_pop", NVTX, _says(0)),
    Stub("torch.cuda.nvtx.mark", NVTX, _says(None)),
    Stub("torch.cuda._sleep", "a kernel that only spins keeps a card busy", _says(None)),
    Stub("triton.testing.do_bench", "Triton times kernels on a card", _do_bench),
    Stub(
        "bitsandbytes.kernels",
        "its CUDA kernels need a card: its CPU kernels stand in",
        None,
    ),
)
