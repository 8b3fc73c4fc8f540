"""Modules that ask for CUDA while they are imported, and must be told the truth then."""

import sys
from importlib.util import find_spec

import torch

# bitsandbytes would load its CUDA library, the counter complain that Triton is missing.
HONEST = ("bitsandbytes", "torch.utils.flop_counter")


class Finder:
    """Runs the import of a module of `HONEST` with no CUDA in sight."""

    def find_spec(self, name, path=None, target=None):
        if name not in HONEST:
            return None
        sys.meta_path.remove(self)
        try:
            spec = find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None:
            run = spec.loader.exec_module
            spec.loader.exec_module = lambda module: _without_cuda(run, module)
        return spec


def _without_cuda(run, module) -> None:
    seen = torch.cuda.is_available, torch.version.cuda
    torch.cuda.is_available, torch.version.cuda = (lambda: False), None
    try:
        run(module)
    finally:
        torch.cuda.is_available, torch.version.cuda = seen


def watch() -> None:
    sys.meta_path.insert(0, Finder())
