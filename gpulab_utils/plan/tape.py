"""Which tensors are alive? A ledger of bytes that runs a model's own code without numbers.

`Tensor` has a count of elements `n` and bytes of one element `w`; nothing else. Python
frees one when the last name for it goes, as PyTorch does, and the tape books both. With
gradients on, each operation keeps what torch's derivatives.yaml says its backward needs,
and `backward` walks the graph from the newest node to the oldest, as autograd's engine
does.

Counts may be plain integers, or packed polynomials (`poly`): the tape only adds and
multiplies.
"""

from heapq import heappop, heappush

from gpulab_utils.plan.stores import (
    ACT,
    GRADS,
    KV,
    LOGITS,
    SCRATCH,
    Node,
    Param,
    Storage,
    Tensor,
    stored,
)

__all__ = ["ACT", "GRADS", "KV", "LOGITS", "SCRATCH", "Param", "Storage", "Tape", "Tensor"]


class Tape:
    """The ledger. `live[layer][category]` are bytes; `layer` 1 stands for `alike` of them.

    `sums_in_place`: whether autograd adds gradients in place (it does, except under a
    dispatch mode such as FakeTensorMode's).
    """

    def __init__(self, alike: int = 1, sums_in_place: bool = True):
        self.live = [[0] * 5, [0] * 5]
        self.alike, self.sums_in_place = alike, sums_in_place
        self.layer = self.seq = 0
        self.grad_mode, self.quiet, self.rising = False, False, False
        self.autocast = 0  # bytes of the low precision, 0 where off
        self.cached: list[Param] = []
        self.stale: list[Storage] = []  # what a node holds beyond its backward
        self.peaks: set[tuple] = set()
        self.training = self.accumulates = self.consumes = False
        self.step_bytes = 0  # a number, while the step of one parameter runs
        self.sends = self.sends_weights = False  # saved tensors wait on the host
        self.sent = [0, 0]  # bytes, by layer as `live`

    def book(self, size: int, cat: int, layer: int, store: Storage) -> None:
        self.live[layer][cat] += size
        self.rising = True

    def drop(self, store: Storage) -> None:
        if self.rising:
            self.snapshot()
        self.live[store.layer][store.cat] -= store.size

    def snapshot(self) -> None:
        """Remember what is alive now: a candidate for the peak."""
        self.rising = False
        if not self.quiet:
            one, many = self.live
            self.peaks.add(
                tuple(a + self.alike * b for a, b in zip(one, many, strict=True))
            )

    def new(self, n: int, w: int, cat: int = ACT) -> Tensor:
        return Tensor(n, w, Storage(self, n * w, cat))

    def op(self, out: Tensor, inputs: list, saved: list, back) -> Tensor:
        """Give `out` a node if any input wants a gradient; drop what need not be kept.

        back(g) returns one gradient per input, None where there is none. `saved` are
        storages, tensors, or the parameters that backward reads.
        """
        if self.grad_mode:
            nodes = [x.node for x in inputs]
            if any(nodes):
                self.seq += 1
                kept = [] if self.sends else [s for s in map(stored, saved) if s]
                out.node = Node(self.seq, nodes, kept, back, (self.layer, self.quiet))
                out.node.away = self.send(saved) if self.sends else ()
        return out

    def send(self, saved: list) -> list:
        """Copies of `saved` go to the host: their sizes, which backward fetches.

        A tensor that two operations save goes twice, as it does in torch.
        """
        sizes = []
        for x in saved:
            if isinstance(x, Storage):
                sizes.append(x.size)
            elif isinstance(x, Tensor) or (x is not None and self.sends_weights):
                sizes.append(x.n * x.w)
        self.sent[self.layer] += sum(sizes)
        return sizes

    def backward(self, out: Tensor, grad: Tensor) -> None:
        """Walk the graph, newest first; parameters keep their gradients."""
        root = out.node
        root.grad = grad
        del out, grad
        heap, waiting = [(-root.seq, root)], {id(root)}
        del root
        while heap:
            node = heappop(heap)[1]
            waiting.discard(id(node))
            self.layer, self.quiet = node.place
            if node.redo is not None:
                node = self._again(node, heap, waiting)
                continue
            g, node.grad = node.grad, None
            fetched = [self.new(n, 1) for n in node.away]
            grads = node.back(g)
            del g, fetched
            targets, node.saved, node.inputs = node.inputs, (), ()
            for i, target in enumerate(targets):
                grad, grads[i] = grads[i], None
                if target is None or grad is None:
                    continue
                if isinstance(target, Param):
                    self._accumulate(target, grad)
                    continue
                target.grad = self.total(target.grad, grad)
                if id(target) not in waiting:
                    waiting.add(id(target))
                    heappush(heap, (-target.seq, target))
            del node, targets, grads
            grad = target = None
        self.layer, self.quiet = 0, False

    def _again(self, node: Node, heap: list, waiting: set) -> None:
        """A checkpoint: its forward runs again, the graph goes on from the new nodes."""
        fresh = node.redo()
        fresh.grad, node.grad = node.grad, None
        node.saved, node.inputs, node.redo = (), (), None
        waiting.add(id(fresh))
        heappush(heap, (-fresh.seq, fresh))

    def total(self, old: Tensor | None, new: Tensor) -> Tensor:
        """Sum of two gradients of one tensor."""
        if old is None:
            return new
        return old if self.sums_in_place else self.new(new.n, new.w)

    def _accumulate(self, param: Param, grad: Tensor) -> None:
        param.pending = self.total(param.pending, grad)
        param.uses -= 1
        if param.uses > 0:
            return
        grad, param.pending = param.pending, None
        if self.consumes:  # used at once
            grad.store.move(GRADS)
            step = self.step_bytes and self.new(param.n, self.step_bytes, SCRATCH)
            del step, grad
            return
        if self.accumulates:  # added to what is there
            return
        if param.grad is None:
            grad.store.move(GRADS)
            param.grad = grad
        else:
            param.grad = self.total(param.grad, grad)
