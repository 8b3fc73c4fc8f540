"""The names of torch that are not public and that the stand-in needs, all in one place.

Seen in torch 2.13.0. A name that is gone says so by `Gone`, with the way out.
"""

from importlib import import_module

SEEN_IN = "2.13.0"
NAMES = {
    "parse_to": "torch._C._nn._parse_to",  # reads a device, must not be answered with cpu
    "no_mode": "torch._C.DisableTorchFunction",  # runs a block without any function mode
    "modes": "torch.overrides._get_current_function_mode_stack",
    "run_backward": "torch.autograd._engine_run_backward",  # entered with the mode off
    "checkpoint_checks": "torch.utils.checkpoint._allowed_determinism_checks_to_fns",
    "lazy_init": "torch.cuda._lazy_init",  # where every call ends that nobody replaced
    "record_history": "torch.cuda.memory._record_memory_history",
    "snapshot": "torch.cuda.memory._snapshot",
    "dump_snapshot": "torch.cuda.memory._dump_snapshot",
}


class Gone(RuntimeError):
    """A private name that this torch no longer has."""


def get(key: str):
    """The object that `key` of `NAMES` stands for; raises `Gone`."""
    home, name = NAMES[key].rsplit(".", 1)
    try:
        return getattr(_module(home), name)
    except AttributeError:
        import torch

        raise Gone(
            f"torch {torch.__version__} has no {NAMES[key]}, which the GPU stand-in uses "
            f"(seen in torch {SEEN_IN}): name its successor in {__name__}"
        ) from None


def put(key: str, value) -> None:
    """Replace what `key` of `NAMES` stands for; raises `Gone`."""
    get(key)
    home, name = NAMES[key].rsplit(".", 1)
    setattr(_module(home), name, value)


def _module(home: str):
    try:
        return import_module(home)
    except ModuleNotFoundError:  # torch._C._nn is an attribute, not a module file
        parent, name = home.rsplit(".", 1)
        return getattr(import_module(parent), name)
