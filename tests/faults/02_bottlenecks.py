"""What makes lab 02 wrong, and the check that must see it."""

FAULTS = [
    # Does memory cost time when it is held, or when it is read?
    ("part = held[: n // 8]", "part = held[: n // 4]", "held.nbytes == 8 * part.nbytes"),
    ("alone = part.clone()", "alone = part", "alone.untyped_storage().nbytes()"),
    ("compare(part.sum, alone.sum)", "Ratio(8, aa=1)", "hold.lies_in(0.4, 2.5)"),
    ("compare(held.sum, part.sum, budget_s=2)", "Ratio(1, aa=1)", "read.lies_in(4, 16)"),
    ("fits_under(cap, need)", "fits_under(2 * cap, need)", "fits in ("),
    (
        "compare(lambda: twice @ weight, lambda: x @ weight)",
        "Ratio(1, aa=1)",
        "work.lies_in(1.4, 2.8)",
    ),
    # Can you tell from its shape which wall a layer meets?
    (
        "return 2 * tokens * out * inputs,",
        "return tokens * out * inputs,",
        "flop == counter.get_total_flops()",
    ),
    (
        "size * (out * inputs + tokens * (out + inputs))",
        "size * (out * inputs + tokens * inputs)",
        "moved == x.nbytes + w.nbytes + y.nbytes",
    ),
    (
        "edge = walls.ridge(dtype)",
        "edge, grown = 0.1, [Ratio(1, aa=1)] * 10",  # a ridge so low that all are past it
        "right >= 0.8 * len(judged)",
    ),
    (
        "compare(lambda: torch.add(a, b, out=c), lambda: square @ square)",
        "Ratio(1 / per_flop, aa=1)",
        "slow.lies_in(10 / per_flop)",
    ),
    # Does more bandwidth shorten the wait for one access?
    ("at = int(table[at])", "at = int(table[at]) // 16 * 8", "len(seen) == 1000"),
    ("compare(one, stream(lines))", "Ratio(steps / lines, aa=1)", "in_order.lies_in("),
    ("compare(eight, one)", "Ratio(1 / 8, aa=1)", "together.lies_in(0.5, 2.5)"),
    # When does parallel work stop being free?
    ("compare(full.double, full.run)", "Ratio(1, aa=1)", "dear.lies_in(1.4, 2.8)"),
    (
        'compare(some.run, linear("up", up, 1).run)',
        "Ratio(16, aa=1)",
        "free.lies_in(0.5, 6)",
    ),
    ("gain = second_core(matmul)", "gain = Ratio(1, aa=1)", "gain.lies_in(1.4, 2.8)"),
    ("compare(on(1, calls), on(two, calls))", "Ratio(2, aa=1)", "none.lies_in(0.7, 1.4)"),
    # Your turn
    ("my_ms = None", "my_ms = 8", "my_ms is None or"),
    (
        "flop / flop_per_s > bytes_moved / bytes_per_s",
        "flop / flop_per_s < bytes_moved / bytes_per_s",
        "told == bound(card",
    ),
    ("my_answer = None", 'my_answer = "more"', "my_answer in (None, right_answer)"),
]
