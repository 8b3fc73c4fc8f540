"""Edits that make lab 01 wrong, and the check that each must trip."""

FAULTS = [
    # the parameters of the up projection forgotten, 13B read as 1.3B, a network made larger
    (
        "3 * shape.hidden * shape.intermediate",
        "2 * shape.hidden * shape.intermediate",
        "assert counted == by_hand",
    ),
    ("counted / (13 * YI)", "counted / (130 * YI)", 'claims.check("A-0.1"'),
    (
        'article B, part 4": sum(',
        'article B, part 4": 1000 * sum(',
        'claims.check("B-1.1a"',
    ),
    # bf16 held as fp32
    (
        "kind = FORMATS[name]\n",
        'kind = FORMATS[name.replace("bf16", "fp32")]\n',
        'claims.check("C-1.1a"',
    ),
    # a block beside the numbers, the same for each
    (
        "torch.ones(n, dtype=kind,",
        "torch.ones(n + matrix, dtype=kind,",
        'claims.check("C-1.1a"',
    ),
    # the table taken for Q4_1, a KV cache without its values
    (
        "small.embedding_params * 34 / 32",
        "small.embedding_params * 5 / 8",
        "0.97 < expected / file_bytes < 1",
    ),
    ("part.keys.nbytes + part.values.nbytes", "part.keys.nbytes", "assert kv_bytes =="),
    # a step that never steps, gradients not counted, not planned
    (
        "    learner.step()\n\n\n_, grown",
        "    learner.state\n\n\n_, grown",
        "assert 0.9 < grown / new < 1.25",
    ),
    (
        '"gradients": sum(p.grad.nbytes',
        '"gradients": 0 * sum(p.grad.nbytes',
        "assert 0.9 < grown / new < 1.25",
    ),
    (
        "planned.allocated - ",
        'planned.allocated - planned.terms["gradients"] - ',
        'claims.check("B-2.3"',
    ),
    # activations not planned; the copy that a foreach step holds left out
    (
        "planned.allocated - ",
        'planned.allocated - planned.terms["activations"] - ',
        'claims.check("B-2.3"',
    ),
    ("workspace(planned.setting)", 'planned.terms["workspace"]', 'claims.check("B-2.3"'),
    # running in fp32 taken for running in bf16; a small model's states for a large one's
    (
        "(2 * small.params)  # against",
        "(4 * small.params)  # against",
        'claims.check("A-0.4"',
    ),
    (
        "/ small.params * shape.params",
        "/ small.params * small.params",
        'claims.check("C-0.2"',
    ),
    # half of the operations, the forward pass counted again, a twin that is a copy
    (
        "forward.get_total_flops()",
        "forward.get_total_flops() // 2",
        "assert flop == n_tokens",
    ),
    ("    loss.backward()", "    big(ids, labels=ids).loss.backward()", "assert backward"),
    (
        "with sdpa_kernel(SDPBackend.MATH), FlopCounterMode",
        "with FlopCounterMode",
        'assert trained["flop"] ==',
    ),
    ("p.data.roll(1)", "p.data.roll(0)", 'claims.check("C-0.1"'),
    # a card that reaches its peak
    ("0.5 * CARDS[told", "1.0 * CARDS[told", 'claims.check("B-1.1b"'),
    # a transposed matrix, one layer's bytes for two, and two timings
    (
        "linear.weight.detach().double() @",
        "linear.weight.detach().double().T @",
        "assert error <",
    ),
    (
        "held = torch.ones(\n    2 * width**2",
        "held = torch.ones(\n    width**2",
        "assert held.nbytes ==",
    ),
    (
        "compare(lambda: run(stack), lambda: run(stack[:2]), budget_s=2)",
        "Ratio(1, aa=1)",
        "assert double.lies_in",
    ),
    (
        "compare(lambda: run(stack[:2]), held.sum, budget_s=2)",
        "Ratio(4, aa=1)",
        'claims.check("A-0.3"',
    ),
    # readers who forgot the values, the second byte, and the states
    ("my_kv_bytes = None", "my_kv_bytes = 536_870_912", "assert my_kv_bytes in"),
    ("my_ms = None", "my_ms = 6.6", "assert my_ms is None"),
    ("my_billions = None", "my_billions = 5.8", "assert my_billions is None"),
]
