"""What makes lab 06 wrong, and the check that must see it."""

FAULTS = [
    # Which products does a matrix unit speed up, and by how much?
    (
        "gains = numerics.gains((many, 1), budget_s=1.0)",
        "gains, unit = {many: Ratio(1, aa=1), 1: Ratio(1, aa=1)}, numerics.unit()\n"
        'unit = type(unit)("AMX", 16)',
        'claims.check("A-3.1"',
    ),
    (
        'torch.backends.cuda.matmul.fp32_precision == "tf32"',
        'torch.backends.cuda.matmul.fp32_precision != "tf32"',
        'claims.check("A-3.1"',
    ),
    (
        "share = {n: gains[n].value / off[n].value for n in off}",
        "gains = {many: Ratio(2, aa=1), 1: Ratio(2, aa=1)}; off = {many: Ratio(1, aa=1)}\n"
        "share = {many: 2.0, 1: 2.0}",
        "share[many] > 1.5",
    ),
    (
        "stands = gains[1].lies_in(0.4, 2.7) if unit.name else None",
        'gains, unit = {1: Ratio(8, aa=1)}, type(unit)("AMX", 16)\n'
        "stands = gains[1].lies_in(0.4, 2.7) if unit.name else None",
        'claims.check("B-2.2a"',
    ),
    # How wrong is a product in each format?
    (
        '"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2',
        '"e4m3": torch.float8_e5m2, "e5m2": torch.float8_e4m3fn',
        "same == x.numel()",
    ),
    (
        "left.double() @ right.double()",
        "left.half().double() @ right.bfloat16().double()",
        "0.75 < ratio <",
    ),
    (
        '"fp32 (machine)": (error(p @ q), None)',
        '"fp32 (machine)": (error(p.half().float() @ q), None)',
        'real["fp32 (machine)"][0]',
    ),
    # Can float16 take the place of float32 in training?
    (
        "adam = torch.optim.Adam([w], lr=1e-3, **options)",
        "adam = torch.optim.Adam([w], lr=1e-3, eps=1e-4, **options)",
        "not isfinite(adam_step(torch.float16)[0])",
    ),
    (
        'alive, half_step = wide > 0, FORMATS["fp16"].smallest / 2',
        'alive, half_step = wide > 0, FORMATS["fp16"].smallest_normal',
        "0.8 < ratio < 1.25",
    ),
    (
        "bf16_lost = [], lost(torch.bfloat16)",
        "bf16_lost = [], lost(torch.float16, -8)",
        "bf16_lost < 0.01",
    ),
    ('scaled = rows[-1]["measured"]', "scaled = 0.05", "scaled < 0.01"),
    (
        'scaled = rows[-1]["measured"]',
        'scaled, rows[0]["measured"] = 0, 0',
        'rows[0]["measured"] > 10 * scaled',
    ),
    (
        "torch.floor(wide[alive].log2())",
        "torch.ceil(wide[alive].log2())",
        'abs(flank - rows[0]["predicted"])',
    ),
    (
        'if recipe == "pure fp16":\n        model.half()',
        'if recipe == "pure fp16":\n        model.bfloat16()',
        'claims.check("C-3.4b"',
    ),
    # What does mixed precision save, and when nothing?
    (
        '"torch.autocast": (4, 4, 8, 0)',
        '"torch.autocast": (4, 4, 8, 4)',
        'k / state["torch.autocast"]',
    ),
    (
        'KEEPS["pure fp16"] = (2, 2, 4, 0)',
        'KEEPS["pure fp16"] = (2, 2, 8, 0)',
        'half == state["pure fp16"]',
    ),
    (
        'ways = {"fp32": None, "AMP": here.dtype}',
        'ways = {"fp32": None, "AMP": None}',
        'claims.check("A-3.2b"',
    ),
    (
        "at_big, at_few = (rows[i + 1]",
        'rows[3]["saved"] = 0\nat_big, at_few = (rows[i + 1]',
        'rows[3]["saved"] > rows[2]["saved"]',
    ),
    ("seen = None", "seen = [10, 20]", "seen is None or"),
    (
        "at_big, at_few = (rows[i + 1]",
        "at_big, at_few = (2 * rows[i + 1]",
        'claims.check("C-3.4c"',
    ),
    (
        "compare(lambda: digits_step(None), lambda: digits_step(here.dtype), budget_s=0.7)",
        "Ratio(4, aa=1)",
        "lenet.lies_in(0.02, 1.6)",
    ),
    (
        "of_unit = compare(in_fp32, numerics.products(model, tokens, here.dtype), budget_s=1.5)",
        'of_unit, unit = Ratio(0.5, aa=1), type(unit)("AMX", 16)',
        "of_unit.lies_in(1.1, 40)",
    ),
    (
        "gain = compare(plain, mixed, budget_s=3)",
        "gain, predicted = Ratio(1, aa=1), 2",
        'claims.check("A-3.2a"',
    ),
    # Your turn
    ("my_gain = None", "my_gain = 12", "my_gain is None or"),
    ("my_scales = None", "my_scales = (5, 16)", "my_scales in (None"),
    ("my_choice = None", 'my_choice = "autocast"', "my_choice in (None"),
]
