"""What stands in for each stubbed name: a function that turns the original into it."""

import time

from gpulab_utils.standin import imports, private

import torch


def nccl(original):
    def init_process_group(backend=None, *args, device_id=None, **kwargs):
        if "nccl" in (backend or ""):
            backend, device_id = "gloo", None
        return original(backend, *args, device_id=device_id, **kwargs)

    return init_process_group


def ddp(original):
    class DistributedDataParallel(original):
        def __init__(self, module, device_ids=None, output_device=None, **options):
            super().__init__(module, **options)

    return DistributedDataParallel


def mesh(original):
    def init_device_mesh(device_type, *args, **kwargs):
        with imports.no_card():  # else it makes groups of NCCL beside those of gloo
            return original("cpu", *args, **kwargs)

    return init_device_mesh


def fully_shard(original):
    def fully_shard(module, *, mesh=None, **options):
        with private.get("no_mode")():
            mesh = mesh or torch.distributed.init_device_mesh(
                "cpu", (torch.distributed.get_world_size(),)
            )
            return original(module, mesh=mesh, **options)

    return fully_shard


def semi_structured(original):
    def to_sparse_semi_structured(dense):
        kept = (dense.unflatten(-1, (-1, 4)) != 0).sum(-1)
        if (kept > 2).any():
            raise RuntimeError("not 2:4 sparse: a group of four holds more than two values")
        return dense.clone()

    return to_sparse_semi_structured


def pack_int4(original):
    def _convert_weight_to_int4pack(pairs, tiles):
        codes = torch.stack([pairs >> 4, pairs & 15], -1).flatten(1).int()  # [out, in]
        packed = torch._convert_weight_to_int4pack_for_cpu(codes, 1)
        rows, columns = codes.shape
        return packed.view(torch.int32).view(
            rows // 8, columns // (tiles * 16), 32, tiles // 2
        )

    return _convert_weight_to_int4pack


def multiply_int4(original):
    def _weight_int4pack_mm(x, packed, group, scales):
        rows = 8 * len(packed)
        flat = packed.view(rows, -1).view(torch.uint8)  # [out, in / 2]
        return torch._weight_int4pack_mm_for_cpu(x, flat, group, scales)

    return _weight_int4pack_mm


def attention(original):
    def sdpa_kernel(backends, set_priority=False):
        backends = list(backends) if isinstance(backends, (list, tuple)) else [backends]
        return original([*backends, torch.nn.attention.SDPBackend.MATH])

    return sdpa_kernel


def activities(original):
    class profile(original):
        def __init__(self, *, activities=None, **options):
            on_cpu = [torch.profiler.ProfilerActivity.CPU]
            super().__init__(activities=on_cpu, **options)

    return profile


def do_bench(original):
    def do_bench(fn, *_, **__):
        start = time.perf_counter()
        fn()
        return 1e3 * (time.perf_counter() - start)

    return do_bench


def says(value):
    return lambda original: lambda *_, **__: value
