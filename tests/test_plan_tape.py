"""The ledger, the allocator and the packed polynomials, by hand."""

from gpulab_utils.plan import poly
from gpulab_utils.plan.ops import Ops
from gpulab_utils.plan.pool import MIB, Pool
from gpulab_utils.plan.tape import ACT, GRADS, Param


def alive(tape):
    return sum(map(sum, tape.live))


def test_a_linear_keeps_its_input_only_for_a_weight_that_trains():
    for train, kept in ((True, 10 * 2), (False, 0)):
        t = Ops()
        t.grad_mode = True
        x = t.new(10, 2)
        y = t.linear(t.scale(x), Param(40, 2, train), 4)
        x.node = None
        del x
        assert alive(t) == 4 * 2 + kept, train  # the output, and the scaled input
        del y


def test_backward_frees_what_it_used_and_leaves_gradients():
    t = Ops()
    t.grad_mode = True
    p = Param(40, 2, True)
    y = t.linear(t.new(10, 2), p, 4)
    g = t.new(4, 2)
    t.backward(y, g)
    del y, g
    assert t.live[0][ACT] == 0
    assert t.live[0][GRADS] == 40 * 2


def test_autograd_under_a_dispatch_mode_adds_gradients_out_of_place():
    peaks = {}
    for in_place in (True, False):
        t = Ops(sums_in_place=in_place)
        t.grad_mode = True
        p = Param(1000, 2, True)
        p.uses = 2
        x = t.linear(t.embed(p, 10), p, 10)
        g = t.new(10, 2)
        t.backward(x, g)
        peaks[in_place] = max(map(sum, t.peaks))
    assert peaks[True] == 2 * 2000 + 60  # the head's gradient, the embedding's, the rest
    assert peaks[False] == 3 * 2000 + 40  # and their sum


def test_packed_polynomials_add_and_multiply():
    tokens = poly.B * poly.S
    assert poly.unpack(3 * tokens * poly.S + 2 * tokens) == {(1, 2, 0): 3, (1, 1, 0): 2}
    assert poly.value(poly.unpack(3 * tokens * poly.S), 2, 10) == 3 * 2 * 100


def test_pool_rounds_splits_and_joins():
    pool = Pool()
    pool.allocate("a", 100)  # 512 bytes of a 2 MiB segment
    assert (pool.allocated, pool.reserved) == (512, 2 * MIB)
    pool.allocate("b", 43 * MIB)  # a segment of 44 MiB, the last MiB not split off
    assert pool.reserved == 46 * MIB
    assert pool.allocated == 512 + 44 * MIB
    pool.release("b")
    pool.allocate("c", 20 * MIB)  # out of b's, split
    pool.allocate("d", 24 * MIB)  # the rest of b's
    assert pool.reserved == 46 * MIB
    pool.release("c")
    pool.release("d")
    pool.allocate("e", 44 * MIB)  # joined again
    assert pool.reserved == 46 * MIB
