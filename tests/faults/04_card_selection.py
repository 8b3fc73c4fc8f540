"""Edits that make lab 04 wrong, and the check that each must trip."""

FAULTS = [
    # What does a specification promise, and can you check it? A byte of ten bits; a machine
    # taken for a B200; a matmul that beats its units; chips of 4 Gbit; 64 cores an SM
    (
        "c.data_rate_bits_per_s / 8 / c.mem_bytes_per_s",
        "c.data_rate_bits_per_s / 10 / c.mem_bytes_per_s",
        "assert sum(near) >= 0.95 * len(near)",
    ),
    (
        'own = Gpu(here.name, "NVIDIA", here.mem_bytes).card if here.is_gpu else None',
        'own = CARDS["b200"]',
        "assert own is None or",
    ),
    (
        "share = reached / promised if promised and not here.tiny else None",
        "share = 2.0",
        "assert share is None or",
    ),
    ("chips = c.bus_bits / 32", "chips = c.bus_bits / 64", 'claims.check("A-2.5"'),
    (
        "(each,) = per_sm[c.compute_capability]",
        "(each,) = per_sm[(7, 5)]",
        'claims.check("A-2.6"',
    ),
    (
        "found = c.bus_bits * c.data_rate_bits_per_s / 8\n",
        "found = c.bus_bits * c.data_rate_bits_per_s / 9.5\n",
        'claims.check("A-2.7"',
    ),
    ('a100, ti = CARDS["a100-pcie-80gb"]', 'a100, ti = CARDS["l40s"]', "a100.cores <"),
    (
        "a100.rate('fp16') / ti.rate('fp16'):.2f}\")",
        "a100.rate('fp16'):.2f}\")\na100 = CARDS['rtx-a4000']",
        'assert a100.rate("fp16") >',
    ),
    (
        "host.second_core(lambda: square @ square)",
        "Ratio(1, aa=1)",
        'claims.check("A-2.2"',
    ),
    # Which number ranks the cards? The 3060 Ti for its little sister; an order turned round;
    # a card that is dearer where it holds less
    (
        'ti, plain = CARDS["rtx-3060-ti"], CARDS["rtx-3060-12gb"]',
        'plain, ti = CARDS["rtx-3060-ti"], CARDS["rtx-3060-12gb"]',
        "assert min(ti.cores",
    ),
    ("(fast - slow) <= 0", "(fast - slow) >= 0", 'claims.check("B-2.2c"'),
    ("a.msrp_usd < b.msrp_usd", "a.mem_bytes < b.mem_bytes", 'claims.check("C-2.3"'),
    ("if (a.id, b.id) not in cheaper]", "]", 'claims.check("C-2.3"'),
    # What does a little too little memory cost? Half the bytes; a layer twice; a file that
    # is read though all is here; two timings; a card that reads no sooner
    ('"bf16": 2 * packed}', '"bf16": packed}', 'claims.check("A-2.1"'),
    (
        "slot.copy_(away[k])",
        "slot.copy_(away[0])",
        "assert torch.allclose(",
    ),
    (
        '"fetched_bytes": max(0, layers - k)',
        '"fetched_bytes": max(0, 2 * layers - k)',
        "assert bytes_fetched[3] >",
    ),
    (
        "compare(lambda: token(layers // 4), lambda: token(layers), budget_s=2)",
        "Ratio(1, aa=1)",
        'claims.check("C-2.2"',
    ),
    (
        "compare(lambda: token(2 * layers), lambda: token(layers))",
        "Ratio(0.5, aa=1)",
        'claims.check("B-3.2a"',
    ),
    (
        'eight, twelve = CARDS["rtx-3060-ti"], CARDS["rtx-3060-12gb"]',
        'twelve, eight = CARDS["rtx-3060-ti"], CARDS["rtx-3060-12gb"]',
        "assert tokens[eight.id] <",
    ),
    (
        'plan("llama-2-7b", weights="int4-g128", seq=1024)',
        'plan("llama-2-7b", weights="bf16", seq=1024)',
        'assert plan("llama-2-7b"',
    ),
    # What does an upgrade give? Three timings
    (
        "compare(lambda: step(four), lambda: step(two), budget_s=2)",
        "Ratio(2, aa=1)",
        "assert token_step.lies_in",
    ),
    (
        "compare(lambda: job(whole, four), lambda: job(half, two), budget_s=2)",
        "Ratio(4, aa=1)",
        "assert together.lies_in",
    ),
    (
        "compare(lambda: whole @ square, lambda: half @ square)",
        "Ratio(1, aa=1)",
        'claims.check("B-3.2b"',
    ),
    # Your turn: bits for bytes, the fastest that cannot hold it, four times the whole job
    ("my_rate = None", "my_rate = 5120", "assert my_rate in"),
    ("my_card = None", 'my_card = "rtx-3080-ti"', "assert my_card in"),
    ("my_gain = None", "my_gain = 4", "assert my_gain is None"),
]
