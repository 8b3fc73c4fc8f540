"""What makes lab 10 wrong, and the check that must see it."""

FAULTS = [
    # Does a loop over rows use the machine?
    (
        "return [row @ w for row in rows]",
        "return [row @ w.T for row in rows]",
        "torch.allclose(torch.stack(loop(batch, weight))",
    ),
    (
        "compare(lambda: loop(large, large[0]), lambda: large @ large[0])",
        "Ratio(5, aa=1)",
        "large_calls.lies_in(0.5, 2)",
    ),
    (
        "compare(lambda: loop(batch, weight), lambda: batch @ weight)",
        "Ratio(1, aa=1)",
        "small_calls.lies_in(5)",
    ),
    # What does fusing a chain save?
    (
        "told, least = traffic.tally(chain, nothing)",
        "told, least = traffic.tally(lambda x: x * x, nothing)",
        "told.total == (2 + 2 + 5 * (3 + 2))",
    ),
    ("y.mul_(x).add_(c)", "y.add_(c).mul_(x)", "torch.equal(y, chain(x))"),
    ("fused(x, y)\ncompile_s", "y.zero_()\ncompile_s", "max(errors.values()) < 1e-6"),
    (
        "met = compare(lambda: in_place(x, y), lambda: fused(x, y), budget_s=2)",
        "met = Ratio(1, aa=1)",
        "met.lies_in(",
    ),
    (
        "fresh = compare(lambda: chain(x), lambda: fused(x, torch.empty_like(x)), budget_s=3)",
        "fresh = Ratio(1, aa=1)",
        "fresh.lies_in(3)",
    ),
    (
        "few = x[:1024], y[:1024]\n    small = compare(",
        "small = Ratio(9, aa=1)\n    _ = (lambda *a: None)(",
        "small.lies_in(0.4, 2.5)",
    ),
    (
        'compare(lambda: gelu(x), lambda: F.gelu(x, approximate="tanh"), budget_s=2)',
        "Ratio(1, aa=1)",
        "library.lies_in(1.3, 2 * 11)",
    ),
    ("for _ in range(times)]) / times", "for _ in range(times)])", "alone_s / 8 < rows[0]"),
    # Is a kernel of your own right?
    ('(37, 781, "float32", True)', '(37, 781, "float32", False)', 's.dtype == "float32"'),
    ('(37, 781, "float32", False)', '(37, 1024, "float32", False)', "s.kernel > 1e-3"),
    (
        '(37, 781, "float16", True)',
        '(37, 781, "float16", False)',
        "s.kernel < 0.8 * s.eager",
    ),
    ("mine, gain = None, None", "mine, gain = 1e-3, None", "mine < 1e-6"),
    (
        "mine, gain = None, None",
        "mine, gain = None, Ratio(1, aa=1)",
        "gain.lies_in(1.5, 6)",
    ),
    # Where do the bytes of attention go?
    ("/ math.sqrt(q.shape[-1])", "/ q.shape[-1]", "max(off.values()) < 8"),
    (
        "2 * size * heads * length**2",
        "size * heads * length**2",
        "0.8 < share < 1.5",
    ),
    (
        "compare(lambda: written_out(*longest), lambda: kept_inside(*longest), budget_s=3)",
        "Ratio(1, aa=1)",
        "sooner.lies_in(1.3)",
    ),
    (
        "bytes_out[full] / bytes_out[half]",
        "bytes_in[full] / bytes_in[half]",
        "3 < growth[0] < 4.5",
    ),
    # Your turn
    ("my_times = None", "my_times = 2", "my_times is None or"),
    (
        "math.ceil(once_s / saved_s) if saved_s > 0 else None",
        "None",
        "(calls is not None) == gains",
    ),
    (
        "return math.ceil(once_s / saved_s) if",
        "return math.floor(once_s / unfused_s) if",
        "not gains or cost[0] <=",
    ),
    (
        "math.isqrt(int(10.85 * 2**30) // (2 * 2 * 40))",
        "math.isqrt(int(10.85 * 2**30) // (2 * 40))",
        "2 * 2 * 40 * longest_length**2 <=",
    ),
    ("my_length = None", "my_length = 12067", "my_length is None or"),
]
