"""What the tape books: bytes, tensors that share them, parameters, the graph's nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpulab_utils.plan.tape import Tape

ACT, LOGITS, GRADS, KV, SCRATCH = range(5)


class Storage:
    """Bytes that live until nothing refers to them."""

    __slots__ = ("cat", "layer", "size", "tape")

    def __init__(self, tape: Tape, size: int, cat: int):
        self.tape, self.size, self.cat, self.layer = tape, size, cat, tape.layer
        tape.book(size, cat, self.layer, self)

    def move(self, cat: int) -> None:
        """Book the same bytes under another heading."""
        self.tape.live[self.layer][self.cat] -= self.size
        self.cat = cat
        self.tape.live[self.layer][cat] += self.size

    def __del__(self):
        self.tape.drop(self)


class Node:
    """One operation in the graph: where gradients go, what it kept, how it gives them."""

    __slots__ = ("away", "back", "grad", "inputs", "place", "redo", "saved", "seq")

    def __init__(self, seq: int, inputs: list, saved: list, back, place: tuple):
        self.seq, self.inputs, self.saved, self.back, self.grad = (
            seq,
            inputs,
            saved,
            back,
            None,
        )
        self.place, self.redo, self.away = place, None, ()


class Tensor:
    """`n` elements of `w` bytes; `node` is set where a gradient is wanted."""

    __slots__ = ("n", "node", "store", "w")

    def __init__(self, n: int, w: int, store: Storage | None, node: Node | None = None):
        self.n, self.w, self.store, self.node = n, w, store, node


def stored(x) -> Storage | None:
    """The bytes that a graph keeps alive: a parameter's are there anyway."""
    return x.store if isinstance(x, Tensor) else x if isinstance(x, Storage) else None


class Param:
    """A weight of `n` elements of `w` bytes, its bytes booked elsewhere; a leaf of the
    graph.

    `copy` is autocast's cached 16-bit copy, `packed` says that a product unpacks it first,
    `scratch` are the bytes that unpacking needs beside the result.
    """

    __slots__ = ("copy", "grad", "n", "packed", "pending", "scratch", "train", "uses", "w")

    def __init__(self, n: int, w: int, train: bool, packed: bool = False, scratch: int = 0):
        self.n, self.w, self.train, self.packed, self.scratch = n, w, train, packed, scratch
        self.copy = self.grad = self.pending = None
        self.uses = 1

    @property
    def node(self) -> Param | None:
        return self if self.train else None
