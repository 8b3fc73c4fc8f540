"""What makes lab 08 wrong, and the check that must see it."""

FAULTS = [
    # Is a busy machine at work?
    ("square @ square, 2 * side**3", "square @ square, side**3", "not 2 n^3"),
    ("dispatch.busy_share(fn,", "0.5 * dispatch.busy_share(fn,", "share > 0.8"),
    (
        'compare(loop, jobs["matmul"][0], budget_s=0.5)',
        "Ratio(1e-6, aa=1)",
        "dear.lies_in(",
    ),
    (
        "spun, took = dispatch.spinning()",
        "spun, took = Ratio(1, aa=1), {}",
        "spun.lies_in(3)",
    ),
    # When does the machine wait for its calls?
    (
        "train(losses.append)",
        "train(lambda loss: losses.append(loss) or loss.item())",
        "(each, once)",
    ),
    (
        "times = again * in_parts.value",
        "in_parts, times = Ratio(2 * predicted / again, aa=1), 1",
        "in_parts.lies_in(",
    ),
    (
        "n_calls = dispatch.calls(lambda: small(input_ids=ids))",
        "n_calls = 40",
        "per_layer > 12",
    ),
    (
        "graph = quick = useless = None",
        "graph = quick = Ratio(1, aa=1); useless = None",
        "graph.lies_in(1.3)",
    ),
    (
        "graph = quick = useless = None",
        "graph = quick = None; useless = Ratio(2, aa=1)",
        "useless.lies_in(",
    ),
    # What does mending one part do for the whole?
    ("loss / len(batches)", "loss", "worst < 1e-3 * largest"),
    (
        "name: before / total_s",
        "name: (before + 0.1 * total_s) / (1.3 * total_s)",
        'shares["batch drawn"] < 0.03',
    ),
    (
        "compare(lambda: step((0, 0, 0)), lambda: step((1, 0, 0)), budget_s=1)",
        "Ratio(2, aa=1)",
        "idle.lies_in(0.8, 1.25)",
    ),
    (
        "compare(lambda: step((0, 0, 0)), lambda: step((1, 1, 1)), budget_s=2)",
        "Ratio(2 * predicted, aa=1)",
        "measured.lies_in(",
    ),
    # Which requests should share a step?
    ("sum(wanted) - len(wanted)", "sum(wanted)", "sum(map(len, p))"),
    (
        "serve(model, prompts, wanted, 4, join)",
        'serve(model, prompts, wanted, 4, "static")',
        "runs[join].live == plans[join]",
    ),
    (
        'progress(plans, "serving")}',
        'progress(plans, "serving")}\nruns["static"].tokens[3].append(0)',
        "== wanted",
    ),
    ("for run in runs.values()]", "for run in runs.values()] and [0]", "min(alike) > 0.7"),
    ("run.over(predicted[join])", "Ratio(9, aa=1)", "for ratio in near.values()"),
    (
        'runs["static"].over(runs["continuous"].total_s)',
        "Ratio(0.8, aa=1)",  # one over the gain
        "gain.lies_in(0.9",
    ),
    (
        "sooner = replace(gain, value=",
        "sooner = replace(gain, aa=1, value=0.2 *",
        "sooner.lies_in(1.2)",
    ),
    (
        "compare(lambda: model(ids), lambda: model(ids[:, :1]))",
        "Ratio(0.65, aa=1)",
        "six.lies_in(0.8)",
    ),
    (
        "for a, b in spoken.values()]",
        "for a, b in spoken.values()] and [0]",
        "for same in alike",
    ),
    (
        "what: len(guessed.widths) for what",
        "what: 4 * len(guessed.widths) for what",
        "<= most",
    ),
    ("[9] * 12, 4, join)", "wanted, 4, join)", "equal[0] == equal[1]"),
    # Your turn
    ("my_gain = None", "my_gain = 1.25", "my_gain is None or"),
    ("my_steps = None", "my_steps = (15, 8)", "my_steps in (None, right)"),
    ("range(guesses + 1)", "range(guesses)", "abs(said - expected_tokens"),
]
