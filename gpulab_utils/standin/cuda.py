"""What replaces `torch.cuda`, `torch.accelerator` and a few names beside them."""

import functools
from contextlib import nullcontext
from types import BuiltinFunctionType, FunctionType

from gpulab_utils.standin import card, figures, private, queue, runtime
from gpulab_utils.standin.card import CARD
from gpulab_utils.standin.places import where

import torch


def replace() -> None:
    """Put the stand-in's functions where torch has its own."""
    for home, told in (
        (torch.cuda, {**CUDA, **MEMORY}),
        (torch.cuda.memory, MEMORY),
        (torch.cuda.random, RANDOM),
        (torch.cuda, RANDOM),
        (torch.cuda.streams, {"Stream": queue.Stream, "Event": queue.Event}),
        (torch.accelerator, ACCELERATOR),
        (torch, {"Stream": queue.Stream, "Event": queue.Event, "Generator": Generator}),
        (torch, {"compile": runtime.compiles(torch.compile)}),
        (torch, {"load": runtime.loads(torch.load)}),
        (torch.Tensor, TENSOR),
        (torch.autocast, {"__init__": runtime.autocasts(torch.autocast.__init__)}),
        (torch.version, {"cuda": card.CUDA_VERSION}),
    ):
        for name, value in told.items():
            setattr(home, name, _fresh(value))
    for key, value in PRIVATE.items():
        private.put(key, value)
    checks = private.get("checkpoint_checks")
    checks |= {name: runtime.quiet(check) for name, check in checks.items()}
    torch.set_default_device = runtime.default_device(torch.set_default_device)


def _fresh(value):
    """A function of its own for each name: Dynamo keeps a rule for each."""
    if not isinstance(value, (FunctionType, BuiltinFunctionType)):
        return value
    return functools.wraps(value)(lambda *args, **kwargs: value(*args, **kwargs))


class Generator(torch.Generator):
    """A generator of the CPU, whatever device it was asked for."""

    def __new__(cls, device="cpu"):
        return super().__new__(cls, "cpu" if where(device) is CARD else device)


def nothing(*_, **__) -> None:
    """For calls that only tell the driver something."""


def missing() -> None:
    raise NotImplementedError(
        "the GPU stand-in cannot run this CUDA call. Other threads see no card; what it "
        "does not model gets a row, with its reason, in gpulab_utils/standin/stubs.py"
    )


class OnDevice(nullcontext):
    """`torch.cuda.device`: there is only one."""


CUDA = {
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "init": nothing,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "set_device": nothing,
    "device": OnDevice,
    "device_of": OnDevice,
    "get_device_properties": lambda device=None: card.PROPERTIES,
    "get_device_name": lambda device=None: card.NAME,
    "get_device_capability": lambda device=None: card.CAPABILITY,
    "get_arch_list": lambda: ["sm_{}{}".format(*card.CAPABILITY)],
    "is_bf16_supported": lambda including_emulation=True: (
        including_emulation or card.CAPABILITY >= (8, 0)
    ),
    "is_tf32_supported": lambda: True,
    "can_device_access_peer": lambda device, peer_device: False,
    "synchronize": queue.synchronize,
    "current_stream": queue.current,
    "default_stream": lambda device=None: queue.DEFAULT,
    "set_stream": queue.set_current,
    "stream": lambda stream: queue.StreamContext(stream),
    "StreamContext": queue.StreamContext,
    "Stream": queue.Stream,
    "Event": queue.Event,
    "is_current_stream_capturing": lambda: bool(queue.captures),
    "ipc_collect": nothing,
    "set_sync_debug_mode": nothing,
    "get_sync_debug_mode": lambda: 0,
}
MEMORY = {
    "memory_allocated": lambda device=None: card.now.allocated,
    "max_memory_allocated": lambda device=None: card.now.peak,
    "memory_reserved": lambda device=None: card.now.reserved,
    "max_memory_reserved": lambda device=None: card.now.peak_reserved,
    "reset_peak_memory_stats": lambda device=None: card.reset_peak(),
    "reset_accumulated_memory_stats": nothing,
    "empty_cache": card.empty_cache,
    "memory_stats": figures.memory_stats,
    "mem_get_info": figures.mem_get_info,
    "set_per_process_memory_fraction": figures.set_fraction,
    "get_per_process_memory_fraction": lambda device=None: card.limit.fraction,
    "memory_snapshot": lambda *_, **__: figures.snapshot()["segments"],
    "get_allocator_backend": lambda: "native",
}
RANDOM = {
    "manual_seed": torch.default_generator.manual_seed,
    "manual_seed_all": torch.default_generator.manual_seed,
    "seed": torch.default_generator.seed,
    "initial_seed": torch.default_generator.initial_seed,
    "get_rng_state": lambda device=None: torch.default_generator.get_state(),
    "set_rng_state": lambda state, device=None: torch.default_generator.set_state(state),
    "get_rng_state_all": lambda: [torch.default_generator.get_state()],
    "set_rng_state_all": lambda states: torch.default_generator.set_state(states[0]),
}
ACCELERATOR = {
    "current_accelerator": lambda check_available=False: torch.device("cuda"),
    "is_available": lambda: True,
    "device_count": lambda: 1,
    "current_device_index": lambda: 0,
    "set_device_index": nothing,
    "device_index": OnDevice,
    "current_stream": queue.current,
    "set_stream": queue.set_current,
    "synchronize": queue.synchronize,
    "get_memory_info": figures.mem_get_info,
    **{
        name: MEMORY[name]
        for name in (
            *("memory_allocated", "max_memory_allocated", "memory_reserved"),
            *("max_memory_reserved", "reset_peak_memory_stats", "empty_cache"),
            *("memory_stats", "reset_accumulated_memory_stats"),
        )
    },
}
TENSOR = {
    "pin_memory": runtime.pin_memory,
    "is_pinned": lambda self, device=None: card.pinned(self),
    "record_stream": runtime.record_stream,
}
PRIVATE = {
    "lazy_init": missing,
    "record_history": nothing,
    "snapshot": figures.snapshot,
    "dump_snapshot": figures.dump_snapshot,
    "run_backward": runtime.runs_backward(private.get("run_backward")),
}
