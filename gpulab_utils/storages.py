"""Which storages do a program's tensors lie in? Each is met once, and its death is told.

It holds for real tensors and for fake ones that have no memory. What an operation takes
and gives back within itself, its workspace, is not seen.
"""

import weakref
from collections.abc import Callable
from functools import partial

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class Follower(TorchDispatchMode):
    """Calls `born(storage)` when an operation first returns a storage, and `died` with what
    that gave when the storage dies; nothing any more after the block.

    With `older` those from before the block are met too, when an operation takes them.
    Empty storages, and tensors that are not strided, are left out.

    >>> sizes = []
    >>> with Follower(lambda storage: storage.nbytes(), sizes.append):
    ...     y = torch.ones(256).view(2, 128).sum()
    >>> sizes
    [1024]
    """

    def __init__(self, born: Callable, died: Callable, older: bool = False):
        super().__init__()
        self._born, self._died, self._older = born, died, older
        self._held: dict[int, tuple] = {}  # storage -> what `born` returned, weak reference

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self._older:
            self.meet((args, kwargs))
        made = func(*args, **kwargs)
        self.meet(made)
        return made

    def __exit__(self, *error):
        super().__exit__(*error)
        self._held.clear()

    def meet(self, tree) -> list:
        """What `born` returned, now or before, for each tensor in lists, tuples, dicts."""
        tensors = (t for t in tree_iter(tree) if isinstance(t, torch.Tensor))
        found = (t.untyped_storage() for t in tensors if t.layout == torch.strided)
        return [self._note(storage) for storage in found if storage.nbytes()]

    def _note(self, storage):
        key = storage._cdata
        if key not in self._held:
            gone = weakref.ref(storage, partial(self._gone, key))
            self._held[key] = self._born(storage), gone
        return self._held[key][0]

    def _gone(self, key: int, _) -> None:
        self._died(self._held.pop(key)[0])
