"""CUDA graphs, stubbed: what was captured is a list of calls, and a replay repeats them.

Unlike a card, it runs the work while capturing too.
"""

from gpulab_utils.standin import card, private, queue
from gpulab_utils.standin.places import tensors

import torch


class Graph:
    """Stands for `torch.cuda.CUDAGraph`."""

    def __init__(self, keep_graph=False):
        self._calls = []

    def note(self, func, args, kwargs, out) -> None:
        """Remember one call while capturing."""
        self._calls.append((func, args, kwargs, out))

    def capture_begin(self, *_, **__) -> None:
        self._calls.clear()
        queue.captures.append(self)

    def capture_end(self) -> None:
        queue.captures.remove(self)

    def replay(self) -> None:
        """Repeat the calls on the same memory."""
        with private.get("no_mode")(), torch.no_grad():
            for func, args, kwargs, out in self._calls:
                again = tensors(func(*args, **kwargs))
                for old, new in zip(tensors(out), again, strict=True):
                    if not card.same_memory(old, new):
                        old.copy_(new)

    def reset(self) -> None:
        self._calls.clear()

    def pool(self) -> tuple[int, int]:
        return 0, 0


class Capture:
    """Stands for `torch.cuda.graph`."""

    def __init__(self, cuda_graph, pool=None, stream=None, **_):
        self._graph, self._stream = cuda_graph, stream or queue.Stream()

    def __enter__(self):
        self._stream.__enter__()
        self._graph.capture_begin()

    def __exit__(self, *error):
        self._graph.capture_end()
        self._stream.__exit__(*error)


def make_graphed_callables(callables, *_, **__):
    """The callables as they are: they compute the same."""
    return callables
