"""What makes lab 14 wrong, and the check that must see it."""

FAULTS = [
    # What does a mask save?
    ('"with a mask": (2, 3)', '"with a mask": (2, 2)', "assert seen == {what:"),
    (
        "few, many = (sorted({r for _, r in times})[i] for i in (0, 1))",
        "few, many = (sorted({r for _, r in times})[i] for i in (0, 1))\n"
        'times["90 % zeros", few] = Ratio(0.1, aa=1)',
        'times["90 % zeros", r].lies_in',
    ),
    (
        "few, many = (sorted({r for _, r in times})[i] for i in (0, 1))",
        "few, many = (sorted({r for _, r in times})[i] for i in (0, 1))\n"
        'times["half of the rows", many] = Ratio(1, aa=1)',
        'times["half of the rows", many].lies_in',
    ),
    (
        "few, many = (sorted({r for _, r in times})[i] for i in (0, 1))",
        "few, many = (sorted({r for _, r in times})[i] for i in (0, 1))\n"
        'times["half of the rows", few] = Ratio(1, aa=1)',
        'claims.check("C-3.1a"',
    ),
    (
        "n_bytes / (2 * n_values)",
        "n_bytes / (4 * n_values)",
        "0.95 < share / expected < 1.1",
    ),
    (
        'r["values"] < 0.95 and r["flop"] < 0.95',
        'r["values"] < 0.95',
        'claims.check("C-5.1"',
    ),
    # When does a sparse format pay?
    (
        "masks.csr_bytes(64, 64 * kept, value.itemsize, index.itemsize)",
        "masks.csr_bytes(64, 64 * kept, value.itemsize, 2)",
        "seen == told for seen, told in pairs",
    ),
    (
        "packed = masks.pack(weight, kept)",
        "packed = masks.pack(weight.flip(1), kept)",
        "torch.equal(packed.dense(), weight * kept)",
    ),
    ("layout(weight * kept)", "layout(weight.float() * kept)", "theirs in (None"),
    (
        "assert not timed or timed[0.02, 1]",
        "timed[0.02, 1] = Ratio(1, aa=1)\nassert not timed or timed[0.02, 1]",
        "timed[0.02, 1].lies_in",
    ),
    (
        "assert not timed or timed[0.9, many]",
        "timed[0.9, many] = Ratio(1, aa=1)\nassert not timed or timed[0.9, many]",
        "timed[0.9, many].lies_in",
    ),
    (
        'prune.remove(linear, "weight")\nback',
        "back",
        'claims.check("C-3.1b"',
    ),
    # Which parts of a language model can go?
    (
        "left = share_left(slim[what])",
        "took[what] = Ratio(2, aa=1); left = share_left(slim[what])",
        "took[what].lies_in(left / 1.3, 1.15)",
    ),
    (
        'assert not base or took["half zeros"]',
        'took["half zeros"] = Ratio(0.5, aa=1)\nassert not base or took["half zeros"]',
        'took["half zeros"].lies_in(0.75, 1.35)',
    ),
    (
        'for rule in ("half zeros", "2:4") if base',
        'by = dict.fromkeys(by, scores["as loaded"])\n'
        'for rule in ("half zeros", "2:4") if base',
        'by[rule, "activation-aware"]',
    ),
    (
        'for rule in ("half zeros", "2:4") if base',
        'without[0] = without[gone[0]]\nfor rule in ("half zeros", "2:4") if base',
        "without[gone[0]] < without[len(influence) - 1]",
    ),
    (
        'for rule in ("half zeros", "2:4") if base',
        'without[gone[0]] = 2 * scores["as loaded"]\n'
        'for rule in ("half zeros", "2:4") if base',
        'without[gone[0]] < 1.5 * scores["as loaded"]',
    ),
    ('["0.mlp.up_proj"].weight.half()', '["0.mlp.up_proj"].weight.float()', "per_byte =="),
    (
        'for rule in ("half zeros", "2:4") if base',
        'scores["3 layers out"] = 1\nfor rule in ("half zeros", "2:4") if base',
        'scores["1 layers out"] < scores["3 layers out"]',
    ),
    ("- a_layer - 2 * shape.hidden", "- a_layer", 'n_left["1 layers out"] == by_hand'),
    # Does a short training bring it back?
    (
        "for (arm, seed), (gap, after) in gaps.items():",
        'of["one layer out", 0]["after"] = 1e9\n'
        "for (arm, seed), (gap, after) in gaps.items():",
        'row["after"] < row["before"]',
    ),
    (
        "for (arm, seed), (gap, after) in gaps.items():",
        'gaps["one layer out", 0][1] *= -1\nfor (arm, seed), (gap, after) in gaps.items():',
        'arm == "not pruned" or after > 0',
    ),
    (
        "pruned, control = of[",
        'of["not pruned", 0]["after"] = 0.999 * of["not pruned", 0]["before"]; '
        "pruned, control = of[",
        "fell[0] > 0.5 * fell[1]",
    ),
    # Your turn
    ("my_share = None", "my_share = 0.2", "my_share is None or"),
    ('"csr": left * (2 + 4) / 2', '"csr": left * (2 + 4) / 4', "takes == best"),
    ("my_closed = None", "my_closed = 1.0", "my_closed is None or"),
]
