"""Modules that must not see a card while they are imported, or get stubs after it."""

import sys
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec

import torch

# bitsandbytes would load its CUDA library, the counter complain that Triton is missing.
HONEST = ("bitsandbytes", "torch.utils.flop_counter")
AFTER = {}  # name of a module: what to call when it has been imported


class Finder:
    """Attends the import of the modules of `HONEST` and `AFTER`."""

    def find_spec(self, name, path=None, target=None):
        if name not in HONEST and name not in AFTER:
            return None
        sys.meta_path.remove(self)
        try:
            spec = find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None:
            run = spec.loader.exec_module
            spec.loader.exec_module = lambda module: _import(run, module)
        return spec


def _import(run, module) -> None:
    with no_card() if module.__name__ in HONEST else nullcontext():
        run(module)
    AFTER.get(module.__name__, lambda: None)()


@contextmanager
def no_card():
    """Answer truthfully, for a while, that there is no CUDA."""
    seen = torch.cuda.is_available, torch.version.cuda
    torch.cuda.is_available, torch.version.cuda = (lambda: False), None
    try:
        yield
    finally:
        torch.cuda.is_available, torch.version.cuda = seen


def watch() -> None:
    sys.meta_path.insert(0, Finder())
