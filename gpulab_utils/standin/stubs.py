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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpulab_utils.standin import graphs, imports, mode, substitutes

HERE = Path(__file__).parent
ROOTS = (str(HERE.parent), str(HERE.parent.parent / "labs"))
_lines = set()  # (file, line, name of the stub)


@dataclass(frozen=True)
class Stub:
    """What stands for a name of torch or of another package, and why."""

    name: str
    reason: str
    make: Callable | None  # from the original, or None: noted elsewhere

    @property
    def home(self) -> str:
        """The module that has the name."""
        return self.name.rsplit(".", 1)[0]


def note(name: str) -> None:
    """Remember the line of package or lab from which stub `name` is being called."""
    frame = sys._getframe(1)
    while frame and not _ours(frame.f_code.co_filename):
        frame = frame.f_back
    if frame:
        _lines.add((frame.f_code.co_filename, frame.f_lineno, name))


def replace() -> None:
    """Put every stub of the table in place, now or when its module is imported."""
    for home in {stub.home for stub in STUBS}:
        put = functools.partial(_put, home)
        if home in sys.modules:
            put()
        else:
            imports.AFTER[home] = put
    mode.NOTE.append(note)
    atexit.register(_tell)


def _put(home: str) -> None:
    for stub in (s for s in STUBS if s.home == home and s.make):
        owner, name = sys.modules[home], stub.name.rsplit(".", 1)[1]
        if hasattr(owner, name):  # older and newer torch lack some
            setattr(owner, name, _noted(stub, getattr(owner, name)))


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


GRAPH = "a graph is captured and launched by the CUDA driver"
INT4 = "torch's int4 product is a CUDA kernel on a card: its CPU kernel stands in"
NCCL = "NCCL runs between cards: gloo stands in"
NVML = "the driver's management library reads a real card"
NVTX = "marks go to NVIDIA's profilers"

STUBS = (
    Stub("torch.cuda.CUDAGraph", GRAPH, lambda original: graphs.Graph),
    Stub("torch.cuda.graph", GRAPH, lambda original: graphs.Capture),
    Stub("torch.cuda.graph_pool_handle", GRAPH, substitutes.says((0, 0))),
    Stub(
        "torch.cuda.make_graphed_callables", GRAPH, lambda _: graphs.make_graphed_callables
    ),
    Stub(
        "torch.sparse.to_sparse_semi_structured",
        "cuSPARSELt and sparse Tensor Cores are NVIDIA's: the dense tensor stands in",
        substitutes.semi_structured,
    ),
    Stub(
        "torch.nn.attention.sdpa_kernel",
        "memory-efficient and cuDNN attention are CUDA kernels: plain attention stands in",
        substitutes.attention,
    ),
    Stub("torch._convert_weight_to_int4pack", INT4, substitutes.pack_int4),
    Stub("torch._weight_int4pack_mm", INT4, substitutes.multiply_int4),
    Stub("torch.distributed.init_process_group", NCCL, substitutes.nccl),
    Stub("torch.distributed.is_nccl_available", NCCL, substitutes.says(True)),
    Stub("torch.distributed.init_device_mesh", NCCL, substitutes.mesh),
    Stub("torch.distributed.device_mesh.init_device_mesh", NCCL, substitutes.mesh),
    Stub("torch.distributed.fsdp.fully_shard", NCCL, substitutes.fully_shard),
    Stub("torch.nn.parallel.DistributedDataParallel", NCCL, substitutes.ddp),
    Stub(
        "torch.profiler.profile",
        "CUPTI counts kernels on a real card",
        substitutes.activities,
    ),
    Stub("torch.cuda.utilization", NVML, substitutes.says(0)),
    Stub("torch.cuda.memory_usage", NVML, substitutes.says(0)),
    Stub("torch.cuda.temperature", NVML, substitutes.says(40)),
    Stub("torch.cuda.power_draw", NVML, substitutes.says(0)),
    Stub("torch.cuda.clock_rate", NVML, substitutes.says(0)),
    Stub("torch.cuda.device_memory_used", NVML, substitutes.says(0)),
    Stub("torch.cuda.list_gpu_processes", NVML, substitutes.says("")),
    Stub("torch.cuda.nvtx.range_push", NVTX, substitutes.says(0)),
    Stub("torch.cuda.nvtx.range_pop", NVTX, substitutes.says(0)),
    Stub("torch.cuda.nvtx.mark", NVTX, substitutes.says(None)),
    Stub(
        "torch.cuda._sleep",
        "a kernel that only spins keeps a card busy",
        substitutes.says(None),
    ),
    Stub("triton.testing.do_bench", "Triton times kernels on a card", substitutes.do_bench),
    Stub(
        "bitsandbytes.kernels",
        "its CUDA kernels need a card: its CPU kernels stand in",
        None,
    ),
)
