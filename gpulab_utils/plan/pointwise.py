"""The operations that a decoder is made of: what each allocates, keeps and gives back.

Keeping follows torch's derivatives.yaml. C++ temporaries live to the end of their
expression, so a backward of two products holds both. All methods take and return
`Tensor`s.
"""

from gpulab_utils.plan.tape import Param, Tape, Tensor


class Pointwise(Tape):
    """A tape with everything that works element by element, and views."""

    def view(self, x: Tensor, n: int | None = None) -> Tensor:
        """The same bytes under another shape; of a part, backward pads with zeros."""
        out = Tensor(x.n if n is None else n, x.w, x.store)
        if n is None:
            return self.op(out, [x], [], lambda g: [g])
        full, w = x.n, x.w
        return self.op(out, [x], [], lambda g: [self.new(full, w)])

    def cast(self, x: Tensor, w: int) -> Tensor:
        if x.w == w:
            return x
        n, back = x.n, x.w
        return self.op(self.new(n, w), [x], [], lambda g: [self.new(n, back)])

    def copy(self, x: Tensor) -> Tensor:
        """`contiguous()` where the bytes lie otherwise; its backward passes the gradient
        on.
        """
        return self.op(self.new(x.n, x.w), [x], [], lambda g: [g])

    def _fit(self, g: Tensor, like: int) -> Tensor:
        return g if g.w == like else self.new(g.n, like)

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        wa, wb = a.w, b.w
        out = self.new(a.n, max(wa, wb))
        return self.op(out, [a, b], [], lambda g: [self._fit(g, wa), self._fit(g, wb)])

    def mul(self, a: Tensor, b: Tensor) -> Tensor:
        """Elementwise; `b` may be smaller and broadcast."""
        n, w, (wa, wb, nb) = a.n, max(a.w, b.w), (a.w, b.w, b.n)
        need_a, need_b = a.node is not None, b.node is not None

        def back(g):
            ga = self._fit(self.new(n, w), wa) if need_a else None
            gb = self.new(n, w) if need_b else None
            if need_b and (nb != n or wb != w):
                gb = self.new(nb, wb)
            return [ga, gb]

        saved = [(need_a and b) or None, (need_b and a) or None]
        return self.op(self.new(n, w), [a, b], saved, back)

    def weigh(self, x: Tensor, p: Param) -> Tensor:
        """A product with a parameter of one entry per column, as in a norm."""
        n, w, wx, need = x.n, max(x.w, p.w), x.w, x.node is not None

        def back(g):
            full = self.new(n, w) if p.train else None
            gx = self._fit(self.new(n, w), wx) if need else None
            return [gx, self.new(p.n, p.w) if full else None]

        saved = [(p.train and x) or None, (need and p) or None]
        return self.op(self.new(n, w), [x, p], saved, back)

    def scale(self, x: Tensor) -> Tensor:
        """A product with a number, or a sign change: a new tensor each way."""
        n, w = x.n, x.w
        return self.op(self.new(n, w), [x], [], lambda g: [self.new(n, w)])

    def shift(self, x: Tensor) -> Tensor:
        """A number added."""
        return self.op(self.new(x.n, x.w), [x], [], lambda g: [g])

    def power(self, x: Tensor) -> Tensor:
        """x^k: keeps x; backward g * (k * x^(k-1)), three tensors at once."""
        n, w = x.n, x.w

        def back(g):
            a, b = self.new(n, w), self.new(n, w)
            c = self.new(n, w)
            del a, b
            return [c]

        return self.op(self.new(n, w), [x], [x.store], back)

    def square(self, x: Tensor) -> Tensor:
        """x * x: keeps x; its gradient is a sum of two products."""
        n, w = x.n, x.w

        def back(g):
            a, b = self.new(n, w), self.new(n, w)
            return [self.total(a, b)]

        return self.op(self.new(n, w), [x], [x.store], back)

    def keep_input(self, x: Tensor) -> Tensor:
        """silu, gelu: keeps its input, one new tensor each way."""
        n, w = x.n, x.w
        return self.op(self.new(n, w), [x], [x.store], lambda g: [self.new(n, w)])

    def keep_result(self, x: Tensor) -> Tensor:
        """tanh, rsqrt, softmax: keeps its result."""
        n, w = x.n, x.w
        out = self.new(n, w)
        return self.op(out, [x], [out.store], lambda g: [self.new(n, w)])

    def mean(self, x: Tensor, rows: int) -> Tensor:
        n, w = x.n, x.w
        return self.op(self.new(rows, w), [x], [], lambda g: [self.new(n, w)])

    def join(self, parts: list[Tensor], n: int) -> Tensor:
        """cat: a new tensor; backward gives views of the one gradient."""
        sizes = [p.n for p in parts]
        out = self.new(n, max(p.w for p in parts))
        return self.op(out, parts, [], lambda g: [Tensor(k, g.w, g.store) for k in sizes])

    def split(self, x: Tensor, parts: list[int]) -> list[Tensor]:
        """chunk, split, unbind: views; backward joins all their gradients in a new
        tensor.
        """
        n, w, pieces = x.n, x.w, len(parts)
        whole = self.op(Tensor(n, w, x.store), [x], [], lambda g: [g])
        got: list = []

        def back(g):
            got.append(g)
            if len(got) < pieces:
                return [None]
            joined = self.new(n, w)
            got.clear()
            return [joined]

        return [self.op(Tensor(k, w, x.store), [whole], [], back) for k in parts]

    def widen(self, x: Tensor, w: int) -> Tensor:
        """A constant of `w` bytes an element added: the result takes the wider type."""
        n, back = x.n, x.w
        return self.op(self.new(n, max(back, w)), [x], [], lambda g: [self._fit(g, back)])
