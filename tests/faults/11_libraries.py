"""What makes lab 11 wrong, and the check that must see it."""

FAULTS = [
    # Which library does the work, and what does its switch change?
    (
        "run(name, enabled=False).float()",
        "1.1 * run(name, enabled=False).float()",
        "far <= (2e-2",
    ),
    (
        "ran(name, True), ran(name, False)",
        "ran(name, True), ran(name, True)",  # the switch was not turned
        "here.is_gpu or its_own == (",
    ),
    (
        "library.flags(enabled=enabled,",
        "library.flags(enabled=not enabled,",  # on is off
        "here.is_gpu or its_own == (",
    ),
    (
        'net(inputs["network"]).sum().backward()',
        'net(torch.randn_like(inputs["network"])).sum().backward()',
        "torch.equal(gradient(), gradient())",
    ),
    ("fresh = None", "fresh = Ratio(1, aa=1)", "fresh is None or fresh.lies_in(1.3)"),
    (
        "name: compare(lambda n=name: run(n, False), lambda n=name: run(n), budget_s=0.6)",
        "name: Ratio(3, aa=1)",
        'off["linear"].lies_in(0.6, 1.7)',
    ),
    (
        "here_at_all = library.is_available()",
        'here_at_all, off["network"] = True, Ratio(1, aa=1)',
        "claims.check(",
    ),
    # Does the order of the bytes, or a second thread, make a layer quicker?
    ("return layer(last)", "return layer(last.flip(1))", "torch.allclose(usual(layer),"),
    (
        "def stays(layer):\n    return layer(last)",
        "def stays(layer):\n    return layer(plain)",
        "stays(layer).is_contiguous(",
    ),
    (
        "compare(lambda: converts(light), lambda: stays(light), budget_s=0.6)",
        "Ratio(1, aa=1)",
        "both_ways.lies_in(",
    ),
    ("second_core(lambda: usual(heavy))", "Ratio(1, aa=1)", "gain.lies_in(1.25, 2.8)"),
    # What does it cost to add up the numbers of two processes?
    (
        "sum(rank + 1 for rank in range(2))",
        "sum(rank for rank in range(2))",
        'one["sums"] == [expected]',
    ),
    (
        "in_turns(by_round[unseen], [road.seconds(unseen)] * rounds)",
        "Ratio(5, aa=1)",
        "off_line.lies_in(0.5, 2)",
    ),
    ("/ (2 * sizes[-1])", "/ sizes[-1]", "wire == 0 or 0.95 <= wire <= 1.3"),
    (
        "compare(partial(backward, wrapped), partial(backward, bare))",
        "Ratio(2, aa=1)",
        "claims.check(",
    ),
    # Do two processes make the model of one, and when are they sooner done?
    (
        '{one["train"][dtype]["digest"] for one in told}',
        '{one["train"][dtype]["digest"] + str(i) for i, one in enumerate(told)}',
        "[len(each) for each in prints] == [1, 1]",
    ),
    (
        "ddp_steps.batches(train, place), parts=parts)",
        "ddp_steps.batches(train, place)[::-1], parts=parts)",  # other steps
        'whole["float32"][0] <= 1e-6',
    ),
    (
        'start = small_gpt.make(**train["shape"]).state_dict()',
        'start = states["float32"]',  # a training that trained nothing
        "moved >= 1e-3",
    ),
    (
        "whole = {dtype: against_ranks(dtype, parts=1) for dtype in ddp_steps.DTYPES}",
        'whole = dict.fromkeys(ddp_steps.DTYPES, against_ranks("float32", parts=1))',
        'whole["float64"][0] <= 1e-6 / 2**20',
    ),
    (
        'halves = against_ranks("float32", parts=2)',
        'halves = against_ranks("float32", parts=1)',
        "two_cards or halves[1]",
    ),
    (
        'many, single = (told[0]["watch"][str(cap)] for cap in watch["caps"])',
        'many, single = (told[0]["watch"][str(cap)] for cap in watch["caps"])\nmany["buckets"].pop()',
        "sum(sent_bytes) == 4 * count",
    ),
    (
        'sent_bytes, ready = zip(*many["buckets"], strict=True)',
        'sent_bytes, ready = zip(*single["buckets"], strict=True)',
        'ready[0] < many["gradients"]',
    ),
    (
        'in_turns(step_s("together", times[0]), [rows[0]["foretold"]] * rounds)',
        "Ratio(5, aa=1)",
        "met.lies_in(0.5, 2)",
    ),
    (
        'in_turns(step_s("together", times[0]), step_s("double", times[0]))',
        "Ratio(0.6, aa=1)",
        "two_cards or small_step.lies_in(1.1)",
    ),
    # Your turn
    ("my_ms = None", "my_ms = 62", "my_ms is None or"),
    (
        "return apart_s + average_s < one_s",
        "return max(apart_s, average_s) < one_s",
        "told_so == (sum(case[1:]) < case[0])",
    ),
    ("my_times = None", "my_times = (4, 4)", "my_times in (None, right)"),
]
