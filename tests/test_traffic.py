"""The traffic tally against bytes counted by hand, and against torch's own account."""

from gpulab_utils import traffic

import pytest
import torch
import torch.nn.functional as F

N = 1000  # values of 4 bytes


@pytest.fixture
def x():
    return torch.empty(N, device="meta")


@pytest.mark.parametrize(
    ("what", "fn", "values"),
    [  # values read and written, by hand
        ("unary", lambda x: x.tanh(), 2),
        ("one tensor twice", lambda x: x * x, 2),
        ("two tensors", lambda x: x + x.tanh(), 2 + 3),
        ("in place", lambda x: x.tanh().add_(x), 2 + 3),
        ("a copy reads no target", lambda x: torch.empty_like(x).copy_(x), 2),
        ("a fill reads nothing", lambda x: torch.empty_like(x).fill_(1), 1),
        ("out is only written", lambda x: torch.mul(x, x, out=torch.empty_like(x)), 2),
        ("views move nothing", lambda x: x.view(10, 100).T[1:].detach(), 0),
        ("a slice is a part", lambda x: x[:500].tanh(), 1),
        ("expanded repeats", lambda x: x.new_empty(1).expand(N) + x, 1 / N + 2),
        ("a sum", lambda x: x.sum(), 1 + 1 / N),
        ("a list", lambda x: torch.cat([x, x.tanh()]), 2 + 4),
        ("changed, not returned", lambda x: torch._foreach_add_([x, x.tanh()], 1), 2 + 4),
    ],
)
def test_tally_is_what_a_hand_counts(x, what, fn, values):
    assert traffic.tally(fn, x).total == pytest.approx(4 * N * values), what


def test_a_matmul_reads_each_matrix_once():
    a, b = torch.empty(30, 40), torch.empty(40, 50)
    seen = traffic.tally(torch.matmul, a, b)
    assert (seen.read, seen.written) == (4 * (30 * 40 + 40 * 50), 4 * 30 * 50)


def test_real_meta_and_fake_tensors_count_alike(x):
    def chain(x):
        return 0.5 * x * (1 + torch.tanh(x))

    tallies = [traffic.tally(chain, t) for t in (torch.rand(N), x, traffic.fake(N))]
    assert tallies[0] == tallies[1] == tallies[2]
    assert [op.name for op in tallies[0].ops] == ["mul", "tanh", "add", "mul"]


def test_attention_on_a_cpu_keeps_its_scores_inside():
    q, k, v = (traffic.fake(1, 2, 512, 64) for _ in range(3))
    with torch.no_grad():
        seen = traffic.tally(F.scaled_dot_product_attention, q, k, v)
    row_sums = 4 * 2 * 512
    assert seen.total == 4 * q.nbytes + row_sums


def test_once_counts_each_memory_once():
    a, b = torch.ones(10), torch.ones(10)
    assert traffic.once(a, a.view(2, 5), b) == 80


def test_what_is_left_alone_has_no_bytes():
    assert traffic.tally(lambda: None) == traffic.Tally(())


def test_what_attention_keeps_inside_is_small():
    """A tally cannot look into a kernel; torch's profiler sees what it allocates there."""
    from torch.profiler import ProfilerActivity, profile

    q = torch.randn(1, 2, 1024, 64)
    scores_bytes = 4 * 2 * 1024**2
    with torch.no_grad():
        F.scaled_dot_product_attention(q, q, q)  # the first call of a process sets up
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
            F.scaled_dot_product_attention(q, q, q)
    made = sum(max(0, event.self_cpu_memory_usage) for event in seen.key_averages())
    assert q.nbytes <= made < scores_bytes / 4
