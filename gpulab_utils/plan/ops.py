"""Products, tables, attention and norms: what each allocates, keeps and gives back."""

from gpulab_utils.plan.pointwise import Pointwise
from gpulab_utils.plan.tape import ACT, LOGITS, SCRATCH, Param, Tensor


class Ops(Pointwise):
    """A tape with the operations of a decoder."""

    def layer_norm(self, x: Tensor, p: Param, rows: int) -> Tensor:
        """Keeps x and two fp32 numbers a row; backward one tensor."""
        w = max(x.w, 4) if self.autocast == 0 and x.w != p.w else x.w
        n, wx, need = x.n, x.w, x.node is not None
        out, stats = self.new(n, w), self.new(2 * rows, 4)
        back = lambda g: [  # noqa: E731
            self.new(n, wx) if need else None,
            self.new(p.n, p.w) if p.train else None,
        ]
        return self.op(out, [x, p], [x.store, stats.store, p], back)

    def fused_norm(self, x: Tensor, p: Param, rows: int) -> Tensor:
        """A compiled RMSNorm: keeps x itself and one number a row, one tensor each way."""
        n, w, need = x.n, x.w, x.node is not None
        out, stats = self.new(n, w), self.new(rows, 4)
        back = lambda g: [  # noqa: E731
            self.new(n, w) if need else None,
            self.new(p.n, p.w) if p.train else None,
        ]
        return self.op(out, [x, p], [x.store, stats.store], back)

    def fused_gate(self, a: Tensor, b: Tensor) -> Tensor:
        """A compiled silu(a) * b: keeps both, recomputes silu."""
        n, w = a.n, a.w
        back = lambda g: [self.new(n, w), self.new(n, w)]  # noqa: E731
        return self.op(self.new(n, w), [a, b], [a.store, b.store], back)

    def linear(self, x: Tensor, p: Param, n: int, cat: int = ACT) -> Tensor:
        """x W: keeps x for W's gradient; under autocast x and W are copied down first."""
        if p.packed:
            return self._packed(x, p, n)
        weight = p
        if self.autocast:
            x, weight = self.cast(x, self.autocast), self._cached(p)
        nx, wx, need, wp = x.n, x.w, x.node is not None, weight.w
        out = self.new(n, wp, cat)
        if cat == LOGITS:
            out.store.move(LOGITS)

        def back(g):
            gx = self.new(nx, wx) if need else None
            return [gx, self.new(p.n, wp) if p.train else None]

        saved = [(p.train and x) or None, (need and weight) or None]
        return self.op(out, [x, weight], saved, back)

    def _cached(self, p: Param) -> Param | Tensor:
        """Autocast's copy of a weight: made once, dropped when the context ends."""
        if p.w == self.autocast:
            return p
        if p.copy is not None:
            return p.copy
        copy = self.op(
            self.new(p.n, self.autocast), [p], [], lambda g: [self.new(p.n, p.w)]
        )
        if p.train or not self.training:
            p.copy = copy
            self.cached.append(p)
        return copy

    def end_autocast(self) -> None:
        """Leave the context: the cached copies lose their last name."""
        for p in self.cached:
            p.copy = None
        self.cached.clear()
        self.autocast = 0

    def _packed(self, x: Tensor, p: Param, n: int) -> Tensor:
        """Unpack the weight, multiply, free it; again in backward; no input is kept."""
        nx, wx, w = x.n, x.w, p.w
        need = x.node is not None
        copies = p.packed if p.packed is not True else 1

        def unpack():
            scratch = self.new(p.scratch, 1, SCRATCH) if p.scratch else None
            held = [self.new(p.n, w, SCRATCH) for _ in range(copies)]
            del scratch
            return held

        def back(g):
            held = unpack()
            gx = self.new(nx, wx) if need else None
            del held
            return [gx]

        held = unpack()
        out = self.new(n, w)
        del held
        return self.op(out, [x], [], back)

    def dropout(self, x: Tensor) -> Tensor:
        """Keeps a mask of one byte per element."""
        n, w = x.n, x.w
        out, mask = self.new(n, w), self.new(n, 1)
        return self.op(out, [x], [mask.store], lambda g: [self.new(n, w)])

    def bmm(self, a: Tensor, b: Tensor, n: int) -> Tensor:
        """A batched product: each side is kept for the other's gradient."""
        if self.autocast:
            a, b = self.cast(a, self.autocast), self.cast(b, self.autocast)
        (na, wa), (nb, wb) = (a.n, a.w), (b.n, b.w)
        need_a, need_b = a.node is not None, b.node is not None
        saved = [(need_b and a.store) or None, (need_a and b.store) or None]
        back = lambda g: [  # noqa: E731
            self.new(na, wa) if need_a else None,
            self.new(nb, wb) if need_b else None,
        ]
        return self.op(self.new(n, max(wa, wb)), [a, b], saved, back)

    def fused_attention(
        self, q: Tensor, k: Tensor, v: Tensor, rows: int, mask=None
    ) -> Tensor:
        """Flash attention: keeps q, k, v, the result and one fp32 number per row and
        head.
        """
        out, sums = self.new(q.n, q.w), self.new(rows, 4)
        saved = [q.store, k.store, v.store, out.store, sums.store, mask and mask.store]
        sizes = [(x.n, x.w) for x in (q, k, v)]
        return self.op(out, [q, k, v], saved, lambda g: [self.new(*s) for s in sizes])

    def repeat(self, x: Tensor, n: int) -> Tensor:
        """repeat_kv: a copy per query head; backward sums them."""
        small, w = x.n, x.w
        return self.op(self.new(n, w), [x], [], lambda g: [self.new(small, w)])

    def gather(self, x: Tensor, n: int, index: Tensor | None) -> Tensor:
        """Rows by index, or a sum over them: a new tensor; backward one as large as x."""
        nx, w = x.n, x.w
        kept = [index and index.store]
        return self.op(self.new(n, w), [x], kept, lambda g: [self.new(nx, w)])

    def grouped(self, x: Tensor, n: int) -> Tensor:
        """All experts' linears in one call, their weights frozen."""
        nx, w = x.n, x.w
        return self.op(self.new(n, w), [x], [], lambda g: [self.new(nx, w)])

    def embed(self, p: Param, n: int) -> Tensor:
        """Rows of a table; its gradient is as large as the table."""
        return self.op(self.new(n, p.w), [p], [], lambda g: [self.new(p.n, p.w)])
