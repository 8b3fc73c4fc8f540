"""Where do tensors go that leave the card? To the host; from a CPU's memory to a file.

The road is this machine's own: pinned memory of the host where there is a GPU, a file that
is mapped into memory (which the system may write out and forget) on a CPU.
"""

import tempfile
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from gpulab_utils import device
from gpulab_utils.alive import elsewhere

import torch


class Shelf:
    """Tensors put away and fetched back; `moved` counts bytes in both directions."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.moved = self.serial = 0

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of `tensor` that takes no memory of the card."""
        with elsewhere():
            away = self._room(tensor)
        away.copy_(tensor)
        self.moved += away.nbytes
        return away

    def fetch(self, away: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """A copy that lies where `like` lies."""
        self.moved += away.nbytes
        return like.new_empty(away.shape, dtype=away.dtype).copy_(away)

    def _room(self, tensor: torch.Tensor) -> torch.Tensor:
        kind = {"dtype": tensor.dtype}
        if device.here().is_gpu:
            return torch.empty(tensor.shape, **kind).pin_memory()
        self.serial += 1
        path = Path(self.folder.name) / str(self.serial)
        flat = torch.from_file(str(path), shared=True, size=tensor.numel(), **kind)
        with suppress(OSError):  # Linux keeps it until nobody maps it any more
            path.unlink()
        return flat.view(tensor.shape)

    def saving(self, parameters) -> AbstractContextManager:
        """Puts away what autograd saves while it is open, weights and scalars left out.

        As `torch.autograd.graph.save_on_cpu`, which takes the weights along.

        >>> x = torch.ones(4, 8, device=device.here().device, requires_grad=True)
        >>> shelf = Shelf()
        >>> with shelf.saving([]):
        ...     y = x.exp().sum()
        >>> y.backward()
        >>> shelf.moved == 2 * x.nbytes, torch.equal(x.grad, x.detach().exp())
        (True, True)
        """
        own = {p.untyped_storage().data_ptr() for p in parameters}

        def pack(tensor):
            if not tensor.dim() or tensor.untyped_storage().data_ptr() in own:
                return tensor
            return _Away(self.put(tensor), tensor.new_empty(0))

        def unpack(kept):
            if isinstance(kept, _Away):
                return self.fetch(kept.tensor, kept.like)
            return kept

        return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


class _Away:
    """What autograd keeps in place of a tensor; `like` is empty and lies where that lay."""

    def __init__(self, tensor: torch.Tensor, like: torch.Tensor):
        self.tensor, self.like = tensor, like
