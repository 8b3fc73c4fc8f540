"""Edits that make lab 05 wrong, and the check that each must trip."""

FAULTS = [
    # a platform for each architecture; code that runs on everything
    (
        'return next((name for name, target in kinds.items() if target), "neither")',
        "return card.architecture",
        'claims.check("B-2.1a"',
    ),
    (
        "for chip in chips if runs(code, chip)]",
        "for chip in chips]",
        'claims.check("B-2.1a"',
    ),
    ('card.row["gfx_target"]}', "None}", 'claims.check("B-2.1a"'),  # no AMD card at all
    # nobody takes the advice
    ("follow(facts) for name", "(facts,) for name", "assert levels <="),
    # the driver rule turned round, PTX taken for code, a card expected where none is
    (
        "< wheels.driver_for(cuda):",
        "> wheels.driver_for(cuda):",
        'claims.check("B-2.4"',
    ),
    ('if not a.startswith("compute")', "if a", 'claims.check("B-2.4"'),
    (
        "expected = bool(facts.torch_cuda or facts.torch_hip) and fits[:1] == [True]",
        "expected = True",
        'claims.check("B-2.4"',
    ),
    # bf16 wherever a tensor can be made
    (
        "gpu_dtype(c.compute_capability)",
        "gpu_dtype((8, 0))",
        'assert all((choice[name] == "bf16")',
    ),
    # products of other numbers, and an emulation that costs nothing
    (
        "torch.ones(n, n, dtype=torch.bfloat16,",
        "torch.full((n, n), 2.0, dtype=torch.bfloat16,",
        "assert (x @ x == n).all()",
    ),
    (
        "assert (x @ x == n).all()\n",
        "assert (x @ x == n).all()\nx = x + 1\n",
        "assert (emulated_product(x) == n).all()",
    ),
    (
        'real = compare(calls["fp32"], calls["bf16"])\n'
        'cost = compare(calls["bf16, emulated"], calls["bf16"])',
        "real, cost = Ratio(2, aa=1), Ratio(1, aa=1)",
        "assert not (real.lies_in",
    ),
    # special kernels counted as common, and an AMD card that lacks them as the H100's twin
    ('if row["kind"] == "common"]', "]", 'claims.check("B-2.1b"'),
    (
        '.supports == CARDS["mi300x"].supports',
        '.supports == CARDS["rx-6800-xt"].supports',
        'claims.check("B-2.1b"',
    ),
    # an operation that nobody classed
    ("exp log silu sigmoid", "exp log sigmoid", "assert not unknown"),
    # a step that is only half of one
    (
        "loss.backward()\n    learner",
        "loss\n    learner",
        'assert any("_backward" in op',
    ),
    # additions taken for rays, RT cores counted where there are none
    ('WORDS = {"ray", ', 'WORDS = {"add", ', 'claims.check("B-2.2b"'),
    (
        "correlation(ranks(cores), ranks(speed))",
        "correlation(ranks(bandwidth), ranks(speed))",
        'claims.check("B-2.2b"',
    ),
    # readers who blame the driver, forget 8.0, and take the newest
    ("my_fault = None", 'my_fault = "driver"', "assert my_fault in"),
    ("my_targets = None", 'my_targets = {"sm_86"}', "assert my_targets in"),
    ("my_build = None", 'my_build = "cu130"', "assert my_build is None"),
]
