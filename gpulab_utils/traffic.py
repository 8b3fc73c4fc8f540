"""How many bytes does each operation of a chain read and write? Counted, not measured.

read     bytes of the distinct tensors that an operation takes, each once
written  bytes of the tensors that it makes or changes

A view moves nothing. What a kernel reads twice because its cache is small is not seen, so a
tally is the least that the chain moves if every operation starts from memory.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

#: Filled without being read before.
_ONLY_WRITTEN = {"copy_", "fill_", "zero_", "normal_", "uniform_"}
_NOTHING = {"empty", "empty_strided", "empty_like", "new_empty", "_unsafe_view", "detach"}
_NOTHING |= {"device"}  # a fake tensor asks for its place


@dataclass(frozen=True)
class Op:
    """One operation of a chain: its name in torch, bytes read, bytes written."""

    name: str
    read: int
    written: int


@dataclass(frozen=True)
class Tally:
    """The operations of one call, views left out."""

    ops: tuple[Op, ...]

    @property
    def read(self) -> int:
        return sum(op.read for op in self.ops)

    @property
    def written(self) -> int:
        return sum(op.written for op in self.ops)

    @property
    def total(self) -> int:
        """Bytes read and bytes written."""
        return self.read + self.written


def tally(fn: Callable, *args) -> Tally:
    """Run `fn(*args)` and count what each operation below it reads and writes.

    Tensors may be real, on the meta device, or fake: only their shapes count. A kernel that
    torch does not dispatch (Triton's, say) is not seen.

    >>> import torch
    >>> x = torch.empty(1000, device="meta")  # 4,000 bytes
    >>> seen = tally(lambda x: 2 * x + x, x)
    >>> [(op.name, op.read, op.written) for op in seen.ops], seen.total
    ([('mul', 4000, 4000), ('add', 8000, 4000)], 20000)
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Counter(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            op = _count(func, args, kwargs or {}, out)
            seen.extend([op] if op.read or op.written else [])
            return out

    with Counter():
        fn(*args)
    return Tally(tuple(seen))


def fake(*shape: int, dtype: str = "float32"):
    """A tensor that holds no data, for `tally`: it takes the operations of a CPU.

    >>> fake(2**20, 1024).nbytes
    4294967296
    """
    import torch

    with _fake_mode():
        return torch.empty(*shape, dtype=getattr(torch, dtype), device="cpu")


def once(*tensors) -> int:
    """Bytes of the distinct `tensors`: what one kernel that does it all must move.

    >>> import torch
    >>> x = torch.empty(1000, device="meta")
    >>> once(x, x), once(x, x + 1)
    (4000, 8000)
    """
    return sum({_place(t): _bytes(t) for t in tensors}.values())


@cache
def _fake_mode():
    from torch._subclasses import FakeTensorMode

    return FakeTensorMode()


def _count(func, args: tuple, kwargs: dict, out) -> Op:
    name = func._schema.name.split("::")[1]
    views = [r for r in func._schema.returns if r.alias_info and not r.alias_info.is_write]
    if views or name in _NOTHING:
        return Op(name, 0, 0)
    read, changed = [], []
    for i, told in enumerate(func._schema.arguments):
        value = args[i] if i < len(args) else kwargs.get(told.name)
        writes = told.alias_info is not None and told.alias_info.is_write
        changed += _tensors(value) if writes else []
        only = writes and (told.is_out or name in _ONLY_WRITTEN)
        read += [] if only else _tensors(value)
    return Op(name, once(*read), once(*_tensors(out), *changed))


def _tensors(value) -> list:
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [t for item in value for t in _tensors(item)]
    return []


def _place(tensor) -> tuple:
    """Which memory it is: two views of all of a storage are one."""
    return tensor.untyped_storage()._cdata, tensor.storage_offset(), _bytes(tensor)


def _bytes(tensor) -> int:
    """Of the values that are stored: an expanded dimension has stride 0."""
    stored = [n for n, step in zip(tensor.shape, tensor.stride(), strict=True) if step]
    return math.prod(stored) * tensor.element_size() if tensor.numel() else 0
