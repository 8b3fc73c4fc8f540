"""What makes lab 15 wrong, and the check that must see it."""

FAULTS = [
    # What does a teacher add that labels do not say?
    ("logits[own, at], t)", "logits[own, at.flip(1)], t)", "assert helped > half"),
    (
        'places = every if way == "logits of all images" else few[labels]',
        "places = few[labels]",
        "assert asked_more > helped",
    ),
    (
        'no_room, spread = gain(4, 800, 4000, "logits", 4)',
        'no_room, spread = gain(32, 100, 4000, "logits", 4)',
        "assert no_room < spread",
    ),
    (
        'same, _ = gain(32, 100, 100, "logits of all images", 4)',
        'same, _ = gain(32, 100, 4000, "logits of all images", 4)',
        "assert same < helped / 2",
    ),
    (
        "distance, of_distance = distilling.interval(far)",
        "distance, of_distance = distilling.interval(-far)",
        'claims.check("C-3.3b"',
    ),
    # From scratch, distilled, pruned, or both: where should a student start?
    (
        "train, held_out = lm.train.to(here.device).split([n_train, n_held])",
        "train = lm.train.to(here.device)[:n_train]; held_out = train[:n_held]",
        "len(windows.unique(dim=0)) == len(windows)",
    ),
    (
        "windows = torch.cat([train, held_out, test])",
        "windows = torch.cat([train, test, test])",
        "len(windows.unique(dim=0)) == len(windows)",
    ),
    (
        'new = start[0] == "scratch"',
        "new = False",
        "max(mended.values()) < min(scratch) / 3",
    ),
    (
        "else distilling.from_teacher(source, 2.0),",
        "else lambda m, i: -distilling.from_teacher(source, 2.0)(m, i),",
        'assert mended["teacher"] < 1.3 * broken',
    ),
    (
        'broken = seen["pruned", None, start, one]',
        'broken, real, mended = 99, True, {"labels": 40.0, "teacher": 30.0}',
        'not real or mended["labels"] < mended["teacher"]',
    ),
    (
        "of_teacher = language.perplexity(teacher, test)",
        "of_teacher = 2 * language.perplexity(teacher, test)",
        'mended["teacher"] > 0.97 * of_teacher',
    ),
    # What does the teacher cost while it teaches?
    (
        'MODELS["tinyllama-1.1b"].vocab',
        'MODELS["smollm2-135m"].vocab',
        'MODELS["llama-2-13b"].vocab ==',
    ),
    (
        "torch.save([some.logits, some.places], path)",
        "torch.save([some.logits], path)",
        "0.98 < seen_bytes / counted < 1.1",
    ),
    (
        "whole = stored.logits.float().softmax(-1)",
        "whole = (stored.logits.float() / 20).softmax(-1)",
        "0.7 < mass[64]",
    ),
    (
        "saves = compare(step_of(filed)[2], step_of(online)[2])",
        "saves = Ratio(1, aa=1)",
        "saves.lies_in(0.02, 0.9)",
    ),
    (
        'told["online"] = peaks["alone"] + weights',
        'told["online"] = peaks["alone"]',
        'claims.check("C-3.3a"',
    ),
    # Pruned, distilled, quantized: what is left when all three are stacked?
    (
        "counted = linears * 4.5 / 8 + 2 * rest",
        "counted = linears * 4 / 8 + 2 * rest",
        '0.99 < bits_4["bytes"] / counted',
    ),
    (
        '(student_lm, "int8 row")',
        '(distilling.untrained(student_lm), "int8 row")',
        'eight["perplexity"] / slim["perplexity"]',
    ),
    (
        'slim = table["pruned, distilled"]',
        'slim = table["pruned, distilled"]\nbits_4["perplexity"] *= 0.9',
        'bits_4["perplexity"] > 0.99 * slim["perplexity"]',
    ),
    (
        "stacked = over_loaded(student_lm, four)",
        "stacked = Ratio(2, aa=1)",
        "stacked.lies_in(0.03, 0.8)",
    ),
    (
        'thinner = over_loaded(student_lm, "fp32")',
        "thinner = Ratio(2, aa=1)",
        "thinner.lies_in(0.6, 1.15)",
    ),
    # Your turn
    ("my_half = None", "my_half = 0.05", "my_half is None or"),
    (
        "most = int(100e9 / 50e6 / (2 + 2))",
        "most = int(100e9 / 50e6 / 2)",
        "50e6 * 4 * most <= 100e9",
    ),
    ("my_k = None", "my_k = 1000", "my_k in (None, most)"),
    (
        "return heat * heat * (wanted.exp()",
        "return heat * (wanted.exp()",
        "abs(at_100 / limit - 1) < 0.05",
    ),
    (
        "wanted = (theirs / heat).log_softmax(-1)",
        "wanted = (theirs / max(heat, 50)).log_softmax(-1)",
        "distilling.soft_loss(a, b, 3.0)",
    ),
]
