"""What makes lab 03 wrong, and the check that must see it."""

FAULTS = [
    # What does a copy cost?
    (
        "compare(roads.send(straight, large), roads.send(straight, large // 8))",
        "Ratio(8**2, aa=1)",  # as if the time grew with the square of the size
        "grown.lies_in(foretold / 2, foretold * 2)",
    ),
    ('compare(*between, clock="wall")', "Ratio(1, aa=1)", "crossing.lies_in(1.1)"),
    ("roads.gap(n)", '(Ratio(1, aa=1), "")', "links.lies_in(1.25)"),
    (
        "looked = compare(lambda: carry(photos), lambda: thin(there[photos]))",
        "looked = Ratio(0.001, aa=1)",
        "looked.lies_in(0.1)",
    ),
    (
        'results.record(LAB, [{"kind": "share"',
        'learn = Ratio(1, aa=1)\nresults.record(LAB, [{"kind": "share"',
        "learn.lies_in(10)",
    ),
    # What do fresh pages, staging and small messages cost?
    (
        "kept, fresh = torch.ones_like(source), roads.fresh(n)",
        "kept, fresh = roads.fresh(n), roads.fresh(n)",
        "on_kept < pages / 10",
    ),
    (
        "on_fresh = roads.faulted(lambda: fresh.copy_(source))",
        "on_fresh = roads.faulted(lambda: kept.copy_(source))",
        "pages <= on_fresh < 1.2 * pages",
    ),
    (
        "compare(roads.send(slow, n), roads.send(quick, n))",
        "Ratio(1, aa=1)",
        "first.lies_in(1.25)",
    ),
    ("twice = compare(staged, direct)", "twice = Ratio(0.5, aa=1)", "twice.lies_in(0.6)"),
    (
        "compare(lambda: arrived.sum(1), lambda: block.sum(1))",
        "Ratio(2, aa=1)",
        "same.lies_in(0.7, 1.4)",
    ),
    (
        "compare(apart, lambda: block.copy_(messages))",
        "Ratio(1, aa=1)",
        "packed.lies_in(3)",
    ),
    # What does a layer cost that is not there?
    (
        "whole = stack.step()",
        "whole = stack.step(8)\nwhole = whole + stack.fetch(0).sum()",
        "(stack.step(deep, way) - whole)",
    ),
    (
        "spilled = compare(",
        "spilled = Ratio(1, aa=1) or compare(",
        "spilled.lies_in(max(1.5, slower / 2.5)",
    ),
    ("along = compare(", "along = Ratio(3, aa=1) or compare(", "along.lies_in(0.6, 1.7)"),
    (
        "doubled = tried[1.0]",
        "doubled = Ratio(3.4, aa=1)",  # as if each copy were made twice
        "doubled.lies_in(1.4, 3)",
    ),
    # Can the fit foretell a real model whose weights are elsewhere?
    (
        'where = roads.folder("offload")',
        'where = roads.folder("offload")\nmodel.lm_head.weight.data.mul_(2)',
        "off_by < 1e-2",
    ),
    (
        'took = {"in memory": resident_s',
        'offloaded = Ratio(9 * foretold, aa=1)\ntook = {"in memory": resident_s',
        "near is not False",
    ),
    (
        "for w in tensors.values()",
        "for w in [*tensors.values()][1:]",  # as if a matrix came once that comes twice
        "sum(stored) == sum(sizes)",
    ),
    # Your turn
    ("my_seconds = None", "my_seconds = 1.56", "my_seconds is None or"),
    (
        "apart = n_messages * (latency_s + n_bytes / bytes_per_s)",
        "apart = latency_s + n_messages * n_bytes / bytes_per_s",
        "math.isclose(told, right",
    ),
    ("my_answer = None", 'my_answer = "yes"', "my_answer in (None, verdict)"),
]
