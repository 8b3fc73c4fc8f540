"""What makes lab 12 wrong, and the check that must see it."""

FAULTS = [
    # Where do the bytes of a training step go, and who takes some away?
    (
        "lowest = min(peaks, key=peaks.get)",
        "lowest = max(peaks, key=peaks.get)",
        "lowest == min(bills",
    ),
    (
        "for name, bill in bills.items():\n    print(",
        'bills["plain"] = bills["checkpointing"]\n'
        "for name, bill in bills.items():\n    print(",
        "0.95 < bill.allocated / peaks[name]",
    ),
    (
        "terms = ledgers[name].terms()",
        'terms = ledgers[name].terms() | {"weights": 1}',
        'abs(bill.terms["weights"] - terms["weights"])',
    ),
    (
        "terms = ledgers[name].terms()",
        'terms = ledgers[name].terms() | {"optimizer": 0}',
        'abs(bill.terms["optimizer"] - terms["optimizer"])',
    ),
    (
        'segments[0]["peak"], segments[1:]',
        'segments[0]["peak"], segments[2:]',
        "min(segments",
    ),
    (
        'cut_row | {"planned": steps.planned(step)',
        'cut_row | {"planned": steps.planned(plain)',
        '0.95 < r["planned"] / r["peak"]',
    ),
    (
        "peaks = {name: ledger.peak.total for name, ledger in ledgers.items()}",
        'losses["AMP"] = 99\n'
        "peaks = {name: ledger.peak.total for name, ledger in ledgers.items()}",
        'abs(losses[n] / losses["plain"] - 1) < 0.02',
    ),
    (
        "peaks = {name: ledger.peak.total for name, ledger in ledgers.items()}",
        'losses["accumulation"] *= 1.01\n'
        "peaks = {name: ledger.peak.total for name, ledger in ledgers.items()}",
        'abs(losses[n] / losses["plain"] - 1) < 1e-4',
    ),
    (
        "peaks = {name: ledger.peak.total for name, ledger in ledgers.items()}",
        'ledgers["fused backward"] = ledgers["checkpointing"]\n'
        'bills["fused backward"] = bills["checkpointing"]\n'
        "peaks = {name: ledger.peak.total for name, ledger in ledgers.items()}",
        'peaks["fused backward"] > 0.9',
    ),
    (
        "peaks = {name: ledger.peak.total for name, ledger in ledgers.items()}",
        'ledgers["checkpointing, fused"] = ledgers["checkpointing"]\n'
        'bills["checkpointing, fused"] = bills["checkpointing"]\n'
        "peaks = {name: ledger.peak.total for name, ledger in ledgers.items()}",
        'peaks["checkpointing, fused"] < 0.95',
    ),
    (
        'grad, quiet = forwards["train"], forwards["no_grad"]',
        'grad, quiet = forwards["train"], forwards["no_grad"] // 2',
        'forwards["inference_mode"] - quiet',
    ),
    (
        'grad, quiet = forwards["train"], forwards["no_grad"]',
        'grad, quiet = forwards["no_grad"], forwards["no_grad"]',
        'claims.check("C-4.6"',
    ),
    ("for s in (fused, written)", "for s in (written, written)", "attention[0] < 0.95"),
    (
        'steps.times({"fused": fused, "written": written}, "written")["fused"]',
        "Ratio(1.5, aa=1)",
        "in_attention.lies_in(0.2, 0.95)",
    ),
    (
        "masked_bytes = masked.ledger().peak.total",
        "masked_bytes = masked.ledger().peak.total // 10",
        'masked_bytes == peaks["plain"]',
    ),
    ("torch.rand_like(p) < 0.1", "torch.rand_like(p) < 0.9", "zeros > 0.85"),
    (
        "peaks = {name: ledger.peak.total for name, ledger in ledgers.items()}",
        'ratios["masks"] = Ratio(0.1, aa=1)\n'
        "peaks = {name: ledger.peak.total for name, ledger in ledgers.items()}",
        'ratios["masks"].lies_in(0.7, 1.4)',
    ),
    (
        'saves = peaks["checkpointing"] < 0.95',
        'ratios["checkpointing"] = Ratio(0.9, aa=1)\nsaves = peaks["checkpointing"] < 0.95',
        'claims.check("C-5.3"',
    ),
    # Why is a card out of memory with memory free?
    ("apart = [0.0]", "apart = [0.5]", "max(apart) < 0.02"),
    (
        'died, lived = played["default"], played["expandable"]',
        'died, lived = played["default"], played["expandable"]\ndied.oom.free_inside = 0',
        "died.oom.free_inside > 5",
    ),
    (
        'died, lived = played["default"], played["expandable"]',
        'died, lived = played["default"], played["expandable"]\ndied.oom.largest = left',
        "died.oom.largest < died.oom.asked",
    ),
    (
        'confs = {"default": "", "expandable": "expandable_segments:True"}',
        'confs = {"default": "", "expandable": "max_split_size_mb:128"}',
        "lived.oom is None",
    ),
    (
        'died, lived = played["default"], played["expandable"]',
        'died, lived = played["default"], played["expandable"]\nleft -= 30 * MIB',
        "died.points == trace.replay(entries, left).points",
    ),
    (
        "compare(into_new, into_one, budget_s=2)",
        "Ratio(0.5, aa=1)",
        "pooled.lies_in(1.1)",
    ),
    (
        "        buffer.copy_(batch)",
        "        buffer.add_(batch)",
        'claims.check("C-3.4a"',
    ),
    # How many users fit into one KV cache?
    (
        "zip((k, v), store, strict=True)",
        "zip((k, v.flip(1)), store, strict=True)",
        "torch.allclose(attend(q, *found)",
    ),
    (
        "taken, least, one, here = [], 0,",
        "taken, least, one, here = [], 9,",
        "len(taken) - least",
    ),
    (
        '"one stretch": paging.Contiguous(capacity)',
        '"one stretch": paging.Paged(capacity)',
        "longest.used < stretch.used < paged.used",
    ),
    (
        "share = stretch.although_enough / stretch.failures",
        "share = longest.although_enough / stretch.failures",
        'claims.check("B-3.1.2"',
    ),
    (
        "step = paging.dies_at(prompts, capacity)",
        "step = paging.dies_at(prompts, capacity - 160)",
        "alone.oom_step == step",
    ),
    ("for b in (False, True)\n)", "for b in (False, False)\n)", 'claims.check("C-2.1c"'),
    # What does the error say?
    ("real, here = size,", "real, here = 2 * size,", "abs(real - size) < 2 * MIB"),
    (
        '"one tensor", "the last',
        '"activations", "the last',
        "death.cause == CASES[program][1]",
    ),
    (
        "end_of(program, right=True) is None",
        "end_of(program, right=False) is None",
        "cured[program]",
    ),
    (
        "torch.nn.Linear(512, 32000, bias=False)",
        "torch.nn.Linear(512, 31000, bias=False)",
        "deaths[all_logits].report.asked == 4096 * 32000 * 4",
    ),
    (
        "levels = deaths[summed_loss].levels",
        "levels = deaths[summed_loss].levels[:3]",
        "len(levels) > 5",
    ),
    (
        "levels = deaths[summed_loss].levels",
        "levels = deaths[summed_loss].levels\ndeaths[large_batch] = deaths[summed_loss]",
        "len(deaths[large_batch].levels) == 1",
    ),
    # Your turn
    ("my_choice = None", 'my_choice = "checkpointing"', "my_choice in (None"),
    ("my_sizes = None", "my_sizes = [12]", "my_sizes is None or"),
    ("my_block = None", "my_block = 128", "my_block in (None"),
]
